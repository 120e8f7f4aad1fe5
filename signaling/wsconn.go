package signaling

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/signaling/access"
)

const (
	// firstMessageTimeout limits the time until [WSConn.MarkOpened] is called, because an idle socket occupies a
	// goroutine.
	firstMessageTimeout = 10 * time.Second
	pingInterval        = 5 * time.Second
	// silenceTimeout is the silence after which a client counts as gone. It must not be long, because the client's
	// session still costs money. But three pings may be lost, as in a lift without network.
	silenceTimeout = 20 * time.Second
	// writeTimeout limits one write to the client.
	writeTimeout = 5 * time.Second
	// maxRead limits a message, in bytes. No client needs longer messages, and a longer message closes the socket.
	maxRead = 16 << 20
	// closeTimeout limits the wait for the client's close frame after the gateway has sent its own.
	closeTimeout = time.Second
	// maxReason limits the reason in a close frame, in bytes. A control frame has at most 125 bytes, two of which are
	// the close code (RFC 6455 section 5.5).
	maxReason = 123
)

// Close codes of WebSockets. They are from RFC 6455 section 7.4.1, and 1013 is from the IANA registry.
const (
	CloseNormal    = websocket.CloseNormalClosure
	CloseGoingAway = websocket.CloseGoingAway
	ClosePolicy    = websocket.ClosePolicyViolation
	CloseInvalid   = websocket.CloseInvalidFramePayloadData
	CloseFailed    = websocket.CloseInternalServerErr
	CloseTryLater  = websocket.CloseTryAgainLater
)

var upgrader = websocket.Upgrader{
	Subprotocols:     []string{access.Subprotocol},
	HandshakeTimeout: writeTimeout, ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10, WriteBufferPool: &sync.Pool{},
	CheckOrigin: func(*http.Request) bool { return true }, // checked by the server
}

// WSConn is a WebSocket to a client. At any time, only one goroutine may read, and only one may write.
type WSConn struct {
	conn             *websocket.Conn
	remote           string              // the client's address
	isOpened         atomic.Bool         // MarkOpened was called; before that the deadline is firstMessageTimeout
	releaseWait      func()              // called once to end the count of this connection as one without a first message
	pingedAt         atomic.Int64        // when the last ping was sent, in ns since 1970
	roundTrip        func(time.Duration) // called for pongs, by the reader
	limiter          *RateLimiter
	isCloseFrameSent atomic.Bool // the close frame was sent

	mu        sync.Mutex
	isClosing bool // the read deadline is final, because the close frame was sent
}

// acceptWebSocket upgrades a request to a WebSocket. If the upgrade fails, it answers the request itself.
func acceptWebSocket(o SocketOptions, w http.ResponseWriter, r *http.Request) (*WSConn, error) {
	upgrader, roundTrip := upgrader, o.OnRoundTrip
	if o.Subprotocol != "" && slices.Contains(websocket.Subprotocols(r), o.Subprotocol) {
		upgrader.Subprotocols = []string{o.Subprotocol}
	}
	releaseWait, err := access.From(r.Context()).CountUnopened()
	if err != nil {
		access.WriteError(w, err)
		return nil, err
	}
	limiter := NewRateLimiter()
	conn, err := upgrader.Upgrade(limitedWriter{w, limiter}, r, nil)
	if err != nil {
		releaseWait()
		return nil, err
	}
	l := &WSConn{
		conn: conn, remote: conn.RemoteAddr().String(), releaseWait: sync.OnceFunc(releaseWait), roundTrip: roundTrip,
		limiter: limiter,
	}
	if from := access.From(r.Context()).Address(); from.IsValid() {
		l.remote = from.String()
	}
	conn.SetReadLimit(maxRead)
	conn.SetReadDeadline(time.Now().Add(firstMessageTimeout))
	pong := conn.PingHandler()
	conn.SetPingHandler(func(data string) error { // answering a ping costs time, so pings are limited
		limiter.waitMessage()
		limiter.ChargeHeavy()
		return pong(data)
	})
	conn.SetPongHandler(func(string) error {
		limiter.waitMessage()
		if !l.isOpened.Load() {
			return nil // a pong does not extend the time for the first message
		}
		if sent := l.pingedAt.Swap(0); sent != 0 && l.roundTrip != nil {
			l.roundTrip(time.Since(time.Unix(0, sent)))
		}
		l.setReadDeadline(silenceTimeout, false)
		return nil
	})
	return l, nil
}

// Remote returns the client's address, even if the client is behind a trusted proxy.
func (w *WSConn) Remote() string { return w.remote }

// Limiter returns the rate limiter for the client's messages.
func (w *WSConn) Limiter() *RateLimiter { return w.limiter }

// ChargeTime records how long the processing of a client's message took. Do not call it for audio and pictures. A
// client that needs more than 0.1 s per second in the long run is throttled.
func (w *WSConn) ChargeTime(duration time.Duration) { w.limiter.ChargeTime(duration) }

// MarkOpened records that the required first message has arrived. If it is not called within 10 s, the connection is
// closed. After it, pongs and messages of the client keep the connection open.
func (w *WSConn) MarkOpened() {
	w.isOpened.Store(true)
	w.setReadDeadline(silenceTimeout, false)
	w.releaseWait()
}

// Next blocks until the next message begins. It skips unread data of the previous message. It throttles a client that
// sends more than 500 messages or 4 MiB a second, or messages that take too long to process (see [WSConn.ChargeTime]).
func (w *WSConn) Next() (message io.Reader, isText bool, err error) {
	if w.isOpened.Load() {
		w.setReadDeadline(silenceTimeout, false)
	}
	kind, message, err := w.conn.NextReader()
	if err != nil {
		return nil, false, err
	}
	w.limiter.waitMessage()
	return message, kind == websocket.TextMessage, nil
}

// Write sends a message. It blocks for at most 5 s.
func (w *WSConn) Write(message []byte, isText bool) error {
	kind := websocket.BinaryMessage
	if isText {
		kind = websocket.TextMessage
	}
	w.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	return w.conn.WriteMessage(kind, message)
}

// PingUntil pings the client until ctx is done or a ping fails.
func (w *WSConn) PingUntil(ctx context.Context) {
	t := time.NewTicker(pingInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			w.pingedAt.Store(time.Now().UnixNano())
			if w.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTimeout)) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// SendCloseFrame sends a close frame. Only the first call has an effect. After it, Next returns an error when the
// client has answered, or after a second. SendCloseFrame shortens a reason of more than 123 bytes.
func (w *WSConn) SendCloseFrame(code int, reason string) {
	if w.isCloseFrameSent.Swap(true) {
		return
	}
	if len(reason) > maxReason {
		end := maxReason
		for !utf8.RuneStart(reason[end]) { // half a character would make the frame invalid, and the reason is lost
			end--
		}
		reason = reason[:end]
	}
	frame := websocket.FormatCloseMessage(code, reason)
	if w.conn.WriteControl(websocket.CloseMessage, frame, time.Now().Add(closeTimeout)) != nil {
		w.conn.Close()
		return
	}
	w.setReadDeadline(closeTimeout, true)
}

// setReadDeadline sets the read deadline to d from now. After a call with isFinal set, further calls have no effect.
func (w *WSConn) setReadDeadline(d time.Duration, isFinal bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isClosing {
		w.isClosing = isFinal
		w.conn.SetReadDeadline(time.Now().Add(d))
	}
}

// Close closes the connection.
func (w *WSConn) Close() {
	w.releaseWait()
	w.conn.Close()
}

// ErrNoFirstMessage is the error of a socket whose client has not begun a conversation.
var ErrNoFirstMessage = errors.New("no message that begins a conversation arrived in time")

// CloseReason returns the close code and the reason that the client gets for an error of bridge.Host.Serve.
func CloseReason(err error) (code int, reason string) {
	var limit bridge.Limit
	switch {
	case err == nil, errors.Is(err, bridge.ErrLeft), errors.Is(err, bridge.ErrGoodbye), errors.Is(err, bridge.ErrReplaced):
		return CloseNormal, ""
	case errors.Is(err, bridge.ErrShutdown), errors.Is(err, context.Canceled):
		return CloseGoingAway, ""
	case errors.As(err, &limit):
		return CloseNormal, limit.Error()
	case errors.Is(err, ErrSlow):
		return CloseTryLater, err.Error()
	case errors.Is(err, ErrNoFirstMessage):
		return ClosePolicy, err.Error()
	}
	switch e := bridge.AsError(err); e.Code {
	case bridge.CodeUnauthorized, bridge.CodeForbidden:
		return ClosePolicy, e.Message
	case bridge.CodeBusy:
		return CloseTryLater, e.Message
	default:
		return CloseFailed, e.Message
	}
}
