package emulator

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini/emulator/live"
)

const (
	// messageLimit is what a client may send at once; Google's own limit is not published.
	messageLimit = 16 << 20

	// patience is how long a client may not read.
	patience = 5 * time.Second

	// farewell is how long the answer to a close frame is waited for.
	farewell = time.Second
)

// conn is one WebSocket. One goroutine calls its methods and receives from its channels.
type conn struct {
	ws       *websocket.Conn
	scenario *Scenario

	cancel   context.CancelFunc // of the reader
	incoming chan []byte        // from the reader, which closes it at its end
	readErr  error              // of the reader; to be read when incoming is closed

	silent bool        // nothing more is sent
	deaf   atomic.Bool // nothing more is read
}

// newConn returns a connection that reads until ctx ends or Close is called, which it must be.
func newConn(ctx context.Context, ws *websocket.Conn, sc *Scenario) *conn {
	ctx, cancel := context.WithCancel(ctx)
	c := &conn{
		ws: ws, scenario: sc, cancel: cancel,
		// Enough for 5 s of audio in 20 ms; a client that is further ahead waits.
		incoming: make(chan []byte, 256),
	}
	ws.SetReadLimit(messageLimit)
	if sc.SlowPongs > 0 {
		ws.SetPingHandler(func(data string) error {
			time.AfterFunc(sc.SlowPongs, func() {
				_ = ws.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(patience)) // an error is the reader's to notice
			})
			return nil
		})
	}
	go func() {
		defer close(c.incoming)
		c.readErr = c.read(ctx)
	}()
	return c
}

// read hands over the client's messages.
func (c *conn) read(ctx context.Context) error {
	for {
		if c.deaf.Load() {
			<-ctx.Done()
			return ctx.Err()
		}
		_, data, err := c.ws.ReadMessage() // text or binary
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

// messages gives the client's messages, and is closed when no more can come. While the connection is deaf it is nil.
func (c *conn) messages() <-chan []byte {
	if c.deaf.Load() {
		return nil
	}
	return c.incoming
}

// send sends one message, as a binary frame, which is what Google sends.
func (c *conn) send(message live.Object) error {
	if c.silent {
		return nil
	}
	return c.sendRaw(live.Encode(message))
}

// sendRaw sends data as one message, silent or not.
func (c *conn) sendRaw(data []byte) error {
	if err := c.ws.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	return c.ws.WriteMessage(websocket.BinaryMessage, data)
}

// close ends the connection, with a close frame if end is not nil, and waits for the reader. It returns why no more could be
// read.
func (c *conn) close(end *live.Closing) error {
	if end != nil && end.Code != websocket.CloseAbnormalClosure {
		c.goodbye(end)
	}
	c.cancel()
	_ = c.ws.Close()
	for range c.incoming {
		continue // the reader may be waiting to hand over
	}
	return c.readErr
}

// goodbye sends a close frame and waits for the client's. A connection closed with unread input is reset, and the
// reset overtakes the frame that says why.
func (c *conn) goodbye(end *live.Closing) {
	if c.ws.WriteControl(websocket.CloseMessage, end.Frame(), time.Now().Add(farewell)) != nil {
		return
	}
	deadline := time.After(farewell)
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
