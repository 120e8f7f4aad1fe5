package emulator

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini/emulator/live"
)

const (
	// messageLimit limits a client's message, in bytes; Google's own limit is not published.
	messageLimit = 16 << 20

	// writeTimeout limits a write to a client that does not read.
	writeTimeout = 5 * time.Second

	// closeTimeout limits the wait for the client's answer to a close frame.
	closeTimeout = time.Second
)

// conn is one WebSocket. Only one goroutine calls its methods and receives from its channels.
type conn struct {
	ws       *websocket.Conn
	scenario *Scenario

	cancel   context.CancelFunc // ends the reader
	incoming chan []byte        // messages from the reading goroutine, which closes the channel when it ends
	readErr  error              // error of the reading goroutine; valid when incoming is closed

	isSilent bool        // send has no effect
	isDeaf   atomic.Bool // no more messages are read
}

// newConn returns a connection that reads until ctx is done or close is called. The caller must call close even if ctx
// is done.
func newConn(ctx context.Context, ws *websocket.Conn, sc *Scenario) *conn {
	ctx, cancel := context.WithCancel(ctx)
	c := &conn{
		ws: ws, scenario: sc, cancel: cancel,
		// The buffer is enough for 5 s of audio in messages of 20 ms. If it is full, the emulator stops reading until
		// there is space.
		incoming: make(chan []byte, 256),
	}
	ws.SetReadLimit(messageLimit)
	if sc.SlowPongs > 0 {
		ws.SetPingHandler(func(data string) error {
			time.AfterFunc(sc.SlowPongs, func() {
				_ = ws.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(writeTimeout)) // the reading goroutine notices errors
			})
			return nil
		})
	}
	go func() {
		defer close(c.incoming)
		c.readErr = c.readLoop(ctx)
	}()
	return c
}

// readLoop forwards the client's messages to incoming.
func (c *conn) readLoop(ctx context.Context) error {
	for {
		if c.isDeaf.Load() {
			<-ctx.Done()
			return ctx.Err()
		}
		_, data, err := c.ws.ReadMessage() // text and binary messages are accepted
		if err != nil {
			return err
		}
		select {
		case c.incoming <- data:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// messages returns the channel of the client's messages, which is closed after the last message. It is nil if isDeaf is
// set.
func (c *conn) messages() <-chan []byte {
	if c.isDeaf.Load() {
		return nil
	}
	return c.incoming
}

// send sends one message, in a binary frame like Google. It does nothing if isSilent is set.
func (c *conn) send(message live.Object) error {
	if c.isSilent {
		return nil
	}
	return c.sendRaw(live.Encode(message))
}

// sendRaw sends data as one message, even if isSilent is set.
func (c *conn) sendRaw(data []byte) error {
	if err := c.ws.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return c.ws.WriteMessage(websocket.BinaryMessage, data)
}

// close ends the connection, and waits for the reading goroutine. If end is not nil, it sends a close frame. It returns
// the error of the reading goroutine.
func (c *conn) close(end *live.Closing) error {
	if end != nil && end.Code != websocket.CloseAbnormalClosure {
		c.closeHandshake(end)
	}
	c.cancel()
	_ = c.ws.Close()
	for range c.incoming {
		continue // discards messages, because the reading goroutine may be blocked in a send
	}
	return c.readErr
}

// closeHandshake sends a close frame and waits for the client's close frame. It reads and discards the client's
// messages meanwhile: if the connection were closed with unread input, the kernel would reset it, and the reset could
// overtake the close frame.
func (c *conn) closeHandshake(end *live.Closing) {
	if c.ws.WriteControl(websocket.CloseMessage, end.Frame(), time.Now().Add(closeTimeout)) != nil {
		return
	}
	deadline := time.After(closeTimeout)
	for {
		select {
		case _, open := <-c.incoming:
			if !open {
				return
			}
		case <-deadline:
			return
		}
	}
}
