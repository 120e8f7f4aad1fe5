package geminirest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"voxgate/bridge"
	"voxgate/signaling"
)

// initialBuffer is the initial size of the buffer for a request, in bytes. It is small even if the client announces a
// large body, because the client may send only little of it.
const initialBuffer = 64 << 10

// bufferGrowth is the factor by which a full buffer grows.
const bufferGrowth = 8

// readBody reads a request body. length is the announced length, or negative if the length is unknown.
func readBody(from io.Reader, length int64) ([]byte, error) {
	room := func(n int64) int64 {
		if length >= 0 && n > length {
			return length + 1 // one byte more than announced, to detect the end
		}
		return n
	}
	body := make([]byte, 0, room(initialBuffer))
	for {
		if len(body) == cap(body) {
			body = append(make([]byte, 0, room(int64(cap(body))*bufferGrowth)), body...)
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

// writeBodyError sends the error for a body that could not be read.
func (c *restCall) writeBodyError(r *http.Request, err error) {
	var long *http.MaxBytesError
	var gatewayErr *bridge.Error
	switch {
	case errors.As(err, &long):
		message := fmt.Sprintf("The request is too large: at most %d bytes are allowed.", long.Limit)
		signaling.WriteGoogleError(c.responseWriter, http.StatusRequestEntityTooLarge, message, 0)
	case errors.As(err, &gatewayErr): // read the rest, because most clients read the response only after they have sent the whole body
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, maxRequest))
		signaling.WriteGoogleErrorFor(c.responseWriter, err)
	default:
		signaling.WriteGoogleError(c.responseWriter, http.StatusRequestTimeout, "The request did not come in time.", 0)
	}
}

// requestBody is the body of a request to the backend. onSent is called once text has been sent; it may be nil.
type requestBody struct {
	text   []byte
	onSent func()
}

// notifySent calls onSent.
func (rb requestBody) notifySent() {
	if rb.onSent != nil {
		rb.onSent()
	}
}

// attachTo sets rb as the body of r. The body releases the memory of the text after the text was read, because Go's
// HTTP client would keep it until the response ends.
func (rb requestBody) attachTo(r *http.Request) {
	r.ContentLength = int64(len(rb.text))
	if len(rb.text) == 0 {
		r.Body = http.NoBody
		return
	}
	shared := &sharedBody{requestBody: rb}
	r.Body = &bodyReader{body: shared}
	r.GetBody = func() (io.ReadCloser, error) { return &bodyReader{body: shared}, nil }
}

type sharedBody struct {
	mu sync.Mutex
	requestBody
}

type bodyReader struct {
	body   *sharedBody
	offset int
	isDone bool
}

func (r *bodyReader) Read(p []byte) (int, error) {
	r.body.mu.Lock()
	defer r.body.mu.Unlock()
	switch {
	case r.isDone:
		return 0, io.EOF
	case r.body.text == nil:
		return 0, io.ErrUnexpectedEOF // a retry on another connection: the text was already sent and released
	}
	n := copy(p, r.body.text[r.offset:])
	if r.offset += n; r.offset < len(r.body.text) {
		return n, nil
	}
	r.isDone, r.body.text = true, nil
	r.body.notifySent()
	return n, io.EOF
}

func (r *bodyReader) Close() error { return nil }
