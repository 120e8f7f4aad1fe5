package gemini

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/wire"
)

// Conn is a Live connection, opened by Dial. One goroutine may send while another receives. Any goroutine may call
// Close. The server's pings are answered only while Recv runs.
type Conn struct {
	ws     *websocket.Conn
	key    api.Secret // key that is removed from texts of the server
	closed chan struct{}
	close  func() error
	trace  func(sent bool, frame []byte) // called with each message; may be nil

	sessionID string // set by Dial; "" if the server sends no ID

	// Used only by the sending goroutine.
	frame     []byte // the audio message being built
	sentCount int64  // number of sent messages, including the setup

	// Used only by the receiving goroutine.
	dec      *wire.Decoder
	pending  []*wire.ServerMessage // contents that came with or before setupComplete, for the next calls of Recv
	finalErr error                 // the first error that ended receiving

	// Guarded by mu.
	mu            sync.Mutex
	followedDone  <-chan struct{} // Done channel of the context of the current read, which ends when the channel is closed
	stopFollowing func() bool     // stops the effect of that context; nil if there is none
}

func newConn(ws *websocket.Conn, key api.Secret) *Conn {
	c := &Conn{ws: ws, key: key, closed: make(chan struct{}), dec: wire.NewDecoder()}
	ws.SetReadLimit(readLimit)
	c.close = sync.OnceValue(c.closeConnection)
	return c
}

// Close sends a close frame if the peer still reads, and closes the connection. Send and Recv calls in progress return
// an error that wraps net.ErrClosed. Further calls of Close return the first result.
func (c *Conn) Close() error { return c.close() }

func (c *Conn) closeConnection() error {
	close(c.closed)
	bye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	// The error is ignored: the connection is closed below in any case.
	_ = c.ws.WriteControl(websocket.CloseMessage, bye, time.Now().Add(closeTimeout))
	err := c.ws.Close()
	c.setReadContext(context.Background())
	return err
}

// SessionID returns Google's ID of the session, which Google's support asks for. Vertex AI sends an ID, but the Gemini
// API does not.
func (c *Conn) SessionID() string { return c.sessionID }

// isClosed reports whether Close has been called.
func (c *Conn) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// SendAudio sends mono samples at rate Hz. Any length is allowed; 20 to 40 ms are recommended. It does not retain pcm.
// It blocks like Send.
func (c *Conn) SendAudio(ctx context.Context, pcm []int16, rate int) error {
	c.frame = wire.AppendAudio(c.frame[:0], pcm, rate)
	return c.writeFrame(ctx, c.frame)
}

// Send sends one message. If the peer does not read, it fails after 2 s or at ctx's deadline, and the connection is
// then unusable. Close interrupts Send, but cancelling ctx does not.
func (c *Conn) Send(ctx context.Context, m wire.ClientMessage) error {
	frame, err := m.Encode()
	if err != nil {
		return err
	}
	return c.writeFrame(ctx, frame)
}

// LastSentIndex returns the index of the last message sent, for Vertex AI's lastConsumedClientMessageIndex. Only the
// sender may call it.
//
// Google does not document where the count begins. We assume that the setup of each connection is message 0. Logs of
// ADK on Vertex AI show 1, 2, 3 after the first messages. A client of the public endpoint says "0 is reserved for
// setup".
func (c *Conn) LastSentIndex() int64 { return c.sentCount - 1 }

func (c *Conn) writeFrame(ctx context.Context, frame []byte) error {
	if ctx.Err() != nil {
		return fmt.Errorf("gemini: send: %w", contextError(ctx))
	}
	deadline := time.Now().Add(writeTimeout)
	d, bounded := ctx.Deadline()
	if bounded = bounded && d.Before(deadline); bounded {
		deadline = d
	}
	err := c.ws.SetWriteDeadline(deadline)
	if err == nil {
		err = c.ws.WriteMessage(websocket.TextMessage, frame)
	}
	switch {
	case err == nil:
		c.sentCount++
		if c.trace != nil {
			c.trace(true, frame)
		}
		return nil
	case c.isClosed():
		return fmt.Errorf("gemini: send: %w", net.ErrClosed)
	case bounded && isTimeout(err):
		return fmt.Errorf("gemini: send: %w: %w", context.DeadlineExceeded, err)
	default:
		return fmt.Errorf("gemini: send: %w", err)
	}
}

// Recv returns the next message. SetupComplete is never set, because Dial handles it. The next call overwrites the
// Audio of the message. If the message has only audio, the next call overwrites the whole message. The caller may keep
// all other data.
//
// Use the same ctx for all calls: each change of ctx costs allocations.
//
// The connection continues after a *wire.FrameError or a *wire.ServerError. Every other error is final, and each
// further call returns it again. A final error is a *wire.CloseError, the error of ctx, or net.ErrClosed after Close.
func (c *Conn) Recv(ctx context.Context) (*wire.ServerMessage, error) {
	if len(c.pending) > 0 {
		m := c.pending[0]
		c.pending = c.pending[1:]
		return m, nil
	}
	m, err := c.readMessage(ctx)
	if err != nil {
		return nil, fmt.Errorf("gemini: receive: %w", err)
	}
	return m, nil
}

// performSetup sends the setup and receives messages until the server has accepted it.
func (c *Conn) performSetup(ctx context.Context, frame []byte) error {
	ctx, cancel := context.WithTimeoutCause(ctx, setupTimeout,
		fmt.Errorf("no setupComplete within %v: %w", setupTimeout, context.DeadlineExceeded))
	defer cancel()
	defer c.setReadContext(context.Background())
	if err := c.writeFrame(ctx, frame); err != nil {
		// The server may have closed the connection with a reason during the write. The reason is more informative than the error of
		// the write.
		if !isTimeout(err) {
			if _, rerr := c.readMessage(ctx); rerr != nil {
				return rerr
			}
		}
		return err
	}
	for {
		m, err := c.readMessage(ctx)
		if err != nil {
			if _, broken := errors.AsType[*wire.FrameError](err); broken {
				continue
			}
			return err
		}
		done := m.SetupComplete
		if m.SessionID != "" {
			c.sessionID = wire.OneLine(m.SessionID, maxSessionID)
		}
		if m.SetupComplete = false; !m.Empty() {
			c.pending = append(c.pending, m)
			c.dec = wire.NewDecoder() // m points into the decoder, so it gets a new one
		}
		if done {
			return nil
		}
	}
}

// readMessage reads and decodes one message.
func (c *Conn) readMessage(ctx context.Context) (*wire.ServerMessage, error) {
	if c.finalErr != nil {
		return nil, c.finalErr
	}
	if ctx.Err() != nil {
		return nil, contextError(ctx)
	}
	in, err := c.readFrame(ctx)
	if err != nil {
		c.finalErr = err
		c.setReadContext(context.Background())
		return nil, err
	}
	m, err := c.dec.Decode(in.Bytes())
	if in.Cap() <= keepBuffer {
		buffers.Put(in)
	}
	if e, ok := errors.AsType[*wire.ServerError](err); ok {
		e.Message = wire.OneLine(c.key.Hide(e.Message), wire.MaxReason)
	}
	return m, err
}

// buffers holds buffers for messages while they are read and decoded. A connection that waits for a message holds no
// buffer.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// readFrame returns the next message, in a buffer from buffers. It accepts text and binary messages, because the server
// sends both.
func (c *Conn) readFrame(ctx context.Context) (*bytes.Buffer, error) {
	c.setReadContext(ctx)
	_, r, err := c.ws.NextReader()
	if err == nil {
		in := buffers.Get().(*bytes.Buffer)
		in.Reset()
		if _, err = in.ReadFrom(r); err == nil {
			if c.trace != nil {
				c.trace(false, in.Bytes())
			}
			return in, nil
		}
	}
	if c.isClosed() {
		return nil, net.ErrClosed
	}
	if ctx.Err() != nil {
		return nil, contextError(ctx)
	}
	if errors.Is(err, websocket.ErrReadLimit) {
		return nil, &wire.CloseError{Code: websocket.CloseMessageTooBig, Reason: "the server sent a message over our limit"}
	}
	if closed, ok := errors.AsType[*websocket.CloseError](err); ok {
		return nil, &wire.CloseError{Code: closed.Code, Reason: wire.OneLine(c.key.Hide(closed.Text), maxCloseReason)}
	}
	return nil, &wire.CloseError{Code: websocket.CloseAbnormalClosure, Reason: "connection lost: " + err.Error(), Err: err}
}

// setReadContext makes the current read and all later reads end when ctx is done, instead of the ctx of the previous
// call. Each change of ctx costs four allocations.
func (c *Conn) setReadContext(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := ctx.Done()
	if done == c.followedDone {
		return
	}
	if c.stopFollowing != nil {
		c.stopFollowing()
		c.stopFollowing = nil
		_ = c.ws.SetReadDeadline(time.Time{}) // the previous ctx may have set the deadline after its last read
	}
	if c.followedDone = done; done == nil {
		return
	}
	c.stopFollowing = context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.followedDone == done {
			_ = c.ws.SetReadDeadline(time.Unix(1, 0))
		}
	})
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// contextError returns the error of a context that is done: it wraps ctx.Err() and the cause.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
