package geminirest

import (
	"net/http"
	"time"

	"voxgate/tools"
)

// shutdownRetryAfter is the Retry-After of a gateway that shuts down. By then, a load balancer should send requests to
// another gateway.
const shutdownRetryAfter = 5 * time.Second

const shutdownMessage = "The gateway is shutting down."

const jsonContentType = "application/json; charset=UTF-8"

// writeErrorBody sends a JSON error response. It renews the write deadline, which may have passed while waiting for the backend.
func writeErrorBody(w http.ResponseWriter, status int, body object) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.Header().Set("Content-Type", jsonContentType)
	w.WriteHeader(status)
	_, _ = w.Write(tools.EncodeOrEmpty(body))
}
