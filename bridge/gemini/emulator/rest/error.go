package rest

import (
	"net/http"

	"voxgate/bridge/gemini/emulator/live"
)

// Error is an error as Google's REST API words it.
type Error struct {
	Code    int // HTTP status
	Status  string
	Message string
}

// Write answers a request with it.
func (e *Error) Write(w http.ResponseWriter) {
	writeJSON(w, e.Code, map[string]any{"error": map[string]any{
		"code": e.Code, "message": e.Message, "status": e.Status, "details": []any{},
	}})
}

var refusals = map[int]*Error{
	http.StatusUnauthorized:       {http.StatusUnauthorized, "UNAUTHENTICATED", "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid authentication credential."},
	http.StatusForbidden:          {http.StatusForbidden, "PERMISSION_DENIED", "The caller does not have permission."},
	http.StatusTooManyRequests:    {http.StatusTooManyRequests, "RESOURCE_EXHAUSTED", live.QuotaExceeded},
	http.StatusServiceUnavailable: {http.StatusServiceUnavailable, "UNAVAILABLE", "The service is currently unavailable."},
}

// Refusal returns Google's answer of this HTTP status to a handshake: 401, 403, 429 or 503, nil for any other.
func Refusal(status int) *Error { return refusals[status] }

func invalid(message string) *Error {
	return &Error{http.StatusBadRequest, "INVALID_ARGUMENT", message}
}

func notFound(message string) *Error {
	return &Error{http.StatusNotFound, "NOT_FOUND", message}
}
