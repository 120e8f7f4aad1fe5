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

	// bodyPace is how many bytes a second a body must bring while others wait for the room that is reserved for it, counted
	// from its reservation: a promise alone holds no room. bodyGrace is how long it may bring less, which hides a lost packet.
	bodyPace  = 64 << 10
	bodyGrace = 2 * time.Second

	// bodyLook is how often a request that waits looks for bodies that are too slow.
	bodyLook = 250 * time.Millisecond

	// maxBodyWaits is how many requests of one address or key may wait for room at once: more are refused without a wait.
	maxBodyWaits = 8
)

// errCrowded is the error after a wait in vain.
var errCrowded = &refusal{
	rule: "bodies", code: bridge.CodeBusy, status: http.StatusServiceUnavailable, retry: bodyRetry,
	message: "Too many bytes of requests are under way: send this one again in a moment.",
}

// errSlowBody is the error of a body whose room another request has got.
var errSlowBody = &refusal{
	rule: "slow_body", code: bridge.CodeBusy, status: http.StatusServiceUnavailable, retry: bodyRetry,
	message: "The request came too slowly while others were waiting: send it again in a moment.",
}

// body is the body of a request, which counts among the bytes that are under way from when they are read until it is closed.
type body struct {
	io.ReadCloser
	visitor *Visitor
	length  int64 // below 0: not known
	refused bool  // the rest is read to be thrown away
	shares  []bodyShare

	// Guarded by the gate's mu.
	read    int64
	held    int64     // counted with the shares
	since   time.Time // the newest reservation
	before  int64     // what had been read by then
	evicted bool      // another request has got its room
}

// isSlow reports whether the body brings less than its reservation is worth. Needs the gate's mu.
func (b *body) isSlow(now time.Time) bool {
	elapsed := now.Sub(b.since)
	return b.held+smallBody > b.read && elapsed >= bodyGrace && float64(b.read-b.before) < bodyPace*elapsed.Seconds()
}

// bodyShare is a share whose bodies are counted, and how many megabytes it may have.
type bodyShare struct {
	*usage
	most int
}

// Body has the bytes of a request's body counted, as they are read, among those under way: in all, of the visitor's address, and of their
// key. It must be closed when nothing is kept of it. A read for which there is no room waits for 5 s and then fails with a
// [*bridge.Error], whose [Status] is 503.
func (v *Visitor) Body(r *http.Request) io.ReadCloser {
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return http.NoBody
	case v.gate == nil:
		return io.NopCloser(r.Body)
	}
	return &body{ReadCloser: r.Body, visitor: v, length: r.ContentLength}
}

func (b *body) Read(p []byte) (int, error) {
	b.visitor.gate.mu.Lock()
	room, evicted := smallBody+b.held-b.read, b.evicted
	b.visitor.gate.mu.Unlock()
	if evicted && !b.refused {
		b.refused = true
		return 0, b.visitor.refuse(errSlowBody)
	}
	if room <= 0 && b.read != b.length && !b.refused {
		more := b.read
		if b.length >= 0 { // all at once: two that wait for each other's second half would get nowhere
			more = b.length - b.read
		}
		if err := b.hold(more); err != nil {
			b.refused = true
			return 0, err
		}
		room = more
	}
	if room > 0 {
		p = p[:min(int64(len(p)), room)]
	}
	n, err := b.ReadCloser.Read(p)
	b.visitor.gate.mu.Lock()
	b.read += int64(n)
	evicted = b.evicted
	b.visitor.gate.mu.Unlock()
	if evicted && !b.refused {
		b.refused = true
		return 0, b.visitor.refuse(errSlowBody)
	}
	return n, err
}

// hold counts more bytes, or waits until there is room for them.
func (b *body) hold(more int64) error {
	g := b.visitor.gate
	late := time.After(bodyWait)
	for waits := false; ; waits = true {
		g.mu.Lock()
		if waits {
			b.wait(-1)
		}
		ok := b.take(more) || b.evict(more) && b.take(more)
		if ok || !b.wait(1) {
			g.mu.Unlock()
			if !ok {
				return b.visitor.refuse(errCrowded)
			}
			return nil
		}
		freed := g.freed
		g.mu.Unlock()
		select {
		case <-freed:
		case <-time.After(bodyLook):
		case <-late:
			g.mu.Lock()
			b.wait(-1)
			g.mu.Unlock()
			return b.visitor.refuse(errCrowded)
		}
	}
}

// wait counts a request that begins to wait (1), unless too many of its address or key do already, or that waits no
// more (-1). Needs the gate's mu.
func (b *body) wait(n int) (ok bool) {
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

// evict gives the room of bodies that are too slow to one that wants more. What they have sent so far stays counted,
// because it is kept until they notice. Needs the gate's mu.
func (b *body) evict(more int64) (some bool) {
	now := time.Now()
	for other := range b.visitor.gate.bodies {
		if other == b || !other.isSlow(now) || !b.competesWith(other, more) {
			continue
		}
		unused := other.held + smallBody - other.read
		for _, s := range other.shares {
			s.bodies -= unused
		}
		other.held -= unused
		other.evicted, some = true, true
	}
	return some
}

// competesWith reports whether a share that has no room for more has the other body, too. Needs the gate's mu.
func (b *body) competesWith(other *body, more int64) bool {
	for _, s := range b.shares {
		if s.most < 0 || s.bodies+more <= int64(s.most)<<20 {
			continue
		}
		for _, t := range other.shares {
			if s.usage == t.usage {
				return true
			}
		}
	}
	return false
}

// take counts more bytes if there is room. Needs the gate's mu.
func (b *body) take(more int64) bool {
	g, l := b.visitor.gate, b.visitor.gate.options.Limits
	if b.shares == nil {
		b.shares = []bodyShare{{g.usage(share{"all", ""}), l.BodyMegabytes}}
		if name, limited := block(b.visitor.address); limited {
			b.shares = append(b.shares, bodyShare{g.usage(share{"address", name}), l.BodyMegabytesPerAddress})
		}
		if b.visitor.key != "" {
			b.shares = append(b.shares, bodyShare{g.usage(share{"key", b.visitor.key}), l.BodyMegabytesPerKey})
		}
	}
	for _, s := range b.shares {
		if s.most >= 0 && s.bodies+more > int64(s.most)<<20 {
			return false
		}
	}
	for _, s := range b.shares {
		s.bodies += more
	}
	b.held += more
	b.since, b.before = time.Now(), b.read
	g.bodies[b] = struct{}{}
	return true
}

// Close gives back what was counted. The body itself http.Server closes, when the answer is on its way: it would wait here for the rest.
func (b *body) Close() error {
	g := b.visitor.gate
	g.mu.Lock()
	for _, s := range b.shares {
		s.bodies -= b.held
	}
	if b.held > 0 {
		close(g.freed)
		g.freed = make(chan struct{})
	}
	b.shares, b.held = nil, 0
	delete(g.bodies, b)
	g.mu.Unlock()
	return nil
}
