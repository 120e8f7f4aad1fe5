package client

import (
	"fmt"
	"time"

	"voxgate/bridge"
	"voxgate/signaling/client/protocol"
)

// onMessage handles a client's message. An invalid message gets one error, and the conversation continues.
func (c *webClient) onMessage(w route, raw []byte) {
	began := time.Now()
	m, err := protocol.ParseMessage(raw)
	if err == nil && m.Type == protocol.TypePiece {
		var whole []byte
		if whole, err = c.joiners[w].AddPiece(m); whole != nil {
			c.onMessage(w, whole)
			return
		}
	} else if err == nil {
		err = c.dispatchMessage(w, m)
	}
	media := m.Type == protocol.TypePiece || m.Type == protocol.TypeRealtimeInput
	if err != nil {
		c.rejectMessage(w, err)
	} else if !media {
		c.limiterFor(w).ChargeHeavy()
	}
	if !media || err != nil {
		c.limiterFor(w).ChargeTime(time.Since(began))
	}
}

func (c *webClient) dispatchMessage(w route, m protocol.ClientMessage) error {
	if m.ID != nil && !c.session.MarkReceived(*m.ID) {
		return nil // a duplicate, from a client that could not know that the first one had arrived
	}
	if command, err := m.ParseCommand(replyRoute{c, w}); err != nil {
		return err
	} else if command != nil {
		return c.session.Do(command)
	}
	switch m.Type {
	case protocol.TypeMessage:
		turn, warning, err := m.ParseTurn()
		if err != nil {
			return err
		}
		if warning != "" {
			c.sendWarning(warning)
		}
		return c.session.Do(turn)
	case protocol.TypeRealtimeInput:
		return c.onRealtimeInput(w, m)
	case protocol.TypeToolResponse:
		return c.onToolResponse(m)
	case protocol.TypeDisconnect:
		c.goodbyeRoute = w
		return c.session.Do(bridge.Goodbye{})
	case protocol.TypeOffer:
		sdp, err := m.ParseOffer()
		if err != nil {
			return err
		}
		return c.onOffer(w, sdp)
	case protocol.TypeCandidate:
		return c.onCandidate(m)
	case protocol.TypePing:
		c.router.sendMessage(w, protocol.PongMessage())
		return nil
	case protocol.TypeConnect:
		return &bridge.Error{
			Code: bridge.CodeInvalidState, Field: "type",
			Message: "CONNECT_GEMINI came a second time; UPDATE_CONFIG changes the configuration of this conversation.",
		}
	}
	return protocol.BadField("type", fmt.Sprintf("%q is not a message of this protocol", protocol.ClipText(m.Type)))
}

// replyRoute is the [bridge.Event.ReplyTo] of a client's request. It makes the answer take the same route as the
// request.
type replyRoute struct {
	client *webClient
	route  route
}

// onRealtimeInput forwards audio, a picture, text, or an activity mark.
func (c *webClient) onRealtimeInput(w route, m protocol.ClientMessage) error {
	in, err := m.ParseRealtimeInput(&c.sampleReader)
	if err != nil {
		return err
	}
	if in.PCM == nil {
		c.limiterFor(w).ChargeHeavy()
	}
	if in.Deprecated {
		c.warnOnce("chunks", "chunks and mediaChunks are deprecated and only the first chunk is used; send audio, video or text.")
	}
	if in.PCM != nil {
		if err := c.onAudio(in.PCM, in.Rate); err != nil {
			return err
		}
	}
	if in.Picture != nil {
		c.session.SetFrame(in.MediaType, in.Picture, true)
	}
	if c.mic != nil && in.Pauses {
		c.mic.Flush()
	}
	for _, command := range in.Commands {
		if err := c.session.Do(command); err != nil {
			return err
		}
	}
	return nil
}

// deadMicrophone is the time without packets after which a WebRTC microphone counts as dead. With Opus DTX a silent
// microphone sends a packet every 400 ms.
const deadMicrophone = time.Second

// onAudio accepts audio from the socket, unless WebRTC already carries it. A client that gives up WebRTC sends audio
// here before ICE detects the loss.
func (c *webClient) onAudio(pcm []int16, rate int) error {
	if p := c.peer; p != nil && p.isConnected {
		switch quiet, ok := p.MicrophoneSilence(); {
		case ok && quiet < deadMicrophone:
			c.warnOnce("microphones", "Audio by socket is dropped while a WebRTC microphone is live.")
			return nil
		case ok:
			c.losePeer(p, "")
			c.sendWarning("Audio comes by the socket and none by WebRTC: the WebRTC connection is closed.")
		}
	}
	if !c.audioBySocket {
		c.audioBySocket = true
		c.routeVoice()
	}
	if c.mic == nil || c.mic.Rate() != rate {
		if c.mic != nil {
			c.mic.Flush()
		}
		var err error
		if c.mic, err = c.session.NewMicrophone(rate); err != nil {
			return &bridge.Error{
				Code: bridge.CodeInvalidAudioFormat, Field: "payload.audio.mimeType", Message: "payload.audio.mimeType " + err.Error(),
			}
		}
	}
	return c.mic.WritePCM(pcm)
}

func (c *webClient) onToolResponse(m protocol.ClientMessage) error {
	answers, err := m.ParseToolResponses()
	if err != nil {
		return err
	}
	for _, a := range answers {
		if e := c.session.Do(a); e != nil && err == nil {
			err = e // one error per message; the other results count
		}
	}
	return err
}

// Notify implements [bridge.Caller].
func (c *webClient) Notify(e bridge.Event) {
	m, ok := protocol.EventMessage(e)
	if !ok {
		return
	}
	w := routeEvents
	if reply, ok := e.ReplyTo.(replyRoute); ok && reply.client == c {
		w = reply.route
	}
	switch b := e.Body.(type) {
	case bridge.SetupComplete:
		c.mu.Lock()
		c.setupSent = true
		c.mu.Unlock()
		if !b.Update { // answers CONNECT_GEMINI
			w = routeSocket
		}
		c.router.sendMessage(w, m)
	case bridge.SetupFailed:
		c.router.sendMessage(w, m)
		c.sendError(w, b.Err)
	case bridge.Move:
		c.toldToMove.Store(true)
		c.router.sendMessage(w, m)
	default:
		c.router.sendMessage(w, m)
	}
}
