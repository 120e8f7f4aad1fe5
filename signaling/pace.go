package signaling

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// What one connection, WebSocket or data channel, may send. A client that sends 20 ms of audio at a time sends 50
// messages a second; one that sends what its browser's audio worklet hands out (128 samples at 48 kHz), 375.
const (
	messageRate = 500 // a second
	// messageBurst is 10 s of audio in pieces of 5 ms, as after a lost connection.
	messageBurst = 2000
	// heavy is what a message counts for that is neither audio nor a PIECE, or is refused: it is passed on or answered,
	// which costs ten times as much and more. No client has reason to send 50 of them a second.
	heavy = 10

	// byteRate is 32 times what stereo-quality audio (48 kHz in base64) takes, or four pictures of 1 MB a second.
	byteRate = 4 << 20 // a second
	// byteBurst is the longest message at once.
	byteBurst = 12 << 20

	// workShare is how much of a processor's time may go into acting on what one connection sends, and workBurst how
	// much at once: the longest message takes 0.2 s. Sound and pictures do not count, whose time goes by their bytes.
	// People do what counts only a few times a minute, so it does not matter that it is measured by the wall clock, by which
	// everything takes longer on a busy machine.
	workShare = 0.1
	workBurst = 500 * time.Millisecond
)

// HeldBack is a sentence for the developer of a client that is held back.
var HeldBack = fmt.Sprintf(
	"Too much comes, and the gateway reads it more slowly now: %d messages a second are read, %d of those that are not audio, "+
		"what takes %.0f %% of a processor's time, and %d bytes.",
	messageRate,
	messageRate/heavy,
	100*workShare,
	byteRate,
)

// Pace holds a client back that sends more than it may on one connection: it is not read on until it may, so that TCP
// or SCTP slow it down and nothing of it waits here. A [Result] has one. Its methods may be called by any goroutine.
type Pace struct {
	messages, bytes *rate.Limiter
	work            *rate.Limiter // in microseconds
	news            atomic.Int32  // 0: it has not waited yet; 1: it has; 2: the client knows
	done            chan struct{}
	end             func() // closes done
}

// NewPace returns the pace of a connection that is no [Result]. End releases it.
func NewPace() *Pace {
	p := &Pace{
		messages: rate.NewLimiter(messageRate, messageBurst), bytes: rate.NewLimiter(byteRate, byteBurst),
		work: rate.NewLimiter(workShare*rate.Limit(time.Second/time.Microsecond), int(workBurst/time.Microsecond)), done: make(chan struct{}),
	}
	p.end = sync.OnceFunc(func() { close(p.done) })
	return p
}

// End lets go of what waits.
func (p *Pace) End() { p.end() }

// Came blocks until a message of so many bytes that has come may be acted on.
func (p *Pace) Came(bytes int) {
	p.read(bytes)
	p.message()
}

// Spent says how long it took to act on something that is neither sound nor a picture. The next message waits if that
// is more than the client's share.
func (p *Pace) Spent(took time.Duration) {
	p.work.ReserveN(time.Now(), int(min(took, workBurst)/time.Microsecond))
}

// message waits until a message that has come may be read, or the pace has ended.
func (p *Pace) message() {
	p.wait(p.messages, 1)
	p.wait(p.work, 0)
}

// read waits, likewise, after so many bytes.
func (p *Pace) read(n int) { p.wait(p.bytes, n) }

func (p *Pace) wait(l *rate.Limiter, n int) {
	d := l.ReserveN(time.Now(), min(n, l.Burst())).Delay()
	if d <= 0 {
		return
	}
	p.news.CompareAndSwap(0, 1)
	select {
	case <-time.After(d):
	case <-p.done:
	}
}

// Charge has the next message wait for one that has turned out to be heavy: neither audio nor a part of a message.
func (p *Pace) Charge() { p.messages.ReserveN(time.Now(), heavy-1) }

// Held reports once that the client was held back.
func (p *Pace) Held() bool { return p.news.CompareAndSwap(1, 2) }

// pacedWriter hijacks to a connection that is read at a pace.
type pacedWriter struct {
	http.ResponseWriter
	pace *Pace
}

// Hijack implements http.Hijacker.
func (w pacedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return pacedConn{conn, w.pace}, rw, nil
}

// pacedConn is read at a pace. One goroutine reads.
type pacedConn struct {
	net.Conn
	pace *Pace
}

func (c pacedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.pace.read(n)
	return n, err
}

func (c pacedConn) Close() error {
	c.pace.end()
	return c.Conn.Close()
}
