package telemetry

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
	"voxgate/signaling/phone/sip"
	"voxgate/tools/webhook"
)

const (
	// webhookTimeout bounds one request to the operator's endpoint. It is short, because a person waits while the endpoint admits the
	// conversation.
	webhookTimeout = 5 * time.Second
	// webhookTries bounds the attempts to report the end of a conversation, and webhookPause is the time between them.
	webhookTries = 4
	webhookPause = 5 * time.Second
	// webhookRetryAfter is sent to a client that was rejected because the endpoint did not answer.
	webhookRetryAfter = 10 * time.Second
)

// sessionWebhook reports conversations to the operator's endpoint: docs/sideband.md.
type sessionWebhook struct {
	endpoint *webhook.Endpoint
	agents   *agents.Folder
	log      *slog.Logger
	running  sync.WaitGroup
	stopped  chan struct{} // closed when reports are no longer retried
}

// newSessionWebhook returns nil if url is empty.
func newSessionWebhook(url, secret string, folder *agents.Folder, log *slog.Logger) (*sessionWebhook, error) {
	if url == "" {
		return nil, nil
	}
	endpoint, err := webhook.NewEndpoint(url, secret)
	if err != nil {
		return nil, err
	}
	return &sessionWebhook{endpoint: endpoint, agents: folder, log: log, stopped: make(chan struct{})}, nil
}

// CheckWebhook returns an error if the session webhook cannot have this URL and secret. It does not connect.
func CheckWebhook(url, secret string) error {
	endpoint, err := webhook.NewEndpoint(url, secret)
	if err == nil {
		endpoint.Close()
	}
	return err
}

// webhookSession describes a conversation to the endpoint.
type webhookSession struct {
	ID       string          `json:"id"`
	Protocol string          `json:"door"`
	Agent    string          `json:"agent,omitempty"`
	Identity string          `json:"identity,omitempty"`
	Grant    json.RawMessage `json:"grant,omitempty"`

	Attributes map[string]string `json:"attributes,omitempty"` // headers or parameters of a telephone call
}

// admitSession asks the endpoint whether a conversation may begin, and with which agent. If the endpoint does not
// answer, the conversation is rejected, because only the operator may decide. admitSession blocks for 5 s at most.
func (s *sessionWebhook) admitSession(ctx context.Context, id string, o *bridge.SessionRequest) error {
	ctx, cancel := context.WithTimeout(ctx, webhookTimeout)
	defer cancel()
	status, answer, err := s.endpoint.Post(ctx, id+"-start", map[string]any{
		"type":    "session.start",
		"session": webhookSession{id, o.Origin.Protocol, o.Origin.Agent, o.Origin.Identity, o.Origin.Grant, o.Origin.Attributes},
	})
	var reply struct {
		Message string
		Agent   *agents.Choice
	}
	var agent *agents.Agent
	if err == nil && len(answer) > 0 {
		err = json.Unmarshal(answer, &reply)
	}
	if err == nil && reply.Agent != nil {
		agent, err = s.agents.Resolve(*reply.Agent, o.Origin.Protocol, nil)
	}
	switch {
	case status == http.StatusForbidden:
		if reply.Message == "" {
			reply.Message = "This conversation was rejected."
		}
		return &bridge.Error{Code: bridge.CodeForbidden, Message: reply.Message}
	case err == nil && status/100 != 2:
		err = fmt.Errorf("it answered %d", status)
		fallthrough
	case err != nil:
		s.log.Warn("session webhook does not answer, conversation rejected", "call", id, "err", err)
		return &bridge.Error{Code: bridge.CodeBusy, Message: "The service cannot take calls just now.", Retry: webhookRetryAfter, Err: err}
	}
	if agent != nil {
		agent.ApplyAsOverride(o)
	}
	return nil
}

// reportSessionEnd sends the end of a conversation in the background.
func (s *sessionWebhook) reportSessionEnd(e endReport) {
	s.sendReport(e.ID+"-end", newSessionEnd(e))
}

// observe sends a change in the status of an outgoing call in the background.
func (s *sessionWebhook) observe(_ string, o bridge.Observation) {
	if c, ok := o.(sip.CallStatus); ok {
		s.sendReport(fmt.Sprintf("%s-%d", c.ID, c.Change), map[string]any{"type": "call.status", "call": c})
	}
}

// sendReport sends a report in the background, webhookTries times at most. Reports may arrive in any order.
func (s *sessionWebhook) sendReport(id string, body any) {
	s.running.Go(func() {
		for try := 1; ; try++ {
			status, err := s.post(id, body)
			if err == nil && status/100 == 2 {
				return
			}
			last := try == webhookTries
			if !last {
				select {
				case <-time.After(webhookPause):
				case <-s.stopped:
					last = true
				}
			}
			if last {
				s.log.Warn("report to the session webhook failed", "id", id, "status", status, "err", err)
				return
			}
		}
	})
}

// post sends one request to the endpoint. It ends early when the webhook is closed.
func (s *sessionWebhook) post(id string, body any) (status int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), webhookTimeout)
	defer cancel()
	go func() {
		select {
		case <-s.stopped:
			cancel()
		case <-ctx.Done():
		}
	}()
	status, _, err = s.endpoint.Post(ctx, id, body)
	return status, err
}

// close waits until all reports are sent, or until ctx is done.
func (s *sessionWebhook) close(ctx context.Context) {
	stop := sync.OnceFunc(func() { close(s.stopped) })
	defer context.AfterFunc(ctx, stop)()
	s.running.Wait()
	stop()
	s.endpoint.Close()
}
