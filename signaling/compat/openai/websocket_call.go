package openai

import (
	"context"
	"log/slog"
	"net/http"

	"voxgate/bridge"
	"voxgate/signaling"
)

// socketCall is a conversation over a WebSocket. Events carry its audio.
type socketCall struct {
	*call
	listener *listener
	socket   *signaling.Socket

	decoder audioDecoder
	mic     *bridge.Microphone // nil before the first audio of the client
}

// Serve implements [bridge.Caller].
func (c *socketCall) Serve(ctx context.Context, s *bridge.Session) error {
	c.log.Info("client connected", "call", s.ID())
	c.appendAudio = func(sound []byte) error { return c.receiveAudio(s, sound) }
	c.setEngine(s)
	c.addListener(c.listener)
	s.AttachOutput(c)
	s.HoldVoice(false)
	return c.runCommands(ctx, c.socket.StartReading(func(m signaling.Message) { c.handleMessage(c.listener, m) }), nil)
}

// receiveAudio handles audio of the client.
func (c *socketCall) receiveAudio(s *bridge.Session, encoded []byte) error {
	c.mu.Lock()
	format := c.dialogue.session.Audio.Input.Format.Type
	c.mu.Unlock()
	pcm, rate := c.decoder.decodeAudio(format, encoded)
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
	return c.writeAudio(c.mic, pcm, rate)
}

// serveListener keeps a second connection to a call until the connection is lost or the call has ended.
func (c *call) serveListener(ctx context.Context, l *listener, socket *signaling.Socket) error {
	c.addListener(l)
	defer c.removeListener(l)
	gone := socket.StartReading(func(m signaling.Message) { c.handleMessage(l, m) })
	select {
	case <-gone:
	case <-c.callEnded:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// serveSocket serves a WebSocket: a new conversation, or with call_id a second connection to a call.
func (srv *Server) serveSocket(w http.ResponseWriter, r *http.Request) {
	if srv.proxyToOwner(w, r, r.URL.Query().Get("call_id")) {
		return
	}
	o := signaling.SocketOptions{Limit: maxEvent, CloseReason: closeReason, Subprotocol: subprotocol}
	signaling.ServeSocket(w, r, o, func(ctx context.Context, s *signaling.Socket) error {
		s.MarkOpened() // the client need not send the first message
		log := srv.Logger.With("door", protocolName, "remote", s.Remote())
		to, open, err := srv.openSocketCall(r, log)
		own := &listener{out: s, rateLimiter: s}
		switch {
		case err != nil:
			to.endCall(own, err)
		case open == nil:
			err = to.serveListener(ctx, own, s)
		default:
			err = srv.Host.Serve(ctx, &socketCall{call: to, listener: own, socket: s}, *open)
			to.endCall(own, err)
		}
		if code, _ := closeReason(err); code != signaling.CloseNormal {
			log.Info("client refused or lost", "close", code, "err", clipLong(err.Error()))
		}
		return err
	})
}

// openSocketCall returns the call that a new socket begins, and the request for its conversation. If the socket names
// an existing call (call_id), it is a second connection to that call, and open is nil. The returned call is never nil,
// even if err is set.
func (srv *Server) openSocketCall(r *http.Request, log *slog.Logger) (to *call, open *bridge.SessionRequest, err error) {
	if err := rejectBeta(r); err != nil {
		return newCall(log, newDialogue("", false, newID)), nil, err
	}
	query := r.URL.Query()
	if id := query.Get("call_id"); id != "" {
		if to, err = srv.findCall(r, id); err == nil {
			return to, nil, nil
		}
		return newCall(log, newDialogue("", false, newID)), nil, err
	}
	dialogue := newDialogue(modelOf(r), false, newID)
	guest, err := srv.admitClient(r)
	if err == nil && query.Get("intent") == "transcription" {
		err = newError("invalid_value", "intent", "Transcription sessions are not supported.")
	}
	if err == nil {
		open, err = srv.configureDialogue(guest, dialogue, nil)
	}
	if err == nil {
		open.NoCues = true // no waiting tones: the client expects only the model's voice
	}
	return newCall(log, dialogue), open, err
}
