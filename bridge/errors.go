package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/uplink"
	"voxgate/bridge/upstream"
)

// Code is the kind of an error, for programs.
type Code string

// The codes of all errors that callers receive.
const (
	// Caused by the client.
	CodeBadMessage          Code = "bad_message"                  // message cannot be parsed; Field names the place
	CodeInvalidAudioFormat  Code = "invalid_audio_format"         // audio cannot be decoded or has an unsupported rate
	CodeNotConnected        Code = "not_connected"                // message before CONNECT_GEMINI
	CodeInvalidState        Code = "invalid_state"                // message not allowed in the current state
	CodeBadConfig           Code = "bad_config"                   // LiveConfig field not supported
	CodeConfigUpdateFailed  Code = "session_config_update_failed" // configuration change rejected; the old configuration stays
	CodeBadOffer            Code = "bad_offer"                    // SDP offer or candidate not usable
	CodeUnauthorized        Code = "unauthorized"                 // no token, or an invalid one
	CodeForbidden           Code = "forbidden"                    // not granted by the token
	CodePeerFailed          Code = "peer_failed"                  // WebRTC did not connect or was lost
	CodeStreamLimitExceeded Code = "stream_limit_exceeded"        // too much is queued: messages, marks, calls

	// Failures of the connection to Gemini, because of settings, Gemini or the network.
	CodeAPIKeyMissing            Code = "api_key_missing"            // no key is set, and Gemini requires one
	CodeProjectIDMissing         Code = "project_id_missing"         // Vertex AI needs a project
	CodeAuthenticationFailed     Code = "authentication_failed"      // Gemini rejected the key or the token
	CodeConnectionFailed         Code = "connection_failed"          // Gemini cannot be reached
	CodeConnectionNotEstablished Code = "connection_not_established" // Gemini did not accept the setup in time
	CodeRefused                  Code = "refused"                    // Gemini rejected the setup or a message, with a reason
	CodeBusy                     Code = "busy"                       // the gateway is full, or the quota is exhausted
	CodeWebSocketError           Code = "websocket_error"            // connection lost and not renewed
	CodeResumptionFailed         Code = "session_resumption_failed"  // Gemini no longer has the session; a fresh session continues

	// Problems while the conversation goes on.
	CodeAudioStream     Code = "audio_stream_error"     // speech was lost, because it could not be sent for too long
	CodeAudioProcessing Code = "audio_processing_error" // the model's audio cannot be played
	CodeSpeakerStream   Code = "speaker_stream_error"   // voice was lost: the queue was full
	CodeToolExecution   Code = "tool_execution_error"   // a tool timed out
	CodeToolNotFound    Code = "tool_not_found"         // the model called an undeclared function

	CodeUnknown Code = "unknown_error" // fault of the gateway
)

// Error is an error for a caller: Code for programs, Message for people, Err for the log.
type Error struct {
	Code    Code
	Message string
	Field   string        // place of the fault in the client's message; may be empty
	Status  int           // HTTP status or WebSocket close code with which Gemini refused; 0 means none
	Retry   time.Duration // time until a retry, for CodeBusy; 0 means unknown
	Err     error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return fmt.Sprintf("%s: %v", strings.TrimSuffix(e.Message, "."), e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Reasons for the end of a session that are not errors.
var (
	ErrGoodbye  = errors.New("the client said goodbye")
	ErrReplaced = errors.New("replaced") // another caller has taken over the conversation
	ErrLeft     = errors.New("the client has left")
	ErrShutdown = errors.New("the gateway is shutting down")
	ErrMoved    = errors.New("the conversation goes on at another gateway")
)

// Limit is the error with which a conversation ends at a limit. Its text is a sentence for the person.
type Limit string

func (l Limit) Error() string { return string(l) }

// The limits of a conversation.
const (
	ErrTimeLimit  Limit = "This conversation has reached its time limit."
	ErrTokenLimit Limit = "This conversation has used up its tokens."
	ErrBudget     Limit = "The budget for conversations is used up."
	ErrSilence    Limit = "Silence: nothing was said for a while."
)

// endCodes holds the codes of reasons for which a conversation ends without a failure. The first reason that matches an
// error counts.
var endCodes = []struct {
	reason error
	code   Code
}{
	{ErrTimeLimit, "time_limit"},
	{ErrTokenLimit, "token_limit"},
	{ErrBudget, "budget"},
	{ErrSilence, "silence"},
	{ErrShutdown, "shutdown"},
	{ErrMoved, "moved"},
	{ErrReplaced, "moved"},
	{ErrGoodbye, "goodbye"},
	{ErrLeft, "left"},
}

// EndCode returns the code of a reason for which a conversation has ended without a failure, such as goodbye or
// time_limit (see endCodes). For a failure it returns "".
func EndCode(err error) Code {
	for _, e := range endCodes {
		if errors.Is(err, e.reason) {
			return e.code
		}
	}
	return ""
}

// DescribeEnd returns a text for people about why a conversation has ended, or "" if one of the two sides has ended it
// normally.
func DescribeEnd(err error) string {
	var limit Limit
	switch {
	case err == nil, errors.Is(err, ErrGoodbye), errors.Is(err, ErrLeft):
		return ""
	case errors.As(err, &limit), errors.Is(err, ErrShutdown):
		return err.Error()
	}
	return AsError(err).Message
}

// AsError converts err to the error that callers receive. An unknown error becomes [CodeUnknown], and its text goes
// only to the log.
func AsError(err error) *Error {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e
	}
	if e := (*toolcalls.Error)(nil); errors.As(err, &e) {
		return &Error{Code: callCodes[e.Problem], Message: e.Message}
	}
	if e := (*liveconfig.FieldError)(nil); errors.As(err, &e) {
		return &Error{Code: CodeBadConfig, Message: e.Error(), Field: e.Field, Status: http.StatusBadRequest}
	}
	if errors.Is(err, api.ErrNoProject) {
		return &Error{Code: CodeProjectIDMissing, Message: "Vertex AI needs a project: GOOGLE_CLOUD_PROJECT is not set at the gateway.", Err: err}
	}
	if e := upstream.Refusal(nil); errors.As(err, &e) {
		refusal := refusalError(e)
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
	if e := (*wire.UnfinishedError)(nil); errors.As(err, &e) {
		return &Error{Code: CodeRefused, Message: "The model did not finish its answer: " + e.Reason + "."}
	}
	if e := (*wire.FrameError)(nil); errors.As(err, &e) {
		return &Error{Code: CodeConnectionFailed, Message: "The model's answer cannot be read.", Err: err}
	}
	if errors.Is(err, errEnded) { // the command came just as the conversation ended
		return &Error{Code: CodeInvalidState, Message: "The conversation has ended.", Err: err}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{Code: CodeConnectionNotEstablished, Message: "Gemini did not answer in time.", Err: err}
	}
	return &Error{Code: CodeUnknown, Message: "Something went wrong in the gateway.", Err: err}
}

// toMarkError converts the uplink's error about a rejected [uplink.Mark] to the error that the caller receives.
func toMarkError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, uplink.ErrManualActivity):
		return &Error{
			Code:    CodeInvalidState,
			Message: "audioStreamEnd is not allowed while the client marks speech itself; send activityEnd.",
			Err:     err,
		}
	case errors.Is(err, uplink.ErrGatewayActivity):
		return &Error{Code: CodeInvalidState, Message: "activityStart and activityEnd are not allowed while the gateway decides about turns; " +
			`voxgate.turns.by must be "client" for them.`, Err: err}
	case errors.Is(err, uplink.ErrAutomaticActivity):
		return &Error{Code: CodeInvalidState, Message: "activityStart and activityEnd are not allowed while Gemini detects speech; " +
			"initialConfig.voxgate.vad.enabled must be false for them.", Err: err}
	}
	return &Error{Code: CodeStreamLimitExceeded, Message: "Too many marks are queued for Gemini; this one was dropped.", Err: err}
}

// callCodes are the error codes of problems with tool calls.
var callCodes = map[toolcalls.Problem]Code{
	toolcalls.TooMany:         CodeStreamLimitExceeded,
	toolcalls.UnknownFunction: CodeToolNotFound,
	toolcalls.BrokenCall:      CodeToolExecution,
	toolcalls.NoOpenCall:      CodeInvalidState,
	toolcalls.ResponseTooLong: CodeBadMessage,
}

const noKeyMessage = "Gemini requires an API key, and the gateway has none: GEMINI_API_KEY is not set."

const quotaMessage = "Google's quota for this key and model is exhausted."

func refusalError(err upstream.Refusal) *Error {
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
		e.Code, e.Message, e.Retry = CodeBusy, quotaMessage, upstream.QuotaDelay(err)
	case wire.Auth:
		e.Code, e.Message = CodeAuthenticationFailed, "Gemini does not accept the gateway's key or token."
	case wire.Fatal, wire.StaleHandle:
		e.Code, e.Message = CodeRefused, "Gemini refused the conversation: "+reason
	default:
		e.Code, e.Message = CodeConnectionFailed, "Gemini is not available right now."
	}
	return e
}

// dialError works like AsError, but treats unknown errors as network errors. wasConnected means that Gemini was reached
// before.
func dialError(err error, wasConnected bool) *Error {
	e := AsError(err)
	if e.Code == CodeUnknown {
		e = &Error{Code: CodeConnectionFailed, Message: "Gemini cannot be reached from the gateway.", Err: err}
	}
	if wasConnected && (e.Code == CodeConnectionFailed || e.Code == CodeConnectionNotEstablished) {
		e.Code, e.Message = CodeWebSocketError, "The connection to Gemini was lost and could not be renewed."
	}
	return e
}

// ErrNotResumed reports that the conversation to resume does not exist. It is a value for [SessionRequest.ResumeError].
var ErrNotResumed = &Error{Code: CodeResumptionFailed, Message: "The conversation to resume no longer exists."}

// errEnded is returned for a command or a caller that comes after the conversation has ended.
var errEnded = errors.New("the conversation has ended")
