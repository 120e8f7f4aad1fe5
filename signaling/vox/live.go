package vox

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/signaling"
)

// micRate is the rate of a client's sound in Hz.
const micRate = 16000

// liveConfig has both sides written down.
var liveConfig = json.RawMessage(`{"inputAudioTranscription":{},"outputAudioTranscription":{}}`)

// live carries a conversation with a Live model by one socket. It is its [bridge.Caller].
type live struct {
	*visit
	voice *voice

	// Owned by Serve.
	muted bool
	pcm   []int16 // of the newest frame

	assistant atomic.Pointer[assistant] // of the conversation that is carried; nil before its SetupComplete
	dismissed chan string               // ids of questions that this client cannot show

	translator translator // owned by Notify, whose calls come one at a time
}

// live runs a conversation with a Live model.
func (v *visit) live(ctx context.Context, open bridge.Open, a *assistant) error {
	c := &live{visit: v, dismissed: make(chan string, 16)}
	c.voice = newVoice(func(pcm []byte, generation uint32) {
		v.Put(signaling.Outgoing{Data: pcm, Void: &c.voice.void, Generation: generation})
	})
	open.Config, open.Tools, open.Own = liveConfig, a.desk.Tools(), a
	err := v.door.Host.Serve(ctx, c, open)
	c.voice.flush()
	if a := c.assistant.Load(); a != nil {
		a.leave(v)
	}
	return err
}

// Serve implements bridge.Caller.
func (c *live) Serve(ctx context.Context, s *bridge.Session) error {
	mic, err := s.Mic(micRate)
	if err != nil {
		return err
	}
	c.session.Store(s)
	defer c.session.Store(nil)
	c.log.Info("client connected", "call", s.ID())
	s.Attach(c.voice)
	s.Hold(false)
	for {
		select {
		case m, ok := <-c.in:
			if !ok {
				return nil
			}
			f := c.frame(m)
			if f.err == nil && f.message.Type == typeEnd {
				_ = s.Do(bridge.Goodbye{}) // fails if it has just ended
				<-ctx.Done()               // what the client has sent after it is for the next one
				return context.Cause(ctx)
			}
			if f.err == nil {
				began := time.Now()
				if f.err = c.do(s, mic, f); f.sound == nil {
					c.Spent(time.Since(began))
				}
			}
			c.complain(f.err)
		case id := <-c.dismissed:
			_ = s.Do(bridge.ToolResponse{ID: id, Response: dismissed}) // fails if it is no longer awaited
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// do does what a frame asks for.
func (c *live) do(s *bridge.Session, mic *bridge.Microphone, f frame) error {
	m := f.message
	switch m.Type {
	case "": // sound
		if c.muted {
			return nil
		}
		c.pcm = media.AppendSamples(c.pcm[:0], f.sound)
		return mic.WritePCM(c.pcm)
	case typeMute:
		if c.muted == *m.Muted {
			return nil
		}
		if c.muted = *m.Muted; c.muted {
			mic.Flush() // or its last 20 ms would be the first of what is said next
			return s.Do(bridge.AudioStreamEnd)
		}
	case typeText:
		s.Own().(*assistant).countText()
		return s.Do(bridge.Message{Text: m.Text, TurnComplete: true})
	case typeAnswer:
		if s.Do(bridge.ToolResponse{ID: m.ID, Response: answerTo(*m.Yes)}) != nil {
			return noQuestion(m.ID)
		}
	case typeInterrupt:
		return s.Do(bridge.Interrupt{})
	case typeVersion:
		return s.Own().(*assistant).use(m)
	case typeStart:
		return errStarted
	}
	return nil
}

var errStarted = &bridge.Error{Code: codeAlreadyStarted, Message: "There is a conversation already: end must be before another start."}

func noQuestion(id string) error {
	return bad("No question with the id %.40q waits for an answer.", id)
}

// Notify implements bridge.Caller.
func (c *live) Notify(e bridge.Event) {
	switch b := e.Body.(type) {
	case bridge.SetupComplete:
		if b.Update {
			return
		}
		a := c.door.Host.Session(b.SessionID).Own().(*assistant)
		c.assistant.Store(a)
		c.translator.begun, c.translator.back = true, b.Resumed
		c.put(ready{b.SessionID, a.theme, b.Model, modeLive, b.Resumed, b.ResumeToken, b.Recording, a.desk.Project.ID()})
		a.follow(c.visit)
		return
	case bridge.Interrupted:
		if b.By == bridge.ByLink { // all that came of the answer was heard
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

// dismiss puts canvases away that are more than a question.
func (c *live) dismiss(asked bridge.ToolCall) {
	for _, call := range asked.Calls {
		if _, ok := yesOrNo(call); isCanvas(call) && !ok {
			select {
			case c.dismissed <- call.ID:
			default: // it is given up in five minutes
			}
		}
	}
}
