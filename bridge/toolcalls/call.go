package toolcalls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
	"voxgate/crash"
	"voxgate/tools"
)

// Start starts what the model asks for in one message. Each call is answered once, whatever happens.
func (c *Calls) Start(ctx context.Context, wanted []wire.FunctionCall) {
	when := c.Model.Happened()
	c.Uplink.MarkActedOn()
	var asked []tools.Call
	answered := false
	for _, w := range wanted {
		call := tools.Call{ID: w.ID, Name: w.Name, Args: w.Args}
		if f, ok := c.Model.Called(w.Name); ok { // the model may know it by another name, and write JSON as text
			call.Name, call.Args = f.Name, f.Arguments(w.Args)
		}
		if c.waits(call.ID) { // the one that runs will answer for both
			c.Logger.Warn("tool call repeated", "tool", call.Name)
			continue
		}
		if r, ok := c.answeredBefore(call); ok {
			c.Logger.Info("tool call asked again by a new session", "tool", call.Name)
			c.respond(call, when, r)
			answered = true
			continue
		}
		function, no := c.admit(call)
		if no != nil {
			c.respond(call, when, reply{response: tools.Respond(nil, no.model).Response})
			answered = true
			if c.failures.Allow() {
				c.Client.Failed(&no.client)
			}
			continue
		}
		if done, ok := c.answerAsBefore(when, call, function); ok {
			answered = answered || done
			continue
		}
		call.Title = function.Title
		q, done := c.begin(ctx, when, call, function)
		if q != nil {
			asked = append(asked, q.Call)
		}
		answered = answered || done
	}
	c.Gate()
	if len(asked) > 0 {
		c.Client.Ask(asked)
	}
	if answered && !c.Calling() {
		c.Model.Expect()
	}
}

// denial is why a call is not run.
type denial struct {
	model  error
	client Error
}

func deny(model error, problem Problem, format string, args ...any) *denial {
	return &denial{model, Error{problem, fmt.Sprintf(format, args...)}}
}

// admit checks whether a call may run.
func (c *Calls) admit(call tools.Call) (setup.Function, *denial) {
	function, declared := c.Model.Find(call.Name)
	running, shown := int(c.abandoned.Load()), 0
	for _, o := range c.open {
		if c.withPerson(o) {
			shown++ // perhaps for minutes: it must not keep others from running
		} else {
			running++
		}
	}
	switch {
	case !c.pace.Allow():
		return function, deny(errors.New("too many calls in a short time: wait, and do not call again unless the person asks"),
			TooMany, "Gemini called %q too soon after %d other calls; it got an error.", call.Name, callBurst)
	case !declared:
		return function, deny(fmt.Errorf("there is no tool %q here", call.Name),
			Unknown, "Gemini called %q, which the configuration does not declare.", call.Name)
	case running >= maxCalls, shown >= maxCalls:
		return function, deny(errors.New("too many calls are running"),
			TooMany, "Gemini called %q while %d calls were running; it got an error.", call.Name, running+shown)
	}
	if err := function.Check(call.Args); err != nil {
		return function, deny(err, Broken, "Gemini called %q wrongly and got an error: %s.", call.Name, tools.Cut(err.Error(), maxReason))
	}
	return function, nil
}

// begin starts a call where its function runs. It returns what to ask the client, if anything, and whether the call has
// its answer already.
func (c *Calls) begin(ctx context.Context, when int, wanted tools.Call, f setup.Function) (q *question, answered bool) {
	o := &call{Call: wanted, function: f, began: time.Now(), when: when}
	switch f.Where {
	case setup.OnCanvas:
		return c.show(o)
	case setup.InGateway:
		timeout := timeoutOf(f)
		c.add(o, timeout)
		c.status(o, Running, nil, "")
		c.run(ctx, o, timeout)
		return nil, false
	}
	return c.askFor(o), false
}

// timeoutOf is how long a call of a function may take.
func timeoutOf(f setup.Function) time.Duration {
	switch {
	case f.Timeout > 0:
		return f.Timeout
	case f.Blocking:
		return blockingTimeout
	}
	return tools.Timeout
}

// askFor notes a call that the client is asked to run.
func (c *Calls) askFor(o *call) *question {
	timeout := timeoutOf(o.function)
	c.add(o, timeout)
	c.after(o, timeout, func() {
		c.finish(o, reply{}, fmt.Errorf("%w (%v)", tools.ErrTimeout, timeout))
	})
	return c.ask(&question{Call: o.Call, of: o})
}

// add notes a call that is not answered at once. A model that waits does not wait for long.
func (c *Calls) add(o *call, timeout time.Duration) {
	c.open[o.ID] = o
	if o.function.Blocking && timeout > blockingTimeout {
		c.after(o, blockingTimeout, func() { c.detach(o) })
	}
}

// run runs a tool of the gateway in a goroutine of its own. A call outlives the connection by which it came.
func (c *Calls) run(parent context.Context, o *call, timeout time.Duration) {
	ctx, cancel := context.WithCancelCause(parent)
	o.cancel = cancel
	env := c.Env
	env.Call = o.ID
	env.Tell = func(partial json.RawMessage) {
		c.post(func() { c.onPartial(o, reply{response: tools.Respond(partial, nil).Response}) })
	}
	if c.Client.CanShow() {
		env.AskPerson = func(ctx context.Context, canvas json.RawMessage) (json.RawMessage, error) {
			return c.askPerson(ctx, o, canvas)
		}
	}
	tool := c.funcs[o.Name]
	c.goContained(func() {
		defer cancel(nil)
		outcome, wanted := tools.Run(ctx, func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
			return tool(tools.WithEnv(ctx, &env), args)
		}, o.Call, timeout)
		c.abandon(o, outcome.Left)
		if wanted {
			c.post(func() { c.finish(o, reply{response: outcome.Response}, outcome.Err) })
		}
	})
}

// goContained starts a goroutine of a call. What a tool itself panics with is its failure alone: see [tools.CrashError].
func (c *Calls) goContained(f func()) {
	c.running.Go(func() { crash.Run(c.Logger, "tool", c.Crashed, f) })
}

// abandon counts a tool that does not return, until it has.
func (c *Calls) abandon(o *call, left <-chan struct{}) {
	if left == nil {
		return
	}
	c.Logger.Error("a tool does not return though its time is over", "tool", o.Name)
	c.abandoned.Add(1)
	go func() { // of the tool's own: nobody can wait for it
		<-left
		c.abandoned.Add(-1)
	}()
}

// finish sends a call's answer up, unless nobody wants it any more. An error is why it failed; then r has no response.
func (c *Calls) finish(o *call, r reply, err error) {
	if !c.isCurrent(o) {
		return
	}
	o.stop()
	delete(c.open, o.ID)
	c.withdraw(c.dropQuestions(o))
	if r.response == nil {
		r.response = tools.Respond(nil, err).Response
	}
	outcome, message := Done, ""
	if err != nil {
		outcome, message = Failed, tools.Cut(err.Error(), maxReason)
	}
	if failed, ok := errors.AsType[*tools.CrashError](err); ok {
		c.Logger.Error("tool crashed", "tool", o.Name, "panic", fmt.Sprint(failed.Value), "stack", string(failed.Stack))
	}
	if errors.Is(err, tools.ErrTimeout) {
		c.Logger.Warn("tool did not answer", "tool", o.Name)
		c.Client.Failed(&Error{Broken, fmt.Sprintf("The tool %q did not answer in time; Gemini got an error.", o.Name)})
		c.observe(o, "timeout")
	} else {
		c.observe(o, outcome)
	}
	c.status(o, outcome, r.response, message)
	c.board.Returned(r.response)
	if o.detached {
		c.followUp(o, r)
		return
	}
	r = c.schedule(o, r)
	r.whole = err == nil
	c.respondAll(o, r)
	c.showPictures(o)
	c.Gate()
	if r.scheduling != tools.Silent && !c.Calling() {
		c.Model.Expect()
	}
}

// underWayResponse is the first answer for a model that would wait too long.
var underWayResponse = json.RawMessage(`{"status":"not done yet","result":"follows as text; do not call again"}`)

// detach lets the model go on: a person is asked, which may take minutes, or the tool may take longer than the model
// can go without input.
func (c *Calls) detach(o *call) {
	if !c.isCurrent(o) || !o.blocks() {
		return
	}
	o.detached = true
	c.respondAll(o, reply{response: underWayResponse})
	o.again = nil
	c.showPictures(o)
	c.Gate()
	if !c.Calling() {
		c.Model.Expect()
	}
}

// followUp gives the model the result of a call for which it did not have to wait.
func (c *Calls) followUp(o *call, r reply) {
	if r.parts != nil {
		c.Model.Pictures(r.parts)
	}
	text, err := json.Marshal(map[string]any{"tool": c.wireName(o.Name), "args": o.Args, "result": r.response})
	if err != nil {
		c.Logger.Error("result not sent", "tool", o.Name, "err", err)
		return
	}
	if !c.Model.Text(string(text)) {
		c.Client.Failed(&Error{TooMany, fmt.Sprintf("Too many messages wait for Gemini; the result of %q was dropped.", o.Name)})
	}
}

// onPartial reports a call's progress, to a model that takes such reports.
func (c *Calls) onPartial(o *call, r reply) {
	if o.partial++; o.partial > maxPartial || !c.isCurrent(o) {
		return
	}
	c.board.Returned(r.response)
	if r.parts != nil {
		o.pictures = append(o.pictures, r.parts)
	}
	if !o.blocks() {
		c.showPictures(o)
	}
	if !o.function.Continues {
		return
	}
	r = c.schedule(o, r)
	c.Uplink.QueueToolResponse(wire.FunctionResponse{
		ID: o.wanted()[0].ID, Name: c.wireName(o.Name), Response: r.response, Scheduling: string(r.scheduling), WillContinue: true,
	})
}

// showPictures sends the pictures that came before an answer.
func (c *Calls) showPictures(o *call) {
	for _, parts := range o.pictures {
		c.Model.Pictures(parts)
	}
	o.pictures = nil
}

// schedule gives a reply the scheduling that it asks for, or its function, if the model takes one.
func (c *Calls) schedule(o *call, r reply) reply {
	r.behind = o.function.Blocking
	switch {
	case !o.function.Schedules:
		r.scheduling = ""
	case r.scheduling == "":
		r.scheduling = o.function.Scheduling
	}
	return r
}

// Cancel stops the calls whose answers the model no longer wants.
func (c *Calls) Cancel(ids []string) {
	var withdrawn []string
	stopped := false
	for _, id := range ids {
		o := c.unwanted(id)
		if o == nil {
			continue
		}
		stopped = true
		o.stop()
		delete(c.open, o.ID)
		c.forgetDetached(o)
		withdrawn = append(withdrawn, c.dropQuestions(o)...)
		c.status(o, Cancelled, nil, "")
		c.observe(o, Cancelled)
	}
	c.withdraw(withdrawn)
	if stopped {
		c.Gate()
	}
}

// unwanted notes that nobody wants the answer to the call with this id. It returns the call to be stopped, if no other
// waits for its answer; nil: none is to be stopped.
func (c *Calls) unwanted(id string) *call {
	if o := c.open[id]; o != nil {
		o.dropped = len(o.again) > 0
		if o.dropped {
			return nil
		}
		return o
	}
	for _, o := range c.open {
		before := len(o.again)
		o.again = slices.DeleteFunc(o.again, func(a again) bool { return a.ID == id })
		if o.dropped && before > 0 && len(o.again) == 0 {
			return o
		}
	}
	return nil
}

// CancelAll stops all calls and forgets the answers: another conversation begins.
func (c *Calls) CancelAll() {
	var ids []string
	for _, o := range c.oldestFirst() {
		for _, w := range o.wanted() {
			ids = append(ids, w.ID)
		}
	}
	c.Cancel(ids)
	c.answers = nil
}

func (c *Calls) oldestFirst() []*call {
	list := make([]*call, 0, len(c.open))
	for _, o := range c.open {
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b *call) int {
		if a.when != b.when {
			return a.when - b.when
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list
}

// Finish answers the calls that are open when the conversation ends, so that the model is not left waiting, and blocks
// until all answers have been sent, at most for a quarter of a second. Nothing is taken from Work any more. linked:
// there is a connection to send them by.
func (c *Calls) Finish(linked bool) {
	close(c.over)
	left := c.oldestFirst()
	clear(c.open)
	for _, o := range left {
		o.stop()
		c.dropQuestions(o)
		c.observe(o, Cancelled)
	}
	left = slices.DeleteFunc(left, func(o *call) bool { return o.detached }) // these have an answer
	unsure := slices.ContainsFunc(c.answers, func(a answer) bool { return !a.known })
	if !linked || len(left) == 0 && !unsure {
		return
	}
	for _, o := range left {
		last := tools.Respond(nil, errors.New("the conversation has ended"))
		if o.function.Where == setup.OnCanvas {
			last.Response = dismissed
		}
		for _, w := range o.wanted() {
			c.send(w.Call, reply{response: last.Response})
		}
	}
	select {
	case <-c.Uplink.NotifyFlushed():
	case <-time.After(lastAnswers):
	}
}

// Wait waits for the goroutines of calls. The context that they were started with must have ended.
func (c *Calls) Wait() { c.running.Wait() }
