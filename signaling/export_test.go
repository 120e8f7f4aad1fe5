package signaling

// BodyTimeout limits how long a request's body may take.
const BodyTimeout = bodyTimeout

// NewHTTPCall returns a call that runs until end is called.
func NewHTTPCall() (c *HTTPCall, end func()) {
	c = &HTTPCall{requests: make(chan func()), done: make(chan struct{})}
	return c, func() { close(c.done) }
}
