package rest

import (
	"net/http"
	"time"

	"voxgate/signaling"
)

func errorObject(status int, message string, retry time.Duration) object {
	return signaling.GoogleError(status, message, retry)
}

func refuse(w http.ResponseWriter, status int, message string, retry time.Duration) {
	signaling.RefuseGoogle(w, status, message, retry)
}

// stoppingRetry is when a client may come back to a gateway that stops: to another one, or the next.
const stoppingRetry = 5 * time.Second

const stopping = "The gateway is shutting down."

// refuseStopping refuses because the gateway stops.
func refuseStopping(w http.ResponseWriter) {
	refuse(w, http.StatusServiceUnavailable, stopping, stoppingRetry)
}

const jsonType = "application/json; charset=UTF-8"

// reply answers with an error of the backend. The server's own deadline may have passed while the backend was waited for.
func reply(w http.ResponseWriter, status int, body object) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(status)
	_, _ = w.Write(encode(body))
}

// refuseError refuses for an error of the gateway.
func refuseError(w http.ResponseWriter, err error) { signaling.RefuseGoogleFor(w, err) }
