package bridge

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"voxgate/bridge/gemini"
	"voxgate/media"
	"voxgate/tools"
)

// errOver is what a newcomer gets whose conversation ended while it was coming.
var errOver = errors.New("the conversation has ended")

// idleLink is how long a parked conversation keeps its link to the model. A reloaded page is back sooner; longer, and an
// abandoned session costs money.
const idleLink = 5 * time.Second

// Session is one conversation. Its loop alone changes its state; the methods may be called from any goroutine.
type Session struct {
	// Static after newSession.
	id        string
	host      *Host
	log       *slog.Logger
	resumable bool
	playout   *media.Playout
	up        *uplink
	commands  chan Command
	arrivals  chan *carriage
	departs   chan *carriage
	dials     chan dialled
	heard     chan heard
	results   chan result
	due       chan func()   // timers
	over      chan struct{} // closed when the loop has ended; err says why
	err       error

	// Guarded by Host.mu.
	tokens tokens

	// Guarded by mu.
	mu       sync.Mutex
	carriage *carriage            // who carries the conversation, or is about to
	listener Caller               // who is told of events
	calls    map[string]*openCall // tool calls without an answer

	// Owned by the loop.
	config  gemini.Config
	updates []update // wanted next, in order
	link    link
	turn    turn
	ended   error
	parked  bool               // nobody carries the conversation
	unpark  context.CancelFunc // stops the timers of parking
	running sync.WaitGroup     // tool calls and timers
}

// carriage is one caller's time with the session.
type carriage struct {
	caller Caller
	token  string // used to resume; empty for the first
	cancel context.CancelCauseFunc
	seated chan struct{} // closed when the caller has been told where things stand
	left   chan struct{} // closed when the caller's Serve has returned
	parked chan struct{} // closed when the conversation goes on without the caller
}

// turn is where the model's turn stands.
type turn struct {
	open       bool // the model has begun to answer, turnComplete has not come
	told       bool // Speaking is on its way
	generating bool // the model has begun to answer, generationComplete has not come
	stale      bool // the rest of this generation was cut off here, before the model knew
	cut        bool // the client was told Interrupted; the end of this turn is no news
}

// update is an [UpdateConfig] without an answer.
type update struct {
	config  gemini.Config
	refused *Error
}

// maxUpdates bounds the updates that wait for a link.
const maxUpdates = 16

func newSession(h *Host, config gemini.Config, resumable bool) *Session {
	id := rand.Text()[:10]
	return &Session{
		id: id, host: h, log: h.options.Logger.With("call", id), resumable: resumable,
		playout: media.NewPlayout(h.ticker, gemini.OutputRate), up: newUplink(),
		commands: make(chan Command, 16), arrivals: make(chan *carriage), departs: make(chan *carriage),
		dials: make(chan dialled), heard: make(chan heard), results: make(chan result), due: make(chan func()),
		over: make(chan struct{}), calls: map[string]*openCall{}, config: config,
	}
}

// ID names the conversation in logs and to the client.
func (s *Session) ID() string { return s.id }

// Mic opens a microphone for mono PCM at rate Hz, 8000 to 48000. The model takes any such rate and is told which.
func (s *Session) Mic(rate int) (*Microphone, error) {
	if rate < 8000 || rate > 48000 {
		return nil, fmt.Errorf("a sample rate of %d Hz is not between 8000 and 48000", rate)
	}
	return &Microphone{up: s.up, rate: rate}, nil
}

// SetFrame gives the model a picture to look at. The newest wins.
func (s *Session) SetFrame(mimeType string, data []byte) {
	s.up.picture(gemini.Blob{MIMEType: mimeType, Data: data})
}

// Attach says where the voice goes from now on; nil discards it.
func (s *Session) Attach(out media.Output) { s.playout.Attach(out) }

// Hold keeps the voice (its newest 10 s) instead of playing it, until it is let go.
func (s *Session) Hold(on bool) { s.playout.Hold(on) }

// Do has a command carried out, in order with the others. An error means that it was not accepted.
func (s *Session) Do(c Command) error {
	switch c := c.(type) {
	case ToolResponse:
		return s.answer(c)
	case Activity: // not through the loop: it must not lose its place among the audio
		if !s.up.mark(gemini.RealtimeInput{
			ActivityStart: c == ActivityStart, ActivityEnd: c == ActivityEnd, AudioStreamEnd: c == AudioStreamEnd,
		}) {
			return &Error{Code: CodeBusy, Message: "Too many marks wait for Gemini; this one was dropped."}
		}
		return nil
	case Message: // what cannot be encoded would fail on every link
		if !json.Valid(c.Parts) || !bytes.HasPrefix(bytes.TrimSpace(c.Parts), []byte("[")) {
			return &Error{Code: CodeBadMessage, Message: "The parts of a message must be an array."}
		}
	}
	select {
	case <-s.over: // alone first: the queue may have room, but nobody takes from it
		return errOver
	default:
	}
	select {
	case s.commands <- c:
		return nil
	case <-s.over:
		return errOver
	}
}

// notify tells the caller, if there is one.
func (s *Session) notify(e Event) {
	s.mu.Lock()
	c := s.listener
	s.mu.Unlock()
	if c != nil {
		c.Notify(e)
	}
}

// warn tells the client's developer.
func (s *Session) warn(message string) { s.notify(Log{Level: "warn", Message: message}) }

// carry lets c carry the conversation until it leaves, is replaced, or the conversation ends. token is the one it came
// with, empty for the caller that opened the session.
func (s *Session) carry(ctx context.Context, c Caller, token string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	mine := &carriage{
		caller: c, token: token, cancel: cancel,
		seated: make(chan struct{}), left: make(chan struct{}), parked: make(chan struct{}),
	}
	s.mu.Lock()
	old := s.carriage
	s.carriage = mine
	s.mu.Unlock()
	if old != nil {
		old.cancel(ErrReplaced)
		<-old.left
	}
	select {
	case s.arrivals <- mine:
	case <-s.over:
		close(mine.left)
		if token != "" {
			return errOver
		}
		return s.err
	}
	<-mine.seated
	err := c.Serve(ctx, s)
	s.playout.Hold(true) // before Attach: what waits to be played is kept for the next caller
	s.playout.Attach(nil)
	close(mine.left)
	select {
	case s.departs <- mine:
	case <-s.over:
	}
	if errors.Is(context.Cause(ctx), ErrReplaced) {
		return ErrReplaced
	}
	select {
	case <-mine.parked:
	case <-s.over:
		if !errors.Is(s.err, ErrLeft) {
			return s.err
		}
	}
	return err
}

// loop owns the session from its first dial to its end.
func (s *Session) loop(parent context.Context) {
	ctx, cancel := context.WithCancel(parent)
	started := time.Now()
	s.log.Info("conversation started", "model", s.config.Model, "resumable", s.resumable)
	s.playout.Hold(true)
	for s.ended == nil {
		select {
		case <-ctx.Done():
			s.ended = context.Cause(ctx)
		case c := <-s.arrivals:
			s.onArrival(ctx, c)
		case c := <-s.departs:
			s.onDeparture(ctx, c)
		case d := <-s.dials:
			s.onDialled(ctx, d)
		case h := <-s.heard:
			s.onHeard(ctx, h)
		case c := <-s.commands:
			s.onCommand(ctx, c)
		case r := <-s.results:
			s.onResult(r)
		case f := <-s.due:
			f()
		}
	}
	cancel()
	s.link.stop()
	s.running.Wait()
	s.playout.Close()
	s.finish(started)
}

// finish tells everybody that the session is over.
func (s *Session) finish(started time.Time) {
	s.err = s.ended
	s.mu.Lock()
	current := s.carriage
	calls := s.calls
	s.calls = map[string]*openCall{}
	s.listener = nil
	s.mu.Unlock()
	for _, c := range calls {
		c.cancel(tools.ErrCancelled)
	}
	close(s.over)
	if current != nil {
		current.cancel(s.err)
	}
	voice := s.playout.Stats()
	s.log.Info("conversation ended", "reason", s.err, "duration", time.Since(started).Round(time.Millisecond),
		"chunks_up", s.up.frames.Load(), "chunks_dropped", s.up.dropped.Load(),
		"frames_down", voice.Frames, "underruns", voice.Underruns, "flushes", voice.Flushes, "dials", s.link.dials)
}

// end ends the session for a reason; the first one counts.
func (s *Session) end(reason error) {
	if s.ended == nil {
		s.ended = reason
	}
}

// after has f run by the loop in a while. It cannot be called back, so f looks whether it is still wanted.
func (s *Session) after(ctx context.Context, d time.Duration, f func()) {
	s.running.Go(func() {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return
		}
		select {
		case s.due <- f:
		case <-ctx.Done():
		}
	})
}

// onArrival seats a caller: it is told where things stand and gets what it missed.
func (s *Session) onArrival(ctx context.Context, c *carriage) {
	defer close(c.seated)
	s.mu.Lock()
	s.listener = c.caller
	s.mu.Unlock()
	if s.parked {
		s.parked = false
		s.unpark()
	}
	if c.token == "" { // SETUP_COMPLETE follows when the dial is done
		for _, w := range s.config.Warnings {
			s.warn(w)
		}
	} else {
		s.log.Info("caller is back")
		s.link.token = s.host.newToken(s, c.token)
		s.notify(s.setupComplete(true))
		if s.playout.Queued() > 0 { // nobody was told, or one that is gone
			s.notify(Speaking{})
		}
		s.repeatCalls()
	}
	if s.link.state == linkDown {
		s.dial(ctx)
	}
}

// onDeparture parks the conversation, or ends it.
func (s *Session) onDeparture(ctx context.Context, c *carriage) {
	s.mu.Lock()
	current := s.carriage == c
	if current {
		s.carriage, s.listener = nil, nil
	}
	s.mu.Unlock()
	if !current {
		close(c.parked)
		return // replaced: the newcomer is at the door
	}
	for len(s.commands) > 0 && s.ended == nil {
		s.onCommand(ctx, <-s.commands) // its last words, a goodbye perhaps
	}
	if s.ended != nil || !s.resumable || !s.link.setUp {
		s.end(ErrLeft)
		return
	}
	s.log.Info("caller lost, conversation parked", "for", s.host.options.Park)
	close(c.parked)
	s.parked = true
	ctx, s.unpark = context.WithCancel(ctx)
	s.after(ctx, idleLink, func() {
		if ctx.Err() == nil {
			s.unlink()
		}
	})
	s.after(ctx, s.host.options.Park, func() {
		if ctx.Err() == nil {
			s.end(ErrLeft)
		}
	})
}

func (s *Session) onCommand(ctx context.Context, c Command) {
	ok := true
	switch c := c.(type) {
	case Goodbye:
		s.end(ErrGoodbye)
	case Message:
		if c.TurnComplete {
			s.interrupt()
		}
		ok = s.up.send(gemini.ClientMessage{ClientContent: &gemini.ClientContent{
			Turns: []gemini.Content{{Role: "user", Parts: c.Parts}}, TurnComplete: c.TurnComplete,
		}})
	case Text:
		ok = s.up.send(gemini.ClientMessage{RealtimeInput: &gemini.RealtimeInput{Text: c.Text}})
	case UpdateConfig:
		s.onUpdate(ctx, c)
	default:
		s.log.Error("unknown command", "type", fmt.Sprintf("%T", c))
	}
	if !ok {
		s.warn("Too many messages wait for Gemini; this one was dropped.")
	}
}

// onUpdate has the next configuration dialled. A refused one leaves the one in force.
func (s *Session) onUpdate(ctx context.Context, c UpdateConfig) {
	config, err := s.host.options.Client.ParseConfig(c.Config, "payload")
	u := update{config: config}
	switch {
	case err != nil:
		u = update{refused: AsError(err)}
	case len(s.updates) >= maxUpdates:
		u = update{refused: &Error{Code: CodeBusy, Message: "Too many changes of the configuration wait for Gemini."}}
	}
	for _, w := range config.Warnings {
		s.warn(w)
	}
	s.updates = append(s.updates, u)
	if s.link.state == linkLive {
		s.update(ctx)
	}
}

// update goes on with the updates that wait.
func (s *Session) update(ctx context.Context) {
	s.refuse()
	if len(s.updates) > 0 {
		s.redial(ctx)
	}
}

// refuse answers the updates that were refused and are next in order.
func (s *Session) refuse() {
	for len(s.updates) > 0 && s.updates[0].refused != nil {
		s.notify(SetupFailed{s.updates[0].refused})
		s.updates = s.updates[1:]
	}
}

// interrupt cuts the voice off before the model knows: typed text shall be answered, not waited for.
func (s *Session) interrupt() {
	if s.playout.Queued() == 0 && !(s.turn.told && s.turn.generating) {
		return
	}
	s.playout.Flush()
	s.turn.stale = s.turn.generating
	s.turn.cut = s.turn.open
	s.turn.told = false
	s.notify(Interrupted{})
}

func (s *Session) setupComplete(resumed bool) SetupComplete {
	return SetupComplete{
		SessionID: s.id, Model: s.config.Model, Resumed: resumed, ResumeToken: s.link.token,
		Backend: s.host.options.Backend, EffectiveConfig: s.config.Effective(),
	}
}

// onMessage passes on everything that one message of the model holds.
func (s *Session) onMessage(ctx context.Context, m *gemini.ServerMessage) {
	if c := m.Content; c != nil {
		s.onContent(c)
	} else if m.Usage != nil {
		s.notify(Content{wrapField("usageMetadata", m.Usage)})
	}
	if m.VoiceActivity != nil {
		s.notify(Content{wrapField("voiceActivity", m.VoiceActivity)})
	}
	if len(m.Extra) > 0 {
		if b, err := json.Marshal(m.Extra); err == nil {
			s.notify(Content{b})
		}
	}
	if len(m.ToolCalls) > 0 {
		s.onToolCalls(ctx, m.ToolCalls)
	}
	if len(m.Cancelled) > 0 {
		s.cancelCalls(m.Cancelled)
	}
	if r := m.Resumption; r != nil {
		s.link.resumption(r)
	}
	if m.GoAway != nil {
		s.onGoAway(ctx, *m.GoAway)
	}
	if s.link.leaving && s.quiet() {
		s.redial(ctx)
	}
}

// onContent plays what the model says and passes on the rest. An interruption comes before whatever is in the same
// message: its audio belongs to the answer that was cut off.
func (s *Session) onContent(c *gemini.ServerContent) {
	if c.Interrupted {
		if !s.turn.cut {
			s.playout.Flush()
			s.notify(Interrupted{})
		}
		s.turn = turn{open: true, stale: true, cut: true} // turnComplete follows
	}
	if fields := s.fields(c); fields != nil {
		s.notify(Content{fields})
	}
	if (len(c.Audio) > 0 || bytes.Contains(c.Fields, modelTurn)) && !s.turn.stale {
		s.turn.open, s.turn.generating, s.turn.cut = true, true, false
	}
	if len(c.Audio) > 0 && !s.turn.stale && !s.config.TextOnly {
		s.speak(c)
	}
	if c.Grounding != nil {
		s.notify(Grounding{c.Grounding})
	}
	if c.Interrupted || c.GenerationComplete || c.TurnComplete {
		s.turn.generating, s.turn.stale = false, false
	}
	if c.TurnComplete {
		if !s.turn.cut {
			s.completeTurn()
		}
		s.turn = turn{}
	}
}

// modelTurn is in the fields of a message with text, a thought or a picture of the model.
var modelTurn = []byte(`"modelTurn":`)

// completeTurn has the client told when all that was said is played.
func (s *Session) completeTurn() {
	s.playout.Mark(func(heard bool) {
		if heard {
			s.notify(TurnComplete{})
		}
	})
}

// speak hands audio to the playout clock.
func (s *Session) speak(c *gemini.ServerContent) {
	first := !s.turn.told
	s.turn.told = true
	if c.AudioRate != gemini.OutputRate {
		if first {
			s.warn(fmt.Sprintf("Gemini sent audio at %d Hz; only %d Hz can be played.", c.AudioRate, gemini.OutputRate))
		}
		return
	}
	if first {
		s.playout.Mark(func(heard bool) {
			if heard {
				s.notify(Speaking{})
			}
		})
	}
	if err := s.playout.WritePCM(c.Audio); err != nil {
		s.log.Warn("voice dropped", "err", err)
	}
}

// fields is what the client gets of c. A client that asked a speaking model for text reads the transcript as its answer.
func (s *Session) fields(c *gemini.ServerContent) json.RawMessage {
	if !s.config.TextOnly || c.OutputTranscription == "" {
		return c.Fields
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(c.Fields, &fields); err != nil {
		return c.Fields
	}
	text, err := json.Marshal(c.OutputTranscription)
	if err != nil {
		return c.Fields
	}
	delete(fields, "outputTranscription") // or who joins both reads it twice
	fields["modelTurn"] = json.RawMessage(`{"role":"model","parts":[{"text":` + string(text) + `}]}`)
	b, err := json.Marshal(fields)
	if err != nil {
		return c.Fields
	}
	return b
}

// wrapField puts a field that Gemini sends beside serverContent into one, where clients look.
func wrapField(name string, value json.RawMessage) json.RawMessage {
	b, err := json.Marshal(map[string]json.RawMessage{name: value})
	if err != nil {
		return json.RawMessage(`{}`)
	}
	return b
}
