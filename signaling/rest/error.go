package rest

import (
	"net/http"
	"time"

	"voxgate/tools"
)

// stoppingRetry is the Retry-After of a gateway that shuts down. By then, a load balancer should use another one.
const stoppingRetry = 5 * time.Second

const stopping = "The gateway is shutting down."

const jsonType = "application/json; charset=UTF-8"

// reply sends a JSON error response. It renews the write deadline, which may have passed while waiting for the backend.
func reply(w http.ResponseWriter, status int, body object) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(status)
	_, _ = w.Write(tools.Encode(body))
}
