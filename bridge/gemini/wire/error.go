package wire

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// MaxReason bounds a peer's text in an error, in bytes: enough for Google's longest sentence, but not for an HTML page.
const MaxReason = 300

// HandshakeError is an HTTP error that the server has returned in place of the WebSocket upgrade or of a REST response.
type HandshakeError struct {
	Status int    // HTTP status
	Body   string // one line of at most MaxReason bytes, without the key

	Retry time.Duration // delay requested by the server, as RetryAfter returns it; 0 means none
}

// Error implements error.
func (e *HandshakeError) Error() string {
	text := fmt.Sprintf("refused with HTTP %d %s", e.Status, http.StatusText(e.Status))
	if e.Body != "" {
		text += ": " + e.Body
	}
	return text
}

// CloseError describes the end of the connection. Code is the server's WebSocket close code, or 1006 if the connection was lost
// without one.
type CloseError struct {
	Code   int
	Reason string
	Err    error // the network error behind a lost connection, or nil
}

// Error implements error.
func (e *CloseError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("closed with %d", e.Code)
	}
	return fmt.Sprintf("closed with %d: %s", e.Code, e.Reason)
}

// Unwrap returns the network error behind a lost connection, if any.
func (e *CloseError) Unwrap() error { return e.Err }

// ServerError is a message {"error": …}. The connection may still be open; the server usually closes it next.
type ServerError struct {
	Code    int    // HTTP-like, 0 if absent
	Status  string // such as "INVALID_ARGUMENT"
	Message string // a Decoder returns it as sent; a Conn removes the key and limits it to MaxReason bytes

	Retry time.Duration // delay requested by the server, or 0
}

// Error implements error.
func (e *ServerError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("server error %d %s %s", e.Code, e.Status, e.Message))
}

// FrameError is a malformed message. It was skipped as a whole; the connection is still usable.
type FrameError struct {
	Problem string
}

// Error implements error.
func (e *FrameError) Error() string { return "malformed message: " + e.Problem }

// OneLine prepares a peer's text for a log line: words separated by single spaces, at most limit bytes.
func OneLine(text string, limit int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}
