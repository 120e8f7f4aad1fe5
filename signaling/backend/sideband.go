// Package backend serves the operator's backend. With a server key, the backend lists the active conversations, ends
// them, and watches or steers one over a connection of its own.
//
//	GET    /v1/sessions              {"sessions": [{id, door, agent?, …}]}
//	DELETE /v1/sessions/{id}         ends it after the current answer, or at once with ?now=1. 204
//	GET    /v1/sessions/{id}/events  a WebSocket: the caller's events, and messages as the caller may send them
//	GET    /v1/sessions/{id}/audio   both sides, as an endless Ogg Opus stream
//
// Gateways that share a Redis proxy a request for a conversation to the gateway that runs it.
//
// The messages are those of the client protocol, and TRANSCRIPT, STEER and RESPOND: see docs/sideband.md.
package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/client/protocol"
)

// Server serves the backend.
type Server struct {
	Host   *bridge.Host
	Logger *slog.Logger
}

// Endpoints returns the endpoints of the backend.
func (srv *Server) Endpoints() []signaling.Endpoint {
	return []signaling.Endpoint{
		{Pattern: "GET /v1/sessions", Handler: requireKey(srv.serveList)},
		{Pattern: "DELETE /v1/sessions/{id}", Handler: requireKey(srv.withSession(srv.serveEnd))},
		{Pattern: "GET /v1/sessions/{id}/events", Socket: requireKey(srv.withSession(srv.serveEvents))},
		{Pattern: "GET /v1/sessions/{id}/audio", Handler: requireKey(srv.withSession(srv.serveAudio), access.MayListen)},
	}
}

// requireKey returns a handler that calls serve if the request's server key may watch and has all these privileges.
func requireKey(serve func(http.ResponseWriter, *http.Request, access.Watcher), privileges ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := access.From(r.Context()).RequireWatcher(privileges...)
		if err != nil {
			access.WriteError(w, err)
			return
		}
		serve(w, r, key)
	})
}

// withSession returns a handler that calls serve with the conversation of a request. The key must be allowed to watch
// the conversation. If another gateway runs the conversation, the request is proxied to that gateway.
func (srv *Server) withSession(
	serve func(http.ResponseWriter, *http.Request, *bridge.Session, access.Watcher),
) func(http.ResponseWriter, *http.Request, access.Watcher) {
	return func(w http.ResponseWriter, r *http.Request, key access.Watcher) {
		s := srv.Host.Session(r.PathValue("id"))
		switch {
		case s == nil && srv.proxyToOwner(w, r):
		case s == nil || !key.MayWatch(s.Origin()):
			writeNotFound(w)
		default:
			serve(w, r, s, key)
		}
	}
}

// sessionInfo describes one conversation in the list of conversations.
type sessionInfo struct {
	ID        string       `json:"id"`
	Protocol  string       `json:"door"`
	Agent     string       `json:"agent,omitempty"`
	Step      string       `json:"step,omitempty"`
	Identity  string       `json:"identity,omitempty"`
	Address   string       `json:"address,omitempty"`
	Device    string       `json:"device,omitempty"`
	Model     string       `json:"model"`
	State     bridge.State `json:"state"`
	StartedAt time.Time    `json:"startedAt"`
	Turns     int          `json:"turns"`
	Tokens    int          `json:"tokens"`
	Dollars   *float64     `json:"dollars,omitempty"`
	Latency   int64        `json:"latencyMs,omitempty"`
	Loss      loss         `json:"loss,omitzero"`
	Newest    *Words       `json:"newest,omitempty"`
	Speaker   string       `json:"speaker,omitempty"` // user or assistant; empty means that neither speaks
	Node      string       `json:"node,omitempty"`    // name of the gateway that has it; "" means this one
}

// Words holds the newest words of one side of a conversation, for a list of conversations.
type Words struct {
	Role string `json:"role"` // user or assistant
	Text string `json:"text"` // at most maxWords characters
}

// maxWords limits [Words].Text, in characters, so that it fits on one line of a list.
const maxWords = 120

// NewWords returns the end of a text that one side has said, at most maxWords characters. It returns nil for an empty
// text. A shortened text begins with "…" and a whole word.
func NewWords(role, text string) *Words {
	text = strings.Join(strings.Fields(text), " ")
	if text == "" {
		return nil
	}
	if runes := []rune(text); len(runes) > maxWords {
		text = string(runes[len(runes)-maxWords+1:])
		if _, whole, ok := strings.Cut(text, " "); ok {
			text = whole
		}
		text = "…" + text
	}
	return &Words{role, text}
}

// loss is a [bridge.Loss] in JSON.
type loss struct {
	Up   *float64 `json:"up,omitempty"`
	Down *float64 `json:"down,omitempty"`
}

func (srv *Server) serveList(w http.ResponseWriter, r *http.Request, key access.Watcher) {
	sessions := []sessionInfo{}
	for _, i := range srv.Host.Sessions() {
		if key.MayWatch(bridge.Origin{Key: i.Key}) {
			sessions = append(sessions, sessionInfo{
				i.ID, i.Protocol, i.Agent, i.Step, i.Identity, i.Address, i.Device, i.Model, i.State, i.Started.UTC(), i.Turns, i.Tokens, i.Dollars,
				i.Latency.Milliseconds(), loss(i.Loss), NewWords(i.Newest.Role, i.Newest.Content), i.Speaker, "",
			})
		}
	}
	others, silent := srv.listOtherNodes(r)
	sessions = append(sessions, others...)
	slices.SortFunc(sessions, func(a, b sessionInfo) int { return a.StartedAt.Compare(b.StartedAt) })
	answer := map[string]any{"sessions": sessions}
	if silent > 0 {
		answer["silent"] = silent
	}
	access.WriteJSON(w, http.StatusOK, answer)
}

func (srv *Server) serveEnd(w http.ResponseWriter, r *http.Request, s *bridge.Session, key access.Watcher) {
	var command bridge.Command = bridge.EndAfterSpeaking{}
	if r.URL.Query().Get("now") != "" {
		command = bridge.Goodbye{}
	}
	s.ReportSteering(bridge.Steered{At: time.Now(), By: key.Name(), What: "end"}) // before the end: an ended conversation reports nothing
	if s.Do(command) != nil {
		writeNotFound(w)
		return
	}
	srv.Logger.Info("ended by the backend", "call", s.ID(), "key", key.Name())
	w.WriteHeader(http.StatusNoContent)
}

// listenerWriteTimeout is the timeout of a write to a listener that may have stopped reading.
const listenerWriteTimeout = 2 * time.Second

// serveAudio streams the audio of a conversation until it ends or the listener leaves.
func (srv *Server) serveAudio(w http.ResponseWriter, r *http.Request, s *bridge.Session, _ access.Watcher) {
	w.Header().Set("Content-Type", "audio/ogg")
	failed, stop, err := s.RecordTo(flushWriter{signaling.NewChunkedWriter(w, listenerWriteTimeout)})
	if err != nil {
		access.WriteError(w, err)
		return
	}
	srv.Logger.Info("backend listens", "call", s.ID())
	select {
	case <-s.Done():
	case <-failed:
	case <-r.Context().Done():
	}
	_ = stop() // the listener has left, or has received everything
}

// flushWriter flushes each write.
type flushWriter struct{ *signaling.ChunkedWriter }

func (f flushWriter) Write(b []byte) (int, error) {
	n, err := f.ChunkedWriter.Write(b)
	return n, errors.Join(err, f.FlushError())
}

// Close implements io.Closer. It does nothing, because the response ends when its handler returns.
func (flushWriter) Close() error { return nil }

func writeNotFound(w http.ResponseWriter) {
	access.WriteNotFound(w, "There is no conversation of this id.")
}

// watcher is one connection of the backend to a conversation.
type watcher struct {
	*signaling.Socket
	session *bridge.Session
	key     string // name of the server key; empty means that none was needed
}

func (srv *Server) serveEvents(w http.ResponseWriter, r *http.Request, s *bridge.Session, key access.Watcher) {
	o := signaling.SocketOptions{Read: protocol.ReadMessage}
	signaling.ServeSocket(w, r, o, func(ctx context.Context, socket *signaling.Socket) error {
		socket.MarkOpened()
		c := &watcher{socket, s, key.Name()}
		srv.Logger.Info("backend watches", "call", s.ID())
		if stop, err := s.Watch(c.sendEvent); err == nil { // an error means that the conversation has just ended
			defer stop()
		}
		gone := socket.StartReading(c.handleMessage)
		select {
		case <-s.Done():
			c.sendMessage(protocol.DisconnectedMessage(bridge.DescribeEnd(s.Err())))
			if signaling.IsStopping(ctx) { // the conversation may have ended because the shutdown closed the caller first
				return context.Canceled
			}
			return nil
		case <-gone:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

func (w *watcher) sendMessage(m protocol.ServerMessage) {
	w.PutText(m.Encode(0))
}

// Types of messages that only the backend uses.
const (
	typeTranscript = "TRANSCRIPT" // what was said, a piece or all of a turn
	typeSteer      = "STEER"
	typeRespond    = "RESPOND"
)

type transcript struct {
	Role  string `json:"role"` // user or assistant
	Turn  int    `json:"turn"`
	Text  string `json:"text"`
	Final bool   `json:"final"`
}

// sendEvent sends an event of the conversation. It does not block.
func (w *watcher) sendEvent(e bridge.Event) {
	switch b := e.Body.(type) {
	case bridge.UserText:
		w.sendMessage(protocol.EventMessageAs(e, typeTranscript, transcript{"user", b.Turn, b.Text, b.Final}))
	case bridge.AssistantText:
		w.sendMessage(protocol.EventMessageAs(e, typeTranscript, transcript{"assistant", b.Turn, b.Text, b.Final}))
	case bridge.RawServerContent: // repeats another event in Google's format
	default:
		if m, ok := protocol.EventMessage(e); ok {
			w.sendMessage(m)
		}
	}
}

// handleMessage handles a message of the backend.
func (w *watcher) handleMessage(in signaling.Message) {
	began := time.Now()
	err := in.Err
	var m protocol.ClientMessage
	if err == nil {
		m, err = protocol.ParseMessage(in.Data)
	}
	if err == nil {
		err = w.runCommand(m)
	}
	if err != nil {
		w.sendMessage(protocol.ErrorMessage(err))
	}
	w.ChargeTime(time.Since(began))
}

// steeringNames maps messages of the client protocol that steer a conversation to their names in [bridge.Steered].
var steeringNames = map[string]string{protocol.TypeInterrupt: "interrupt", protocol.TypeRecording: "recording"}

// steer carries out a command of the backend. If the command succeeds, it reports a [bridge.Steered] with kind and
// text.
func (w *watcher) steer(kind string, command bridge.Command, text string) error {
	at := time.Now()
	err := w.session.Do(command)
	if err == nil {
		w.session.ReportSteering(bridge.Steered{At: at, By: w.key, What: kind, Text: text})
	}
	return err
}

func (w *watcher) runCommand(m protocol.ClientMessage) error {
	switch m.Type {
	case protocol.TypeMessage:
		turn, _, err := m.ParseTurn()
		if err != nil {
			return err
		}
		return w.steer("say", turn, "")
	case protocol.TypeToolResponse:
		answers, err := m.ParseToolResponses()
		for _, a := range answers {
			a.Backend = true
			err = errors.Join(err, w.session.Do(a))
		}
		return err
	case protocol.TypeInterrupt, protocol.TypeRecording:
		command, err := m.ParseCommand(nil)
		if err != nil {
			return err
		}
		return w.steer(steeringNames[m.Type], command, "")
	case protocol.TypeDisconnect:
		return w.steer("end", bridge.EndAfterSpeaking{}, "")
	case protocol.TypePing:
		w.sendMessage(protocol.PongMessage())
		return nil
	case typeRespond:
		var p struct {
			Instruction string `json:"instruction"`
		}
		if err := m.DecodePayload(&p); err != nil {
			return err
		}
		return w.steer("instruct", bridge.Prompt{Instruction: p.Instruction}, p.Instruction)
	case typeSteer:
		var p struct {
			Prompt    string          `json:"prompt"`
			Voice     string          `json:"voice"`
			Language  string          `json:"language"`
			Model     string          `json:"model"`
			Functions json.RawMessage `json:"functions"`
		}
		if err := m.DecodePayload(&p); err != nil {
			return err
		}
		agent := bridge.Agent{Prompt: p.Prompt, Voice: p.Voice, Language: p.Language, Model: p.Model}
		return w.steer("change", bridge.BackendUpdate{Agent: agent, Functions: p.Functions}, p.Prompt)
	}
	return protocol.BadField("type", fmt.Sprintf("%q is no message of the backend's", protocol.ClipText(m.Type)))
}
