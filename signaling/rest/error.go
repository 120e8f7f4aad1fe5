package rest

import (
	"net/http"
	"time"

	"voxgate/signaling"
	"voxgate/tools"
)

// refuser sends an error response, in the format of Google's API or of OpenAI's.
type refuser func(w http.ResponseWriter, status int, message string, retry time.Duration)

// forError sends the response for an error of the gateway.
func (refuse refuser) forError(w http.ResponseWriter, err error) {
	status, message, retry := signaling.HTTPError(err)
	refuse(w, status, message, retry)
}

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

// pass forwards an error of the backend, converted for clients of OpenAI's API.
func (c *call) pass(r *refused) {
	if !c.openAI {
		reply(c.w, r.status, r.body)
		return
	}
	said, _ := r.body["error"].(object)
	message, _ := said["message"].(string)
	c.refuse(c.w, r.status, message, 0)
}
