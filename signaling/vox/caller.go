package vox

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/signaling"
)

// micRate is the sample rate of a client's audio, in Hz.
const micRate = 16000

// liveConfig enables transcripts of both sides.
var liveConfig = json.RawMessage(`{"inputAudioTranscription":{},"outputAudioTranscription":{}}`)

// paceOfTexts and textsAtOnce limit how fast a client may type to a text model: each text is a request that costs money.
const (
	paceOfTexts = rate.Limit(1)
	textsAtOnce = 10
)

// caller connects a socket to a conversation. It is a [bridge.Caller].
type caller struct {
	*visit
	voice *voice

	// The following fields are used by Serve.
	muted  bool
	pcm    []int16 // buffer for the newest frame
	stream media.SampleReader
	pace   *rate.Limiter // limits typed texts

	writes atomic.Bool // the model is a text model, without audio

	assistant atomic.Pointer[assistant] // of the current conversation; nil before its SetupComplete
	dismissed chan string               // IDs of questions that this client cannot show

	translator translator // used by Notify, whose calls do not overlap
}

// carry runs a conversation until it ends.
func (v *visit) carry(ctx context.Context, open bridge.SessionRequest, a *assistant) error {
	c := &caller{visit: v, dismissed: make(chan string, 16), pace: rate.NewLimiter(paceOfTexts, textsAtOnce)}
	c.voice = newVoice(func(pcm []byte, generation uint32) {
		v.Put(signaling.Outgoing{Data: pcm, CurrentGeneration: &c.voice.void, Generation: generation})
	})
	open.Config, open.Tools, open.EndpointState = liveConfig, a.desk.Tools(), a
	err := v.door.Host.Serve(ctx, c, open)
	c.voice.flush()
	if a := c.assistant.Load(); a != nil {
		a.leave(v)
	}
	return err
}

// Serve implements bridge.Caller.
func (c *caller) Serve(ctx context.Context, s *bridge.Session) error {
	mic, err := s.NewMicrophone(micRate)
	if err != nil {
		return err
	}
	c.session.Store(s)
	defer c.session.Store(nil)
	c.log.Info("client connected", "call", s.ID())
	s.AttachOutput(c.voice)
	s.HoldVoice(false)
	for {
		select {
		case m, ok := <-c.in:
			if !ok {
				return nil
			}
			f := c.frame(m)
			if f.err == nil && f.message.Type == typeEnd {
				_ = s.Do(bridge.Goodbye{}) // fails if it has just ended
				<-ctx.Done()               // later messages of the client belong to the next conversation
				return context.Cause(ctx)
			}
			if f.err == nil {
				began := time.Now()
				if f.err = c.do(s, mic, f); f.sound == nil {
					c.ChargeTime(time.Since(began))
				}
			}
			c.complain(f.err)
		case id := <-c.dismissed:
			_ = s.Do(bridge.ToolResponse{ID: id, Response: dismissed}) // fails if the call is no longer open
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// do handles one frame of the client.
func (c *caller) do(s *bridge.Session, mic *bridge.Microphone, f frame) error {
	m := f.message
	switch m.Type {
	case "": // sound
		if c.muted || c.writes.Load() {
			return nil
		}
		c.pcm = c.stream.Append(c.pcm[:0], f.sound)
		return mic.WritePCM(c.pcm)
	case typeMute:
		if c.muted == *m.Muted {
			return nil
		}
		if c.muted = *m.Muted; c.muted {
			c.stream.Reset()
			mic.Flush() // otherwise the last 20 ms would begin the next utterance
			return s.Do(bridge.AudioStreamEnd)
		}
	case typeText:
		if c.writes.Load() && !c.pace.Allow() {
			return &bridge.Error{Code: bridge.CodeStreamLimitExceeded, Message: "Too much is typed in too short a time; this was dropped."}
		}
		s.EndpointState().(*assistant).countText()
		return s.Do(bridge.Message{Text: m.Text, TurnComplete: true})
	case typeAnswer:
		if s.Do(bridge.ToolResponse{ID: m.ID, Response: answerTo(*m.Yes)}) != nil {
			return bad("No question with the id %.40q waits for an answer.", m.ID)
		}
	case typeInterrupt:
		err := s.Do(bridge.Interrupt{})
		if c.writes.Load() {
			c.put(stateFrame{State: stateLive})
		}
		return err
	case typeVersion:
		return s.EndpointState().(*assistant).use(m)
	case typeStart:
		return &bridge.Error{Code: codeAlreadyStarted, Message: "There is a conversation already: end must be before another start."}
	}
	return nil
}

// Notify implements bridge.Caller.
func (c *caller) Notify(e bridge.Event) {
	switch b := e.Body.(type) {
	case bridge.SetupComplete:
		writes, mode := !bridge.IsLiveModel(b.Model), modeLive
		c.writes.Store(writes)
		if c.translator.writes = writes; writes {
			mode = modeText
		}
		if b.Update {
			return
		}
		a := c.door.Host.Session(b.SessionID).EndpointState().(*assistant)
		c.assistant.Store(a)
		c.translator.begun, c.translator.back = true, b.Resumed
		c.put(ready{b.SessionID, a.theme, b.Model, mode, b.Resumed, b.ResumeToken, b.Recording, a.desk.Project.ID()})
		a.follow(c.visit)
		return
	case bridge.Interrupted:
		if b.By == bridge.ByConnectionLoss { // the user has heard everything received so far
			return
		}
		c.voice.cut(b.Generation)
		c.put(interrupted{})
		return
	case bridge.UserText:
		if a := c.assistant.Load(); a != nil {
			a.countSpeech(b.Turn)
		}
	case bridge.ToolCall:
		c.dismiss(b)
	}
	for _, m := range c.translator.translate(e.Body) {
		c.put(m)
	}
}

// dismiss cancels canvases that are more complex than a question, which this client cannot show.
func (c *caller) dismiss(asked bridge.ToolCall) {
	for _, call := range asked.Calls {
		if _, ok := yesOrNo(call); isCanvas(call) && !ok {
			select {
			case c.dismissed <- call.ID:
			default: // the call times out after five minutes
			}
		}
	}
}
