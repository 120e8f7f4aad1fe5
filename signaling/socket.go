package signaling

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
)

const (
	// firstMessage is how long a client may take until CONNECT_GEMINI; a socket that says nothing costs a goroutine.
	firstMessage = 10 * time.Second
	// pingInterval and silence notice a client that went away without a word, whose session costs money: three pings may
	// be lost, and a network may be gone for as long as a lift ride takes.
	pingInterval = 5 * time.Second
	silence      = 20 * time.Second
	// writeTimeout bounds one write to the client.
	writeTimeout = 5 * time.Second
	// maxRead is where reading stops, in bytes: no client needs it, and a socket that got this far is closed.
	maxRead = 16 << 20
	// closeTimeout is how long we wait for the client's close frame after ours.
	closeTimeout = time.Second
)

// Close codes: RFC 6455 section 7.4.1, and 1013 of the IANA registry.
const (
	closeNormal    = websocket.CloseNormalClosure
	closeGoingAway = websocket.CloseGoingAway
	closePolicy    = websocket.ClosePolicyViolation
	closeFailed    = websocket.CloseInternalServerErr
	closeTryLater  = websocket.CloseTryAgainLater
)

var errNotText = &bridge.Error{Code: bridge.CodeBadMessage, Message: "Only text messages are understood."}

// socketLine is the [line] over the WebSocket. One reader and one writer at a time.
type socketLine struct {
	conn   *websocket.Conn
	opened bool                          // CONNECT_GEMINI has come; until then the first deadline holds
	pinged atomic.Int64                  // when the last ping was sent, in ns since 1970
	told   func(roundTrip time.Duration) // by a pong, in the reader; it must not block
}

func newSocketLine(conn *websocket.Conn) *socketLine {
	conn.SetReadLimit(maxRead)
	conn.SetReadDeadline(time.Now().Add(firstMessage))
	l := &socketLine{conn: conn}
	conn.SetPongHandler(func(string) error {
		if !l.opened {
			return nil // no pong buys time for the first message
		}
		if sent := l.pinged.Swap(0); sent != 0 && l.told != nil {
			l.told(time.Since(time.Unix(0, sent)))
		}
		return conn.SetReadDeadline(time.Now().Add(silence))
	})
	return l
}

// read returns the next message. errNotText is no reason to stop.
func (l *socketLine) read() ([]byte, error) {
	if l.opened {
		l.conn.SetReadDeadline(time.Now().Add(silence))
	}
	kind, r, err := l.conn.NextReader()
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	if kind != websocket.TextMessage {
		return nil, errNotText
	}
	return raw, nil
}

func (l *socketLine) Limit() int { return 0 }

func (l *socketLine) Ready(context.Context) error { return nil }

func (l *socketLine) Write(message []byte) error {
	l.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	return l.conn.WriteMessage(websocket.TextMessage, message)
}

// ping keeps the socket alive until ctx is done or a ping fails.
func (l *socketLine) ping(ctx context.Context) {
	t := time.NewTicker(pingInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			l.pinged.Store(time.Now().UnixNano())
			if l.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTimeout)) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// goodbye sends a close frame; the reader ends when the client has answered, or after closeTimeout.
func (l *socketLine) goodbye(code int, reason string) {
	const longest = 123 // RFC 6455 section 5.5: a control frame has 125 bytes, two are the code
	if len(reason) > longest {
		reason = reason[:longest]
	}
	frame := websocket.FormatCloseMessage(code, reason)
	if l.conn.WriteControl(websocket.CloseMessage, frame, time.Now().Add(closeTimeout)) != nil {
		l.conn.Close()
		return
	}
	l.conn.SetReadDeadline(time.Now().Add(closeTimeout))
}
