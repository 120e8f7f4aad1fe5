package signaling

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/internal/crash"
)

// Message is a message of a client.
type Message struct {
	Data []byte
	Text bool
	Err  error // for an unusable message, without Data: [ErrTooLong], or the error of [SocketOptions].Read
}

// Outgoing is a message to a client.
type Outgoing struct {
	Data []byte
	Text bool

	// CurrentGeneration and Generation are used for voice. The message is dropped if CurrentGeneration has exceeded
	// Generation by the time the message is written, because an interruption increments CurrentGeneration.
	// CurrentGeneration may be nil.
	CurrentGeneration *atomic.Uint32
	Generation        uint32

	Route int // used only by [SocketOptions].Write
}

// SocketOptions configure a WebSocket of an endpoint. Either Limit or Read must be set. All other fields are optional.
type SocketOptions struct {
	// Limit is the maximum size of a message in bytes. [Socket.ReadFirst] has a limit of its own.
	Limit int
	// Read reads a message. It replaces Limit if the maximum size depends on the message. Its results become the
	// message's Data and Err.
	Read func(message io.Reader, text bool) ([]byte, error)

	// Write is called instead of writing to the socket. One goroutine calls it with one message after the other. If it
	// returns an error, the call ends.
	Write func(ctx context.Context, m Outgoing) error

	// CloseReason translates the end of a call into a close code and reason of the protocol. If it is nil, the function
	// [CloseReason] is used.
	CloseReason func(err error) (code int, reason string)

	// OnRoundTrip is called with the client's round-trip time every 5 s. It must not block.
	OnRoundTrip func(time.Duration)

	// Subprotocol is the registered name of a WebSocket subprotocol (RFC 6455, section 11.5). The gateway confirms it
	// to clients that offer it.
	Subprotocol string
}

// Socket is a client's WebSocket. [ServeSocket] reads, writes, pings and closes it. Its methods are safe for concurrent
// use, except the methods that read.
type Socket struct {
	conn       *WSConn
	options    SocketOptions
	out        *SendQueue[Outgoing]
	writerDone chan struct{} // closed when nothing is written any more
	serveDone  chan struct{} // closed when serve has returned
	clientGone chan struct{} // closed when the client has gone; nil before StartReading
	fail       context.CancelCauseFunc
	log        *slog.Logger // logs panics; may be nil
}

// ServeSocket accepts a WebSocket and calls serve, which usually calls [voxgate/bridge.Host.Serve]. When serve has
// returned, it sends the queued messages, and a close frame for the error of serve. It blocks until all its goroutines
// have ended.
//
// The ctx of serve ends when the gateway stops, or the client is too slow ([ErrSlow]) or cannot be written to.
func ServeSocket(w http.ResponseWriter, r *http.Request, o SocketOptions, serve func(ctx context.Context, s *Socket) error) {
	conn, err := acceptWebSocket(o, w, r)
	if err != nil {
		return // acceptWebSocket has answered
	}
	defer conn.Close()
	ctx, cancel := context.WithCancelCause(r.Context())
	s := &Socket{
		conn: conn, options: o, out: NewSendQueue[Outgoing](), writerDone: make(chan struct{}), serveDone: make(chan struct{}), fail: cancel,
		log: loggerOf(ctx),
	}
	if o.CloseReason == nil {
		s.options.CloseReason = CloseReason
	}
	if o.Write == nil {
		s.options.Write = s.writeMessage
	}
	var running sync.WaitGroup
	running.Go(func() { conn.PingUntil(ctx) })
	running.Go(func() {
		defer close(s.writerDone)
		defer crash.Recover(s.log, "socket writer", cancel)
		crash.RunTestHook("socket writer")
		if err := s.out.Run(context.WithoutCancel(ctx), s.options.Write); err != nil { // the close frame is written, too
			cancel(err)
		}
	})
	crash.Run(s.log, "caller", func(e error) { err = e }, func() { err = serve(ctx, s) })
	close(s.serveDone)
	s.FinishWrites()
	conn.SendCloseFrame(s.options.CloseReason(err))
	if s.clientGone == nil { // closing with unread data resets the connection, and the close frame may be lost
		s.StartReading(func(Message) {})
	}
	<-s.clientGone
	cancel(nil)
	running.Wait()
}

// writeMessage is the default of [SocketOptions].Write.
func (s *Socket) writeMessage(_ context.Context, m Outgoing) error {
	if m.CurrentGeneration != nil && m.Generation < m.CurrentGeneration.Load() {
		return nil
	}
	return s.conn.Write(m.Data, m.Text)
}

// Put queues a message for the client. It does not block. A client that leaves 4 MiB unread is disconnected.
func (s *Socket) Put(m Outgoing) { s.out.Put(m, len(m.Data)) }

// PutText queues a text message for the client, as Put does.
func (s *Socket) PutText(text []byte) { s.Put(Outgoing{Data: text, Text: true}) }

// FinishWrites blocks until all queued messages are written, or writing has failed. Messages that are queued later are
// dropped. [ServeSocket] calls FinishWrites after serve.
func (s *Socket) FinishWrites() {
	s.out.Close()
	<-s.writerDone
}

// Full implements [voxgate/media.BackpressureOutput]. It reports whether more than 1 MiB is queued. The caller should
// then hold back audio.
func (s *Socket) Full() bool { return s.out.Full() }

// WriterDone returns a channel that is closed when nothing more will be written: after FinishWrites, after a failed
// write, or if the client was too slow.
func (s *Socket) WriterDone() <-chan struct{} { return s.writerDone }

// ChargeTime records how long the processing of a client's message took. Do not call it for audio and pictures. A
// client that needs more than 0.1 s per second in the long run is throttled.
func (s *Socket) ChargeTime(duration time.Duration) { s.conn.ChargeTime(duration) }

// MarkOpened records that the required first message has arrived. If it is not called within 10 s, the WebSocket is
// closed. After it, pongs and messages of the client keep the WebSocket open.
func (s *Socket) MarkOpened() { s.conn.MarkOpened() }

// Remote returns the client's address, even if the client is behind a trusted proxy.
func (s *Socket) Remote() string { return s.conn.Remote() }

// WSConn returns the WebSocket that carries the messages.
func (s *Socket) WSConn() *WSConn { return s.conn }

// ReadFirst blocks until a message of at most limit bytes has arrived. It must not be called after StartReading,
// Messages or Receive. If ctx is done, it sends the close frame and returns the cause of ctx. Other errors mean that
// the socket has failed.
func (s *Socket) ReadFirst(ctx context.Context, limit int) (Message, error) {
	stop := context.AfterFunc(ctx, func() { s.conn.SendCloseFrame(s.options.CloseReason(context.Cause(ctx))) }) // makes Next return
	m, err := s.readMessage(func(r io.Reader, _ bool) ([]byte, error) { return ReadLimited(r, limit) })
	if !stop() {
		return Message{}, context.Cause(ctx)
	}
	return m, err
}

// StartReading starts a goroutine that calls f with each further message, one after the other. gone is closed after the
// last call, when the client has gone. When serve has returned, f must return soon. StartReading may be called only
// once.
func (s *Socket) StartReading(f func(Message)) (gone <-chan struct{}) {
	s.startReader(f, func() {})
	return s.clientGone
}

// startReader implements StartReading. It calls end after the last message, when the client has gone.
func (s *Socket) startReader(f func(Message), end func()) {
	read := s.options.Read
	if read == nil {
		read = func(r io.Reader, _ bool) ([]byte, error) { return ReadLimited(r, s.options.Limit) }
	}
	s.clientGone = make(chan struct{})
	go func() {
		defer close(s.clientGone) // ServeSocket waits for it
		defer end()
		defer crash.Recover(s.log, "socket reader", s.fail)
		for {
			m, err := s.readMessage(read)
			if err != nil {
				return
			}
			crash.RunTestHook("socket reader")
			f(m)
		}
	}()
}

// Messages is like [Socket.StartReading], but delivers the messages in a channel. It closes the channel when the client
// has gone.
func (s *Socket) Messages() <-chan Message {
	messages := make(chan Message)
	s.startReader(func(m Message) {
		select {
		case messages <- m:
		case <-s.serveDone:
		}
	}, func() { close(messages) })
	return messages
}

// Receive calls f with each message. It returns nil when the client has gone. If f fails, it returns the error of f. If
// ctx is done, it returns the cause of ctx.
func (s *Socket) Receive(ctx context.Context, f func(Message) error) error {
	messages := s.Messages()
	for {
		select {
		case m, ok := <-messages:
			if !ok {
				return nil
			}
			if err := f(m); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// readMessage reads a message. It returns an error only if the socket has failed.
func (s *Socket) readMessage(read func(io.Reader, bool) ([]byte, error)) (m Message, err error) {
	r, text, err := s.conn.Next()
	if err != nil {
		return m, err
	}
	source := &errorReader{Reader: r}
	data, err := read(source, text)
	if source.err != nil {
		return m, source.err
	}
	return Message{data, text, err}, nil
}

// errorReader stores the error of the socket if reading a message fails. So the caller can distinguish a failed socket
// from a faulty message.
type errorReader struct {
	io.Reader
	err error
}

func (e *errorReader) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if err != nil && err != io.EOF {
		e.err = err
	}
	return n, err
}

// ReadLimited reads a message of at most limit bytes, or returns [ErrTooLong].
func ReadLimited(message io.Reader, limit int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(message, int64(limit)+1))
	if err == nil && len(data) > limit {
		return nil, ErrTooLong
	}
	return data, err
}

// ErrTooLong reports that a message exceeds the limit. The next message can still be read.
var ErrTooLong = errors.New("the message is too long")
