package openai

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/signaling"
	"voxgate/signaling/rtc"
)

// filteredEvents are those that a page gets with Azure's ?webrtcfilter=on, which keeps the instructions of the session from it: its backend
// gets all by a WebSocket with the call's id.
var filteredEvents = map[string]bool{
	"input_audio_buffer.speech_started":                     true,
	"input_audio_buffer.speech_stopped":                     true,
	"output_audio_buffer.started":                           true,
	"output_audio_buffer.stopped":                           true,
	"conversation.item.input_audio_transcription.completed": true,
	"conversation.item.added":                               true,
	"conversation.item.created":                             true,
	"response.output_text.delta":                            true,
	"response.output_text.done":                             true,
	"response.output_audio_transcript.delta":                true,
	"response.output_audio_transcript.done":                 true,
}

// readFilter reports whether a request asks for filteredEvents alone. What is neither yes nor no is refused: a client that asks for it
// relies on it.
func readFilter(r *http.Request) (bool, error) {
	switch value := r.URL.Query().Get("webrtcfilter"); strings.ToLower(value) {
	case "on", "true":
		return true, nil
	case "", "off", "false":
		return false, nil
	default:
		return false, refusal("invalid_value", "webrtcfilter", "webrtcfilter must be on or off, not %q.", clip(value))
	}
}

// peerCall is a conversation whose sound travels by WebRTC.
type peerCall struct {
	signaling.HTTPCall
	*call
	door   *Door
	origin bridge.Origin
	shown  [sha256.Size]byte // the hash of the secret that it was begun with

	filtered bool // the page gets filteredEvents alone
}

// Serve implements [bridge.Caller].
func (c *peerCall) Serve(ctx context.Context, s *bridge.Session) error {
	c.log.Info("client connected", "call", s.ID())
	own := &listener{filtered: c.filtered}
	o := rtc.PeerOptions{Session: &heard{signaling.PeerSession{Session: s}, c.call}, Decoder: c.door.OpusDecoder, Logger: c.log}
	channel := signaling.NewDataChannel(&o, rtc.AnyChannel, func(m signaling.Message) {
		m.Text = true // whatever the client calls it
		c.receive(own, m)
	})
	own.out, own.pace = channel, channel
	peer, err := c.AnswerOffer(s, c.door.RTC, o)
	if refused := (*rtc.RefusedError)(nil); errors.As(err, &refused) {
		return badOffer(err)
	}
	if err != nil {
		return err
	}
	defer peer.Close()
	c.serve(s)
	if peer.WantsChannel() {
		c.join(own)
	}
	c.StartMedia(peer)
	if voice := peer.Voice(); voice != nil {
		s.AttachOutput(&unsaid{voice, c.call})
	}
	err = c.carry(ctx, peer.Lost, channel.Failures())
	c.end(own, err)
	channel.Close()
	return err
}

// badOffer is the error for an offer that cannot be answered.
func badOffer(err error) error { return refusal("invalid_offer", "sdp", "The offer %v.", err) }

// heard is the conversation of a peer, whose sound the dialogue hears, too.
type heard struct {
	signaling.PeerSession
	call *call
}

// Mic implements [rtc.Session].
func (h *heard) Mic(rate int) (media.Sink, error) {
	mic, err := h.Session.NewMicrophone(rate)
	return &tap{mic, h.call, rate}, err
}

// tap is a microphone that the dialogue hears, too.
type tap struct {
	media.Sink
	call *call
	rate int
}

// WritePCM implements [media.Sink].
func (t *tap) WritePCM(pcm []int16) error { return t.call.hear(t.Sink, pcm, t.rate) }

// unsaid is the voice of a call, without what is only written.
type unsaid struct {
	media.Output
	call *call
}

// WriteFrame implements [media.Output].
func (u *unsaid) WriteFrame(f media.Frame) error {
	u.call.mu.Lock()
	writes := u.call.dialogue.answer.writes()
	u.call.mu.Unlock()
	if writes {
		f.PCM = make([]int16, len(f.PCM))
	}
	return u.Output.WriteFrame(f)
}
