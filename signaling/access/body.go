package access

import (
	"io"
	"net/http"
	"time"

	"voxgate/bridge"
)

const (
	// smallBody is the size that every request may send without being counted, in bytes.
	smallBody = 64 << 10
	// bodyWait limits how long a request waits for others to release their bodies.
	bodyWait = 5 * time.Second
	// bodyRetry is the time after which a client is asked to retry when its request has waited for bodyWait.
	bodyRetry = 5 * time.Second

	// minBodyRate is the rate, in bytes a second since its reservation, at which a body must arrive while others wait. A
	// client must not block them by sending nothing.
	minBodyRate = 64 << 10
	// bodyGrace is the time after a reservation in which the body may arrive more slowly, for example after a lost packet.
	bodyGrace = 2 * time.Second

	// slowBodyCheck is the interval at which a waiting request checks for slow bodies.
	slowBodyCheck = 250 * time.Millisecond

	// maxBodyWaits limits the waiting requests of one address or key: more are rejected at once.
	maxBodyWaits = 8
)

// errTooManyBytes rejects a body that waited too long for memory: the bodies of all requests share a limit.
var errTooManyBytes = &refusal{
	rule: "bodies", code: bridge.CodeBusy, status: http.StatusServiceUnavailable, retry: bodyRetry,
	message: "Too many request bytes are in progress: send this request again in a moment.",
}

// errSlowBody rejects a body that arrived so slowly that the memory reserved for it was given to another request.
var errSlowBody = &refusal{
	rule: "slow_body", code: bridge.CodeBusy, status: http.StatusServiceUnavailable, retry: bodyRetry,
	message: "The request came too slowly while others were waiting: send it again in a moment.",
}

// requestBody is the body of a request. Its bytes are counted from when they are read until the body is closed.
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

// isSlow reports whether the body arrives more slowly than minBodyRate and bodyGrace allow. Needs the gate's mu.
func (b *requestBody) isSlow(now time.Time) bool {
	elapsed := now.Sub(b.reservedAt)
	return b.reserved+smallBody > b.read && elapsed >= bodyGrace && float64(b.read-b.readBefore) < minBodyRate*elapsed.Seconds()
}

// bodyQuota limits the bodies of one owner, in megabytes.
type bodyQuota struct {
	*ownerUsage
	limit int
}

// CountedBody counts the bytes of a request's body in the quotas of gateway, address and key. Close the body when its
// bytes are no longer kept. If the quotas have no room, a read waits for 5 s, and then fails with a [*bridge.Error]
// ([HTTPStatus] 503).
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
		if err := b.reserveBytes(moreBytes); err != nil {
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

// reserveBytes reserves moreBytes, or waits until there is room for them.
func (b *requestBody) reserveBytes(moreBytes int64) error {
	g := b.client.gate
	timeout := time.After(bodyWait)
	for waits := false; ; waits = true {
		g.mu.Lock()
		if waits {
			b.countWaiting(-1)
		}
		ok := b.takeBytes(moreBytes) || b.evictSlow(moreBytes) && b.takeBytes(moreBytes)
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

// countWaiting counts a request that begins (n is 1) or stops (n is -1) to wait. It returns false, and counts nothing,
// if too many of its address or key already wait. Needs the gate's mu.
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

// evictSlow makes room for more bytes of b: it takes unused memory away from other bodies that are sent too slowly and
// share a full quota with b. Those requests then fail. It reports whether there was such a body. Needs the gate's mu.
func (b *requestBody) evictSlow(moreBytes int64) (some bool) {
	now := time.Now()
	for other := range b.client.gate.bodies {
		if other == b || !other.isSlow(now) || !b.competesWith(other, moreBytes) {
			continue
		}
		// The delivered bytes stay counted: they stay in memory until the request has failed.
		unused := other.reserved + smallBody - other.read
		for _, s := range other.shares {
			s.bodies -= unused
		}
		other.reserved -= unused
		other.isEvicted, some = true, true
	}
	return some
}

// competesWith reports whether both bodies count towards the same quota, and this quota has no room for moreBytes.
// Needs the gate's mu.
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

// takeBytes reserves moreBytes if there is room. Needs the gate's mu.
func (b *requestBody) takeBytes(moreBytes int64) bool {
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

// Close releases the reservation. It does not close the original body, because that would wait for the rest of the
// body. http.Server closes it.
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
