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
)

// errCrowded is the error after a wait in vain.
var errCrowded = &refusal{
	rule: "bodies", code: bridge.CodeBusy, status: http.StatusServiceUnavailable, retry: bodyRetry,
	message: "Too many bytes of requests are under way: send this one again in a moment.",
}

// body is the body of a request, which counts among the bytes that are under way from when they are read until it is closed.
type body struct {
	io.ReadCloser
	visitor *Visitor
	length  int64 // below 0: not known
	read    int64
	held    int64       // counted
	refused bool        // the rest is read to be thrown away
	shares  []bodyShare // with these
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
	room := smallBody + b.held - b.read
	if room == 0 && b.read != b.length && !b.refused {
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
	b.read += int64(n)
	return n, err
}

// hold counts more bytes, or waits until there is room for them.
func (b *body) hold(more int64) error {
	g := b.visitor.gate
	late := time.After(bodyWait)
	for {
		g.mu.Lock()
		if b.take(more) {
			g.mu.Unlock()
			return nil
		}
		freed := g.freed
		g.mu.Unlock()
		select {
		case <-freed:
		case <-late:
			return b.visitor.refuse(errCrowded)
		}
	}
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
	g.mu.Unlock()
	return nil
}
