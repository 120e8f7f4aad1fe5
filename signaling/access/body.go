package access

import (
	"io"
	"net/http"
	"time"

	"voxgate/bridge"
)

const (
	// smallBody is the size, in bytes, up to which a request's body is not counted.
	smallBody = 64 << 10
	// bodyWait limits how long a request waits until other requests have released their bodies.
	bodyWait = 5 * time.Second
	// bodyRetry is the Retry-After of a request that was rejected after bodyWait.
	bodyRetry = 5 * time.Second

	// minBodyRate is the minimum average rate of a body, in bytes a second, since its newest reservation. A slower body
	// loses its reservation if other bodies wait. So a client cannot block the others by sending nothing.
	minBodyRate = 64 << 10
	// bodyGrace is the time after a reservation in which the body may be slower than minBodyRate, for example because a
	// packet was lost.
	bodyGrace = 2 * time.Second

	// slowBodyCheck is the interval at which a waiting request looks for bodies that are too slow.
	slowBodyCheck = 250 * time.Millisecond

	// maxBodyWaits limits the requests of one address or key that wait. Further requests are rejected at once.
	maxBodyWaits = 8
)

// errTooManyBytes rejects a request whose body has waited too long for memory. The bodies of all requests share a
// limit.
var errTooManyBytes = &refusal{
	rule: "bodies", code: bridge.CodeBusy, status: http.StatusServiceUnavailable, retry: bodyRetry,
	message: "Too many request bytes are in progress: send this request again in a moment.",
}

// errSlowBody rejects a body that arrived so slowly that the memory reserved for it was given to another request.
var errSlowBody = &refusal{
	rule: "slow_body", code: bridge.CodeBusy, status: http.StatusServiceUnavailable, retry: bodyRetry,
	message: "The request came too slowly while others were waiting: send it again in a moment.",
}

// requestBody is the body of a request. Each byte is counted from when it is read until the body is closed.
type requestBody struct {
	io.ReadCloser
	client    *Client
	length    int64 // below 0: unknown
	isRefused bool  // the rest is read and discarded
	shares    []bodyQuota

	// Guarded by the gate's mu.
	read       int64
	reserved   int64     // counted with the quotas
	reservedAt time.Time // of the newest reservation
	readBefore int64     // bytes read before that reservation
	isEvicted  bool      // its reservation was given to another request
}

// isSlow reports whether the body arrives more slowly than minBodyRate and bodyGrace allow. The caller must hold the
// gate's mu.
func (b *requestBody) isSlow(now time.Time) bool {
	elapsed := now.Sub(b.reservedAt)
	return b.reserved+smallBody > b.read && elapsed >= bodyGrace && float64(b.read-b.readBefore) < minBodyRate*elapsed.Seconds()
}

// bodyQuota limits the bytes in memory of all request bodies of one owner. limit is in MiB.
type bodyQuota struct {
	*ownerUsage
	limit int
}

// CountedBody returns the request's body. Its bytes count towards the quotas of the gateway, the address and the key.
// Close the body when its bytes are no longer kept. If the quotas have no room, a read waits for 5 s, and then fails
// with a [*bridge.Error] whose [RefusalStatusOrZero] is 503.
func (cl *Client) CountedBody(r *http.Request) io.ReadCloser {
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return http.NoBody
	case cl.gate == nil:
		return io.NopCloser(r.Body)
	}
	return &requestBody{ReadCloser: r.Body, client: cl, length: r.ContentLength}
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
		moreBytes := b.read
		if b.length >= 0 { // reserve all at once: two bodies that wait for each other's second half would deadlock
			moreBytes = b.length - b.read
		}
		if err := b.awaitBytes(moreBytes); err != nil {
			b.isRefused = true
			return 0, err
		}
		room = moreBytes
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

// awaitBytes reserves moreBytes. It blocks until there is room for them, but at most for bodyWait.
func (b *requestBody) awaitBytes(moreBytes int64) error {
	g := b.client.gate
	timeout := time.After(bodyWait)
	for waits := false; ; waits = true {
		g.mu.Lock()
		if waits {
			b.countWaiting(-1)
		}
		ok := b.tryReserveBytes(moreBytes) || b.evictSlowBodies(moreBytes) && b.tryReserveBytes(moreBytes)
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
		case <-timeout:
			g.mu.Lock()
			b.countWaiting(-1)
			g.mu.Unlock()
			return b.client.reportRefusal(errTooManyBytes)
		}
	}
}

// countWaiting records that a request begins to wait (n is 1) or stops waiting (n is -1). It returns false, and counts
// nothing, if too many requests of the same address or key wait already. The caller must hold the gate's mu.
func (b *requestBody) countWaiting(n int) (ok bool) {
	clientShares := b.shares[1:] // the first is the whole gateway's
	for _, s := range clientShares {
		if n > 0 && s.bodyWaits >= maxBodyWaits {
			return false
		}
	}
	for _, s := range clientShares {
		s.bodyWaits += n
	}
	return true
}

// evictSlowBodies makes room for moreBytes of b. It takes the reserved but unused bytes away from other bodies that
// arrive too slowly and share a full quota with b. The requests with those bodies then fail. The caller must hold the
// gate's mu.
func (b *requestBody) evictSlowBodies(moreBytes int64) (hasEvicted bool) {
	now := time.Now()
	for other := range b.client.gate.bodies {
		if other == b || !other.isSlow(now) || !b.competesWith(other, moreBytes) {
			continue
		}
		// The bytes that have arrived stay counted, because they stay in memory until the request has failed.
		unused := other.reserved + smallBody - other.read
		for _, s := range other.shares {
			s.bodies -= unused
		}
		other.reserved -= unused
		other.isEvicted, hasEvicted = true, true
	}
	return hasEvicted
}

// competesWith reports whether b and other share a quota that has no room for moreBytes. The caller must hold the
// gate's mu.
func (b *requestBody) competesWith(other *requestBody, moreBytes int64) bool {
	for _, s := range b.shares {
		if s.limit < 0 || s.bodies+moreBytes <= int64(s.limit)<<20 {
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

// tryReserveBytes reserves moreBytes if there is room. The caller must hold the gate's mu.
func (b *requestBody) tryReserveBytes(moreBytes int64) (ok bool) {
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
		if s.limit >= 0 && s.bodies+moreBytes > int64(s.limit)<<20 {
			return false
		}
	}
	for _, s := range b.shares {
		s.bodies += moreBytes
	}
	b.reserved += moreBytes
	b.reservedAt, b.readBefore = time.Now(), b.read
	g.bodies[b] = struct{}{}
	return true
}

// Close releases the reservation. It does not close the original body, because that would block until the rest of the
// body has arrived. http.Server closes it.
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
