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
	// firstMessage is how long a client may take until [Result.Opened]; a socket that says nothing costs a goroutine.
	firstMessage = 10 * time.Second
	// pingInterval and silence notice a client that went away without a word, whose session costs money: three pings
	// may be lost, and a network may be gone for as long as a lift ride takes.
	pingInterval = 5 * time.Second
	silence      = 20 * time.Second
	// writeTimeout bounds one write to the client.
	writeTimeout = 5 * time.Second
	// maxRead is where reading stops, in bytes: no client needs it, and a socket that got this far is closed.
	maxRead = 16 << 20
	// closeTimeout is how long we wait for the client's close frame after ours.
	closeTimeout = time.Second
	// maxReason is how long the reason of a close frame may be: a control frame has 125 bytes, two are the code (RFC
	// 6455 section 5.5).
	maxReason = 123
)

// Close codes of WebSockets: RFC 6455 section 7.4.1, and 1013 of the IANA registry.
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
	CheckOrigin: func(*http.Request) bool { return true }, // the server has
}

// Line is a WebSocket to a client. One goroutine may read and one write at a time.
type Line struct {
	conn      *websocket.Conn
	remote    string              // the client's address
	opened    atomic.Bool         // until then the first deadline holds
	arrived   func()              // it counts no longer among those that have not opened
	pinged    atomic.Int64        // when the last ping was sent, in ns since 1970
	roundTrip func(time.Duration) // by a pong, in the reader
	pace      *Pace
	left      atomic.Bool // the goodbye is sent

	mu      sync.Mutex
	leaving bool // the last deadline holds
}

// accept makes a line of a request for a WebSocket. If it fails it has answered the request.
func accept(o SocketOptions, w http.ResponseWriter, r *http.Request) (*Line, error) {
	upgrader, roundTrip := upgrader, o.RoundTrip
	switch {
	case o.Subprotocol != "" && slices.Contains(websocket.Subprotocols(r), o.Subprotocol):
		upgrader.Subprotocols = []string{o.Subprotocol}
	case o.Required:
		http.Error(w, "Here is spoken the WebSocket subprotocol "+o.Subprotocol+".", http.StatusBadRequest)
		return nil, errors.New("the subprotocol is not offered")
	}
	arrived, err := access.From(r.Context()).Wait()
	if err != nil {
		access.Refuse(w, err)
		return nil, err
	}
	pace := NewPace()
	conn, err := upgrader.Upgrade(pacedWriter{w, pace}, r, nil)
	if err != nil {
		arrived()
		return nil, err
	}
	l := &Line{conn: conn, remote: conn.RemoteAddr().String(), arrived: sync.OnceFunc(arrived), roundTrip: roundTrip, pace: pace}
	if from := access.From(r.Context()).Address(); from.IsValid() {
		l.remote = from.String()
	}
	conn.SetReadLimit(maxRead)
	conn.SetReadDeadline(time.Now().Add(firstMessage))
	pong := conn.PingHandler()
	conn.SetPingHandler(func(data string) error { // an answer for each
		pace.message()
		pace.Charge()
		return pong(data)
	})
	conn.SetPongHandler(func(string) error {
		pace.message()
		if !l.opened.Load() {
			return nil // no pong buys time for the first message
		}
		if sent := l.pinged.Swap(0); sent != 0 && l.roundTrip != nil {
			l.roundTrip(time.Since(time.Unix(0, sent)))
		}
		l.listen(silence, false)
		return nil
	})
	return l, nil
}

// Remote is the client's address, also behind a proxy that is trusted.
func (l *Line) Remote() string { return l.remote }

// Pace is the pace at which the client is read.
func (l *Line) Pace() *Pace { return l.pace }

// Spent says how long it took to act on something that the client has sent, but for sound and pictures. A client that takes more
// than a tenth of a processor in the long run is read no faster.
func (l *Line) Spent(took time.Duration) { l.pace.Spent(took) }

// Opened says that the first message has come which a client must send: before it a line lives for 10 s, after it as
// long as the client answers pings.
func (l *Line) Opened() {
	l.opened.Store(true)
	l.listen(silence, false)
	l.arrived()
}

// Next blocks until the next message begins. text tells what kind of message it is. What is left unread of it is passed
// over by the call after, and nothing of it is kept. A client that sends more than 500 messages or 4 MiB a second, or
// what takes too long to act on (see [Result.SpendingReport]), is read no faster.
func (l *Line) Next() (message io.Reader, text bool, err error) {
	if l.opened.Load() {
		l.listen(silence, false)
	}
	kind, message, err := l.conn.NextReader()
	if err != nil {
		return nil, false, err
	}
	l.pace.message()
	return message, kind == websocket.TextMessage, nil
}

// Write sends a message. It blocks for 5 s at most.
func (l *Line) Write(message []byte, text bool) error {
	kind := websocket.BinaryMessage
	if text {
		kind = websocket.TextMessage
	}
	l.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	return l.conn.WriteMessage(kind, message)
}

// Ping pings the client until ctx is done or a ping fails.
func (l *Line) Ping(ctx context.Context) {
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

// Goodbye sends a close frame, the first time; Next ends when the client has answered, or after a second. A reason of
// more than 123 bytes is shortened.
func (l *Line) Goodbye(code int, reason string) {
	if l.left.Swap(true) {
		return
	}
	if len(reason) > maxReason {
		end := maxReason
		for !utf8.RuneStart(reason[end]) { // half a character makes the frame invalid, and the reason is lost
			end--
		}
		reason = reason[:end]
	}
	frame := websocket.FormatCloseMessage(code, reason)
	if l.conn.WriteControl(websocket.CloseMessage, frame, time.Now().Add(closeTimeout)) != nil {
		l.conn.Close()
		return
	}
	l.listen(closeTimeout, true)
}

// listen gives the client so much time. After the last time nothing that it sends buys more.
func (l *Line) listen(d time.Duration, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leaving {
		l.leaving = last
		l.conn.SetReadDeadline(time.Now().Add(d))
	}
}

// Close lets go of the socket.
func (l *Line) Close() {
	l.arrived()
	l.conn.Close()
}

// ErrUnopened is the end of a socket whose client has begun no conversation.
var ErrUnopened = errors.New("no message that begins a conversation came in time")

// Goodbye is the close code and the reason for a client, for why bridge.Host.Serve has returned.
func Goodbye(err error) (code int, reason string) {
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
	case errors.Is(err, ErrUnopened):
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
