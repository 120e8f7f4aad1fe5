package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"voxgate/bridge/flow"
	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/upstream"
)

// configChange is a change of the configuration whose result from Gemini is still to come. It is the
// [upstream.ConfigChange.Origin] of that change.
type configChange struct {
	before  configSnapshot // configuration to restore if Gemini rejects the change
	next    *configChange  // the following change, which includes this one; nil for the newest change
	step    string         // the agent's step that needs the change; empty if the client or the backend requested it
	replyTo any            // see [UpdateConfig]
}

// configSnapshot holds the parts of the model's configuration that a conversation can change.
type configSnapshot struct {
	steering  steering
	agent     Agent  // [SessionRequest].Agent
	agentName string // name of agent
}

func (s *Session) snapshotConfig() configSnapshot {
	return configSnapshot{s.steering, s.request.Agent, s.agentName}
}

func (s *Session) restoreConfig(to configSnapshot) {
	s.steering, s.request.Agent, s.agentName = to.steering, to.agent, to.agentName
	s.costs.setDollarLimit(s.request.MaxDollars())
}

// maxPendingAnswers limits the requests of one kind that a conversation may have without an answer.
const maxPendingAnswers = 64

var errTooManyRequests = &Error{
	Code: CodeStreamLimitExceeded, Message: fmt.Sprintf("More than %d answers are pending already.", maxPendingAnswers),
}

// run changes the configuration at the caller's request. If Gemini rejects the new configuration, the current one stays
// in force.
func (c UpdateConfig) run(ctx context.Context, s *Session) error {
	if s.keeper.PendingChanges() >= maxPendingAnswers {
		return errTooManyRequests
	}
	change := &configChange{before: s.snapshotConfig(), replyTo: c.ReplyTo}
	if c.Agent != nil && !s.request.AgentNamed {
		s.request.Agent, s.agentName = *c.Agent, c.Name
		s.steering.flow = s.steering.flow.WithPlan(s.request.MergedAgent().Steps)
	}
	config, err := s.parseConfig(c.Config)
	if err == nil {
		s.steering.callerConfig = c.Config
		s.costs.setDollarLimit(s.request.MaxDollars())
	} else {
		s.restoreConfig(change.before)
	}
	s.reportConfigWarnings(config)
	s.sendConfigChange(ctx, change, config, err)
	if s.reportStepChange(change.before.steering.flow.Step) {
		s.steering.appliedStep = s.steering.flow.Step
	}
	return nil
}

// run changes the agent or its functions at the request of the operator's backend.
func (c BackendUpdate) run(ctx context.Context, s *Session) error {
	change, config, err := s.changeSteering(func() error { return s.steering.applyUpdate(c) })
	if err != nil {
		return err
	}
	s.sendConfigChange(ctx, change, config, nil)
	s.reportStepChange(change.before.steering.flow.Step)
	return nil
}

// run moves to the next step of the agent at the request of the model.
func (c advanceStep) run(ctx context.Context, s *Session) error {
	change, config, err := s.changeSteering(func() error { return s.steering.advanceStep(c) })
	if errors.Is(err, errSameStep) {
		return nil
	}
	if err != nil {
		return err
	}
	change.step = s.steering.flow.Step
	if s.sendConfigChange(ctx, change, config, nil) {
		delete(*c.answer, flow.InstructionKey) // the new configuration gives the model the instruction, before this answer
	}
	s.reportStepChange(change.before.steering.flow.Step)
	return nil
}

// changeSteering applies a change of the steering, and returns the resulting configuration. After an error, it restores
// the previous state. The only exception is errSameStep, after which newly collected fields are kept.
func (s *Session) changeSteering(apply func() error) (*configChange, liveconfig.Config, error) {
	change := &configChange{before: s.snapshotConfig()}
	err := apply()
	if errors.Is(err, errSameStep) {
		return nil, liveconfig.Config{}, err
	}
	var config liveconfig.Config
	if err == nil {
		config, err = s.parseConfig(change.before.steering.callerConfig)
	}
	if err != nil {
		s.restoreConfig(change.before)
	}
	return change, config, err
}

// parseConfig merges a configuration of the caller with the settings of the agent and the backend, and parses the
// result. It returns an error if the grant does not allow the model, or if the model's first turn may exceed the
// budget.
func (s *Session) parseConfig(callerConfig json.RawMessage) (liveconfig.Config, error) {
	config, err := liveconfig.Parse(s.request.buildConfig(callerConfig, &s.steering), "payload", s.host.configScope(s.gatewayTools, &s.request,
		s.steering.flow))
	if err == nil {
		err = s.request.Grant.checkModel(config, "payload")
	}
	if err == nil {
		_, err = s.host.checkBudget(s.request, config, "payload")
	}
	return config, err
}

// sendConfigChange sends a change to Gemini. [Session.onConfigResult] gets the results in the order of the changes. If
// rejection is not nil, it becomes the result. isSent is true if Gemini gets the change before everything that is sent
// later, and false if the change has to wait.
func (s *Session) sendConfigChange(ctx context.Context, change *configChange, config liveconfig.Config, rejection error) (isSent bool) {
	if s.newestChange != nil {
		s.newestChange.next = change
	}
	s.newestChange = change
	return s.keeper.ChangeConfig(ctx, upstream.ConfigChange{Config: config, Rejection: rejection, Origin: change})
}

// onConfigResult handles the result of a change of the configuration.
func (s *Session) onConfigResult(result upstream.ConfigResult) {
	change := result.Origin.(*configChange)
	switch {
	case result.Err == nil:
	case change.next != nil: // the next change includes this one
		change.next.before = change.before
	default:
		s.rollBackConfig(change.before)
	}
	switch {
	case change.step != "":
		s.onStepResult(change.step, result.Err)
		return
	case result.Err != nil:
		s.notifyReply(change.replyTo, SetupFailed{newConfigError(result.Err)})
		return
	}
	record := s.keeper.Config().Options.Record
	s.recording.applyConfig(record)
	done := s.buildSetupComplete()
	done.Update = true
	s.notifyReply(change.replyTo, done)
	s.recording.announceState(record)
}

// newConfigError returns the error of a rejected configuration change.
func newConfigError(err error) *Error {
	switch {
	case errors.Is(err, upstream.ErrTooManyChanges):
		return &Error{Code: CodeStreamLimitExceeded, Message: "Too many configuration changes are queued for Gemini."}
	case errors.Is(err, upstream.ErrTooManyMessages):
		return &Error{Code: CodeStreamLimitExceeded, Message: "Too many messages are queued for Gemini."}
	}
	e := *AsError(err)
	e.Code = CodeConfigUpdateFailed
	return &e
}

// rollBackConfig undoes a change that Gemini has rejected. If the plan is the same before and after, steps that were
// taken meanwhile stay.
func (s *Session) rollBackConfig(to configSnapshot) {
	now := s.steering
	s.restoreConfig(to)
	if now.flow.HasSamePlan(to.steering.flow) {
		s.steering.flow, s.steering.appliedStep = now.flow, now.appliedStep
	}
	s.reportStepChange(now.flow.Step)
}

// onStepResult records whether the model has accepted the configuration of a step. If not, the previous step stays in
// force.
func (s *Session) onStepResult(name string, err error) {
	t := &s.steering
	switch {
	case err == nil:
		t.appliedStep = name
	case name == t.flow.Step: // otherwise the conversation is in a later step already, whose own result follows
		s.warnDeveloper(fmt.Sprintf("Gemini rejected the instruction or the tools of the step %q: %s", name, newConfigError(err).Message))
		t.flow.Step = t.appliedStep
		s.reportStepChange(name)
		_ = s.promptModel(fmt.Sprintf("The step %q cannot begin, because of a fault of the system: you are in the step %q again. "+
			"Say briefly that this does not work just now, go on without it, and do not try it again.", name, t.appliedStep))
	}
}

// reportStepChange reports the current step if it is not the step named in before.
func (s *Session) reportStepChange(before string) (isChanged bool) {
	now := s.steering.flow
	if now.Step == before {
		return false
	}
	s.log.Info("step started", "step", now.Step)
	s.notify(StepChange{now.Step, now.Fields})
	s.observer.report(StepStarted{now.Step})
	return true
}

// reportConfigWarnings tells the client which parts of its config were dropped or changed, and which functions the
// model does not have exactly as declared.
func (s *Session) reportConfigWarnings(config liveconfig.Config) {
	for _, w := range config.Warnings {
		s.warnDeveloper(w)
	}
	if len(config.Losses) > 0 {
		s.notify(ToolLosses{config.Losses})
	}
}
