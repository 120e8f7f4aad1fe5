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

// Limits of one connection, which is a WebSocket or a data channel. For comparison: audio in chunks of 20 ms has 50
// messages a second, and blocks of an audio worklet (128 samples at 48 kHz) are 375 messages a second.
const (
	messageRate = 500 // messages per second
	// messageBurst is 10 s of audio in chunks of 5 ms. Clients send so much at once after a lost connection.
	messageBurst = 2000
	// heavyCost is the number of messages that a heavy message counts as in messageRate. Rejected messages are heavy,
	// and so are all messages except audio and PIECE, because their processing takes at least ten times as long as that
	// of audio. So a client can send 50 heavy messages per second, which is more than clients need.
	heavyCost = 10

	// byteRate is enough for four pictures of 1 MB a second. It is 32 times the rate of mono PCM at 48 kHz in base64.
	byteRate = 4 << 20 // bytes per second
	// byteBurst, in bytes, is large enough for the longest message of our client protocol.
	byteBurst = 12 << 20

	// workShare limits the time for processing the messages of one connection to 0.1 s per second. Audio and pictures
	// do not count. The time is wall-clock time, which is exact enough because people send few such messages.
	workShare = 0.1
	// workBurst is the processing time that a client may use at once. The longest message takes 0.2 s.
	workBurst = 500 * time.Millisecond
)

// RateLimitMessage is a warning for the developer of a throttled client.
var RateLimitMessage = fmt.Sprintf(
	"Too much comes, and the gateway reads it more slowly now: %d messages a second are read, %d of those that are not audio, "+
		"what takes %.0f %% of a processor's time, and %d bytes.",
	messageRate,
	messageRate/heavyCost,
	100*workShare,
	byteRate,
)

// RateLimiter throttles a client that exceeds a limit on one connection. The gateway then pauses reading, so that TCP
// or SCTP slow the client down. It is safe for concurrent use.
type RateLimiter struct {
	messages, bytes *rate.Limiter
	work            *rate.Limiter // limits processing time, in microseconds
	throttleState   atomic.Int32  // 0: never waited; 1: waited; 2: the client was informed
	done            chan struct{}
	release         func() // closes done
}

// NewRateLimiter returns a limiter for one connection. Call Release when the connection ends. A [WSConn] has its own
// limiter.
func NewRateLimiter() *RateLimiter {
	p := &RateLimiter{
		messages: rate.NewLimiter(messageRate, messageBurst), bytes: rate.NewLimiter(byteRate, byteBurst),
		work: rate.NewLimiter(workShare*rate.Limit(time.Second/time.Microsecond), int(workBurst/time.Microsecond)), done: make(chan struct{}),
	}
	p.release = sync.OnceFunc(func() { close(p.done) })
	return p
}

// Release makes all waiting calls return.
func (r *RateLimiter) Release() { r.release() }

// WaitUntilAllowed blocks until a received message of this length, in bytes, may be processed.
func (r *RateLimiter) WaitUntilAllowed(bytes int) {
	r.waitBytes(bytes)
	r.waitMessage()
}

// ChargeTime records how long the processing of a client's message took. Do not call it for audio and pictures. If the
// client exceeds workShare, its next messages have to wait. ChargeTime itself does not block.
func (r *RateLimiter) ChargeTime(duration time.Duration) {
	r.work.ReserveN(time.Now(), int(min(duration, workBurst)/time.Microsecond))
}

// waitMessage waits until a received message may be processed, or until Release.
func (r *RateLimiter) waitMessage() {
	r.waitFor(r.messages, 1)
	r.waitFor(r.work, 0)
}

// waitBytes waits until n more bytes may be read, or until Release.
func (r *RateLimiter) waitBytes(n int) { r.waitFor(r.bytes, n) }

func (r *RateLimiter) waitFor(l *rate.Limiter, n int) {
	d := l.ReserveN(time.Now(), min(n, l.Burst())).Delay()
	if d <= 0 {
		return
	}
	r.throttleState.CompareAndSwap(0, 1)
	select {
	case <-time.After(d):
	case <-r.done:
	}
}

// ChargeHeavy makes the message that is being processed count as heavyCost messages. The next message may have to wait
// for that.
func (r *RateLimiter) ChargeHeavy() { r.messages.ReserveN(time.Now(), heavyCost-1) }

// TakeThrottleWarning reports whether the client was throttled and must still be warned. It returns true only once.
func (r *RateLimiter) TakeThrottleWarning() (shouldWarn bool) {
	return r.throttleState.CompareAndSwap(1, 2)
}

// limitedWriter is a response writer whose Hijack returns a rate-limited connection.
type limitedWriter struct {
	http.ResponseWriter
	limiter *RateLimiter
}

// Hijack implements http.Hijacker.
func (w limitedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return limitedConn{conn, w.limiter}, rw, nil
}

// limitedConn is a rate-limited connection. Only one goroutine may read from it.
type limitedConn struct {
	net.Conn
	limiter *RateLimiter
}

func (c limitedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.limiter.waitBytes(n)
	return n, err
}

func (c limitedConn) Close() error {
	c.limiter.release()
	return c.Conn.Close()
}
