package rest

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"voxgate/bridge"
	"voxgate/signaling/access"
)

// statuses are Google's names for HTTP statuses: https://cloud.google.com/apis/design/errors#handling_errors.
var statuses = map[int]string{
	http.StatusBadRequest:            "INVALID_ARGUMENT",
	http.StatusUnauthorized:          "UNAUTHENTICATED",
	http.StatusForbidden:             "PERMISSION_DENIED",
	http.StatusNotFound:              "NOT_FOUND",
	http.StatusRequestTimeout:        "DEADLINE_EXCEEDED",
	http.StatusRequestEntityTooLarge: "INVALID_ARGUMENT",
	http.StatusTooManyRequests:       "RESOURCE_EXHAUSTED",
	http.StatusInternalServerError:   "INTERNAL",
	http.StatusBadGateway:            "UNAVAILABLE",
	http.StatusServiceUnavailable:    "UNAVAILABLE",
	http.StatusNotImplemented:        "UNIMPLEMENTED",
	http.StatusGatewayTimeout:        "DEADLINE_EXCEEDED",
}

// errorObject is an error in Google's shape. retry, where it is known when to come back, is sent as RetryInfo, which the Gemini CLI
// keeps to.
func errorObject(status int, message string, retry time.Duration) object {
	details := []any{}
	if retry > 0 {
		details = append(
			details,
			object{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": fmt.Sprintf("%.0fs", math.Ceil(retry.Seconds()))},
		)
	}
	return object{"error": object{"code": status, "message": message, "status": cmp.Or(statuses[status], "UNKNOWN"), "details": details}}
}

func refuse(w http.ResponseWriter, status int, message string, retry time.Duration) {
	if retry > 0 {
		w.Header().Set("Retry-After", fmt.Sprintf("%.0f", math.Ceil(retry.Seconds())))
	}
	reply(w, status, errorObject(status, message, retry))
}

// stoppingRetry is when a client may come back to a gateway that stops: to another one, or the next.
const stoppingRetry = 5 * time.Second

const stopping = "The gateway is shutting down."

// refuseStopping refuses because the gateway stops.
func refuseStopping(w http.ResponseWriter) {
	refuse(w, http.StatusServiceUnavailable, stopping, stoppingRetry)
}

const jsonType = "application/json; charset=UTF-8"

// reply answers with an error. The server's own deadline may have passed while the backend was waited for.
func reply(w http.ResponseWriter, status int, body object) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(status)
	_, _ = w.Write(encode(body))
}

// refuseError refuses for an error of the gateway.
func refuseError(w http.ResponseWriter, err error) {
	e := bridge.AsError(err)
	status := access.Status(e)
	switch {
	case status != 0:
	case e.Code == bridge.CodeBadMessage:
		status = http.StatusBadRequest
	default:
		status = http.StatusInternalServerError
	}
	var own *bridge.Error
	if !errors.As(err, &own) {
		e.Message = "Something went wrong in the gateway."
	}
	refuse(w, status, e.Message, e.Retry)
}
