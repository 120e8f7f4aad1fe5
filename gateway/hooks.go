package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/signaling/sip"
	"voxgate/tools/webhook"
)

const (
	// hookTimeout bounds one question to the operator's endpoint: a person waits for the answer to the first.
	hookTimeout = 5 * time.Second
	// hookTries is how often the end of a conversation is sent to an endpoint that does not answer, and hookPause the time between.
	hookTries = 4
	hookPause = 5 * time.Second
	// hookRetry is when a client may come back for which the endpoint could not be asked.
	hookRetry = 10 * time.Second
)

// hooks report conversations to the operator's endpoint: docs/sideband.md.
type hooks struct {
	endpoint *webhook.Endpoint
	agents   *agents.Folder
	log      *slog.Logger
	running  sync.WaitGroup
	stopped  chan struct{} // closed: no end is sent any more
}

// newHooks returns nil if no endpoint is set.
func newHooks(url, secret string, folder *agents.Folder, log *slog.Logger) (*hooks, error) {
	if url == "" {
		return nil, nil
	}
	endpoint, err := webhook.NewEndpoint(url, secret)
	if err != nil {
		return nil, err
	}
	return &hooks{endpoint: endpoint, agents: folder, log: log, stopped: make(chan struct{})}, nil
}

// hookSession is a conversation as the endpoint gets it.
type hookSession struct {
	ID       string          `json:"id"`
	Door     string          `json:"door"`
	Agent    string          `json:"agent,omitempty"`
	Identity string          `json:"identity,omitempty"`
	Grant    json.RawMessage `json:"grant,omitempty"`

	Attributes map[string]string `json:"attributes,omitempty"` // what came with a telephone call
}

// admit asks whether a conversation may begin, and with which configuration of the model. An endpoint that does not answer admits nobody:
// it is there to decide.
func (h *hooks) admit(ctx context.Context, id string, o *bridge.SessionRequest) error {
	ctx, cancel := context.WithTimeout(ctx, hookTimeout)
	defer cancel()
	status, answer, err := h.endpoint.Post(ctx, id+"-start", map[string]any{
		"type":    "session.start",
		"session": hookSession{id, o.Origin.Protocol, o.Origin.Agent, o.Origin.Identity, o.Origin.Grant, o.Origin.Attributes},
	})
	var said struct {
		Message string
		Agent   *agents.Choice
	}
	var agent *agents.Agent
	if err == nil && len(answer) > 0 {
		err = json.Unmarshal(answer, &said)
	}
	if err == nil && said.Agent != nil {
		agent, err = h.agents.Resolve(*said.Agent, o.Origin.Protocol, nil)
	}
	switch {
	case status == http.StatusForbidden:
		if said.Message == "" {
			said.Message = "This conversation is not wanted."
		}
		return &bridge.Error{Code: bridge.CodeForbidden, Message: said.Message}
	case err == nil && status/100 != 2:
		err = fmt.Errorf("it answered %d", status)
		fallthrough
	case err != nil:
		h.log.Warn("the session webhook does not answer; nobody is let in", "call", id, "err", err)
		return &bridge.Error{Code: bridge.CodeBusy, Message: "The service cannot take calls just now.", Retry: hookRetry, Err: err}
	}
	if agent != nil {
		agent.ApplyLocked(o)
	}
	return nil
}

// ended sends the end of a conversation, in the background.
func (h *hooks) ended(e report) {
	h.report(e.ID+"-end", endedOf(e))
}

// call sends where a call that the gateway makes stands.
func (h *hooks) call(c sip.CallStatus) {
	if h != nil {
		h.report(fmt.Sprintf("%s-%d", c.ID, c.Change), map[string]any{"type": "call.status", "call": c})
	}
}

// report sends something that has happened, in the background, until the endpoint has it. Two reports may arrive in any order.
func (h *hooks) report(id string, body any) {
	h.running.Go(func() {
		for try := 1; ; try++ {
			status, err := h.post(id, body)
			if err == nil && status/100 == 2 {
				return
			}
			last := try == hookTries
			if !last {
				select {
				case <-time.After(hookPause):
				case <-h.stopped:
					last = true
				}
			}
			if last {
				h.log.Warn("the session webhook did not get a report", "id", id, "status", status, "err", err)
				return
			}
		}
	})
}

// post sends a body to the endpoint, until the hooks are stopped.
func (h *hooks) post(id string, body any) (status int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), hookTimeout)
	defer cancel()
	go func() {
		select {
		case <-h.stopped:
			cancel()
		case <-ctx.Done():
		}
	}()
	status, _, err = h.endpoint.Post(ctx, id, body)
	return status, err
}

// close waits until all ends were sent, or for ctx.
func (h *hooks) close(ctx context.Context) error {
	stop := sync.OnceFunc(func() { close(h.stopped) })
	defer context.AfterFunc(ctx, stop)()
	h.running.Wait()
	stop()
	h.endpoint.Close()
	return nil
}
