package probe

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/wire"
	"voxgate/media/g711"
)

// speech is the spoken sentence "Please remember the word plum.", in mu-law at 8 kHz: espeak-ng -v en -s 150 "Please
// remember the word plum."
//
//go:embed speech.ulaw
var speech []byte

// speechRate is the sample rate of speech, in Hz. It need not be the 16 kHz of the Live API, which resamples audio with
// another declared rate.
const speechRate = 8000

const (
	// dialTimeout limits the time to setupComplete.
	dialTimeout = 20 * time.Second

	// answerTimeout limits the wait for an answer. slowTimeout is the limit for slow models.
	answerTimeout = 15 * time.Second
	slowTimeout   = 45 * time.Second

	// quiet is the time without voice after which a probe assumes that the model has finished.
	quiet = 3 * time.Second
)

// talk is the Live conversation of a running probe. Its methods add facts to the run.
type talk struct {
	*run

	config liveconfig.Config // the probe's config, as translated by package liveconfig
	object json.RawMessage   // the setup that is sent
	alpha  bool

	conn         *gemini.Conn
	events       chan event
	stop         context.CancelFunc
	reader       sync.WaitGroup
	handle       string // the newest resumption handle
	isOver       bool
	mayBeRefused bool // the server may still refuse the setup
}

// event is one message of the server, or the end of the connection.
type event struct {
	*wire.ServerMessage
	voice time.Duration
	err   error
}

// modelOutput collects the server's messages while a probe is listening.
type modelOutput struct {
	voice           time.Duration
	rate            int    // sample rate of the voice in Hz
	text            string // the model's words: transcript or text
	question        string // the server's transcript of the user's speech
	calls           []wire.FunctionCall
	interrupted     int
	generationCount int
	turns           int // number of turns with an answer
	idle            bool
	goAway          bool
	tokens          wire.Tokens

	voiceBefore time.Duration // length of the voice before the current turn; textBefore is the length of the text before it
	textBefore  int
}

// open dials with the talk's setup, and reports whether the server accepted it. history is used only if handle is "".
func (t *talk) open(handle string, history ...wire.Content) (isAccepted bool) {
	ctx, cancel := context.WithTimeout(t.ctx, dialTimeout)
	defer cancel()
	s := t.config.Setup(handle, history)
	s.Object, s.Alpha, s.Trace = t.object, t.alpha, t.trace.add
	s.Resumable = t.raw["sessionResumption"] == nil
	conn, err := gemini.Dial(ctx, t.client, s)
	if err != nil {
		t.addEndFacts("refused", err)
		return false
	}
	t.conn, t.events = conn, make(chan event, 256)
	t.handle, t.isOver = "", false
	ctx, t.stop = context.WithCancel(t.ctx)
	t.reader.Go(func() { readEvents(ctx, conn, t.events) })
	return true
}

// close ends the connection. It may be called twice.
func (t *talk) close() {
	if t.conn == nil {
		return
	}
	t.stop()
	_ = t.conn.Close()
	t.reader.Wait()
	t.conn = nil
}

// readEvents passes messages to a channel until the connection ends.
func readEvents(ctx context.Context, conn *gemini.Conn, to chan<- event) {
	for {
		m, err := conn.Recv(ctx)
		if _, broken := errors.AsType[*wire.FrameError](err); broken {
			continue
		}
		e := event{err: err}
		if err == nil {
			copied := *m // copied because the next message overwrites m
			e.ServerMessage = &copied
			if m.Content != nil {
				content := *m.Content
				e.voice = time.Duration(len(content.Audio)) * time.Second / time.Duration(max(content.AudioRate, 1))
				copied.Content = &content
			}
		}
		select {
		case to <- e:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// listenUntil handles messages until isDone returns true, but for at most limit. It returns what the server has sent.
func (t *talk) listenUntil(limit time.Duration, isDone func(*modelOutput) bool) (h modelOutput) {
	timer := time.After(limit)
	for !t.isOver && t.conn != nil && !isDone(&h) {
		select {
		case e := <-t.events:
			t.handleEvent(e, &h)
		case <-timer:
			return h
		case <-t.ctx.Done():
			return h
		}
	}
	return h
}

func (t *talk) handleEvent(e event, h *modelOutput) {
	if e.err != nil {
		t.isOver = true
		how := "closed"
		if t.mayBeRefused {
			how = "refused"
		}
		t.addEndFacts(how, e.err)
		return
	}
	if r := e.Resumption; r != nil && r.Resumable && r.Handle != "" {
		t.handle = r.Handle
	}
	h.goAway = h.goAway || e.GoAway != nil
	h.calls = append(h.calls, e.ToolCalls...)
	if e.Tokens != nil {
		h.tokens = *e.Tokens
		t.addCost(h.tokens)
	}
	c := e.Content
	if c == nil {
		return
	}
	h.voice += e.voice
	if e.voice > 0 {
		h.rate = c.AudioRate
	}
	h.text += c.OutputTranscription + c.Text
	h.question += c.InputTranscription
	if c.Interrupted {
		h.interrupted++
	}
	if c.GenerationComplete {
		h.generationCount++
	}
	if c.TurnComplete && (h.voice > h.voiceBefore || len(h.text) > h.textBefore) {
		h.turns++
		h.voiceBefore, h.textBefore = h.voice, len(h.text)
	}
	if c.Interaction != "" {
		h.idle = c.Interaction == wire.Idle
	}
}

// awaitAnswer waits until the model has answered and has finished. If it does not answer, the fact "silent" is added.
func (t *talk) awaitAnswer() modelOutput {
	limit := answerTimeout
	if t.config.Profile.Slow {
		limit = slowTimeout
	}
	h := t.listenUntil(limit, func(h *modelOutput) bool {
		return h.turns > 0 && (h.idle || !t.config.Profile.Slow)
	})
	if !t.isOver && h.voice == 0 && h.text == "" {
		t.addFact("silent")
	}
	return h
}

// awaitCall waits for a function call, and adds the name of the function as a fact. It returns false if no call arrives.
func (t *talk) awaitCall() (call wire.FunctionCall, ok bool) {
	limit := answerTimeout
	if t.config.Profile.Slow {
		limit = slowTimeout
	}
	h := t.listenUntil(limit, func(h *modelOutput) bool { return len(h.calls) > 0 })
	if len(h.calls) == 0 {
		if !t.isOver {
			t.addFact("calls no function")
		}
		return wire.FunctionCall{}, false
	}
	t.addFact("calls %s", h.calls[0].Name)
	return h.calls[0], true
}

// send sends messages. If a message cannot be sent, it only adds a note, because listenUntil reports why the connection
// has ended.
func (t *talk) send(messages ...wire.ClientMessage) {
	for _, m := range messages {
		if t.conn == nil || t.isOver {
			return
		}
		if err := t.conn.Send(t.ctx, m); err != nil {
			t.addNote("a message was not sent: %v", err)
		}
	}
}

// sendText sends a text as a turn, in the form that the model accepts. If isTurnComplete, it requests an answer.
func (t *talk) sendText(text string, isTurnComplete bool) {
	t.send(t.config.TypedTurnMessages(textParts(text), isTurnComplete)...)
}

func textParts(text string) json.RawMessage {
	return mustEncodeJSON([]map[string]string{{"text": text}})
}

// respondToCall responds to a function call. If willContinue is set, further responses to this call follow.
func (t *talk) respondToCall(c wire.FunctionCall, response string, scheduling string, willContinue bool) {
	t.send(wire.ClientMessage{ToolResponse: &wire.ToolResponse{FunctionResponses: []wire.FunctionResponse{
		{ID: c.ID, Name: c.Name, Response: json.RawMessage(response), Scheduling: scheduling, WillContinue: willContinue},
	}}})
}

const frame = 20 * time.Millisecond

// speak sends the spoken sentence and then silence, both in real time: it blocks for their length.
func (t *talk) speak(rate int, silence time.Duration) {
	pcm := g711.MuLaw.AppendDecoded(nil, speech)
	if rate != speechRate {
		pcm = repeatSamples(pcm, rate/speechRate)
	}
	pcm = append(pcm, make([]int16, int(silence.Seconds()*float64(rate)))...)
	ticker := time.NewTicker(frame)
	defer ticker.Stop()
	for piece := range slices.Chunk(pcm, rate/int(time.Second/frame)) {
		if t.conn == nil || t.isOver {
			return
		}
		select {
		case <-ticker.C:
		case <-t.ctx.Done():
			return
		}
		if err := t.conn.SendAudio(t.ctx, piece, rate); err != nil {
			t.addNote("sound was not sent: %v", err)
			return
		}
	}
}

// repeatSamples multiplies the sample rate by repeating samples. The distortion above 4 kHz does not matter for speech
// recognition.
func repeatSamples(pcm []int16, times int) []int16 {
	out := make([]int16, 0, len(pcm)*times)
	for _, s := range pcm {
		for range times {
			out = append(out, s)
		}
	}
	return out
}

// addWordFact adds a fact that says whether the model has said the word.
func (t *talk) addWordFact(h modelOutput, word string) {
	switch {
	case t.isOver || h.text == "" && h.voice == 0: // a fact was added already
	case strings.Contains(strings.ToLower(h.text), word):
		t.addFact("says %s", word)
	default:
		t.addFact("does not say %s", word)
		t.addNote("it said: %.200s", h.text)
	}
}

// addEndFacts adds facts about the end of a connection. verb says how the connection has ended, such as "closed". The
// status code is a fact, but the server's text is only a note, because Google changes its wording.
func (t *talk) addEndFacts(verb string, err error) {
	closed, isClose := errors.AsType[*wire.CloseError](err)
	refused, isRefusal := errors.AsType[*wire.HandshakeError](err)
	failed, isError := errors.AsType[*wire.ServerError](err)
	switch {
	case isClose:
		t.addFact("%s with %d", verb, closed.Code)
		t.recordKeyProblem(closed.Cause())
	case isRefusal:
		t.addFact("%s with HTTP %d", verb, refused.Status)
		t.recordKeyProblem(refused.Cause())
	case isError:
		t.addFact("%s with error %d", verb, failed.Code)
		t.recordKeyProblem(failed.Cause())
	case errors.Is(err, context.DeadlineExceeded):
		t.addFact("%s by silence", verb)
	default:
		t.addFact("%s", verb)
	}
	t.addNote("%v", err)
}

// recordKeyProblem records that a failure is due to the key, if its cause is the quota or the credentials.
func (r *run) recordKeyProblem(cause wire.Cause) {
	if cause == wire.Quota || cause == wire.Auth {
		r.keyProblem = fmt.Sprint(cause)
	}
}
