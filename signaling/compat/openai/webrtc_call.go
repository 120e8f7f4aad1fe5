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

// filteredEvents lists the only events that a page gets if it calls with Azure's ?webrtcfilter=on. The filter hides the
// session's instructions from the page. The page's backend gets all events over a WebSocket.
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

// parseFilter reports whether a request asks for filteredEvents only. An unknown value of webrtcfilter is an error,
// because the page could otherwise get events that it must not see.
func parseFilter(r *http.Request) (isFiltered bool, err error) {
	switch value := r.URL.Query().Get("webrtcfilter"); strings.ToLower(value) {
	case "on", "true":
		return true, nil
	case "", "off", "false":
		return false, nil
	default:
		return false, newError("invalid_value", "webrtcfilter", "webrtcfilter must be on or off, not %q.", clip(value))
	}
}

// peerCall is a conversation with its audio over WebRTC.
type peerCall struct {
	signaling.HTTPCall
	*call
	server     *Server
	origin     bridge.Origin
	secretHash [sha256.Size]byte // hash of the client secret that started the call

	filtered bool // the page receives only filteredEvents
}

// Serve implements [bridge.Caller].
func (c *peerCall) Serve(ctx context.Context, s *bridge.Session) error {
	c.log.Info("client connected", "call", s.ID())
	client := &listener{filtered: c.filtered}
	o := rtc.PeerOptions{Session: &dialogueSession{signaling.PeerSession{Session: s}, c.call}, Decoder: c.server.OpusDecoder, Logger: c.log}
	channel := signaling.NewDataChannel(&o, rtc.AnyChannel, func(m signaling.Message) {
		m.Text = true // binary messages are accepted, too
		c.handleMessage(client, m)
	})
	client.out, client.rateLimiter = channel, channel
	peer, err := c.AnswerOffer(s, c.server.RTC, o)
	if refused := (*rtc.RefusedError)(nil); errors.As(err, &refused) {
		return newOfferError(err)
	}
	if err != nil {
		return err
	}
	defer peer.Close()
	c.setEngine(s)
	if peer.WantsChannel() {
		c.addListener(client)
	}
	c.AttachVoiceAndSendAnswer(peer)
	if voice := peer.VoiceOutput(); voice != nil {
		s.AttachOutput(&voiceOutput{voice, c.call})
	}
	err = c.runCommands(ctx, peer.Lost, channel.Failures())
	c.endCall(client, err)
	channel.Close()
	return err
}

// newOfferError returns the error for an offer that cannot be answered.
func newOfferError(err error) error { return newError("invalid_offer", "sdp", "The offer %v.", err) }

// dialogueSession is a peer's session that passes the audio of the microphone to the dialogue, too.
type dialogueSession struct {
	signaling.PeerSession
	call *call
}

// Mic implements [rtc.Session].
func (d *dialogueSession) Mic(rate int) (media.Sink, error) {
	mic, err := d.Session.NewMicrophone(rate)
	return &dialogueMicrophone{mic, d.call, rate}, err
}

// dialogueMicrophone is a microphone that passes its audio to the dialogue, too.
type dialogueMicrophone struct {
	media.Sink
	call *call
	rate int
}

// WritePCM implements [media.Sink].
func (d *dialogueMicrophone) WritePCM(pcm []int16) error {
	return d.call.writeAudio(d.Sink, pcm, d.rate)
}

// voiceOutput sends the model's voice to a WebRTC peer, or silence while the client wants the output as text.
type voiceOutput struct {
	media.Output
	call *call
}

// WriteFrame implements [media.Output].
func (o *voiceOutput) WriteFrame(f media.Frame) error {
	o.call.mu.Lock()
	writes := o.call.dialogue.answer.isText()
	o.call.mu.Unlock()
	if writes {
		f.PCM = make([]int16, len(f.PCM))
	}
	return o.Output.WriteFrame(f)
}
