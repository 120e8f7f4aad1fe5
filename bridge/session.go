package bridge

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/bridge/alarm"
	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/transcript"
	"voxgate/bridge/uplink"
	"voxgate/bridge/upstream"
	"voxgate/tools"
)

const (
	// farewellTime limits how long the end of a conversation is delayed by the current answer and then by the model's
	// goodbye.
	farewellTime = 15 * time.Second

	// goodbyeTime limits how long the model may take to begin its goodbye. The time starts when the model gets the
	// answer of the tool that ends the conversation.
	goodbyeTime = 6 * time.Second

	// goodbyeTimeSpoken replaces goodbyeTime if the model spoke before it called the tool. What it said may have been
	// the goodbye.
	goodbyeTimeSpoken = 2 * time.Second
)

// Session is one conversation. Only its loop changes its state. Its methods are safe for concurrent use.
type Session struct {
	// These fields are set by newSession and not replaced afterwards. Each has its own mutex, or belongs to the loop.
	*subscribers
	streams
	receivedIDs
	id           string
	host         *hostState
	log          *slog.Logger
	observer     observer
	request      SessionRequest // request of the first caller; the loop may change its Agent
	gatewayTools []tools.Tool   // tools that run in the gateway
	transcript   *transcript.Transcript
	keeper       *upstream.Keeper
	lateTokens   wire.Tokens // tokens of a text model that its connection could not report in a message
	calls        *toolcalls.Calls
	output       *modelOutput
	status       *callerStatus
	costs        *costMeter
	greeted      atomic.Bool
	commands     chan commandRequest
	callerConns  chan *callerConn // callers that arrive or leave
	done         chan struct{}    // closed when the loop has ended; endReason is then set
	crashes      chan error       // a goroutine has panicked: the conversation ends

	loopState
}

// loopState is the state that only the session's loop uses.
type loopState struct {
	started      time.Time
	agentName    string // name of the agent
	clock        *alarm.Clock[alarmKind]
	isParked     bool
	onHold       bool
	isAnswerHeld bool // the caller was told of an [InterruptionPending]
	steering     steering
	newestChange *configChange // newest change of the configuration, whether or not it was answered; nil before the first change
	cluster      clusterState
	user         userSpeech
	heldParts    wire.Parts // parts of an incomplete typed turn, for a model that accepts only complete turns
	hasReassured bool       // oneMoment was played during this wait
	sessionEnd
}

// isUnheard reports whether the person would not hear an answer now.
func (l *loopState) isUnheard() bool { return l.isParked || l.onHold }

// sessionEnd holds the reason for the end of the conversation, and the state of a planned end.
type sessionEnd struct {
	pendingReason  error          // if set, the conversation ends for this reason when the answer has been played
	awaitsGoodbye  bool           // the end waits until the model has begun to answer the tool that ends the conversation
	hasOpenTurn    bool           // parts of a turn were sent without its end
	noSpeech       noSpeechFilter // filter for the model's current turn
	farewellPrompt string         // instruction to say goodbye before the end; empty means already sent, or no goodbye is needed
	overBudget     bool           // the budget has no room for another turn
	endReason      error          // if set, the conversation ends now, for this reason
}

// endWith ends the conversation for a reason. Only the first call has an effect.
func (e *sessionEnd) endWith(reason error) {
	if e.endReason == nil {
		e.endReason = reason
	}
}

// userSpeech tracks the person's speech.
type userSpeech struct {
	isSpeaking   bool
	speeches     int  // number of utterances so far
	promptCount  int  // how often the model has asked in the current silence whether the person is there
	toldSlowTool bool // the model was asked to say that a tool takes long
	lossReported bool // the client was informed that some speech was lost
	gateReported bool // the client was informed that speech was dropped while the model waited for a tool
}

// alarmKind identifies a timer of the session's loop.
type alarmKind int

const (
	alarmMicrophone    alarmKind = iota // check that the microphone still sends
	alarmToolResponses                  // the turn that has called tools does not end
	alarmPark                           // the caller will not come back
	alarmLimit                          // the conversation has reached its time limit
	alarmFarewell                       // the last answer takes too long
	alarmGoodbye                        // the goodbye has not come
	alarmMove                           // the caller may be asked again to move to another gateway
	alarmSilence                        // the person has been silent for long
	alarmTool                           // a tool has taken long in silence
	alarmTurn                           // the model has not ended its turn
	alarmTurnTaking                     // time passes for the turn-taking machine although no audio comes
	numAlarms
)

// commandRequest is a command for the session's loop. answer gets the result of the command; it has a buffer of one.
type commandRequest struct {
	command Command
	answer  chan error
}

// ID identifies the conversation in logs and to the client.
func (s *Session) ID() string { return s.id }

// Origin returns where the conversation comes from.
func (s *Session) Origin() Origin { return s.request.Origin }

// ReportSteering reports to the observer that the operator's backend has steered the conversation.
func (s *Session) ReportSteering(o Steered) { s.observer.report(o) }

// Greet makes the model speak first, using [SessionRequest.GreetingPrompt]. Only the first call has an effect.
func (s *Session) Greet() error {
	if s.request.GreetingPrompt == "" || s.greeted.Swap(true) {
		return nil
	}
	return s.Do(Prompt{Instruction: s.request.GreetingPrompt})
}

// EndpointState returns what the endpoint that opened the conversation keeps in [SessionRequest.EndpointState].
func (s *Session) EndpointState() any { return s.request.EndpointState }

// Done returns a channel that is closed when the conversation has ended. After that, Err returns the reason.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns the reason why the conversation has ended. It must not be called before the channel of Done is closed.
func (s *Session) Err() error { return s.endReason }

// Crash ends the conversation after a panic in a goroutine of the conversation or of its caller. It is safe for
// concurrent use and does not block.
func (s *Session) Crash(err error) {
	select {
	case s.crashes <- err:
	default: // another panic was reported first
	}
}

// Watch calls notify with every event that the caller gets from now on. The first events are a [SetupComplete] and the
// [History]. The rules of [Caller].Notify apply to notify. Watching lasts until stop is called or the conversation
// ends.
//
// A watcher may also send commands to the session. The session asks it to run the functions that a [BackendUpdate] has
// declared.
func (s *Session) Watch(notify func(Event)) (stop func(), err error) {
	w := &watcher{notify}
	if err := s.Do(watchCommand{w}); err != nil {
		return nil, err
	}
	return func() { s.removeWatcher(w) }, nil
}

// watchCommand adds a watcher.
type watchCommand struct{ watcher *watcher }

func (c watchCommand) run(_ context.Context, s *Session) error {
	first := []EventBody{History{s.transcript.Entries()}}
	if s.keeper.EverConnected() { // otherwise the watcher gets the SetupComplete that the caller will get
		first = slices.Insert(first, 0, EventBody(s.buildSetupComplete()))
	}
	s.addWatcher(c.watcher, first...)
	return nil
}

// Do executes a command. Commands are executed in the order of the calls. Do blocks until the session has processed the
// command, usually for microseconds. If the session rejects the command or has ended, Do returns an error for
// [AsError]. Do must not be called from [Caller].Notify.
func (s *Session) Do(c Command) error {
	if mark, ok := c.(Activity); ok { // not through the loop, because it must stay in order with the audio
		select {
		case <-s.done:
			return errEnded
		default:
			return toMarkError(s.uplink.QueueMark(uplink.Mark(mark)))
		}
	}
	r := commandRequest{command: c, answer: make(chan error, 1)}
	select {
	case s.commands <- r:
	case <-s.done:
		return errEnded
	}
	select {
	case err := <-r.answer:
		return err
	case <-s.done:
	}
	select { // the command may have ended the conversation
	case err := <-r.answer:
		return err
	default:
		return errEnded
	}
}

// infoRequest is the command that fetches the state of the conversation.
type infoRequest struct{ result *Info }

func (c infoRequest) run(_ context.Context, s *Session) error {
	*c.result = s.buildInfo()
	return nil
}

func (s *Session) buildInfo() Info {
	return Info{
		ID: s.id, Protocol: s.request.Origin.Protocol, Agent: s.agentName, Identity: s.request.Origin.Identity, Key: s.request.Origin.Key,
		Attributes: s.request.Origin.Attributes, Address: s.request.Origin.Address, Device: s.request.Origin.Device,
		Step: s.steering.flow.Step, Model: s.keeper.Config().Model, State: s.status.state, Started: s.started,
		Turns:  s.output.turnNumber - 1,
		Tokens: s.costs.meter.Total().Total, Dollars: s.costs.totalDollars(),
		Newest: s.transcript.NewestPlayedEntry(), Speaker: s.speaker(),
		Latency: time.Duration(s.output.latestLatency.Load()), Loss: s.loss.lossShares(),
	}
}

// speaker returns the role of the side that is speaking, or "" if neither is. If both are, it returns the user's.
func (s *Session) speaker() string {
	switch {
	case s.isUnheard():
		return ""
	case s.user.isSpeaking:
		return transcript.User
	case s.voice.QueuedDuration() > 0 || s.output.turn.state == turnSpeaking:
		return transcript.Assistant
	}
	return ""
}

func (s *Session) collectCounts() Counts {
	c := Counts{Tokens: s.costs.meter.Total(), Connections: s.keeper.Counts(), Voice: s.voice.Stats()}
	c.Up.Sent, c.Up.Replayed = s.uplink.SentChunks.Load(), s.uplink.ReplayedChunks.Load()
	c.Up.Dropped, c.Up.Speech, c.Up.Gated = s.uplink.DroppedChunks.Load(), s.uplink.LostSpeechChunks.Load(), s.uplink.GatedChunks.Load()
	return c
}

// buildSetupComplete returns the event that describes the current setup of the model.
func (s *Session) buildSetupComplete() SetupComplete {
	config := s.keeper.Config()
	done := SetupComplete{
		SessionID: s.id, Started: s.started, Model: config.Model, Backend: s.host.options.Backend,
		EffectiveConfig: config.Effective(), Step: s.steering.flow.Step, Recording: s.recording.isRunning(), Tools: []Tool{},
	}
	for _, f := range config.Functions {
		where := liveconfig.InClient
		if f.Where == liveconfig.InGateway {
			where = f.Where
		}
		done.Tools = append(done.Tools, Tool{
			Name: f.Name, Title: f.Title, Behavior: f.Behavior, Scheduling: f.Scheduling, Where: string(where),
		})
	}
	return done
}

// isResumable reports whether the conversation would wait for its caller to return if the caller were lost.
func (s *Session) isResumable() bool {
	return s.request.Resumable && s.host.options.Park > 0 && s.keeper.Config().Options.Resumption
}

// expectTextReply starts waiting for the answer to text that is sent now. If the model is speaking, the text interrupts
// it, and cause is reported as the reason.
func (s *Session) expectTextReply(cause Cause) {
	s.status.setApology(false)
	s.output.recordQuestionEnd(time.Now())
	s.output.prompts.addPrompt(cause)
	s.keeper.ExpectReply(upstream.ForText)
}

// goodbyeInSilence is the instruction that makes the model say goodbye to a person who no longer answers.
const goodbyeInSilence = "The person does not answer any more. " +
	"Say goodbye in one short sentence, in the language that you have spoken so far."

// endAfterSpeaking ends the session for a reason, after the current answer and a goodbye of the model have been played:
// see endIfPlayed.
func (s *Session) endAfterSpeaking(reason error) {
	if s.pendingReason != nil {
		return
	}
	s.pendingReason, s.awaitsGoodbye = reason, s.calls.HasRunningCall()
	switch reason {
	case ErrTimeLimit:
		s.farewellPrompt = s.request.FarewellPrompt
	case ErrSilence:
		s.farewellPrompt = goodbyeInSilence
	}
	s.clock.Set(alarmFarewell, farewellTime)
}

// endOverBudget ends the session because a limit is reached, after the answer in progress. It does nothing if limit is
// nil.
func (s *Session) endOverBudget(limit error) {
	if limit == nil || s.overBudget {
		return
	}
	s.overBudget = true
	// More input or a tool's result would make the model give another answer, which costs money.
	s.uplink.SetPaused(true)
	s.calls.CancelAll()
	s.endAfterSpeaking(limit) // no effect if the session is ending already; the next line drops its goodbye
	s.farewellPrompt, s.awaitsGoodbye = "", false
}

// currentState returns the state of the conversation, which it derives from the state of the connection to the model.
func (s *Session) currentState() State {
	if s.isParked {
		return StateParked
	}
	switch s.keeper.Phase() {
	case upstream.Dialing:
		return StateDialing
	case upstream.SettingUp:
		return StateSetup
	case upstream.Resuming:
		return StateResuming
	case upstream.Reseeding:
		return StateReseeding
	}
	switch {
	case s.keeper.IsReplacementPlanned():
		return StateDraining
	case s.calls.HasRunningCall():
		return StateTool
	}
	return StateLive
}

// isReplyDue reports whether the person is waiting for an answer.
func (s *Session) isReplyDue() bool {
	if s.isUnheard() || s.user.isSpeaking {
		return false
	}
	return s.output.turn.state == turnThinking || s.output.isWorking || s.calls.HasRunningCall() || s.keeper.ReplyPending()
}

// receivedIDs remembers the IDs of the client's newest messages, to detect duplicates. Its methods are safe for
// concurrent use.
type receivedIDs struct {
	mu  sync.Mutex
	ids []string
}

// maxReceived limits the number of remembered IDs.
const maxReceived = 256

// MarkReceived records the ID of a client's message. isNew is false for a duplicate, which the caller must ignore.
func (r *receivedIDs) MarkReceived(id string) (isNew bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.ids, id) {
		return false
	}
	if len(r.ids) == maxReceived {
		r.ids = slices.Delete(r.ids, 0, 1)
	}
	r.ids = append(r.ids, id)
	return true
}

func (r *receivedIDs) newestIDs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ids)
}
