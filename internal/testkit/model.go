package testkit

import (
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
func (s *SeenByModel) EventsOf(what emulator.EventKind) (list []emulator.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Kind == what {
			list = append(list, e)
		}
	}
	return list
}

// WithSeenModel replaces the model by one that records what it receives.
func WithSeenModel(t testing.TB, seen *SeenByModel) Option {
	t.Helper()
	model := emulator.New(emulator.Options{Espeak: emulator.NoVoice, Observe: seen.Record})
	up := httptest.NewServer(model)
	t.Cleanup(func() {
		model.Close()
		up.Close()
	})
	return func(_ *Endpoints, ho *bridge.Options) { ho.Client = &api.Client{BaseURL: up.URL} }
}
