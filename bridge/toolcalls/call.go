package toolcalls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/wire"
	"voxgate/internal/crash"
	"voxgate/tools"
)

// StartCalls starts the calls in one message of the model. Each call will be answered exactly once.
func (c *Calls) StartCalls(ctx context.Context, requested []wire.FunctionCall) {
	event := c.Handles.RecordEvent()
	c.Uplink.MarkActedOn()
	var clientCalls []tools.Call
	isAnswered := false
	for _, w := range requested {
		call := tools.Call{ID: w.ID, Name: w.Name, Args: w.Args}
		if f, ok := c.Functions.ResolveFunction(w.Name); ok { // the model may use another name, or encode JSON as text
			call.Name, call.Args = f.Name, f.Arguments(w.Args)
		}
		if c.isWaiting(call.ID) { // one answer is enough for both
			c.Logger.Warn("tool call repeated", "tool", call.Name)
			continue
		}
		if r, ok := c.takeOrphanedAnswer(call); ok {
			c.Logger.Info("tool call asked again by a new session", "tool", call.Name)
			c.sendAnswer(call, event, r)
			isAnswered = true
			continue
		}
		function, denied := c.admitCall(call)
		if denied != nil {
			c.sendAnswer(call, event, reply{response: tools.BuildOutcome(nil, denied.modelError).Response})
			isAnswered = true
			if c.failureLimiter.Allow() {
				c.Notify(CallRejected{&denied.clientError})
			}
			continue
		}
		if done, ok := c.reuseAnswer(event, call, function); ok {
			isAnswered = isAnswered || done
			continue
		}
		call.Title = function.Title
		q, done := c.startCall(ctx, event, call, function)
		if q != nil {
			clientCalls = append(clientCalls, q.Call)
		}
		isAnswered = isAnswered || done
	}
	c.UpdateAudioGate()
	if len(clientCalls) > 0 {
		c.Notify(ClientCalls{clientCalls})
	}
	if isAnswered && !c.HasRunningCall() {
		c.Notify(ReplyExpected{})
	}
}

// denial is the reason why a call is not run, as an error for the model and as an error for the client.
type denial struct {
	modelError  error
	clientError Error
}

func newDenial(modelError error, problem Problem, format string, args ...any) *denial {
	return &denial{modelError, Error{problem, fmt.Sprintf(format, args...)}}
}

// admitCall returns the function of a call, and a denial if the call must not run. Denied calls count towards the rate
// limit, too.
func (c *Calls) admitCall(call tools.Call) (liveconfig.Function, *denial) {
	function, declared := c.Functions.FindFunction(call.Name)
	running, withPeople := int(c.abandoned.Load()), 0
	for _, o := range c.openCalls {
		if c.waitsForPerson(o) {
			withPeople++ // calls that wait for a person may stay open for minutes, so they are counted separately
		} else {
			running++
		}
	}
	switch {
	case !c.callLimiter.Allow():
		return function, newDenial(errors.New("too many calls in a short time: wait, and do not call again unless the person asks"),
			TooMany, "Gemini called %q too soon after %d other calls; it got an error.", call.Name, callBurst)
	case !declared:
		return function, newDenial(fmt.Errorf("unknown tool %q", call.Name),
			UnknownFunction, "Gemini called %q, which the configuration does not declare.", call.Name)
	case running >= maxCalls, withPeople >= maxCalls:
		return function, newDenial(errors.New("too many calls are running"),
			TooMany, "Gemini called %q while %d calls were running; it got an error.", call.Name, running+withPeople)
	}
	if err := function.Check(call.Args); err != nil {
		return function, newDenial(err, BrokenCall, "Gemini called %q wrongly and got an error: %s.", call.Name, tools.Truncate(err.Error(),
			maxReason))
	}
	return function, nil
}

// startCall starts a call at the place where its function runs. If the client is involved, it returns the question to
// the client. isAnswered reports whether the call is answered already.
func (c *Calls) startCall(ctx context.Context, event int, request tools.Call, f liveconfig.Function) (q *question, isAnswered bool) {
	o := &call{Call: request, function: f, startedAt: time.Now(), event: event}
	switch f.Where {
	case liveconfig.OnCanvas:
		return c.showCanvas(o)
	case liveconfig.InGateway:
		timeout := callTimeout(f)
		c.addCall(o, timeout)
		c.reportStatus(o, Running, nil, "")
		c.startInGateway(ctx, o, timeout)
		return nil, false
	}
	return c.registerClientCall(o), false
}

// callTimeout returns the time limit of a call.
func callTimeout(f liveconfig.Function) time.Duration {
	switch {
	case f.Timeout > 0:
		return f.Timeout
	case f.Blocking:
		return blockingTimeout
	}
	return tools.Timeout
}

// registerClientCall registers a call that the client has to run.
func (c *Calls) registerClientCall(o *call) *question {
	timeout := callTimeout(o.function)
	c.addCall(o, timeout)
	c.runAfter(o, timeout, func() {
		c.finishCall(o, reply{}, fmt.Errorf("%w (%v)", tools.ErrTimeout, timeout))
	})
	return c.addQuestion(&question{Call: o.Call, call: o})
}

// addCall registers a call that will be answered later. If the call blocks the model, the model gets an interim answer
// after blockingTimeout.
func (c *Calls) addCall(o *call, timeout time.Duration) {
	c.openCalls[o.ID] = o
	if o.function.Blocking && timeout > blockingTimeout {
		c.runAfter(o, blockingTimeout, func() { c.detachCall(o) })
	}
}

// startInGateway runs a tool of the gateway in its own goroutine. If the connection on which the call came is lost, the
// call goes on.
func (c *Calls) startInGateway(parent context.Context, o *call, timeout time.Duration) {
	ctx, cancel := context.WithCancelCause(parent)
	o.cancel = cancel
	env := c.Env
	env.Call = o.ID
	env.SendPartial = func(partial json.RawMessage) {
		c.runInLoop(func() { c.onPartialAnswer(o, reply{response: tools.BuildOutcome(partial, nil).Response}) })
	}
	if c.CanShowCanvas() {
		env.AskPerson = func(ctx context.Context, canvas json.RawMessage) (json.RawMessage, error) {
			return c.askPerson(ctx, o, canvas)
		}
	}
	tool := c.gatewayFuncs[o.Name]
	c.goRecovered(func() {
		defer cancel(nil)
		outcome, awaited := tools.Run(ctx, func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
			return tool(tools.WithEnv(ctx, &env), args)
		}, o.Call, timeout)
		c.countAbandoned(o, outcome.Abandoned)
		if awaited {
			c.runInLoop(func() { c.finishCall(o, reply{response: outcome.Response}, outcome.Err) })
		}
	})
}

// goRecovered starts a goroutine of a call. If the goroutine panics, the conversation ends. A panic in the tool itself
// fails only this call: see [tools.CrashError].
func (c *Calls) goRecovered(f func()) {
	c.running.Go(func() { crash.Run(c.Logger, "tool", c.OnCrash, f) })
}

// countAbandoned counts a tool that has not returned after its cancellation. It counts the tool until the tool returns.
func (c *Calls) countAbandoned(o *call, returned <-chan struct{}) {
	if returned == nil {
		return
	}
	c.Logger.Error("tool did not return after its timeout", "tool", o.Name)
	c.abandoned.Add(1)
	go func() { // this goroutine lasts as long as the tool, so nothing waits for it
		<-returned
		c.abandoned.Add(-1)
	}()
}

// finishCall sends the answer of a call, unless the call was cancelled. If r has no response, it sends err as the
// answer.
func (c *Calls) finishCall(o *call, r reply, err error) {
	if !c.isStillOpen(o) {
		return
	}
	o.stopCall()
	delete(c.openCalls, o.ID)
	c.notifyWithdrawn(c.dropQuestions(o))
	if r.response == nil {
		r.response = tools.BuildOutcome(nil, err).Response
	}
	outcome, message := Done, ""
	if err != nil {
		outcome, message = Failed, tools.Truncate(err.Error(), maxReason)
	}
	if failed, ok := errors.AsType[*tools.CrashError](err); ok {
		c.Logger.Error("tool crashed", "tool", o.Name, "panic", fmt.Sprint(failed.Value), "stack", string(failed.Stack))
	}
	if errors.Is(err, tools.ErrTimeout) {
		c.Logger.Warn("tool did not answer", "tool", o.Name)
		c.Notify(CallRejected{&Error{BrokenCall, fmt.Sprintf("The tool %q did not answer in time; Gemini got an error.", o.Name)}})
		c.reportEnd(o, "timeout")
	} else {
		c.reportEnd(o, outcome)
	}
	c.reportStatus(o, outcome, r.response, message)
	c.board.AddReferences(r.response)
	if o.isDetached {
		c.sendFollowUp(o, r)
		return
	}
	r = c.withScheduling(o, r)
	r.succeeded = err == nil
	c.answerCallAndDuplicates(o, r)
	c.sendPictures(o)
	c.UpdateAudioGate()
	if r.scheduling != tools.Silent && !c.HasRunningCall() {
		c.Notify(ReplyExpected{})
	}
}

// underWayResponse is the interim answer that spares the model a wait that would be too long.
var underWayResponse = json.RawMessage(`{"status":"not done yet","result":"follows as text; do not call again"}`)

// detachCall sends an interim answer now, so that the model can go on, and the result later. A person who is asked may
// take minutes.
func (c *Calls) detachCall(o *call) {
	if !c.isStillOpen(o) || !o.blocksModel() {
		return
	}
	o.isDetached = true
	c.answerCallAndDuplicates(o, reply{response: underWayResponse})
	o.duplicates = nil
	c.sendPictures(o)
	c.UpdateAudioGate()
	if !c.HasRunningCall() {
		c.Notify(ReplyExpected{})
	}
}

// sendFollowUp sends the result of a detached call to the model.
func (c *Calls) sendFollowUp(o *call, r reply) {
	if r.parts != nil {
		c.Notify(Pictures{r.parts})
	}
	text, err := json.Marshal(map[string]any{"tool": c.wireName(o.Name), "args": o.Args, "result": r.response})
	if err != nil {
		c.Logger.Error("result not sent", "tool", o.Name, "err", err)
		return
	}
	c.Notify(Text{string(text), o.Name})
}

// onPartialAnswer sends a partial answer of a call to the model, if the model accepts partial answers.
func (c *Calls) onPartialAnswer(o *call, r reply) {
	if o.partialCount++; o.partialCount > maxPartial || !c.isStillOpen(o) {
		return
	}
	c.board.AddReferences(r.response)
	if r.parts != nil {
		o.pictures = append(o.pictures, r.parts)
	}
	if !o.blocksModel() {
		c.sendPictures(o)
	}
	if !o.function.Continues {
		return
	}
	r = c.withScheduling(o, r)
	c.Uplink.QueueToolResponse(wire.FunctionResponse{
		ID: o.waitingCalls()[0].ID, Name: c.wireName(o.Name), Response: r.response, Scheduling: string(r.scheduling), WillContinue: true,
	})
}

// sendPictures sends the pictures of partial answers.
func (c *Calls) sendPictures(o *call) {
	for _, parts := range o.pictures {
		c.Notify(Pictures{parts})
	}
	o.pictures = nil
}

// withScheduling sets the scheduling of a reply that has none to the default of its function. If the model does not
// support scheduling, it removes the scheduling.
func (c *Calls) withScheduling(o *call, r reply) reply {
	r.picturesAfter = o.function.Blocking
	switch {
	case !o.function.Schedules:
		r.scheduling = ""
	case r.scheduling == "":
		r.scheduling = o.function.Scheduling
	}
	return r
}

// Cancel stops calls because the model no longer needs their answers.
func (c *Calls) Cancel(ids []string) {
	var withdrawn []string
	stopped := false
	for _, id := range ids {
		o := c.withdrawRequest(id)
		if o == nil {
			continue
		}
		stopped = true
		o.stopCall()
		delete(c.openCalls, o.ID)
		c.dropDetachedAnswer(o)
		withdrawn = append(withdrawn, c.dropQuestions(o)...)
		c.reportStatus(o, Cancelled, nil, "")
		c.reportEnd(o, Cancelled)
	}
	c.notifyWithdrawn(withdrawn)
	if stopped {
		c.UpdateAudioGate()
	}
}

// withdrawRequest records that the model no longer needs the answer to the call with this ID. toStop is the call to
// stop. It is nil if an equal call still waits for the same answer.
func (c *Calls) withdrawRequest(id string) (toStop *call) {
	if o := c.openCalls[id]; o != nil {
		o.isWithdrawn = len(o.duplicates) > 0
		if o.isWithdrawn {
			return nil
		}
		return o
	}
	for _, o := range c.openCalls {
		before := len(o.duplicates)
		o.duplicates = slices.DeleteFunc(o.duplicates, func(a duplicateCall) bool { return a.ID == id })
		if o.isWithdrawn && before > 0 && len(o.duplicates) == 0 {
			return o
		}
	}
	return nil
}

// CancelAll stops all calls, and drops the answers that were kept for another session.
func (c *Calls) CancelAll() {
	var ids []string
	for _, o := range c.callsByAge() {
		for _, w := range o.waitingCalls() {
			ids = append(ids, w.ID)
		}
	}
	c.Cancel(ids)
	c.answers = nil
}

func (c *Calls) callsByAge() []*call {
	list := make([]*call, 0, len(c.openCalls))
	for _, o := range c.openCalls {
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b *call) int {
		if a.event != b.event {
			return a.event - b.event
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list
}

// Finish ends the open calls when the conversation ends. If isConnected is true, it answers them, and blocks until the
// answers are sent, but at most for flushTime. After Finish, the owner's loop no longer reads from Work.
func (c *Calls) Finish(isConnected bool) {
	close(c.done)
	pending := c.callsByAge()
	clear(c.openCalls)
	for _, o := range pending {
		o.stopCall()
		c.dropQuestions(o)
		c.reportEnd(o, Cancelled)
	}
	pending = slices.DeleteFunc(pending, func(o *call) bool { return o.isDetached }) // detached calls are answered already
	unsure := slices.ContainsFunc(c.answers, func(a answer) bool { return !a.isCovered })
	if !isConnected || len(pending) == 0 && !unsure {
		return
	}
	for _, o := range pending {
		last := tools.BuildOutcome(nil, errors.New("the conversation has ended"))
		if o.function.Where == liveconfig.OnCanvas {
			last.Response = dismissedResponse
		}
		for _, w := range o.waitingCalls() {
			c.sendResponse(w.Call, reply{response: last.Response})
		}
	}
	select {
	case <-c.Uplink.NotifyFlushed():
	case <-time.After(flushTime):
	}
}

// Wait waits for the goroutines of calls. The context of the calls must be done.
func (c *Calls) Wait() { c.running.Wait() }
