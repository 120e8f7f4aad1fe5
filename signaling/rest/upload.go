package rest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"voxgate/bridge"
	"voxgate/signaling"
)

// firstRead is the initial size of the buffer for a request, in bytes, and growth the factor by which a full buffer grows. So a client
// that announces a large body and sends little uses little memory.
const firstRead, growth = 64 << 10, 8

// readBody reads a request body. length is the announced length, negative if unknown.
func readBody(from io.Reader, length int64) ([]byte, error) {
	room := func(n int64) int64 {
		if length >= 0 && n > length {
			return length + 1 // one byte more, to detect the end
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

// refuseBody sends the error for a body that could not be read.
func (c *call) refuseBody(r *http.Request, err error) {
	var long *http.MaxBytesError
	var own *bridge.Error
	switch {
	case errors.As(err, &long):
		message := fmt.Sprintf("The request is too large: %d bytes are the most.", long.Limit)
		signaling.WriteGoogleError(c.w, http.StatusRequestEntityTooLarge, message, 0)
	case errors.As(err, &own): // most clients read the response only after they have sent the whole body
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, maxBody))
		signaling.WriteGoogleErrorFor(c.w, err)
	default:
		signaling.WriteGoogleError(c.w, http.StatusRequestTimeout, "The request did not come in time.", 0)
	}
}

// upload is the body of a request to the backend. sent is called once text is no longer needed; it may be nil.
type upload struct {
	text []byte
	sent func()
}

// done reports that text is no longer needed.
func (u upload) done() {
	if u.sent != nil {
		u.sent()
	}
}

// on sets u as the body of a request. text is released once it has been read: Go's HTTP client would otherwise keep the body until the
// response has ended. Before that, the client may retry the request on another connection.
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
		return 0, io.ErrUnexpectedEOF // text was already sent on another connection
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
