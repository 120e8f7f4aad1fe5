package access

import (
	"io"
	"net/http"
	"time"

	"voxgate/bridge"
)

const (
	// smallBody is what every request may send, in bytes: it is not counted.
	smallBody = 64 << 10
	// bodyWait is how long a request waits for others to be done with their bodies, and bodyRetry when a client may come back that
	// has waited in vain.
	bodyWait  = 5 * time.Second
	bodyRetry = 5 * time.Second

	// minBodyRate is how many bytes a second a body must bring while others wait for the room that is reserved for it, counted
	// from its reservation: a promise alone holds no room. bodyGrace is how long it may bring less, which hides a lost packet.
	minBodyRate = 64 << 10
	bodyGrace   = 2 * time.Second

	// slowBodyCheck is how often a request that waits looks for bodies that are too slow.
	slowBodyCheck = 250 * time.Millisecond

	// maxBodyWaits is how many requests of one address or key may wait for room at once: more are refused without a wait.
	maxBodyWaits = 8
)

// errTooManyBytes is the error after a wait in vain.
var errTooManyBytes = &refusal{
	rule: "bodies", code: bridge.CodeBusy, status: http.StatusServiceUnavailable, retry: bodyRetry,
	message: "Too many bytes of requests are under way: send this one again in a moment.",
}

// errSlowBody is the error of a body whose room another request has got.
var errSlowBody = &refusal{
	rule: "slow_body", code: bridge.CodeBusy, status: http.StatusServiceUnavailable, retry: bodyRetry,
	message: "The request came too slowly while others were waiting: send it again in a moment.",
}

// requestBody is the body of a request, which counts among the bytes that are under way from when they are read until it is closed.
type requestBody struct {
	io.ReadCloser
	client    *Client
	length    int64 // below 0: not known
	isRefused bool  // the rest is read to be thrown away
	shares    []bodyQuota

	// Guarded by the gate's mu.
	read       int64
	reserved   int64     // counted with the shares
	reservedAt time.Time // the newest reservation
	readBefore int64     // what had been read by then
	isEvicted  bool      // another request has got its room
}

// isSlow reports whether the body brings less than its reservation is worth. Needs the gate's mu.
func (b *requestBody) isSlow(now time.Time) bool {
	elapsed := now.Sub(b.reservedAt)
	return b.reserved+smallBody > b.read && elapsed >= bodyGrace && float64(b.read-b.readBefore) < minBodyRate*elapsed.Seconds()
}

// bodyQuota is a share whose bodies are counted, and how many megabytes it may have.
type bodyQuota struct {
	*ownerUsage
	limit int
}

// CountedBody has the bytes of a request's body counted, as they are read, among those under way: in all, of the
// visitor's address, and of their key. It must be closed when nothing is kept of it. A read for which there is no room
// waits for 5 s and then fails with a [*bridge.Error], whose [HTTPStatus] is 503.
func (v *Client) CountedBody(r *http.Request) io.ReadCloser {
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return http.NoBody
	case v.gate == nil:
		return io.NopCloser(r.Body)
	}
	return &requestBody{ReadCloser: r.Body, client: v, length: r.ContentLength}
}

func (b *requestBody) Read(p []byte) (int, error) {
	b.client.gate.mu.Lock()
	room, evicted := smallBody+b.reserved-b.read, b.isEvicted
	b.client.gate.mu.Unlock()
	if evicted && !b.isRefused {
		b.isRefused = true
		return 0, b.client.reportRefusal(errSlowBody)
	}
	if room <= 0 && b.read != b.length && !b.isRefused {
		more := b.read
		if b.length >= 0 { // all at once: two that wait for each other's second half would get nowhere
			more = b.length - b.read
		}
		if err := b.reserveBytes(more); err != nil {
			b.isRefused = true
			return 0, err
		}
		room = more
	}
	if room > 0 {
		p = p[:min(int64(len(p)), room)]
	}
	n, err := b.ReadCloser.Read(p)
	b.client.gate.mu.Lock()
	b.read += int64(n)
	evicted = b.isEvicted
	b.client.gate.mu.Unlock()
	if evicted && !b.isRefused {
		b.isRefused = true
		return 0, b.client.reportRefusal(errSlowBody)
	}
	return n, err
}

// reserveBytes counts more bytes, or waits until there is room for them.
func (b *requestBody) reserveBytes(more int64) error {
	g := b.client.gate
	late := time.After(bodyWait)
	for waits := false; ; waits = true {
		g.mu.Lock()
		if waits {
			b.countWaiting(-1)
		}
		ok := b.takeBytes(more) || b.evictSlow(more) && b.takeBytes(more)
		if ok || !b.countWaiting(1) {
			g.mu.Unlock()
			if !ok {
				return b.client.reportRefusal(errTooManyBytes)
			}
			return nil
		}
		freed := g.bodyFreed
		g.mu.Unlock()
		select {
		case <-freed:
		case <-time.After(slowBodyCheck):
		case <-late:
			g.mu.Lock()
			b.countWaiting(-1)
			g.mu.Unlock()
			return b.client.reportRefusal(errTooManyBytes)
		}
	}
}

// countWaiting counts a request that begins to wait (1), unless too many of its address or key do already, or that waits no
// more (-1). Needs the gate's mu.
func (b *requestBody) countWaiting(n int) (ok bool) {
	own := b.shares[1:] // the first is everybody's
	for _, s := range own {
		if n > 0 && s.bodyWaits >= maxBodyWaits {
			return false
		}
	}
	for _, s := range own {
		s.bodyWaits += n
	}
	return true
}

// evictSlow gives the room of bodies that are too slow to one that wants more. What they have sent so far stays counted,
// because it is kept until they notice. Needs the gate's mu.
func (b *requestBody) evictSlow(more int64) (some bool) {
	now := time.Now()
	for other := range b.client.gate.bodies {
		if other == b || !other.isSlow(now) || !b.competesWith(other, more) {
			continue
		}
		unused := other.reserved + smallBody - other.read
		for _, s := range other.shares {
			s.bodies -= unused
		}
		other.reserved -= unused
		other.isEvicted, some = true, true
	}
	return some
}

// competesWith reports whether a share that has no room for more has the other body, too. Needs the gate's mu.
func (b *requestBody) competesWith(other *requestBody, more int64) bool {
	for _, s := range b.shares {
		if s.limit < 0 || s.bodies+more <= int64(s.limit)<<20 {
			continue
		}
		for _, t := range other.shares {
			if s.ownerUsage == t.ownerUsage {
				return true
			}
		}
	}
	return false
}

// takeBytes counts more bytes if there is room. Needs the gate's mu.
func (b *requestBody) takeBytes(more int64) bool {
	g, l := b.client.gate, b.client.gate.options.Limits
	if b.shares == nil {
		b.shares = []bodyQuota{{g.usageOf(budgetOwner{"all", ""}), l.BodyMegabytes}}
		if name, limited := limitBlock(b.client.address); limited {
			b.shares = append(b.shares, bodyQuota{g.usageOf(budgetOwner{"address", name}), l.BodyMegabytesPerAddress})
		}
		if b.client.key != "" {
			b.shares = append(b.shares, bodyQuota{g.usageOf(budgetOwner{"key", b.client.key}), l.BodyMegabytesPerKey})
		}
	}
	for _, s := range b.shares {
		if s.limit >= 0 && s.bodies+more > int64(s.limit)<<20 {
			return false
		}
	}
	for _, s := range b.shares {
		s.bodies += more
	}
	b.reserved += more
	b.reservedAt, b.readBefore = time.Now(), b.read
	g.bodies[b] = struct{}{}
	return true
}

// Close gives back what was counted. The body itself http.Server closes, when the answer is on its way: it would wait here for the rest.
func (b *requestBody) Close() error {
	g := b.client.gate
	g.mu.Lock()
	for _, s := range b.shares {
		s.bodies -= b.reserved
	}
	if b.reserved > 0 {
		close(g.bodyFreed)
		g.bodyFreed = make(chan struct{})
	}
	b.shares, b.reserved = nil, 0
	delete(g.bodies, b)
	g.mu.Unlock()
	return nil
}
