package wire

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// MaxReason bounds in bytes what of a peer's text is kept in an error: enough for Google's longest sentence, and not for a page
// of HTML.
const MaxReason = 300

// HandshakeError is an HTTP answer that stands where the upgrade, or a REST answer, was wanted.
type HandshakeError struct {
	Status int    // HTTP status
	Body   string // at most MaxReason bytes of it, one line, without the key

	Retry time.Duration // as RetryAfter reads it
}

// Error implements error.
func (e *HandshakeError) Error() string {
	text := fmt.Sprintf("refused with HTTP %d %s", e.Status, http.StatusText(e.Status))
	if e.Body != "" {
		text += ": " + e.Body
	}
	return text
}

// CloseError says how the connection ended. Code is the server's WebSocket close code, or 1006 when the connection
// was lost without one.
type CloseError struct {
	Code   int
	Reason string
	Err    error // the network's behind a lost connection, or nil
}

// Error implements error.
func (e *CloseError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("closed with %d", e.Code)
	}
	return fmt.Sprintf("closed with %d: %s", e.Code, e.Reason)
}

// Unwrap returns the network's error behind a lost connection, if there was one.
func (e *CloseError) Unwrap() error { return e.Err }

// ServerError is a message {"error": …}. The connection may still be open; the server usually closes it next.
type ServerError struct {
	Code    int    // HTTP-like, 0 if absent
	Status  string // as "INVALID_ARGUMENT"
	Message string // a decoder gives it as the server said it; Conn without the key, at most MaxReason bytes of it

	Retry time.Duration // how long it asks to stay away; 0: it does not say
}

// Error implements error.
func (e *ServerError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("server error %d %s %s", e.Code, e.Status, e.Message))
}

// FrameError is a message that could not be understood. It was skipped as a whole; the connection is still good.
type FrameError struct {
	Problem string
}

// Error implements error.
func (e *FrameError) Error() string { return "malformed message: " + e.Problem }

// OneLine makes a peer's text fit for a log line: its words between single spaces, limit bytes of them at most.
func OneLine(text string, limit int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}
