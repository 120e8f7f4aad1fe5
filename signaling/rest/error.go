package rest

import (
	"net/http"
	"time"

	"voxgate/signaling"
	"voxgate/tools"
)

// refuser answers a request with an error, in the words of one API or the other.
type refuser func(w http.ResponseWriter, status int, message string, retry time.Duration)

// forError does so for an error of the gateway.
func (refuse refuser) forError(w http.ResponseWriter, err error) {
	status, message, retry := signaling.HTTPError(err)
	refuse(w, status, message, retry)
}

// stoppingRetry is when a client may come back to a gateway that stops: to another one, or the next.
const stoppingRetry = 5 * time.Second

const stopping = "The gateway is shutting down."

const jsonType = "application/json; charset=UTF-8"

// reply answers with an error of the backend. The server's own deadline may have passed while the backend was waited for.
func reply(w http.ResponseWriter, status int, body object) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(status)
	_, _ = w.Write(tools.Encode(body))
}

// pass answers with an error of the backend, which is in Google's words.
func (c *call) pass(r *refused) {
	if !c.openAI {
		reply(c.w, r.status, r.body)
		return
	}
	said, _ := r.body["error"].(object)
	message, _ := said["message"].(string)
	c.refuse(c.w, r.status, message, 0)
}
