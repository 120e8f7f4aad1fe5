package signaling

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"voxgate/bridge"
)

// onMessage does what a client's message asks for. Whatever is wrong with it is answered once, and the conversation
// goes on.
func (c *call) onMessage(w way, raw []byte) {
	e, err := parseEnvelope(raw)
	if err == nil && e.Type == typePiece {
		if c.pieces[w] == nil {
			c.pieces[w] = puzzles{}
		}
		var whole []byte
		if whole, err = c.pieces[w].add(e); whole != nil {
			c.onMessage(w, whole)
			return
		}
	} else if err == nil {
		err = c.dispatch(w, e)
	}
	c.reply(w, err)
}

func (c *call) dispatch(w way, e envelope) error {
	if e.ID != nil && !c.session.Arrived(*e.ID) {
		return nil // sent again by a client that could not know
	}
	switch e.Type {
	case typeMessage:
		var p messagePayload
		if err := e.decode(&p); err != nil {
			return err
		}
		command, err := p.command()
		if err != nil {
			return err
		}
		return c.session.Do(command)
	case typeRealtimeInput:
		return c.onRealtimeInput(e)
	case typeToolResponse:
		return c.onToolResponse(e)
	case typeUpdateConfig:
		if len(e.Payload) == 0 {
			return badField("payload", "is missing")
		}
		return c.ask(&c.setups, w, bridge.UpdateConfig{Config: e.Payload})
	case typeGetContext:
		return c.ask(&c.contexts, w, bridge.GetContext{})
	case typeClearContext:
		return c.ask(&c.contexts, w, bridge.ClearContext{})
	case typeDisconnect:
		c.goodbyeWay = w
		return c.session.Do(bridge.Goodbye{})
	case typeOffer:
		var p offerPayload
		if err := e.decode(&p); err != nil {
			return err
		}
		return c.onOffer(w, p)
	case typeCandidate:
		return c.onCandidate(e)
	case typeConnect:
		return &bridge.Error{
			Code: bridge.CodeInvalidState, Field: "type",
			Message: "CONNECT_GEMINI came a second time; UPDATE_CONFIG changes the configuration of this conversation.",
		}
	}
	return badField("type", fmt.Sprintf("%q is not a message of this protocol", clip(e.Type)))
}

// maxAsked bounds the answers of one kind that a client may wait for at once.
const maxAsked = 64

// ask gives the session a command that is answered by an event, and keeps where the answer goes: see answerWay.
func (c *call) ask(ways *[]way, w way, command bridge.Command) error {
	c.mu.Lock()
	full := len(*ways) >= maxAsked
	if !full {
		*ways = append(*ways, w) // before the answer can come
	}
	c.mu.Unlock()
	if full {
		return &bridge.Error{Code: bridge.CodeStreamLimitExceeded, Message: fmt.Sprintf("More than %d answers are owed already.", maxAsked)}
	}
	err := c.session.Do(command)
	if err != nil { // there will be no answer
		c.mu.Lock()
		*ways = (*ways)[:max(0, len(*ways)-1)]
		c.mu.Unlock()
	}
	return err
}

// onRealtimeInput passes on audio, a picture, text, or a mark.
func (c *call) onRealtimeInput(e envelope) error {
	var p realtimePayload
	if err := e.decode(&p); err != nil {
		return err
	}
	old, err := p.modernise()
	if err != nil {
		return err
	}
	if old && !c.warnedOld {
		c.warnedOld = true
		c.warn("chunks and mediaChunks are deprecated and only the first chunk is used; send audio, video or text.")
	}
	said := false
	if p.Audio != nil {
		said = true
		if err := c.onAudio(*p.Audio); err != nil {
			return err
		}
	}
	if p.Video != nil {
		said = true
		mediaType, data, err := p.Video.decode("payload.video")
		if err != nil {
			return err
		}
		if mediaType != "image/jpeg" && mediaType != "image/png" {
			return badField("payload.video.mimeType", fmt.Sprintf("%q is neither image/jpeg nor image/png", clip(mediaType)))
		}
		c.session.SetFrame(mediaType, data)
	}
	var commands []bridge.Command
	if p.Text != nil {
		commands = append(commands, bridge.Text{Text: *p.Text})
	}
	if p.ActivityStart {
		commands = append(commands, bridge.ActivityStart)
	}
	if p.ActivityEnd {
		commands = append(commands, bridge.ActivityEnd)
	}
	if p.AudioStreamEnd {
		commands = append(commands, bridge.AudioStreamEnd)
	}
	if !said && len(commands) == 0 {
		return badField("payload", "has neither text, audio, video nor a mark")
	}
	if c.mic != nil && (p.ActivityEnd || p.AudioStreamEnd) {
		c.mic.Flush()
	}
	for _, command := range commands {
		if err := c.session.Do(command); err != nil {
			return err
		}
	}
	return nil
}

// onAudio takes the microphone's audio by socket, unless WebRTC carries it already.
func (c *call) onAudio(b blob) error {
	pcm, rate, err := b.pcm("payload.audio")
	if err != nil {
		return badAudio(err)
	}
	if c.peer != nil && c.peer.connected && c.peer.microphone.Load() != nil {
		if !c.warnedTwo {
			c.warnedTwo = true
			c.warn("Audio by socket is dropped while a WebRTC microphone is live.")
		}
		return nil
	}
	if !c.byRequest {
		c.byRequest = true
		c.steer()
	}
	if c.mic == nil || c.mic.Rate() != rate {
		if c.mic != nil {
			c.mic.Flush()
		}
		if c.mic, err = c.session.Mic(rate); err != nil {
			return badAudio(badField("payload.audio.mimeType", err.Error()))
		}
	}
	return c.mic.WritePCM(pcm)
}

// badAudio says of an error in a message that it is the audio that cannot be used.
func badAudio(err error) error {
	e := *bridge.AsError(err)
	e.Code = bridge.CodeInvalidAudioFormat
	return &e
}

func (c *call) onToolResponse(e envelope) error {
	var p toolResponsePayload
	if err := e.decode(&p); err != nil {
		return err
	}
	answers, err := p.commands()
	if err != nil {
		return err
	}
	for _, a := range answers {
		if e := c.session.Do(a); e != nil && err == nil {
			err = e // one message, one error; the other answers count
		}
	}
	return err
}

// offerRate and offerBurst bound what a client can make us compute: an offer costs 3 ms, a candidate or audio 10 us.
const (
	offerRate  = rate.Limit(1)
	offerBurst = 10
)

// onOffer answers an offer: for the peer there is if it comes from the same one, else for a new one that replaces it.
func (c *call) onOffer(w way, payload offerPayload) error {
	if !c.offers.Allow() {
		return &bridge.Error{
			Code: bridge.CodeBadOffer, Field: "type",
			Message: fmt.Sprintf("Too many offers: %d at once and %v a second are served.", offerBurst, offerRate),
		}
	}
	o, err := parseOffer(payload.SDP)
	if err != nil {
		return err
	}
	p := c.next
	if p == nil || p.fingerprint != o.fingerprint {
		p = c.peer
	}
	fresh := p == nil || p.fingerprint != o.fingerprint
	if fresh {
		if p, err = c.newPeer(w, o.fingerprint); err != nil {
			return err
		}
	} else if o.ufrag != p.ufrag && w == channel {
		// The restart cuts the path that the channel runs over before the answer can take it.
		if c.socket == nil {
			return &bridge.Error{
				Code: bridge.CodeBadOffer, Field: "payload.sdp",
				Message: "payload.sdp restarts ICE, which cuts the data channel until the answer is there: send it by WebSocket.",
			}
		}
		w = socket
	}
	p.from = w
	answer, err := p.apply(o)
	if err != nil {
		if fresh {
			c.closePeer(p)
		}
		return err
	}
	c.out.put(w, typeAnswer, marshal(offerPayload{SDP: answer}))
	if fresh {
		c.seat(p)
	}
	c.byRequest = false
	c.steer()
	for _, i := range c.early {
		c.reply(w, p.addCandidate(i))
	}
	c.early = nil
	return nil
}

// seat gives a new peer its place: at once if there is none, else when it has connected.
func (c *call) seat(p *peer) {
	switch {
	case c.peer == nil:
		c.peer = p
	case c.peer.connected:
		if c.next != nil {
			c.closePeer(c.next)
		}
		c.next = p
	default: // the one before has not even connected
		c.closePeer(c.peer)
		c.peer = p
	}
	p.late = time.AfterFunc(connectTimeout, func() {
		c.post(func() {
			if !p.connected {
				c.losePeer(p, fmt.Sprintf("WebRTC did not connect within %v; the voice goes on over the WebSocket.", connectTimeout))
			}
		})
	})
}

// onCandidate takes one of the client's candidates, for the newest peer. One that comes before the offer is kept.
func (c *call) onCandidate(e envelope) error {
	var i candidatePayload
	if err := e.decode(&i); err != nil {
		return err
	}
	if i.Candidate != nil && len(*i.Candidate) > maxCandidate {
		return &bridge.Error{Code: bridge.CodeBadOffer, Field: "payload.candidate", Message: "payload.candidate is too long"}
	}
	p := c.next
	if p == nil {
		p = c.peer
	}
	if p != nil {
		return p.addCandidate(i)
	}
	if len(c.early) >= maxCandidates {
		return &bridge.Error{
			Code: bridge.CodeBadOffer, Field: "payload.candidate",
			Message: fmt.Sprintf("More than %d candidates came before the offer.", maxCandidates),
		}
	}
	c.early = append(c.early, i)
	return nil
}
