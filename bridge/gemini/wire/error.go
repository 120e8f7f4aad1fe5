package wire

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// MaxReason limits a text from the server that becomes part of an error, in bytes. The limit keeps Google's longest
// sentence, but cuts HTML pages.
const MaxReason = 300

// HandshakeError is an HTTP error that the server has sent in response to a WebSocket upgrade or a REST request.
type HandshakeError struct {
	Status int    // HTTP status
	Body   string // body of the response: one line of at most MaxReason bytes, without the key

	Retry time.Duration // delay before a retry that the server requests, see RetryAfter; 0 means none
}

// Error implements error.
func (e *HandshakeError) Error() string {
	text := fmt.Sprintf("refused with HTTP %d %s", e.Status, http.StatusText(e.Status))
	if e.Body != "" {
		text += ": " + e.Body
	}
	return text
}

// CloseError describes the end of a connection. Code is the server's WebSocket close code. It is 1006 if the connection was
// lost without a close frame.
type CloseError struct {
	Code   int
	Reason string
	Err    error // the network error that ended the connection, or nil
}

// Error implements error.
func (e *CloseError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("closed with %d", e.Code)
	}
	return fmt.Sprintf("closed with %d: %s", e.Code, e.Reason)
}

// Unwrap returns the network error that ended the connection, or nil.
func (e *CloseError) Unwrap() error { return e.Err }

// ServerError is a message {"error": …}. The connection may still be open; the server usually closes it next.
type ServerError struct {
	Code    int    // an HTTP status; 0 if absent
	Status  string // Google's name of the status, such as "INVALID_ARGUMENT"
	Message string // the text as sent; gemini.Conn removes the key from it and limits it to MaxReason bytes

	Retry time.Duration // delay before a retry that the server requests, or 0
}

// Error implements error.
func (e *ServerError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("server error %d %s %s", e.Code, e.Status, e.Message))
}

// FrameError is a malformed message. The whole message was skipped, and the connection is still usable.
type FrameError struct {
	Problem string
}

// Error implements error.
func (e *FrameError) Error() string { return "malformed message: " + e.Problem }

// OneLine prepares a server's text for a log line: words separated by single spaces, at most limit bytes.
func OneLine(text string, limit int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}
