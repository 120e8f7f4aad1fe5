package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/tools"
)

type object = map[string]any

// apiError is an error in OpenAI's format.
type apiError struct {
	Type    string `json:"type"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message"`
	Param   string `json:"param,omitempty"`
	EventID string `json:"event_id,omitempty"` // ID of the client's event that caused the error
}

func (e *apiError) Error() string { return e.Message }

// newError returns the error for invalid input of a client. param names the field, and may be empty.
func newError(code, param, format string, args ...any) error {
	return &apiError{Code: code, Param: param, Message: fmt.Sprintf(format, args...)}
}

// missingField returns the error for a missing field, and invalidValue the error for a field with an unsupported value.
func missingField(param string) error {
	return newError("missing_required_parameter", param, "%s is missing.", param)
}

func invalidValue(param, format string, args ...any) error {
	return newError("invalid_value", param, "%s "+format, append([]any{param}, args...)...)
}

// wrongType returns the error for a field of the wrong type. path is the path of the object with the field. It is empty
// if the object is the event itself.
func wrongType(err error, path string) error {
	t := (*json.UnmarshalTypeError)(nil)
	if !errors.As(err, &t) {
		return newError("invalid_type", path, "The event cannot be read: %v.", tools.ExplainJSON(err, ""))
	}
	param := strings.Trim(path+"."+t.Field, ".")
	return newError("invalid_type", param, "%s cannot be a %s.", cmp.Or(param, "An event"), t.Value)
}

// clip shortens a client's text for an error message. clipLong shortens untrusted text for the log.
func clip(text string) string     { return tools.Truncate(text, 60) }
func clipLong(text string) string { return tools.Truncate(text, 300) }

// inSession removes the prefixes of field names from the engine's errors, because OpenAI's sessions do not have these
// prefixes.
var inSession = strings.NewReplacer("payload.", "", "initialConfig.", "")

// endError returns the error that a client receives for the end of a conversation. It returns nil if the end is not
// an error.
func endError(err error) *apiError {
	var realtimeErr *apiError
	var limit bridge.Limit
	switch {
	case err == nil,
		errors.Is(err, bridge.ErrLeft),
		errors.Is(err, bridge.ErrGoodbye),
		errors.Is(err, bridge.ErrReplaced),
		errors.Is(err, signaling.ErrSlow):
		return nil
	case errors.As(err, &realtimeErr):
		return realtimeErr
	case errors.Is(err, bridge.ErrShutdown), errors.Is(err, context.Canceled):
		return &apiError{Type: "server_error", Code: "server_shutdown", Message: "The gateway is shutting down."}
	case errors.As(err, &limit):
		return &apiError{Code: "session_expired", Message: limit.Error()}
	}
	e := bridge.AsError(err)
	switch code := engineCodes[e.Code]; {
	case e.Field == agents.ErrorField:
		return &apiError{Code: "invalid_value", Message: e.Message, Param: "session.prompt"}
	case e.Code == bridge.CodeForbidden && e.Field != "":
		return &apiError{Code: "invalid_model", Message: e.Message, Param: "model"}
	case e.Code == bridge.CodeBadConfig:
		return &apiError{Code: "invalid_value", Message: inSession.Replace(e.Message), Param: "session"}
	case code == "":
		return &apiError{Type: "server_error", Code: string(e.Code), Message: e.Message}
	default:
		return &apiError{Code: code, Message: e.Message}
	}
}

// engineCodes maps the engine's codes for client errors to OpenAI's.
var engineCodes = map[bridge.Code]string{
	bridge.CodeUnauthorized: "invalid_api_key", bridge.CodeForbidden: "permission_denied", bridge.CodeBusy: "rate_limit_exceeded",
}

// OpenAI's close codes.
const (
	closeUnauthorized = 3000
	closeInvalid      = 4000
)

// closeReason returns the close code and reason that OpenAI's server would send for an error.
func closeReason(err error) (code int, reason string) {
	code, reason = signaling.CloseReason(err)
	if code == signaling.CloseNormal || code == signaling.CloseGoingAway || errors.Is(err, signaling.ErrSlow) {
		return code, reason
	}
	switch e := endError(err); {
	case e.Type == "server_error":
		return code, reason
	case e.Code == "invalid_api_key":
		return closeUnauthorized, "invalid_request_error.invalid_api_key"
	default:
		return closeInvalid, "invalid_request_error." + e.Code
	}
}

// statuses maps error codes to HTTP statuses other than 400.
var statuses = map[string]int{
	"invalid_api_key": http.StatusUnauthorized, "permission_denied": http.StatusForbidden, "invalid_model": http.StatusNotFound,
	"call_not_found": http.StatusNotFound, "not_found": http.StatusNotFound, "request_too_large": http.StatusRequestEntityTooLarge,
	"unsupported_content_type": http.StatusUnsupportedMediaType,
	"rate_limit_exceeded":      http.StatusTooManyRequests, "server_shutdown": http.StatusServiceUnavailable,
}

// writeError answers a request with an error.
func writeError(w http.ResponseWriter, err error) {
	e := endError(err)
	if e == nil { // the conversation has ended without an error before it was set up
		e = &apiError{Type: "server_error", Code: "server_error", Message: "The call has ended."}
	}
	status := cmp.Or(statuses[e.Code], http.StatusBadRequest)
	switch {
	case access.RefusalStatusOrZero(bridge.AsError(err)) == http.StatusServiceUnavailable:
		status = http.StatusServiceUnavailable
	case e.Type == "server_error" && statuses[e.Code] == 0:
		status = http.StatusBadGateway
	}
	switch status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer") // RFC 6750, section 3
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", strconv.Itoa(access.RetrySeconds(bridge.AsError(err).Retry)))
	}
	body := object{"message": e.Message, "type": cmp.Or(e.Type, "invalid_request_error"), "param": nil, "code": e.Code}
	if e.Param != "" {
		body["param"] = e.Param
	}
	access.WriteJSON(w, status, object{"error": body})
}
