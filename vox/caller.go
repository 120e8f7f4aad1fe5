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

// pushToTalkConfig is the configuration for a client that marks the user's speech. It extends liveConfig.
var pushToTalkConfig = json.RawMessage(
	`{"inputAudioTranscription":{},"outputAudioTranscription":{},"realtimeInputConfig":{"automaticActivityDetection":{"disabled":true}}}`)

// textRate and textBurst limit how fast a client may type to a text model, because each text is a request that costs
// money.
const (
	textRate  = rate.Limit(1) // per second
	textBurst = 10
)

// caller connects a socket to a conversation. It is a [bridge.Caller].
type caller struct {
	*clientConn
	voice *voiceOutput

	// Only Serve uses the following fields.
	isMuted      bool
	isTalking    bool    // between the marks of push-to-talk
	pcm          []int16 // buffer for the newest frame
	sampleReader media.SampleReader
	textLimiter  *rate.Limiter // limits typed texts

	isTextModel atomic.Bool // the model is a text model, without audio

	assistant  atomic.Pointer[assistant] // assistant of the current conversation; nil before its SetupComplete
	dismissals chan string               // IDs of tool calls whose canvases this client cannot show

	translator translator // used by Notify, whose calls do not overlap
}

// runSession runs a conversation until it ends.
func (cc *clientConn) runSession(ctx context.Context, open bridge.SessionRequest, a *assistant) error {
	c := &caller{clientConn: cc, dismissals: make(chan string, 16), textLimiter: rate.NewLimiter(textRate, textBurst)}
	c.voice = newVoiceOutput(func(pcm []byte, generation uint32) {
		cc.Put(signaling.Outgoing{Data: pcm, CurrentGeneration: &c.voice.minGeneration, Generation: generation})
	})
	open.Config, open.Tools, open.EndpointState = liveConfig, a.desk.Tools(), a
	if a.pushToTalk {
		open.Config = pushToTalkConfig
	}
	err := cc.server.Host.Serve(ctx, c, open)
	c.voice.flushPartial()
	if a := c.assistant.Load(); a != nil {
		a.detachClient(cc)
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
		case m, ok := <-c.messages:
			if !ok {
				return nil
			}
			f := c.parseFrame(m)
			if f.err == nil && f.message.Type == typeEnd {
				_ = s.Do(bridge.Goodbye{}) // fails if it has just ended
				<-ctx.Done()               // do not read on: later messages of the client belong to the next conversation
				return context.Cause(ctx)
			}
			if f.err == nil {
				began := time.Now()
				if f.err = c.handleFrame(s, mic, f); f.sound == nil {
					c.ChargeTime(time.Since(began))
				}
			}
			c.sendError(f.err)
		case id := <-c.dismissals:
			_ = s.Do(bridge.ToolResponse{ID: id, Response: dismissAnswer}) // fails if the call is no longer open
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// handleFrame handles one frame of the client.
func (c *caller) handleFrame(s *bridge.Session, mic *bridge.Microphone, f frame) error {
	m := f.message
	switch m.Type {
	case "": // sound
		if c.isMuted || c.isTextModel.Load() {
			return nil
		}
		c.pcm = c.sampleReader.Append(c.pcm[:0], f.sound)
		return mic.WritePCM(c.pcm)
	case typeMute:
		if c.isMuted == *m.Muted {
			return nil
		}
		if c.isMuted = *m.Muted; c.isMuted {
			c.sampleReader.Reset()
			mic.Flush() // sends the last 20 ms now, and not at the start of the next utterance
			if s.EndpointState().(*assistant).pushToTalk {
				return nil // a message of typeTalk marks the end of the speech
			}
			return s.Do(bridge.AudioStreamEnd)
		}
	case typeTalk:
		return c.markSpeech(s, mic, *m.Talking)
	case typeText:
		if c.isTextModel.Load() && !c.textLimiter.Allow() {
			return &bridge.Error{Code: bridge.CodeStreamLimitExceeded, Message: "Texts arrive too fast; this text was dropped."}
		}
		s.EndpointState().(*assistant).countTypedInput()
		return s.Do(bridge.Message{Text: m.Text, TurnComplete: true})
	case typeAnswer:
		if s.Do(bridge.ToolResponse{ID: m.ID, Response: answerJSON(*m.Yes)}) != nil {
			return badMessage("No question with the id %.40q is open.", m.ID)
		}
	case typeInterrupt:
		err := s.Do(bridge.Interrupt{})
		if c.isTextModel.Load() {
			c.sendMessage(stateFrame{State: stateLive})
		}
		return err
	case typeVersion:
		return s.EndpointState().(*assistant).selectVersion(m)
	case typeStart:
		return &bridge.Error{Code: codeAlreadyStarted, Message: "A conversation is running already: send end before another start."}
	}
	return nil
}

// markSpeech handles the beginning or the end of the user's speech in a conversation with push-to-talk, where the
// client marks the speech.
func (c *caller) markSpeech(s *bridge.Session, mic *bridge.Microphone, isTalking bool) error {
	switch {
	case !s.EndpointState().(*assistant).pushToTalk:
		return badMessage("talk is allowed only in a conversation with pushToTalk.")
	case c.isTextModel.Load() || isTalking == c.isTalking:
		return nil
	}
	c.isTalking = isTalking
	if isTalking {
		return s.Do(bridge.ActivityStart)
	}
	c.sampleReader.Reset()
	mic.Flush()
	return s.Do(bridge.ActivityEnd)
}

// Notify implements bridge.Caller.
func (c *caller) Notify(e bridge.Event) {
	switch b := e.Body.(type) {
	case bridge.SetupComplete:
		writes, mode := !bridge.IsLiveModel(b.Model), modeLive
		c.isTextModel.Store(writes)
		if c.translator.isTextModel = writes; writes {
			mode = modeText
		}
		if b.Update {
			return
		}
		a := c.server.Host.Session(b.SessionID).EndpointState().(*assistant)
		c.assistant.Store(a)
		c.translator.readySent, c.translator.isResumed = true, b.Resumed
		c.sendMessage(readyFrame{
			b.SessionID, a.theme, b.Model, mode, b.Resumed, b.ResumeToken, b.Recording, a.desk.Project.ID(), a.costlyAppModel(),
		})
		a.attachClient(c.clientConn)
		return
	case bridge.Interrupted:
		if b.By == bridge.ByConnectionLoss { // the user has heard everything received so far
			return
		}
		c.voice.discardBefore(b.Generation)
		c.sendMessage(interruptedFrame{})
		return
	case bridge.UserText:
		if a := c.assistant.Load(); a != nil {
			a.countSpokenInput(b.Turn)
		}
	case bridge.ToolCall:
		c.dismissCanvases(b)
	}
	for _, m := range c.translator.translateEvent(e.Body) {
		c.sendMessage(m)
	}
}

// dismissCanvases cancels tool calls that show a canvas which is more than a question, because this client cannot show
// such canvases.
func (c *caller) dismissCanvases(request bridge.ToolCall) {
	for _, call := range request.Calls {
		if _, ok := confirmationText(call); isCanvas(call) && !ok {
			select {
			case c.dismissals <- call.ID:
			default: // the channel is full; the call times out after five minutes
			}
		}
	}
}
