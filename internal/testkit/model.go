package testkit

import (
	"cmp"
	"net/http/httptest"
	"sync"
	"testing"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
)

// SeenByModel records what the emulator received.
type SeenByModel struct {
	mu     sync.Mutex
	events []emulator.Event
}

func (s *SeenByModel) Record(e emulator.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

// EventsOf returns the recorded events of one kind.
func (s *SeenByModel) EventsOf(kind emulator.EventKind) (list []emulator.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Kind == kind {
			list = append(list, e)
		}
	}
	return list
}

// WithSeenModel replaces the model by one that records what it receives.
func WithSeenModel(t testing.TB, seen *SeenByModel) Option {
	t.Helper()
	model := StartModel(t, emulator.Options{Observe: seen.Record})
	return func(_ *Endpoints, ho *bridge.Options) { ho.Client = model }
}

// StartModel starts an emulator without a voice, and returns a client for it. The emulator ends with the test, after the
// clean-ups that are registered later.
func StartModel(t testing.TB, o emulator.Options) *api.Client {
	t.Helper()
	o.Espeak = cmp.Or(o.Espeak, emulator.NoVoice)
	model := emulator.New(o)
	server := httptest.NewServer(model)
	t.Cleanup(func() {
		model.Close()
		server.Close()
	})
	return &api.Client{BaseURL: server.URL}
}
