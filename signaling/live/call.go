package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/protocol"
	"voxgate/tools"
)

const (
	// maxMessage bounds a message, in bytes: a picture of 8 MiB in base64, as at the first door.
	maxMessage = 11 << 20
	// maxLogged bounds what a line of the log has of a stranger's, in bytes.
	maxLogged = 300
)

// call is one socket. It is a [bridge.Caller] and the [media.Output] of its conversation.
type call struct {
	door   *Door
	line   *signaling.Line
	log    *slog.Logger
	out    *signaling.Outbox[outgoing]
	frames chan frame    // that have come; closed when the socket is lost
	ready  chan struct{} // closed when the client was told that the conversation is there
	failed chan error    // a change of the configuration was refused

	session atomic.Pointer[bridge.Session]       // nil before Serve
	back    atomic.Pointer[bridge.SetupComplete] // of a conversation that goes on; nil: it is a new one
	void    atomic.Uint32                        // voice of generations before this one is not to be heard
	changes atomic.Int32                         // of the configuration that the client waits for

	reader     reader             // owned by run, then by Serve
	mic        *bridge.Microphone // owned by Serve, and dropped
	dropped    bool               // the log has told of what was not passed on
	translator translator         // owned by Notify, whose calls come one at a time

	begun sync.Once
	hello [][]byte // what the client is told first; there when ready is closed
}

// kept is what the door keeps for a conversation: the newest config that a client wanted.
type kept struct {
	mu     sync.Mutex
	config []byte
}

// swap keeps another config, and reports whether it is one.
func (k *kept) swap(config []byte) (changed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	changed = !bytes.Equal(k.config, config)
	k.config = config
	return changed
}

// frame is a message of the client.
type frame struct {
	data []byte
	err  error // it cannot be used
}

// outgoing is a message to the client.
type outgoing struct {
	data       []byte
	voice      bool
	generation uint32 // of the voice
}

func newCall(d *Door) *call {
	return &call{
		door: d, out: signaling.NewOutbox[outgoing](), frames: make(chan frame, 8),
		ready: make(chan struct{}), failed: make(chan error, 1),
	}
}

// onRoundTrip does not block.
func (c *call) onRoundTrip(d time.Duration) {
	if s := c.session.Load(); s != nil {
		s.RoundTrip(d)
	}
}

// read takes what comes by the socket until it is lost, or nobody wants it any more.
func (c *call) read(gone <-chan struct{}) {
	defer close(c.frames)
	for limit := protocol.MaxControl; ; limit = maxMessage { // a setup has no pictures, and may be a stranger's
		data, _, err := c.line.Read(limit)
		f := frame{data: data}
		switch {
		case errors.Is(err, signaling.ErrTooLong):
			f.err = invalid("", fmt.Sprintf("The message is too long: it may have %d bytes.", limit))
		case err != nil:
			return
		}
		c.line.Opened()
		select {
		case c.frames <- f:
		case <-gone:
			return
		}
	}
}

// write sends what was queued, but no voice that was cut off since. Google's server sends binary messages; clients in browsers rely on it.
func (c *call) write(_ context.Context, o outgoing) error {
	if o.voice && o.generation < c.void.Load() {
		return nil
	}
	return c.line.Write(o.data, false)
}

// send sends what is queued, from when the conversation is there. A client that is not let in, until over, is sent nothing.
func (c *call) send(over <-chan struct{}) error {
	select {
	case <-c.ready:
	case <-over:
		select {
		case <-c.ready:
		default:
			return nil
		}
	}
	for _, m := range c.hello {
		if err := c.line.Write(m, false); err != nil {
			return err
		}
	}
	return c.out.Run(context.Background(), c.write) // the goodbye is written, too
}

// begin tells the client that the conversation is there, the first time. What was queued before follows.
func (c *call) begin(b bridge.SetupComplete) {
	c.begun.Do(func() {
		c.hello = ready(b)
		close(c.ready)
	})
}

// run waits for the setup, lets the client in, and carries its conversation until it has ended or the socket is lost.
func (c *call) run(ctx context.Context, token string) error {
	opening, err := c.setup(ctx)
	if err != nil {
		return err
	}
	config := encode(c.reader.config)
	open := bridge.Open{
		Config: config, Resumable: opening.handles, ResumeToken: opening.handle,
		Quiet: true, Origin: bridge.Origin{Door: doorName}, Own: &kept{config: config},
	}
	if opening.handle != "" {
		open.Instead = bridge.ErrNotResumed
	}
	if err := access.From(ctx).Authorize(&open, token); err != nil {
		return err
	}
	return c.door.Host.Serve(ctx, c, open)
}

// setup waits for the first message.
func (c *call) setup(ctx context.Context) (*setup, error) {
	select {
	case f, ok := <-c.frames:
		switch {
		case !ok:
			return nil, errNoSetup
		case f.err != nil:
			return nil, f.err
		}
		q, err := c.reader.parse(f.data)
		return q.setup, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Serve implements bridge.Caller.
func (c *call) Serve(ctx context.Context, s *bridge.Session) error {
	c.session.Store(s)
	defer c.session.Store(nil)
	c.log.Info("client connected", "call", s.ID())
	if err := c.goOn(s); err != nil {
		return err
	}
	s.Attach(c)
	ready := c.ready
	for {
		select {
		case <-ready:
			s.Hold(false)
			ready = nil
		case f, ok := <-c.frames:
			if !ok {
				return nil
			}
			if err := c.take(s, f); err != nil {
				return err
			}
		case err := <-c.failed:
			s.Own().(*kept).swap(nil) // it is not so
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// goOn goes on with a conversation, if it is not a new one. One that the client wants otherwise now is there when it is so.
func (c *call) goOn(s *bridge.Session) error {
	back, config := c.back.Load(), encode(c.reader.config)
	switch {
	case back == nil:
	case s.Own().(*kept).swap(config):
		c.changes.Add(1)
		return s.Do(bridge.UpdateConfig{Config: config})
	default:
		c.begin(*back)
	}
	return nil
}

// take does what a message asks for.
func (c *call) take(s *bridge.Session, f frame) error {
	if f.err != nil {
		return f.err
	}
	began := time.Now()
	q, err := c.reader.parse(f.data)
	if err != nil {
		return err
	}
	if q.input == nil || q.input.PCM == nil && q.input.Picture == nil {
		defer func() { c.line.Spent(time.Since(began)) }()
	}
	if q.dropped != "" && !c.dropped {
		c.dropped = true
		c.log.Info("not passed on", "call", s.ID(), "what", q.dropped)
	}
	if q.input != nil {
		return c.hear(s, *q.input)
	}
	for _, command := range q.commands {
		if update, ok := command.(bridge.UpdateConfig); ok {
			s.Own().(*kept).swap(update.Config)
			c.changes.Add(1)
		}
		if err := s.Do(command); err != nil {
			return err
		}
	}
	for _, a := range q.answers {
		err := s.Do(a)
		if e := bridge.AsError(err); err != nil && e.Code != bridge.CodeInvalidState { // else nobody waits for it any more, as Google takes it
			return err
		}
	}
	return nil
}

// hear passes on sound, a picture, text, or a mark.
func (c *call) hear(s *bridge.Session, in protocol.RealtimeInput) error {
	if in.PCM != nil {
		if c.mic == nil || c.mic.Rate() != in.Rate {
			c.flush()
			var err error
			if c.mic, err = s.Mic(in.Rate); err != nil {
				return err
			}
		}
		if err := c.mic.WritePCM(in.PCM); err != nil {
			return err
		}
	}
	if in.Picture != nil {
		s.SetFrame(in.MediaType, in.Picture, true)
	}
	if in.Pauses {
		c.flush()
	}
	for _, command := range in.Commands {
		err := s.Do(command)
		if _, mark := command.(bridge.Activity); mark && err != nil && bridge.AsError(err).Code == bridge.CodeInvalidState {
			return invalid(nameRealtime, "activityStart and activityEnd go with automaticActivityDetection.disabled, audioStreamEnd without.")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *call) flush() {
	if c.mic != nil {
		c.mic.Flush()
	}
}

// Notify implements bridge.Caller.
func (c *call) Notify(e bridge.Event) {
	switch b := e.Body.(type) {
	case bridge.SetupComplete:
		switch {
		case b.Resumed: // Serve sees to it
			c.back.Store(&b)
		case !b.Update:
			c.begin(b)
		case c.changed() && c.back.Load() != nil:
			c.begin(*c.back.Load())
		}
		return
	case bridge.SetupFailed:
		if !c.changed() {
			return
		}
		select {
		case c.failed <- b.Err:
		default: // one is enough
		}
	case bridge.Interrupted:
		if b.By != bridge.ByLink {
			c.void.Store(b.Generation)
		}
	case bridge.Log:
		if b.Level == "warn" {
			c.log.Info("for the client's developer", "message", tools.Cut(inSetup.Replace(b.Message), maxLogged))
		}
	}
	for _, m := range c.translator.translate(e.Body) {
		c.out.Put(outgoing{data: m}, len(m))
	}
}

// changed reports whether an answer to a change of the configuration is to one of the client's, and not of the operator's backend.
func (c *call) changed() bool {
	ours := c.changes.Load() > 0
	if ours {
		c.changes.Add(-1)
	}
	return ours
}

// Lead and WriteFrame implement media.Output. Clients are made for a voice that comes as Google sends it, and some take
// generationComplete for its end (livekit-plugins-google 1.8.9, realtime_api.py), so nothing of it may come later.
func (c *call) Lead() time.Duration { return media.AtOnce }

var _ media.Filler = (*call)(nil)

// Full implements media.Filler.
func (c *call) Full() bool { return c.out.Full() }

// WriteFrame implements media.Output.
func (c *call) WriteFrame(f media.Frame) error {
	message := encodeVoice(f.PCM)
	c.out.Put(outgoing{data: message, voice: true, generation: f.Generation}, len(message))
	return nil
}
