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

	"voxgate/crash"
)

// Message is a message of a client.
type Message struct {
	Data []byte
	Text bool
	Err  error // the message cannot be used: [ErrTooLong], or what [SocketOptions].Read said; Data is empty then
}

// Outgoing is a message to a client.
type Outgoing struct {
	Data []byte
	Text bool

	// Void and Generation are of voice: it is not sent any more once Void has a later generation. nil: it is always
	// sent.
	Void       *atomic.Uint32
	Generation uint32

	Route int // means something to [SocketOptions].Write only
}

// SocketOptions say how a door talks over WebSockets. All fields may be empty but one of Limit and Read.
type SocketOptions struct {
	// Limit bounds a message that [Socket.MarkStart], [Socket.Receive] and [Socket.Messages] take, in bytes. Read takes its
	// place where the limit depends on the message: what it returns becomes the message's Data and Err.
	Limit int
	Read  func(message io.Reader, text bool) ([]byte, error)

	// Write takes the place of writing to the socket. It is called by one goroutine, with one message after the other.
	// An error ends the call.
	Write func(ctx context.Context, m Outgoing) error

	// Goodbye says in the protocol's words why a call has ended. nil: [Goodbye].
	Goodbye func(err error) (code int, reason string)

	// RoundTrip learns how long the way to the client and back takes, every 5 s. It must not block.
	RoundTrip func(time.Duration)

	// Subprotocol is the protocol's name in the registry of WebSocket subprotocols (RFC 6455, section 11.5), which a
	// client that offers it hears back. Required refuses the others.
	Subprotocol string
	Required    bool
}

// Conn carries the messages of a [Socket]. A [Result] is one.
type Conn interface {
	// Next blocks until the next message begins. What is left unread of it is passed over by the call after.
	Next() (message io.Reader, text bool, err error)
	// Write sends a message. It may block for some seconds.
	Write(message []byte, text bool) error
	// Opened says that the first message has come which a client must send.
	Opened()
	// Spent says how long it took to act on something that is neither sound nor a picture.
	Spent(took time.Duration)
	// Goodbye sends why it is over, the first time; Next fails soon after.
	Goodbye(code int, reason string)
	Close()
}

// Socket is a client's WebSocket, from its opening to its end. [ServeSocket] reads it, writes to it, pings it and
// closes it. Its methods may be called by any goroutine, but for those that read.
type Socket struct {
	conn    Conn
	options SocketOptions
	out     *Outbox[Outgoing]
	written chan struct{} // closed when nothing is written any more
	over    chan struct{} // closed when serve has returned
	gone    chan struct{} // closed when the client has gone; nil before Start
	fail    context.CancelCauseFunc
	log     *slog.Logger // of panics; may be nil
}

// ServeSocket accepts a WebSocket and has serve talk over it, usually by [bridge.Host.Serve]. When serve returns, what
// was put is still sent, and then the goodbye for the error of serve. The ctx of serve ends when the gateway stops, or
// the client is too slow ([ErrSlow]), or cannot be written to. ServeSocket returns when all that it started has ended.
func ServeSocket(w http.ResponseWriter, r *http.Request, o SocketOptions, serve func(ctx context.Context, s *Socket) error) {
	if line, err := accept(o, w, r); err == nil { // else accept has answered
		ServeConn(r.Context(), line, o, serve)
	}
}

// ServeConn is [ServeSocket] for a connection of another kind, which it closes.
func ServeConn(ctx context.Context, conn Conn, o SocketOptions, serve func(ctx context.Context, s *Socket) error) {
	defer conn.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	s := &Socket{
		conn: conn, options: o, out: NewOutbox[Outgoing](), written: make(chan struct{}), over: make(chan struct{}), fail: cancel,
		log: loggerOf(ctx),
	}
	if o.Goodbye == nil {
		s.options.Goodbye = Goodbye
	}
	if o.Write == nil {
		s.options.Write = s.write
	}
	var running sync.WaitGroup
	if line, ok := conn.(*Line); ok {
		running.Go(func() { line.Ping(ctx) })
	}
	running.Go(func() {
		defer close(s.written)
		defer crash.Recover(s.log, "socket writer", cancel)
		crash.CallInjected("socket writer")
		if err := s.out.Run(context.WithoutCancel(ctx), s.options.Write); err != nil { // the goodbye is written, too
			cancel(err)
		}
	})
	var err error
	crash.Run(s.log, "caller", func(e error) { err = e }, func() { err = serve(ctx, s) })
	close(s.over)
	s.Finish()
	conn.Goodbye(s.options.Goodbye(err))
	if s.gone == nil { // what is closed with something unread is reset, and the goodbye may be lost
		s.Start(func(Message) {})
	}
	<-s.gone
	cancel(nil)
	running.Wait()
}

// write is the usual [SocketOptions].Write.
func (s *Socket) write(_ context.Context, m Outgoing) error {
	if m.Void != nil && m.Generation < m.Void.Load() {
		return nil
	}
	return s.conn.Write(m.Data, m.Text)
}

// Put queues a message for the client. It does not block; a client that leaves 4 MiB unread is lost.
func (s *Socket) Put(m Outgoing) { s.out.Put(m, len(m.Data)) }

// PutText queues a text message for the client, as Put does.
func (s *Socket) PutText(text []byte) { s.Put(Outgoing{Data: text, Text: true}) }

// Finish waits until all that was put is written, or cannot be. What is put later is dropped. ServeSocket does it when
// serve has returned.
func (s *Socket) Finish() {
	s.out.Close()
	<-s.written
}

// Full reports whether a MiB waits already: voice that can wait elsewhere should. It is the answer of a [media.BackpressureOutput].
func (s *Socket) Full() bool { return s.out.Full() }

// Written is closed when nothing is written any more, also because the client cannot be written to.
func (s *Socket) Written() <-chan struct{} { return s.written }

// Spent is [Conn]'s. A client that takes more than a tenth of a processor in the long run is read no faster.
func (s *Socket) Spent(took time.Duration) { s.conn.Spent(took) }

// Opened says that the first message has come which a client must send: before it a WebSocket lives for 10 s, after it
// as long as the client answers pings.
func (s *Socket) Opened() { s.conn.Opened() }

// Remote is the client's address, also behind a proxy that is trusted; empty if the socket is of another kind.
func (s *Socket) Remote() string {
	if line := s.Line(); line != nil {
		return line.Remote()
	}
	return ""
}

// Line is the WebSocket itself; nil if the socket is of another kind.
func (s *Socket) Line() *Line {
	line, _ := s.conn.(*Line)
	return line
}

// Read blocks until one of the first messages has come, before any of the methods below is called. It may have limit
// bytes. The error is that of the socket, or the cause of ctx, by which the client hears goodbye at once.
func (s *Socket) Read(ctx context.Context, limit int) (Message, error) {
	stop := context.AfterFunc(ctx, func() { s.conn.Goodbye(s.options.Goodbye(context.Cause(ctx))) }) // which ends Next
	m, err := s.next(func(r io.Reader, _ bool) ([]byte, error) { return ReadUpTo(r, limit) })
	if !stop() {
		return Message{}, context.Cause(ctx)
	}
	return m, err
}

// Start has f called with each further message, in one goroutine that reads nothing meanwhile. gone is closed when the
// client has gone and f is not called any more. f must return soon after serve. It may be called once.
func (s *Socket) Start(f func(Message)) (gone <-chan struct{}) {
	s.start(f, func() {})
	return s.gone
}

// start is Start, and calls end when the client has gone.
func (s *Socket) start(f func(Message), end func()) {
	read := s.options.Read
	if read == nil {
		read = func(r io.Reader, _ bool) ([]byte, error) { return ReadUpTo(r, s.options.Limit) }
	}
	s.gone = make(chan struct{})
	go func() {
		defer close(s.gone) // ServeConn waits for it
		defer end()
		defer crash.Recover(s.log, "socket reader", s.fail)
		for {
			m, err := s.next(read)
			if err != nil {
				return
			}
			crash.CallInjected("socket reader")
			f(m)
		}
	}()
}

// Messages is [Socket.MarkStart] with a channel, which is closed when the client has gone.
func (s *Socket) Messages() <-chan Message {
	messages := make(chan Message)
	s.start(func(m Message) {
		select {
		case messages <- m:
		case <-s.over:
		}
	}, func() { close(messages) })
	return messages
}

// Receive hands each message to f, and returns when the client has gone (nil), f fails (its error), or ctx is done (its cause).
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

// next reads a message. The error is that of the socket.
func (s *Socket) next(read func(io.Reader, bool) ([]byte, error)) (m Message, err error) {
	r, text, err := s.conn.Next()
	if err != nil {
		return m, err
	}
	source := &source{Reader: r}
	data, err := read(source, text)
	if source.err != nil {
		return m, source.err
	}
	return Message{data, text, err}, nil
}

// source is a message that keeps the error of its socket.
type source struct {
	io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// ReadUpTo reads a message. One of more than limit bytes is not kept: [ErrTooLong].
func ReadUpTo(message io.Reader, limit int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(message, int64(limit)+1))
	if err == nil && len(data) > limit {
		return nil, ErrTooLong
	}
	return data, err
}

// ErrTooLong says that a message is longer than it may be. The next one can be read.
var ErrTooLong = errors.New("the message is too long")
