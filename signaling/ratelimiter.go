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

// Limits of one connection, WebSocket or data channel. Audio in chunks of 20 ms is 50 messages a second. Blocks of an
// audio worklet (128 samples at 48 kHz) are 375.
const (
	messageRate = 500 // messages per second
	// messageBurst is 10 s of audio in chunks of 5 ms, as after a lost connection.
	messageBurst = 2000
	// heavyCost is the weight in messageRate of a message that is rejected, or is neither audio nor a PIECE: it takes at
	// least ten times as long as audio. This limits such messages to 50 per second, which is more than a client needs.
	heavyCost = 10

	// byteRate is 32 times the rate of stereo-quality audio (48 kHz in base64), or four pictures of 1 MB a second.
	byteRate = 4 << 20 // bytes per second
	// byteBurst, in bytes, admits the longest message of our client protocol at once.
	byteBurst = 12 << 20

	// workShare limits the time for processing the messages of one connection, except audio and pictures: 0.1 s per
	// second. It is measured as wall-clock time, which is exact enough, because people send few such messages.
	workShare = 0.1
	// workBurst is the processing time that is allowed at once, without a pause. The longest message takes 0.2 s.
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

// RateLimiter throttles a client that exceeds its limit on one connection: reading pauses, so TCP or SCTP slow the
// client down. It is safe for concurrent use.
type RateLimiter struct {
	messages, bytes *rate.Limiter
	work            *rate.Limiter // limits processing time, in microseconds
	throttleState   atomic.Int32  // 0: never waited; 1: waited; 2: the client was informed
	done            chan struct{}
	release         func() // closes done
}

// NewRateLimiter returns the limiter of a connection other than a [WSConn]. Call Release when the connection ends.
func NewRateLimiter() *RateLimiter {
	p := &RateLimiter{
		messages: rate.NewLimiter(messageRate, messageBurst), bytes: rate.NewLimiter(byteRate, byteBurst),
		work: rate.NewLimiter(workShare*rate.Limit(time.Second/time.Microsecond), int(workBurst/time.Microsecond)), done: make(chan struct{}),
	}
	p.release = sync.OnceFunc(func() { close(p.done) })
	return p
}

// Release ends all waits.
func (r *RateLimiter) Release() { r.release() }

// AdmitMessage blocks until a received message of this length, in bytes, may be processed.
func (r *RateLimiter) AdmitMessage(bytes int) {
	r.waitBytes(bytes)
	r.waitMessage()
}

// ChargeTime charges the client for the time that processing its message took, unless the message was audio or a
// picture. If the client exceeds workShare, its next messages wait. ChargeTime itself does not block.
func (r *RateLimiter) ChargeTime(took time.Duration) {
	r.work.ReserveN(time.Now(), int(min(took, workBurst)/time.Microsecond))
}

// waitMessage waits until a received message may be read, or until Release.
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

// ChargeHeavy charges heavyCost for the message being processed. The next message may have to wait for that.
func (r *RateLimiter) ChargeHeavy() { r.messages.ReserveN(time.Now(), heavyCost-1) }

// TakeThrottleWarning reports whether the client was throttled, and should be warned. It returns true once.
func (r *RateLimiter) TakeThrottleWarning() bool { return r.throttleState.CompareAndSwap(1, 2) }

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

// limitedConn is a rate-limited connection. One goroutine reads.
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
