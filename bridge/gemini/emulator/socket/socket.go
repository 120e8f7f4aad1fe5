// Package socket is the server's side of a WebSocket, with what can go wrong with one: a server that says nothing for a while
// or does not even listen, half a frame, pongs that come late, messages of the future.
package socket

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini/emulator/live"
	"voxgate/bridge/gemini/emulator/scenario"
)

const (
	// messageLimit is what a client may send at once; Google's own limit is not published.
	messageLimit = 16 << 20

	// patience is how long a client may not read.
	patience = 5 * time.Second

	// farewell is how long the answer to a close frame is waited for.
	farewell = time.Second

	// mostHeld bounds what waits for the end of a stall: some minutes of voice. What is more is lost.
	mostHeld = 4096
)

// Conn is one WebSocket. One goroutine calls its methods and receives from its channels.
type Conn struct {
	ws       *websocket.Conn
	scenario *scenario.Scenario

	cancel   context.CancelFunc            // of the reader
	messages chan []byte                   // from the reader, which closes it at its end
	pings    chan string                   // from the reader, if pongs are slow
	readErr  error                         // of the reader; to be read when messages is closed
	ear      atomic.Pointer[chan struct{}] // not nil: the reader reads nothing before it is closed

	stalled  time.Duration // 0: not
	stallEnd time.Time
	held     []live.Object // what will be sent after it
}

// New returns a connection that reads until ctx ends or Close is called, which it must be.
func New(ctx context.Context, ws *websocket.Conn, sc *scenario.Scenario) *Conn {
	ctx, cancel := context.WithCancel(ctx)
	c := &Conn{
		ws: ws, scenario: sc, cancel: cancel,
		// Enough for 5 s of audio in 20 ms; a client that is further ahead waits.
		messages: make(chan []byte, 256),
		pings:    make(chan string, 16), // of which nobody sends more than one in some seconds
	}
	ws.SetReadLimit(messageLimit)
	if sc.SlowPongs > 0 {
		ws.SetPingHandler(func(data string) error {
			select {
			case c.pings <- data:
			default:
			}
			return nil
		})
	}
	go func() {
		defer close(c.messages)
		c.readErr = c.read(ctx)
	}()
	return c
}

// read hands over the client's messages.
func (c *Conn) read(ctx context.Context) error {
	for {
		if ear := c.ear.Load(); ear != nil {
			select {
			case <-*ear:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		_, data, err := c.ws.ReadMessage() // text or binary
		if err != nil {
			return err
		}
		select {
		case c.messages <- data:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Messages gives the client's messages, and is closed when no more can come. While the connection is deaf it is nil.
func (c *Conn) Messages() <-chan []byte {
	if c.ear.Load() != nil {
		return nil
	}
	return c.messages
}

// Pings gives the pings that wait for their Pong, if the scenario has them wait. Others are answered already.
func (c *Conn) Pings() <-chan string { return c.pings }

// Pong answers a ping. It is no message: a model that hangs sits behind a server that answers. An error is the reader's
// to notice.
func (c *Conn) Pong(data string) {
	_ = c.ws.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(patience))
}

// Send sends one message, as a binary frame, which is what Google sends. During a stall it waits, or is lost if there is
// no end to it.
func (c *Conn) Send(message live.Object) error {
	switch c.stalled {
	case 0:
	case scenario.Forever:
		return nil
	default:
		if len(c.held) < mostHeld {
			c.held = append(c.held, message)
		}
		return nil
	}
	if _, first := message["setupComplete"]; c.scenario.EmptyMessages && !first {
		for _, empty := range []live.Object{{}, {"serverContent": live.Object{}}} {
			if err := c.SendRaw(live.Encode(empty)); err != nil {
				return err
			}
		}
	}
	return c.SendRaw(live.Encode(c.scenario.Distort(message)))
}

// SendRaw sends data as one message, stalled or not.
func (c *Conn) SendRaw(data []byte) error {
	if err := c.ws.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	return c.ws.WriteMessage(websocket.BinaryMessage, data)
}

// SendHalf sends half of a frame of voice. Nothing else is being written but control frames, and each of them is one
// write.
func (c *Conn) SendHalf() {
	payload := live.Encode(live.Object{"serverContent": live.Object{"modelTurn": live.Object{"parts": []live.Object{
		live.AudioPart(make([]int16, 960)), // 40 ms, the shortest that Google sends
	}}}})
	// RFC 6455, 5.2: final binary frame, no mask, length in the next two bytes.
	frame := append([]byte{0x82, 126, byte(len(payload) >> 8), byte(len(payload))}, payload...)
	raw := c.ws.NetConn()
	_ = raw.SetWriteDeadline(time.Now().Add(patience))
	_, _ = raw.Write(frame[:len(frame)/2])
}

// Stall has nothing sent for d, and with deaf nothing read. Unless d is forever, Recover is to be called when it has passed.
func (c *Conn) Stall(d time.Duration, deaf bool) {
	c.stalled, c.stallEnd = d, time.Now().Add(min(d, year))
	if deaf && c.ear.Load() == nil {
		ear := make(chan struct{})
		c.ear.Store(&ear)
	}
}

// year stands for Forever where a time must be calculated.
const year = 365 * 24 * time.Hour

// Stalled tells whether there is a stall, and how long it will last, which may be Forever.
func (c *Conn) Stalled() (left time.Duration, stalled bool) {
	switch c.stalled {
	case 0:
		return 0, false
	case scenario.Forever:
		return scenario.Forever, true
	}
	return time.Until(c.stallEnd), true
}

// Recover ends a stall that is over: what waited is sent.
func (c *Conn) Recover() error {
	if c.stalled == 0 || time.Now().Before(c.stallEnd) {
		return nil // another stall has begun meanwhile
	}
	c.stalled = 0
	if ear := c.ear.Swap(nil); ear != nil {
		close(*ear)
	}
	held := c.held
	c.held = nil
	for _, message := range held {
		if err := c.Send(message); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the connection, with a close frame if end is not nil, and waits for the reader. It returns why no more could be
// read.
func (c *Conn) Close(end *live.Closing) error {
	if end != nil && end.Code != websocket.CloseAbnormalClosure {
		c.goodbye(end)
	}
	c.cancel()
	_ = c.ws.Close()
	for range c.messages {
		continue // the reader may be waiting to hand over
	}
	return c.readErr
}

// goodbye sends a close frame and waits for the client's. A connection closed with unread input is reset, and the
// reset overtakes the frame that says why.
func (c *Conn) goodbye(end *live.Closing) {
	if c.ws.WriteControl(websocket.CloseMessage, end.Frame(), time.Now().Add(farewell)) != nil {
		return
	}
	deadline := time.NewTimer(farewell)
	defer deadline.Stop()
	for {
		select {
		case _, open := <-c.messages:
			if !open {
				return
			}
		case <-deadline.C:
			return
		}
	}
}
