package wire

import (
	"net/http"
	"strings"
)

// Cause classifies the end or refusal of a connection by its meaning for the next dial.
type Cause int

const (
	// Lost means that the connection was lost. Dialling again with the newest handle may succeed.
	Lost Cause = iota

	// StaleHandle means that the server no longer has the session of the handle. If the setup had no handle, it means
	// that the model is unknown.
	StaleHandle

	// Quota means that the key or the project has used up its quota.
	Quota

	// Fatal means that the server will refuse the same setup or message again.
	Fatal

	// Auth means that the key or the access token is not accepted.
	Auth
)

// String implements fmt.Stringer.
func (c Cause) String() string {
	return [...]string{"lost", "stale handle", "quota", "fatal", "auth"}[c]
}

// causes maps close codes and reasons to causes. The first line whose code and text match applies. Code 0 matches every
// code, and "" every text. A text matches if it occurs in the reason, in lower case.
//
// The codes are from RFC 6455 section 7.4.1. The reasons are from
// docs.cloud.google.com/gemini-enterprise-agent-platform/models/live-api/troubleshooting, and from the threads named in
// the comments.
var causes = []struct {
	code  int
	text  string
	cause Cause
}{
	{0, "resource_exhausted", Quota}, // with close code 1011, and sometimes without a code
	{0, "resource has been exhausted", Quota},
	{0, "quota", Quota},
	{0, "rate limit", Quota},
	{0, "too many concurrent", Quota},

	{0, "api key", Auth}, // "API key not valid.", "… expired.", "… not found."
	{0, "api_key", Auth},
	{0, "permission_denied", Auth},
	{0, "unauthenticated", Auth},
	{0, "authentication credential", Auth}, // "Request had invalid …"
	{0, "unregistered callers", Auth},
	{0, "token has been used too many times", Auth}, // for an ephemeral token

	{1007, "invalid session handle", StaleHandle},
	{1008, "session not found", StaleHandle}, // "BidiGenerateContent session not found"
	{1008, "requested entity was not found", StaleHandle},
	{1008, "aborted", Lost}, // "The operation was aborted", after goAway (adk-python #3035)

	// Google uses 1007 for four cases: an argument is invalid, a field is unknown, the model refuses, or the context is
	// full.
	{1007, "", Fatal},
	// Google uses 1008 for an unknown model, and with `Operation is not implemented, or supported, or enabled.`
	// (python-genai #1720, adk-python #3918).
	{1008, "", Fatal},

	// This line is for all other codes, such as 1000 and 1006 (at the token limit, or after ten minutes), 1001, 1011
	// (with internal errors) and 1012.
	{0, "", Lost},
}

func causeOf(code int, text string) Cause {
	text = strings.ToLower(text)
	for _, line := range causes {
		if (line.code == 0 || line.code == code) && strings.Contains(text, line.text) {
			return line.cause
		}
	}
	return Lost
}

// Cause classifies the end of a connection.
func (e *CloseError) Cause() Cause { return causeOf(e.Code, e.Reason) }

// Cause classifies an HTTP refusal.
func (e *HandshakeError) Cause() Cause { return causeOfStatus(e.Status, e.Body) }

// Cause classifies an error message.
func (e *ServerError) Cause() Cause { return causeOfStatus(e.Code, e.Status+" "+e.Message) }

func causeOfStatus(status int, text string) Cause {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return Auth
	case status == http.StatusTooManyRequests:
		return Quota
	}
	// Google also returns 400 for an invalid key, so the text must be checked as well.
	if cause := causeOf(0, text); cause != Lost {
		return cause
	}
	if status >= 400 && status < 500 && status != http.StatusRequestTimeout {
		return Fatal
	}
	return Lost
}
