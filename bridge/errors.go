package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/gemini/writer"
	"voxgate/bridge/keeper"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/uplink"
)

// Code is an error's kind, for programs.
type Code string

// The codes of every error that reaches a caller.
const (
	// What the client did.
	CodeBadMessage          Code = "bad_message"                  // a message that cannot be read; Field names where
	CodeInvalidAudioFormat  Code = "invalid_audio_format"         // audio that cannot be read or has a rate that is not served
	CodeNotConnected        Code = "not_connected"                // a message before CONNECT_GEMINI
	CodeInvalidState        Code = "invalid_state"                // a message that makes no sense now
	CodeBadConfig           Code = "bad_config"                   // a LiveConfig field that cannot be served
	CodeConfigUpdateFailed  Code = "session_config_update_failed" // a change of the configuration was refused; the old one goes on
	CodeBadOffer            Code = "bad_offer"                    // an SDP offer or a candidate that cannot be used
	CodeUnauthorized        Code = "unauthorized"                 // no token, or one that is not good
	CodeForbidden           Code = "forbidden"                    // the token does not grant it
	CodePeerFailed          Code = "peer_failed"                  // WebRTC did not connect or was lost
	CodeStreamLimitExceeded Code = "stream_limit_exceeded"        // too much waits already: messages, marks, calls

	// What Gemini or the way there did.
	CodeAPIKeyMissing            Code = "api_key_missing"            // no key is set, and Gemini wants one
	CodeProjectIDMissing         Code = "project_id_missing"         // Vertex AI needs a project
	CodeAuthenticationFailed     Code = "authentication_failed"      // Gemini refused the key or the token
	CodeConnectionFailed         Code = "connection_failed"          // Gemini cannot be reached
	CodeConnectionNotEstablished Code = "connection_not_established" // Gemini was reached and did not accept the set-up in time
	CodeRefused                  Code = "refused"                    // Gemini refused the set-up or a message, and says why
	CodeBusy                     Code = "busy"                       // the gateway is full, or the quota is used up
	CodeWebSocketError           Code = "websocket_error"            // the link was lost and could not be renewed
	CodeResumptionFailed         Code = "session_resumption_failed"  // Gemini has forgotten the session; a fresh one goes on

	// What went wrong on the way while the conversation goes on.
	CodeAudioStream     Code = "audio_stream_error"     // speech was lost: nobody took it for too long
	CodeAudioProcessing Code = "audio_processing_error" // the model's audio cannot be played
	CodeSpeakerStream   Code = "speaker_stream_error"   // the voice was lost: more came than can wait
	CodeToolExecution   Code = "tool_execution_error"   // a tool did not answer in time
	CodeToolNotFound    Code = "tool_not_found"         // the model called a function that is not declared

	CodeUnknown Code = "unknown_error" // our fault
)

// Error is an error for a caller: Code for programs, Message for people, Err for the log. Field and Status are set
// where there is one: the place in the client's message, and the HTTP status or WebSocket close code of Gemini's
// refusal.
type Error struct {
	Code    Code
	Message string
	Field   string
	Status  int
	Retry   time.Duration // when to come back, for CodeBusy; 0: not known
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
	ErrMoved    = errors.New("the conversation goes on at another gateway")
)

// Limit is the end of a conversation that has reached a limit. It is a sentence for the person.
type Limit string

func (l Limit) Error() string { return string(l) }

// The limits of a conversation.
const (
	ErrTimeLimit  Limit = "This conversation has reached its time limit."
	ErrTokenLimit Limit = "This conversation has used up its tokens."
	ErrBudget     Limit = "What may be spent on conversations is spent."
	ErrSilence    Limit = "Silence: nobody has said anything for a while."
)

// Reason is why a conversation has ended, for people; "" if nobody's failure has ended it.
func Reason(err error) string {
	var limit Limit
	switch {
	case err == nil, errors.Is(err, ErrGoodbye), errors.Is(err, ErrLeft):
		return ""
	case errors.As(err, &limit), errors.Is(err, ErrShutdown):
		return err.Error()
	}
	return AsError(err).Message
}

// AsError gives err the form that callers get. Unknown errors become unknown_error: only the log has their text.
func AsError(err error) *Error {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e
	}
	if e := (*toolcalls.Error)(nil); errors.As(err, &e) {
		return &Error{Code: callCodes[e.Problem], Message: e.Message}
	}
	if e := (*setup.FieldError)(nil); errors.As(err, &e) {
		return &Error{Code: CodeBadConfig, Message: e.Error(), Field: e.Field, Status: http.StatusBadRequest}
	}
	if errors.Is(err, api.ErrNoProject) {
		return &Error{Code: CodeProjectIDMissing, Message: "Vertex AI needs a project: GOOGLE_CLOUD_PROJECT is not set at the gateway.", Err: err}
	}
	if e := keeper.Refusal(nil); errors.As(err, &e) {
		refusal := refused(e)
		if errors.Is(err, api.ErrNoKey) {
			refusal.Code, refusal.Message = CodeAPIKeyMissing, noKeyMessage
		}
		return refusal
	}
	if errors.Is(err, api.ErrNoKey) {
		return &Error{Code: CodeAPIKeyMissing, Message: noKeyMessage, Err: err}
	}
	if errors.Is(err, api.ErrCredentials) {
		return &Error{Code: CodeAuthenticationFailed, Message: "Google does not accept the gateway's credentials.", Err: err}
	}
	if errors.Is(err, writer.ErrRounds) {
		return &Error{Code: CodeRefused, Message: "The model has called tools again and again without an answer; it was stopped.", Err: err}
	}
	if e := (*wire.UnfinishedError)(nil); errors.As(err, &e) {
		return &Error{Code: CodeRefused, Message: "The model has not finished its answer: " + e.Reason + "."}
	}
	if e := (*wire.FrameError)(nil); errors.As(err, &e) {
		return &Error{Code: CodeConnectionFailed, Message: "The model's answer cannot be read.", Err: err}
	}
	if errors.Is(err, errOver) { // said just as it ended
		return &Error{Code: CodeInvalidState, Message: "The conversation has ended.", Err: err}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{Code: CodeConnectionNotEstablished, Message: "Gemini did not answer in time.", Err: err}
	}
	return &Error{Code: CodeUnknown, Message: "Something went wrong in the gateway.", Err: err}
}

// markRefused is why a mark was refused, as an error for the caller.
func markRefused(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, uplink.ErrManualActivity):
		return &Error{
			Code:    CodeInvalidState,
			Message: "audioStreamEnd has no meaning while the client marks speech itself; send activityEnd.",
			Err:     err,
		}
	case errors.Is(err, uplink.ErrAutomaticActivity):
		return &Error{Code: CodeInvalidState, Message: "activityStart and activityEnd have no meaning while Gemini finds out who speaks; " +
			"initialConfig.voxgate.vad.enabled must be false for them.", Err: err}
	}
	return &Error{Code: CodeStreamLimitExceeded, Message: "Too many marks wait for Gemini; this one was dropped.", Err: err}
}

// callCodes are the codes of what is wrong with a tool call or its answer.
var callCodes = map[toolcalls.Problem]Code{
	toolcalls.TooMany:         CodeStreamLimitExceeded,
	toolcalls.UnknownFunction: CodeToolNotFound,
	toolcalls.BrokenCall:      CodeToolExecution,
	toolcalls.NoOpenCall:      CodeInvalidState,
	toolcalls.ResponseTooLong: CodeBadMessage,
}

const noKeyMessage = "Gemini wants an API key, and the gateway has none: GEMINI_API_KEY is not set there."

const quotaMessage = "Google's quota for this key and model is used up."

func refused(err keeper.Refusal) *Error {
	e := &Error{Err: err}
	reason := ""
	switch err := err.(type) {
	case *wire.HandshakeError:
		e.Status, reason = err.Status, err.Body
	case *wire.CloseError:
		e.Status, reason = err.Code, err.Reason
	case *wire.ServerError:
		e.Status, reason = err.Code, err.Message
	}
	switch err.Cause() {
	case wire.Quota:
		e.Code, e.Message, e.Retry = CodeBusy, quotaMessage, keeper.QuotaDelay(err)
	case wire.Auth:
		e.Code, e.Message = CodeAuthenticationFailed, "Gemini does not accept the gateway's key or token."
	case wire.Fatal, wire.StaleHandle:
		e.Code, e.Message = CodeRefused, "Gemini refused the conversation: "+reason
	default:
		e.Code, e.Message = CodeConnectionFailed, "Gemini is not available right now."
	}
	return e
}

// dialFailure is AsError for what went wrong between us and Gemini: an unknown error is the network's. used reports
// whether there was a link before.
func dialFailure(err error, used bool) *Error {
	e := AsError(err)
	if e.Code == CodeUnknown {
		e = &Error{Code: CodeConnectionFailed, Message: "Gemini cannot be reached from the gateway.", Err: err}
	}
	if used && (e.Code == CodeConnectionFailed || e.Code == CodeConnectionNotEstablished) {
		e.Code, e.Message = CodeWebSocketError, "The connection to Gemini was lost and could not be renewed."
	}
	return e
}

// ErrNotResumed says that there is no conversation to resume, and the caller wanted no other.
var ErrNotResumed = &Error{Code: CodeResumptionFailed, Message: "The conversation to be resumed is not there any more."}

// errOver is the error of a command or a caller whose conversation has ended.
var errOver = errors.New("the conversation has ended")
