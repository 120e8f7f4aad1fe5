package bridge

import (
	"context"
	"time"

	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
)

// maxUpdates bounds the updates that wait for a link.
const maxUpdates = 16

// trialTime is how long a change in place counts as not yet accepted. Gemini does not answer it, but closes the connection
// at once for what it refuses.
const trialTime = 500 * time.Millisecond

// update is an [UpdateConfig] without an answer.
type update struct {
	config  setup.Config
	refused *Error
}

// trial is a change in place that was sent.
type trial struct{ old setup.Config }

// onUpdate notes the configuration that is wanted next. A refused one leaves the one in force.
func (s *Session) onUpdate(c UpdateConfig) {
	config, err := setup.Parse(c.Config, "payload", s.host.scope(s.declared, s.from.Screen))
	u := update{config: config}
	switch {
	case err != nil:
		u = update{refused: updateFailed(err)}
	case len(s.updates) >= maxUpdates:
		u = update{refused: &Error{Code: CodeStreamLimitExceeded, Message: "Too many changes of the configuration wait for Gemini."}}
	}
	for _, w := range config.Warnings {
		s.warn(w)
	}
	s.updates = append(s.updates, u)
	s.update()
}

// update goes on with the updates that wait: in place where Gemini can, else by another link, which the one there is
// serves until.
func (s *Session) update() {
	for s.link.conn != nil && s.trial == nil {
		s.refuse()
		if len(s.updates) == 0 {
			return
		}
		next := s.updates[0].config
		change, ok := s.config.InPlace(next)
		if !ok {
			s.leave("update", updateSpare)
			return
		}
		if change != nil {
			if !s.up.Send(wire.ClientMessage{ContextUpdate: change}) {
				s.updates[0].refused = &Error{Code: CodeStreamLimitExceeded, Message: "Too many messages wait for Gemini."}
				continue
			}
			s.trial = &trial{old: s.config}
			s.adopt(next)
			s.clock.set(alarmTrial, trialTime)
			return
		}
		s.adopt(next)
		s.record()
		s.updates = s.updates[1:]
		s.updated()
	}
}

// accepted ends a trial: Gemini has gone on.
func (s *Session) accepted() {
	if s.trial == nil {
		return
	}
	s.trial = nil
	s.clock.clear(alarmTrial)
	s.record()
	s.updates = s.updates[1:]
	s.updated()
	s.update()
}

// rejected ends a trial: Gemini has closed the link.
func (s *Session) rejected(err error) {
	s.adopt(s.trial.old)
	s.trial = nil
	s.clock.clear(alarmTrial)
	s.updates = s.updates[1:]
	s.tell(SetupFailed{updateFailed(err)})
}

// refuse answers the updates that were refused and are next in order.
func (s *Session) refuse() {
	for len(s.updates) > 0 && s.updates[0].refused != nil {
		s.tell(SetupFailed{s.updates[0].refused})
		s.updates = s.updates[1:]
	}
}

// onClear forgets the conversation. The next session is told nothing.
func (s *Session) onClear(ctx context.Context) {
	cut := s.cutVoice()
	s.transcript.Clear()
	s.up.Clear()
	s.letGo()
	for _, open := range s.broker.openCalls() {
		s.broker.cancelCalls([]string{open.call.ID})
	}
	s.broker.answers = nil
	s.cleared++
	if s.link.setUp { // else the first session has nothing to forget
		s.clearing = true
		s.notify(cut)
		s.unlink()
		s.wait()
		s.dial(ctx)
	}
}

// updateFailed is the error of a change of the configuration that was refused.
func updateFailed(err error) *Error {
	e := *AsError(err)
	e.Code = CodeConfigUpdateFailed
	return &e
}
