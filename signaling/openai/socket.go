package openai

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"voxgate/bridge"
	"voxgate/signaling"
)

// socketCall is a conversation whose sound travels in events.
type socketCall struct {
	*call
	own    *listener
	socket *signaling.Socket
	in     <-chan signaling.Message
	mic    *bridge.Microphone
	now    *bridge.Session // owned by Serve, as mic is
}

// Serve implements [bridge.Caller].
func (c *socketCall) Serve(ctx context.Context, s *bridge.Session) error {
	c.now = s
	c.log.Info("client connected", "call", s.ID())
	c.join(c.own)
	s.Attach(c)
	s.Hold(false)
	return c.carry(ctx, s, c.own, c.in, c.socket.Gone(), c.append)
}

// append takes sound of the client.
func (c *socketCall) append(sound []byte) error {
	c.mu.Lock()
	format := c.dialogue.session.Audio.Input.Format.Type
	c.mu.Unlock()
	pcm, rate := c.decoder.decode(format, sound)
	if len(pcm) == 0 {
		return nil
	}
	if c.mic == nil || c.mic.Rate() != rate {
		mic, err := c.now.Mic(rate)
		if err != nil {
			return err
		}
		c.mic = mic
	}
	return c.hear(c.now, c.mic, pcm)
}

// attend keeps a second connection to a call until it is lost, or the call is over.
func (c *call) attend(ctx context.Context, own *listener, in <-chan signaling.Message) error {
	c.join(own)
	defer c.leave(own)
	for {
		select {
		case m, ok := <-in:
			if !ok {
				return nil
			}
			select {
			case c.events <- own.event(m):
			case <-c.over:
			}
		case <-c.over:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// socket serves a WebSocket: a conversation of its own, or with call_id a second connection to a call.
func (d *Door) socket(w http.ResponseWriter, r *http.Request) {
	if d.pass(w, r, r.URL.Query().Get("call_id")) {
		return
	}
	o := signaling.SocketOptions{Limit: maxEvent, Goodbye: goodbye, Subprotocol: subprotocol}
	signaling.ServeSocket(w, r, o, func(ctx context.Context, s *signaling.Socket) error {
		s.Opened() // a client need not say anything
		log := d.Logger.With("door", doorName, "remote", s.Remote())
		to, open, err := d.opening(r, log)
		own, in := &listener{s, s}, s.Messages()
		switch {
		case err != nil:
			to.end(own, err)
		case open == nil:
			err = to.attend(ctx, own, in)
		default:
			err = d.Host.Serve(ctx, &socketCall{call: to, own: own, socket: s, in: in}, *open)
			to.end(own, err)
		}
		if code, _ := goodbye(err); code != signaling.CloseNormal {
			log.Info("client refused or lost", "close", code, "err", clipLong(err.Error()))
		}
		return err
	})
}

// event is what has come by a socket.
func (l *listener) event(m signaling.Message) event {
	switch {
	case m.Err != nil:
		return event{
			from: l,
			err:  &apiError{Code: "invalid_event", Message: fmt.Sprintf("The event is too long: it may have %d bytes.", maxEvent)},
		}
	case !m.Text:
		return event{
			from: l,
			err:  &apiError{Code: "invalid_event", Message: "Expected a text WebSocket message; binary frames are not supported."},
		}
	}
	return l.read(m.Data)
}

// opening is what a socket is for: a conversation to open, or without open a call that there is. The call is there even
// with an error.
func (d *Door) opening(r *http.Request, log *slog.Logger) (to *call, open *bridge.Open, err error) {
	query := r.URL.Query()
	if id := query.Get("call_id"); id != "" {
		if to, err = d.find(r, id); err == nil {
			return to, nil, nil
		}
		return newCall(log, newDialogue("", false, newID)), nil, err
	}
	model := query.Get("model")
	dialogue := newDialogue(model, false, newID)
	guest, err := d.admit(r)
	if err == nil && query.Get("intent") == "transcription" {
		err = &apiError{Code: "invalid_value", Param: "intent", Message: "Sessions that only transcribe are not served."}
	}
	if err == nil {
		open, err = guest.opens(dialogue, model, nil)
	}
	if err == nil {
		open.Quiet = true // the client gets the model's voice alone
	}
	return newCall(log, dialogue), open, err
}

// goodbye is the close code and the reason by which OpenAI's server would say why it is over.
func goodbye(err error) (code int, reason string) {
	code, reason = signaling.Goodbye(err)
	if code == signaling.CloseNormal || code == signaling.CloseGoingAway || errors.Is(err, signaling.ErrSlow) {
		return code, reason
	}
	switch e := ending(err); {
	case e.Type == "server_error":
		return code, reason
	case e.Code == "invalid_api_key":
		return closeUnauthorized, "invalid_request_error.invalid_api_key"
	default:
		return closeInvalid, "invalid_request_error." + e.Code
	}
}

// OpenAI's close codes.
const (
	closeUnauthorized = 3000
	closeInvalid      = 4000
)
