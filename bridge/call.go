package bridge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"voxgate/bridge/gemini/setup/declaration"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/uplink"
	"voxgate/tools"
	"voxgate/tools/canvas"
)

const (
	// maxCalls bounds the tool calls of one conversation that run at the same time.
	maxCalls = 16

	// callRate and callBurst bound what a model that calls again and again can set going: people ask for less than one thing a
	// second, and a chain of calls is a burst.
	callRate  = rate.Limit(1)
	callBurst = 30

	// failEvery and failBurst bound what the client is told of calls that were not run.
	failEvery = 5 * time.Second
	failBurst = 10

	// maxReason bounds what the client is told of a failure, in bytes.
	maxReason = 300

	// maxPartial bounds what a call may answer before its last answer.
	maxPartial = 32

	// blockingTimeout is how long a tool may take that the model waits for: it hears nothing meanwhile, and
	// gemini-3.1-flash-live cancels the call after some 12 s (livekit/agents PR 5556).
	blockingTimeout = 10 * time.Second
)

// openCall is a tool call without an answer.
type openCall struct {
	call     tools.Call
	function declaration.Function
	cancel   context.CancelCauseFunc
	began    time.Time
	tick     int // when it came: an older handle does not know of it
	partial  int // answers before the last one; owned by the loop

	pictures []json.RawMessage // of these, until the model does not wait any more; likewise

	// detached says that the model, which would wait, was told that the result follows as text. Guarded by broker.mu.
	detached bool
}

// blocks tells whether the model waits for it. Needs broker.mu.
func (o *openCall) blocks() bool { return o.function.Blocking && !o.detached }

// reply is what goes up for a call.
type reply struct {
	response   json.RawMessage
	scheduling tools.Scheduling
	parts      json.RawMessage // pictures, an array of Part; nil: none
	behind     bool            // the pictures go behind the answer
}

// result is how a call ended, or an answer before that, on its way to the model.
type result struct {
	call *openCall
	reply
	err     error
	late    bool // nobody wants it
	partial bool
	detach  bool // the model shall not wait any longer
}

// denial is why a call is not run.
type denial struct {
	err     error // for the model
	code    Code  // for the client
	message string
}

// CallEnd is how a tool call ended.
type CallEnd struct {
	Where   string // client, gateway or canvas
	Outcome string // done, failed, timeout, cancelled
	Took    time.Duration
}

// broker runs the tool calls of a conversation, and answers each once. Its methods are the loop's, but for those of a call at work
// (result, replied, asker and the like) and answer.
type broker struct {
	s     *Session
	tools map[string]tools.Func // the gateway's own, by name
	board *canvas.Board
	pace  *rate.Limiter // of calls
	told  *rate.Limiter // of failures

	results   chan result  // to the loop
	asks      chan ask     // likewise
	late      atomic.Int64 // answers of the client that nobody waited for
	abandoned atomic.Int32 // tools that do not return
	running   sync.WaitGroup

	answers []answered // owned by the loop
	endings []ending   // likewise

	mu        sync.Mutex           // guards what follows
	calls     map[string]*openCall // without an answer
	questions map[string]*question // what the client was asked of them
	asked     int                  // counts the questions
}

func newBroker(s *Session, own []tools.Tool) *broker {
	b := &broker{
		s: s, tools: map[string]tools.Func{}, board: canvas.NewBoard(s.host.options.SignPicture),
		pace: rate.NewLimiter(callRate, callBurst), told: rate.NewLimiter(rate.Every(failEvery), failBurst),
		results: make(chan result), asks: make(chan ask), calls: map[string]*openCall{}, questions: map[string]*question{},
	}
	for _, t := range own {
		b.tools[t.Name] = t.Run
	}
	return b
}

// onToolCalls starts what the model asks for. Each call is answered once, whatever happens.
func (b *broker) onToolCalls(ctx context.Context, wanted []wire.FunctionCall) {
	b.s.ticks++
	b.s.dirty = b.s.ticks
	b.s.up.Acted()
	came := b.s.ticks // each answer is another one
	var asked []*question
	for _, w := range wanted {
		call := tools.Call{ID: w.ID, Name: w.Name, Args: w.Args}
		if b.isOpen(call.ID) { // the one that runs will answer for both
			b.s.log.Warn("tool call repeated", "tool", call.Name)
			continue
		}
		if r, ok := b.first(call); ok {
			b.s.log.Info("tool call asked again by a new session", "tool", call.Name)
			b.respond(call, b.s.ticks, r)
			continue
		}
		function, no := b.admit(call)
		if no != nil {
			b.respond(call, b.s.ticks, reply{response: tools.Respond(nil, no.err).Response})
			if b.told.Allow() {
				b.s.fail(no.code, no.message)
			}
			continue
		}
		call.Title = function.Title
		b.begun(call.ID)
		if q := b.begin(ctx, call, function); q != nil {
			asked = append(asked, q)
		}
	}
	b.gate()
	b.put(asked...)
	if answered := b.s.ticks > came; answered && !b.calling() {
		b.s.expect(forTool)
	}
}

func (b *broker) isOpen(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, open := b.calls[id]
	return open
}

// admit looks whether a call can be run.
func (b *broker) admit(call tools.Call) (declaration.Function, *denial) {
	function, declared := b.s.config.Functions.Find(call.Name)
	b.mu.Lock()
	running, shown := int(b.abandoned.Load()), 0
	for _, open := range b.calls {
		if b.withPerson(open) {
			shown++ // for minutes, perhaps: it must not keep others from running
		} else {
			running++
		}
	}
	b.mu.Unlock()
	switch {
	case !b.pace.Allow():
		return function, &denial{
			errors.New("too many calls in a short time: wait, and do not call again unless the person asks"), CodeStreamLimitExceeded,
			fmt.Sprintf("Gemini called %q too soon after %d other calls; it was told so.", call.Name, callBurst),
		}
	case !declared:
		return function, &denial{
			fmt.Errorf("there is no tool %q here", call.Name), CodeToolNotFound,
			fmt.Sprintf("Gemini called %q, which the configuration does not declare.", call.Name),
		}
	case running >= maxCalls, shown >= maxCalls:
		return function, &denial{
			errors.New("too many calls are running"), CodeStreamLimitExceeded,
			fmt.Sprintf("Gemini called %q while %d calls were running; it was told so.", call.Name, running+shown),
		}
	}
	if err := function.Check(call.Args); err != nil {
		return function, &denial{
			err, CodeToolExecution, fmt.Sprintf("Gemini called %q wrongly and was told so: %s.", call.Name, tools.Cut(err.Error(), maxReason)),
		}
	}
	return function, nil
}

// begin starts a call where its function runs. It returns what the client is to be asked, if it is.
func (b *broker) begin(ctx context.Context, call tools.Call, f declaration.Function) *question {
	open := &openCall{call: call, function: f, began: time.Now(), tick: b.s.ticks}
	switch f.Where {
	case declaration.OnCanvas:
		return b.show(ctx, open)
	case declaration.InGateway:
		b.s.notify(statusOf(open, StatusRunning, "")) // a client that is away is told when it is back
		b.start(ctx, open, b.inGateway(ctx, open), b.timeout(f))
		return nil
	}
	q := b.askClient(&question{call: call, of: open})
	b.start(ctx, open, b.replied(ctx, open, q), b.timeout(f))
	return q
}

func (b *broker) timeout(f declaration.Function) time.Duration {
	switch {
	case f.Timeout > 0:
		return f.Timeout
	case f.Blocking:
		return blockingTimeout
	}
	return tools.Timeout
}

// runner is a tool at work. It may note in r what goes up besides its result.
type runner func(ctx context.Context, r *reply) (json.RawMessage, error)

// start runs a call in a goroutine of its own. A call outlives the link it came by.
func (b *broker) start(parent context.Context, open *openCall, run runner, timeout time.Duration) {
	ctx, cancel := context.WithCancelCause(parent)
	open.cancel = cancel
	b.mu.Lock()
	b.calls[open.call.ID] = open
	b.mu.Unlock()
	if open.function.Blocking && timeout > blockingTimeout {
		timer := time.AfterFunc(blockingTimeout, func() { b.result(ctx, result{call: open, detach: true}) })
		context.AfterFunc(ctx, func() { timer.Stop() })
	}
	b.running.Go(func() {
		defer cancel(nil)
		var r reply
		var answered bool // not to be read before the tool has returned
		outcome, wanted := tools.Run(ctx, func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
			response, err := run(ctx, &r)
			answered = err == nil
			return response, err
		}, open.call, timeout)
		r.response = outcome.Response
		b.abandon(open, outcome.Left, &answered)
		b.result(parent, result{call: open, reply: r, err: outcome.Err, late: !wanted})
	})
}

// abandon counts a tool that does not return, until it has, and its answer, if it has one then.
func (b *broker) abandon(open *openCall, left <-chan struct{}, answered *bool) {
	if left == nil {
		return
	}
	b.s.log.Error("a tool does not return though its time is over", "tool", open.call.Name)
	b.abandoned.Add(1)
	go func() { // of the tool's own: nobody can wait for it
		<-left
		b.abandoned.Add(-1)
		if *answered {
			b.late.Add(1)
		}
	}()
}

// result hands something of a call to the loop, unless that has ended.
func (b *broker) result(ctx context.Context, r result) {
	select {
	case b.results <- r:
	case <-ctx.Done():
	}
}

// inGateway is a tool of ours, with what it may know and whom it may ask.
func (b *broker) inGateway(parent context.Context, open *openCall) runner {
	env := &tools.Env{
		Call: open.call.ID, Session: b.s.id, Door: b.s.from.Door, Caller: b.s.from.Identity, Grant: b.s.from.Grant,
		Tell: func(partial json.RawMessage) {
			b.result(parent, result{call: open, reply: reply{response: tools.Respond(partial, nil).Response}, partial: true})
		},
	}
	if b.canShow() {
		env.AskPerson = b.asker(parent, open)
	}
	return func(ctx context.Context, _ *reply) (json.RawMessage, error) {
		return b.tools[open.call.Name](tools.WithEnv(ctx, env), open.call.Args)
	}
}

// calling tells whether calls are without an answer that comes by itself: what a person is asked may take minutes, in which a
// model that does not wait for it goes on.
func (b *broker) calling() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, open := range b.calls {
		if open.blocks() || !b.withPerson(open) {
			return true
		}
	}
	return false
}

// gate keeps audio from a model that waits for a tool and would close the session for it. Each such call has a time limit,
// so the gate opens again whatever happens.
func (b *broker) gate() {
	b.mu.Lock()
	shut := false
	for _, open := range b.calls {
		shut = shut || open.blocks()
	}
	b.mu.Unlock()
	b.s.up.Gate(shut)
}

// onResult sends a call's answer up, unless nobody wants it any more.
func (b *broker) onResult(r result) {
	open := r.call
	switch {
	case r.detach:
		b.detach(open)
		return
	case r.late, !b.isCurrent(open):
		if r.err == nil && !r.partial {
			b.late.Add(1)
		}
		return
	case r.partial:
		b.onPartial(r)
		return
	}
	b.mu.Lock()
	delete(b.calls, open.call.ID)
	b.mu.Unlock()
	b.takeBack(b.dropQuestions(open))
	outcome, message := StatusDone, ""
	if r.err != nil {
		outcome, message = StatusFailed, tools.Cut(r.err.Error(), maxReason)
	}
	if crash, ok := errors.AsType[*tools.CrashError](r.err); ok {
		b.s.log.Error("tool crashed", "tool", open.call.Name, "panic", fmt.Sprint(crash.Value), "stack", string(crash.Stack))
	}
	if errors.Is(r.err, tools.ErrTimeout) {
		b.s.log.Warn("tool did not answer", "tool", open.call.Name)
		b.s.fail(CodeToolExecution, fmt.Sprintf("The tool %q did not answer in time; Gemini was told so.", open.call.Name))
		b.observe(open, "timeout")
	} else {
		b.observe(open, outcome)
	}
	b.status(open, outcome, message)
	b.board.Returned(r.response)
	if open.detached { // by this goroutine only
		b.followUp(open, r.reply)
		return
	}
	b.respond(open.call, open.tick, b.fit(open, r.reply))
	b.showPictures(open)
	b.gate()
	if b.answers[len(b.answers)-1].scheduling != tools.Silent && !b.calling() {
		b.s.expect(forTool)
	}
}

// underWayResponse is what a model that would wait is told.
var underWayResponse = json.RawMessage(`{"status":"not done yet","result":"follows as text; do not call again"}`)

// detach has the model go on: a person is asked, which may take minutes, or the tool has more time than a model may be deaf.
func (b *broker) detach(open *openCall) {
	b.mu.Lock()
	waits := b.calls[open.call.ID] == open && open.blocks()
	open.detached = open.detached || waits
	b.mu.Unlock()
	if !waits {
		return
	}
	b.respond(open.call, open.tick, reply{response: underWayResponse})
	b.showPictures(open)
	b.gate()
	if !b.calling() {
		b.s.expect(forTool)
	}
}

// followUp tells the model the result of a call that it was not made to wait for.
func (b *broker) followUp(open *openCall, r reply) {
	if r.parts != nil {
		b.showModel(r.parts)
	}
	text, err := json.Marshal(map[string]any{"tool": open.call.Name, "args": open.call.Args, "result": r.response})
	if err != nil {
		b.s.log.Error("result not told", "tool", open.call.Name, "err", err)
		return
	}
	if !b.s.sendText(string(text)) {
		b.s.fail(CodeStreamLimitExceeded, fmt.Sprintf("Too many messages wait for Gemini; the result of %q was dropped.", open.call.Name))
	}
}

// onPartial tells a model that takes such how far a call is.
func (b *broker) onPartial(r result) {
	open := r.call
	if open.partial++; open.partial > maxPartial {
		return
	}
	b.board.Returned(r.response)
	if r.parts != nil {
		open.pictures = append(open.pictures, r.parts)
	}
	if !open.function.Blocking || open.detached { // by this goroutine only
		b.showPictures(open)
	}
	if !open.function.Continues {
		return
	}
	r.reply = b.fit(open, r.reply)
	b.s.up.Respond(wire.FunctionResponse{
		ID: open.call.ID, Name: open.call.Name, Response: r.response, Scheduling: string(r.scheduling), WillContinue: true,
	})
}

// showPictures sends the pictures that came before an answer.
func (b *broker) showPictures(open *openCall) {
	for _, parts := range open.pictures {
		b.showModel(parts)
	}
	open.pictures = nil
}

func (b *broker) isCurrent(open *openCall) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls[open.call.ID] == open
}

// fit gives a reply the scheduling that it asks for, or its function, if the model takes one.
func (b *broker) fit(open *openCall, r reply) reply {
	r.behind = open.function.Blocking
	switch {
	case !open.function.Schedules:
		r.scheduling = ""
	case r.scheduling == "":
		r.scheduling = open.function.Scheduling
	}
	return r
}

// send sends an answer up. Pictures go before it, or behind it where the model takes nothing else while it waits.
func (b *broker) send(call tools.Call, r reply) {
	if r.parts != nil && !r.behind {
		b.showModel(r.parts)
	}
	response := wire.FunctionResponse{ID: call.ID, Name: call.Name, Response: r.response, Scheduling: string(r.scheduling)}
	if !b.s.up.Respond(response) {
		b.s.log.Error("answer dropped: too many wait", "tool", call.Name)
	}
	if r.parts != nil && r.behind {
		b.showModel(r.parts)
	}
}

// showModel sends pictures as a part of a turn that asks for nothing.
func (b *broker) showModel(parts json.RawMessage) {
	b.s.transcript.Typed(b.s.question()-1, textOf(parts))
	if !b.s.up.Say(uplink.Turn{Parts: parts}) {
		b.s.fail(CodeStreamLimitExceeded, "Too many messages wait for Gemini; a picture was dropped.")
	}
}

// cancelCalls stops calls whose answers the model no longer wants.
func (b *broker) cancelCalls(ids []string) {
	var stopped []*openCall
	b.mu.Lock()
	for _, id := range ids {
		if open := b.calls[id]; open != nil {
			open.cancel(tools.ErrCancelled)
			delete(b.calls, id)
			stopped = append(stopped, open)
		}
	}
	b.mu.Unlock()
	if len(stopped) == 0 {
		return
	}
	var asked []string
	for _, open := range stopped {
		b.forgetDetached(open)
		asked = append(asked, b.dropQuestions(open)...)
		b.status(open, StatusCancelled, "")
		b.observe(open, StatusCancelled)
	}
	b.takeBack(asked)
	b.gate()
}

// openCalls are the calls without an answer, the oldest first.
func (b *broker) openCalls() []*openCall {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.SortedFunc(maps.Values(b.calls), func(a, b *openCall) int {
		return cmp.Or(a.tick-b.tick, strings.Compare(a.call.ID, b.call.ID))
	})
}

// lastAnswers is how long the answers of a conversation that ends may take to the model: a round trip.
const lastAnswers = 250 * time.Millisecond

// bequeath answers the calls that are open when the conversation ends, so that the model is not left waiting, and waits until all
// answers have been sent.
func (b *broker) bequeath() {
	ctx, cancel := context.WithTimeout(context.Background(), lastAnswers)
	defer cancel()
	linked := b.s.link.conn != nil
	if linked {
		b.collect(ctx)
	}
	left := b.openCalls()
	b.mu.Lock()
	clear(b.calls)
	b.mu.Unlock()
	for _, open := range left {
		open.cancel(tools.ErrCancelled)
		b.observe(open, StatusCancelled)
	}
	left = slices.DeleteFunc(left, func(open *openCall) bool { return open.detached }) // these have an answer
	if !linked || len(left) == 0 && len(b.answers) == 0 {
		return
	}
	for _, open := range left {
		last := tools.Respond(nil, errors.New("the conversation has ended"))
		if open.function.Where == declaration.OnCanvas {
			last.Response = dismissed
		}
		b.send(open.call, reply{response: last.Response})
	}
	select {
	case <-b.s.up.Sent():
	case <-ctx.Done():
	}
}

// collect takes the results of the calls that the client has answered: it was told that its answer was taken.
func (b *broker) collect(ctx context.Context) {
	for b.answeredByClient() {
		select {
		case r := <-b.results:
			b.onResult(r)
		case <-ctx.Done():
			return
		}
	}
}

// answeredByClient tells whether a result is on its way from a client to the loop.
func (b *broker) answeredByClient() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.questions {
		if q.answered && q.of.function.Where != declaration.InGateway && b.calls[q.of.call.ID] == q.of {
			return true
		}
	}
	return false
}

// status tells the client of a tool that runs here.
func (b *broker) status(open *openCall, status, message string) {
	if open.function.Where != declaration.InGateway {
		return
	}
	b.over(open.call.ID, statusOf(open, status, message))
}

func statusOf(open *openCall, status, message string) ToolStatus {
	return ToolStatus{
		ID: open.call.ID, Name: open.call.Name, Title: open.call.Title, Status: status, Took: time.Since(open.began), Message: message,
	}
}

func (b *broker) observe(open *openCall, outcome string) {
	if f := b.s.host.options.ObserveCall; f != nil {
		f(CallEnd{Where: string(open.function.Where), Outcome: outcome, Took: time.Since(open.began)})
	}
}
