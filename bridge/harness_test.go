package bridge_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/internal/testkit/bridgetest"
	"voxgate/media"
)

// harness is a host with a fake Gemini (up).
type harness struct {
	t     *testing.T
	up    *bridgetest.Upstream
	host  *bridge.Host
	start time.Time
	log   *logs
	wg    sync.WaitGroup
	lead  time.Duration // lead of the callers that are started later
}

func newHarness(t *testing.T, change ...func(*bridge.Options)) *harness {
	r := &harness{t: t, up: bridgetest.NewUpstream(t)}
	r.startHost(r.up.Dial, change...)
	return r
}

// startHost starts the host. The functions change its options before.
func (h *harness) startHost(dial func(context.Context, string, string) (net.Conn, error), change ...func(*bridge.Options)) {
	h.start, h.log = time.Now(), &logs{}
	o := bridge.Options{
		Client:  &api.Client{BaseURL: "http://gemini.test", NetDial: dial},
		Backend: "emulator", Park: time.Minute, Logger: slog.New(slog.NewJSONHandler(h.log, nil)),
	}
	for _, f := range change {
		f(&o)
	}
	h.host = bridge.NewHost(o)
	h.t.Cleanup(func() {
		if err := h.host.Shutdown(context.Background()); err != nil {
			h.t.Error(err)
		}
		h.wg.Wait()
		if bad := h.log.find("impossible step"); len(bad) > 0 {
			h.t.Errorf("%v", bad)
		}
	})
}

// logs stores log lines.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// find returns the lines with a message.
func (l *logs) find(msg string) []map[string]any {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []map[string]any
	for line := range bytes.Lines(l.b.Bytes()) {
		var fields map[string]any
		if json.Unmarshal(line, &fields) == nil && fields["msg"] == msg {
			found = append(found, fields)
		}
	}
	return found
}

// caller is a bridge.Caller that records its events and frames in a diary.
type caller struct {
	r      *harness
	leave  func(error)
	left   chan error // the result for Serve
	seated chan struct{}
	over   chan struct{}
	err    error // result of Host.Serve; valid when over is closed

	session *bridge.Session // valid when seated is closed
	mic     *bridge.Microphone

	mu     sync.Mutex
	diary  []logEntry
	frames int
	voices []uint32 // generations of the frames with sound
	last   uint64   // number of the newest event
	resume string   // the newest resume token
	lost   bool     // events no longer reach the caller
	full   bool     // the output accepts no frames now
}

// logEntry is an event or a frame with sound.
type logEntry struct {
	at    time.Duration // time since the start of the harness
	event bridge.EventBody
	tag   int16

	number  uint64 // number of the event; the next field has its time
	time    time.Time
	replyTo any
}

// startCaller starts a caller.
func (h *harness) startCaller(o bridge.SessionRequest) *caller {
	h.t.Helper()
	c := &caller{r: h, left: make(chan error, 1), seated: make(chan struct{}), over: make(chan struct{})}
	c.leave = func(err error) { c.left <- err }
	if o.Config == nil {
		o.Config = json.RawMessage(`{}`)
	}
	h.wg.Go(func() {
		defer close(c.over)
		c.err = h.host.Serve(context.Background(), c, o)
	})
	return c
}

// connectCaller starts a caller and accepts its connection to the model.
func (h *harness) connectCaller(o bridge.SessionRequest) (*caller, *bridgetest.Conn) {
	h.t.Helper()
	c := h.startCaller(o)
	l := h.up.NextConn().SendSetupComplete()
	synctest.Wait()
	<-c.seated
	return c, l
}

// converse starts a conversation with simulated time. f gets its harness, its caller and its first connection.
func converse(t *testing.T, o bridge.SessionRequest, f func(*testing.T, *harness, *caller, *bridgetest.Conn),
	change ...func(*bridge.Options),
) {
	t.Helper()
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t, change...)
		c, l := r.connectCaller(o)
		f(t, r, c, l)
	})
}

// dropConnection cuts a connection, and accepts the next one.
func (h *harness) dropConnection(l *bridgetest.Conn) *bridgetest.Conn {
	h.t.Helper()
	l.DropConnection()
	return h.up.NextConn().SendSetupComplete()
}

// cutNetwork cuts a connection, and makes further dials fail.
func (h *harness) cutNetwork(l *bridgetest.Conn) {
	h.up.SetFailure(0, errors.New("no route"))
	l.DropConnection()
}

func (h *harness) plain() (*caller, *bridgetest.Conn) {
	h.t.Helper()
	return h.connectCaller(bridge.SessionRequest{})
}

func (h *harness) elapsed() time.Duration { return time.Since(h.start) }

// Serve implements bridge.Caller.
func (c *caller) Serve(ctx context.Context, s *bridge.Session) error {
	c.session = s
	mic, err := s.NewMicrophone(16000)
	if err != nil {
		return err
	}
	c.mic = mic
	s.AttachOutput(c)
	s.HoldVoice(false)
	close(c.seated)
	select {
	case err := <-c.left:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Notify implements bridge.Caller.
func (c *caller) Notify(e bridge.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, answer := e.Body.(bridge.SetupComplete); !answer && e.Number <= c.last {
		c.r.t.Errorf("event %d comes after event %d", e.Number, c.last)
	}
	c.last = max(c.last, e.Number)
	if done, ok := e.Body.(bridge.SetupComplete); ok && done.ResumeToken != "" {
		c.resume = done.ResumeToken
	}
	if !c.lost {
		c.diary = append(c.diary, logEntry{at: c.r.elapsed(), event: e.Body, number: e.Number, time: e.Time, replyTo: e.ReplyTo})
	}
}

// Rate and Lead implement media.Output.
func (c *caller) Rate() int              { return 24000 }
func (c *caller) MaxLead() time.Duration { return c.r.lead }

// Full implements media.BackpressureOutput, for a caller with an unlimited lead.
func (c *caller) Full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.full
}

// blockOutput makes the caller's output refuse frames, or accept them again.
func (c *caller) blockOutput(on bool) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.full = on
}

// WriteFrame implements media.Output. It does not record frames of silence, or frames that fade out after a flush.
func (c *caller) WriteFrame(f media.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if tag := f.PCM[len(f.PCM)/2]; tag != 0 {
		c.frames++
		c.voices = append(c.voices, f.Generation)
		c.diary = append(c.diary, logEntry{at: c.r.elapsed(), tag: tag})
	}
	return nil
}

// entries returns the diary so far.
func (c *caller) entries() []logEntry {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.diary[:len(c.diary):len(c.diary)]
}

// countFrames returns the number of frames with sound so far.
func (c *caller) countFrames() int {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frames
}

// voiceGenerations returns the generations of the frames with sound since the last clearLog.
func (c *caller) voiceGenerations() []uint32 {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.voices)
}

// events returns the events of the diary.
func (c *caller) events() (events []bridge.Event) {
	for _, e := range c.entries() {
		if e.event != nil {
			events = append(events, bridge.Event{Number: e.number, Time: e.time, Body: e.event})
		}
	}
	return events
}

// blockDelivery makes all later events for the caller get lost.
func (c *caller) blockDelivery() {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = true
}

// clearLog empties the diary.
func (c *caller) clearLog() {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.diary, c.voices = nil, nil
}

// summarizeLog returns the diary in short: events by name, and voices as tag*frames. It omits the most frequent events.
func (c *caller) summarizeLog() string {
	var words []string
	var tag int16
	count := 0
	flush := func() {
		if count > 0 {
			words = append(words, fmt.Sprintf("%d*%d", tag, count))
		}
		count = 0
	}
	for _, e := range c.entries() {
		if e.event == nil {
			if e.tag != tag {
				flush()
			}
			tag = e.tag
			count++
			continue
		}
		word := strings.TrimPrefix(fmt.Sprintf("%T", e.event), "bridge.")
		switch e := e.event.(type) {
		case bridge.RawServerContent, bridge.UserText, bridge.AssistantText, bridge.Thought, bridge.StateChange, bridge.UserSpeaking,
			bridge.Thinking, bridge.Usage, bridge.Latency:
			continue
		case bridge.ToolCall:
			var ids []string
			for _, call := range e.Calls {
				ids = append(ids, nameless(call.ID))
			}
			word += "(" + strings.Join(ids, " ") + ")"
		case bridge.ToolCallCancellation:
			for i, id := range e.IDs {
				if i > 0 {
					word += " "
				} else {
					word += "("
				}
				word += nameless(id)
			}
			word += ")"
		}
		flush()
		words = append(words, word)
	}
	flush()
	return strings.Join(words, " ")
}

// nameless returns an ID without its random part.
func nameless(id string) string {
	if strings.HasPrefix(id, "ask-") {
		return "ask"
	}
	return id
}

// checkLog compares summarizeLog with the wanted text.
func (c *caller) checkLog(want string) {
	c.r.t.Helper()
	if got := c.summarizeLog(); got != want {
		c.r.t.Errorf("the caller saw\n  %s\nwant\n  %s", got, want)
	}
}

// findEvents returns the events of type E, and their times since the start.
func findEvents[E bridge.EventBody](c *caller) (found []E, at []time.Duration) {
	for _, e := range c.entries() {
		if event, ok := e.event.(E); ok {
			found, at = append(found, event), append(at, e.at)
		}
	}
	return found, at
}

// lastEvent returns the last event of type E.
func lastEvent[E bridge.EventBody](c *caller) E {
	c.r.t.Helper()
	found, _ := findEvents[E](c)
	if len(found) == 0 {
		var none E
		c.r.t.Fatalf("there was no %T: %s", none, c.summarizeLog())
	}
	return found[len(found)-1]
}

// checkWarning checks that a Log or an ErrorEvent contains the text.
func (c *caller) checkWarning(text string) {
	c.r.t.Helper()
	logs, _ := findEvents[bridge.Log](c)
	failures, _ := findEvents[bridge.ErrorEvent](c)
	for _, f := range failures {
		logs = append(logs, bridge.Log{Message: f.Err.Message})
	}
	for _, l := range logs {
		if strings.Contains(l.Message, text) {
			return
		}
	}
	c.r.t.Errorf("no log message with %q in %v", text, logs)
}

// doCommand executes a command, and reports its error.
func (c *caller) doCommand(command bridge.Command) {
	c.r.t.Helper()
	synctest.Wait()
	if err := c.session.Do(command); err != nil {
		c.r.t.Errorf("%T: %v", command, err)
	}
	synctest.Wait()
}

func (c *caller) typeText(text string) {
	c.r.t.Helper()
	c.doCommand(bridge.Message{Parts: fmt.Appendf(nil, `[{"text":%q}]`, text), TurnComplete: true})
}

func (c *caller) sendAudio(pcm []int16) {
	c.r.t.Helper()
	if err := c.mic.WritePCM(pcm); err != nil {
		c.r.t.Error(err)
	}
}

// awaitEnd waits for the end of Host.Serve and checks its reason.
func (c *caller) awaitEnd(want error) {
	c.r.t.Helper()
	select {
	case <-c.over:
	case <-time.After(time.Hour):
		c.r.t.Fatal("Serve does not end")
	}
	if !errors.Is(c.err, want) && !(want == nil && c.err == nil) {
		c.r.t.Errorf("Serve returned %v, want %v", c.err, want)
	}
}

// awaitFailure waits for the end of Host.Serve and checks its code.
func (c *caller) awaitFailure(code bridge.Code) *bridge.Error {
	c.r.t.Helper()
	select {
	case <-c.over:
	case <-time.After(time.Hour):
		c.r.t.Fatal("Serve does not end")
	}
	var failure *bridge.Error
	if !errors.As(c.err, &failure) || failure.Code != code {
		c.r.t.Fatalf("Serve returned %v, want code %s", c.err, code)
	}
	return failure
}

// isAbout reports whether two times differ by at most 60 ms. The playout's clock has steps of 20 ms.
func isAbout(got, want time.Duration) bool { return (got - want).Abs() <= 60*time.Millisecond }

// runWithFakeClock runs a test with simulated time.
func runWithFakeClock(t *testing.T, f func(t *testing.T)) { t.Helper(); synctest.Test(t, f) }

// countingPCM returns n samples of a voice that never repeats itself, beginning with the sample number first.
func countingPCM(first, n int) []int16 {
	pcm := make([]int16, n)
	for i := range pcm {
		at := first + i
		chance := uint32(at/320+1) * 2654435761 >> 8 // changes every 20 ms
		pcm[i] = int16(float64(2000+chance%8000) * math.Sin(2*math.Pi*float64(200+chance%801)*float64(at)/16000))
	}
	return pcm
}

// manual requests that the client marks speech.
var manual = bridge.SessionRequest{Config: []byte(`{"voxgate":{"vad":{"enabled":false,"prefixPaddingMs":40}}}`)}
