package gemini

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Errors of Dial and Check about who we are.
var (
	// ErrNoKey is in the error if Google wants a key and there is none.
	ErrNoKey = errors.New("no API key is set")

	// ErrNoProject means that Vertex AI is to be used and no project is named.
	ErrNoProject = errors.New("Vertex AI needs a project")

	// ErrCredentials is in the error if Google Cloud's credentials were not found or not accepted.
	ErrCredentials = errors.New("the Google Cloud credentials cannot be used")
)

// HandshakeError is an HTTP answer that stands where the upgrade, or a REST answer, was wanted.
type HandshakeError struct {
	Status int    // HTTP status
	Body   string // at most 300 bytes of it, one line, without the key
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
	err    error
}

// Error implements error.
func (e *CloseError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("closed with %d", e.Code)
	}
	return fmt.Sprintf("closed with %d: %s", e.Code, e.Reason)
}

// Unwrap returns the network's error behind a lost connection, if there was one.
func (e *CloseError) Unwrap() error { return e.err }

// ServerError is a message {"error": …}. The connection may still be open; the server usually closes it next.
type ServerError struct {
	Code    int    // HTTP-like, 0 if absent
	Status  string // as "INVALID_ARGUMENT"
	Message string
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

// oneLine makes a peer's text fit for a log line.
func oneLine(text string, limit int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}

// bodyText is the text of an error's body for people: one line, short, without the secret.
func bodyText(body string, secret Secret) string { return oneLine(secret.hide(body), 300) }
