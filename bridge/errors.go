package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"voxgate/bridge/gemini"
)

// Code is an error's kind, for programs.
type Code string

// The codes of every error that reaches a caller.
const (
	CodeBadMessage  Code = "bad_message"  // a message that cannot be read; Field names where
	CodeOutOfOrder  Code = "out_of_order" // a message that makes no sense now
	CodeBadConfig   Code = "bad_config"   // a LiveConfig field that cannot be served
	CodeBadOffer    Code = "bad_offer"    // an SDP offer or a candidate that cannot be used
	CodePeerFailed  Code = "peer_failed"  // WebRTC did not connect or was lost
	CodeRefused     Code = "refused"      // Gemini refused the key or the set-up
	CodeBusy        Code = "busy"         // no room here, or the quota is used up
	CodeUnreachable Code = "unreachable"  // Gemini cannot be reached
	CodeInternal    Code = "internal"     // our fault
)

// Error is an error for a caller: Code for programs, Message for people, Err for the log. Field and Status are set where
// there is one: the place in the client's message, and the HTTP status or WebSocket close code of Gemini's refusal.
type Error struct {
	Code    Code
	Message string
	Field   string
	Status  int
	Err     error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return fmt.Sprintf("%s: %v", strings.TrimSuffix(e.Message, "."), e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Reasons for the end of a session that are nobody's failure.
var (
	ErrGoodbye  = errors.New("the client said goodbye")
	ErrReplaced = errors.New("replaced") // another connection carries the conversation now
	ErrLeft     = errors.New("the client has left")
	ErrShutdown = errors.New("the gateway is shutting down")
)

// AsError gives err the form that callers are told. Unknown errors become internal: only the log has their text.
func AsError(err error) *Error {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e
	}
	if e := (*gemini.FieldError)(nil); errors.As(err, &e) {
		return &Error{Code: CodeBadConfig, Message: e.Error(), Field: e.Field, Status: http.StatusBadRequest}
	}
	if e := (*gemini.HandshakeError)(nil); errors.As(err, &e) {
		return handshakeRefused(e)
	}
	if e := (*gemini.CloseError)(nil); errors.As(err, &e) {
		return linkClosed(e)
	}
	if e := (*gemini.ServerError)(nil); errors.As(err, &e) {
		return serverError(e)
	}
	if errors.Is(err, errOver) { // said just as it ended
		return &Error{Code: CodeOutOfOrder, Message: "The conversation has ended.", Err: err}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{Code: CodeUnreachable, Message: "Gemini did not answer in time.", Err: err}
	}
	return &Error{Code: CodeInternal, Message: "Something went wrong in the gateway.", Err: err}
}

// dialFailure is AsError for what went wrong between us and Gemini: what is nothing else is the network.
func dialFailure(err error) *Error {
	e := AsError(err)
	if e.Code == CodeInternal {
		return &Error{Code: CodeUnreachable, Message: "Gemini cannot be reached from the gateway.", Err: err}
	}
	return e
}

func handshakeRefused(e *gemini.HandshakeError) *Error {
	switch {
	case e.Status == http.StatusTooManyRequests:
		return &Error{Code: CodeBusy, Message: "Google's quota for this key is used up. Try again later.", Status: e.Status, Err: e}
	case e.Status >= 400 && e.Status < 500:
		return &Error{Code: CodeRefused, Message: "Gemini refused the connection; the API key may be wrong.", Status: e.Status, Err: e}
	}
	return &Error{Code: CodeUnreachable, Message: "Gemini is not available right now.", Status: e.Status, Err: e}
}

func serverError(e *gemini.ServerError) *Error {
	switch {
	case e.Code == http.StatusTooManyRequests || e.Status == "RESOURCE_EXHAUSTED":
		return &Error{Code: CodeBusy, Message: "Google's quota for this key is used up. Try again later.", Status: e.Code, Err: e}
	case e.Code >= 500:
		return &Error{Code: CodeUnreachable, Message: "Gemini is not available right now.", Status: e.Code, Err: e}
	}
	return &Error{Code: CodeRefused, Message: "Gemini reported an error: " + e.Error(), Status: e.Code, Err: e}
}

func linkClosed(e *gemini.CloseError) *Error {
	switch {
	case strings.Contains(e.Reason, "RESOURCE_EXHAUSTED") || strings.Contains(strings.ToLower(e.Reason), "quota"):
		return &Error{Code: CodeBusy, Message: "Google's quota for this key is used up. Try again later.", Status: e.Code, Err: e}
	case fatal(e):
		return &Error{Code: CodeRefused, Message: "Gemini refused the conversation: " + e.Reason, Status: e.Code, Err: e}
	}
	return &Error{Code: CodeUnreachable, Message: "The connection to Gemini was lost.", Status: e.Code, Err: e}
}

// WebSocket close codes with a meaning here (RFC 6455 section 7.4.1) and the reasons Google gives with them: an invalid
// argument closes with 1007, an unknown model with 1008, and both will do so again for the same set-up.
const (
	closeInvalidPayload  = 1007
	closePolicyViolation = 1008
)

// fatal tells whether dialling again with the same set-up must fail the same way.
func fatal(e *gemini.CloseError) bool {
	switch e.Code {
	case closeInvalidPayload:
		return !staleHandle(e)
	case closePolicyViolation:
		reason := strings.ToLower(e.Reason)
		return !strings.Contains(reason, "aborted") && !staleHandle(e)
	}
	return false
}

// staleHandle tells whether Gemini no longer knows the resumption handle: a fresh session is still possible.
func staleHandle(e *gemini.CloseError) bool {
	reason := strings.ToLower(e.Reason)
	return strings.Contains(reason, "session not found") || strings.Contains(reason, "invalid session handle") ||
		strings.Contains(reason, "requested entity was not found")
}
