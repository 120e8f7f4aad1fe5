package openai

import (
	"context"
	"log/slog"
	"net/http"

	"voxgate/bridge"
	"voxgate/signaling"
)

// socketCall is a conversation with its audio in events.
type socketCall struct {
	*call
	own    *listener
	socket *signaling.Socket

	decoder decoder
	mic     *bridge.Microphone // nil until needed
}

// Serve implements [bridge.Caller].
func (c *socketCall) Serve(ctx context.Context, s *bridge.Session) error {
	c.log.Info("client connected", "call", s.ID())
	c.append = func(sound []byte) error { return c.takeSound(s, sound) }
	c.serve(s)
	c.join(c.own)
	s.AttachOutput(c)
	s.HoldVoice(false)
	return c.carry(ctx, c.socket.StartReading(func(m signaling.Message) { c.receive(c.own, m) }), nil)
}

// takeSound handles audio of the client.
func (c *socketCall) takeSound(s *bridge.Session, sound []byte) error {
	c.mu.Lock()
	format := c.dialogue.session.Audio.Input.Format.Type
	c.mu.Unlock()
	pcm, rate := c.decoder.decode(format, sound)
	if len(pcm) == 0 {
		return nil
	}
	if c.mic == nil || c.mic.Rate() != rate {
		mic, err := s.NewMicrophone(rate)
		if err != nil {
			return err
		}
		c.mic = mic
	}
	return c.hear(c.mic, pcm, rate)
}

// attend keeps a second connection to a call until the connection is lost or the call has ended.
func (c *call) attend(ctx context.Context, own *listener, socket *signaling.Socket) error {
	c.join(own)
	defer c.leave(own)
	gone := socket.StartReading(func(m signaling.Message) { c.receive(own, m) })
	select {
	case <-gone:
	case <-c.over:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// socket serves a WebSocket: a new conversation, or with call_id a second connection to a call.
func (d *Door) socket(w http.ResponseWriter, r *http.Request) {
	if d.pass(w, r, r.URL.Query().Get("call_id")) {
		return
	}
	o := signaling.SocketOptions{Limit: maxEvent, CloseReason: goodbye, Subprotocol: subprotocol}
	signaling.ServeSocket(w, r, o, func(ctx context.Context, s *signaling.Socket) error {
		s.MarkOpened() // a client need not send anything first
		log := d.Logger.With("door", doorName, "remote", s.Remote())
		to, open, err := d.opening(r, log)
		own := &listener{out: s, pace: s}
		switch {
		case err != nil:
			to.end(own, err)
		case open == nil:
			err = to.attend(ctx, own, s)
		default:
			err = d.Host.Serve(ctx, &socketCall{call: to, own: own, socket: s}, *open)
			to.end(own, err)
		}
		if code, _ := goodbye(err); code != signaling.CloseNormal {
			log.Info("client refused or lost", "close", code, "err", clipLong(err.Error()))
		}
		return err
	})
}

// opening returns the call of a socket, and the request for its conversation, or nil if the socket is a second connection
// to an existing call. The call is set even with an error.
func (d *Door) opening(r *http.Request, log *slog.Logger) (to *call, open *bridge.SessionRequest, err error) {
	if err := rejectBeta(r); err != nil {
		return newCall(log, newDialogue("", false, newID)), nil, err
	}
	query := r.URL.Query()
	if id := query.Get("call_id"); id != "" {
		if to, err = d.find(r, id); err == nil {
			return to, nil, nil
		}
		return newCall(log, newDialogue("", false, newID)), nil, err
	}
	dialogue := newDialogue(modelOf(r), false, newID)
	guest, err := d.admit(r)
	if err == nil && query.Get("intent") == "transcription" {
		err = refusal("invalid_value", "intent", "Sessions that only transcribe are not served.")
	}
	if err == nil {
		open, err = d.opens(guest, dialogue, nil)
	}
	if err == nil {
		open.NoCues = true // the client gets only the model's voice
	}
	return newCall(log, dialogue), open, err
}
