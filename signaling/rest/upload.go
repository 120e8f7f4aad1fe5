package rest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"voxgate/bridge"
)

// firstRead is how much of a request is made room for before any of it has come, in bytes, and growth by how much more each time that it
// is full: a client that announces much and sends little takes little.
const firstRead, growth = 64 << 10, 8

// readBody reads a request of a length that was announced; below 0: none was.
func readBody(from io.Reader, length int64) ([]byte, error) {
	room := func(n int64) int64 {
		if length >= 0 && n > length {
			return length + 1 // in which its end is seen
		}
		return n
	}
	body := make([]byte, 0, room(firstRead))
	for {
		if len(body) == cap(body) {
			body = append(make([]byte, 0, room(int64(cap(body))*growth)), body...)
		}
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if err == io.EOF {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// refuseBody refuses a request that could not be read.
func (c *call) refuseBody(r *http.Request, err error) {
	var long *http.MaxBytesError
	var own *bridge.Error
	switch {
	case errors.As(err, &long):
		c.refuse(c.w, http.StatusRequestEntityTooLarge, fmt.Sprintf("The request is too large: %d bytes are the most.", long.Limit), 0)
	case errors.As(err, &own): // most clients read no answer before they have sent all
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, maxBody))
		c.refuse.forError(c.w, err)
	default:
		c.refuse(c.w, http.StatusRequestTimeout, "The request did not come in time.", 0)
	}
}

// upload is a request on its way to the backend. Sent is called when nothing of it is needed any more; it may be nil.
type upload struct {
	text []byte
	sent func()
}

// done says that nothing of it is needed.
func (u upload) done() {
	if u.sent != nil {
		u.sent()
	}
}

// on puts it into a request to the backend. It is let go of as soon as it has been read: the client of HTTP keeps what it has sent until
// the answer has ended. Until then the request may be sent again, on another connection.
func (u upload) on(r *http.Request) {
	r.ContentLength = int64(len(u.text))
	if len(u.text) == 0 {
		r.Body = http.NoBody
		return
	}
	kept := &keptUpload{upload: u}
	r.Body = &uploadReader{of: kept}
	r.GetBody = func() (io.ReadCloser, error) { return &uploadReader{of: kept}, nil }
}

type keptUpload struct {
	mu sync.Mutex
	upload
}

type uploadReader struct {
	of   *keptUpload
	at   int
	over bool
}

func (r *uploadReader) Read(p []byte) (int, error) {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	switch {
	case r.over:
		return 0, io.EOF
	case r.of.text == nil:
		return 0, io.ErrUnexpectedEOF // another connection has taken all of it
	}
	n := copy(p, r.of.text[r.at:])
	if r.at += n; r.at < len(r.of.text) {
		return n, nil
	}
	r.over, r.of.text = true, nil
	r.of.done()
	return n, io.EOF
}

func (r *uploadReader) Close() error { return nil }
