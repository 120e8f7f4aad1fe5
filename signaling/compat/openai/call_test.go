package openai

import (
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/mediatest"
)

// slowEngine is slow to accept the first mark of speech, like a busy engine.
type slowEngine struct {
	begun chan struct{} // closed when the first mark has arrived
	next  chan struct{} // has a token when another mark has arrived

	mu    sync.Mutex
	marks []bridge.Command // in the order of execution
}

func (e *slowEngine) ID() string { return "test" }

func (e *slowEngine) Do(c bridge.Command) error {
	switch c {
	case bridge.ActivityStart:
		close(e.begun)
		select {
		case <-e.next: // another mark has overtaken it
		case <-time.After(50 * time.Millisecond):
		}
	case bridge.ActivityEnd:
		e.next <- struct{}{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.marks = append(e.marks, c)
	return nil
}

// silentMicrophone is a microphone that discards its audio.
type silentMicrophone struct{}

func (silentMicrophone) Rate() int              { return 24000 }
func (silentMicrophone) WritePCM([]int16) error { return nil }

// Over WebRTC, audio and events arrive in two goroutines: the end of speech must not overtake its start.
func TestSpeechMarkersKeepTheirOrder(t *testing.T) {
	d := newDialogue("gpt-realtime", true, newCountingIDs())
	session, err := d.session.withChange(json.RawMessage(`{"type":"realtime","audio":{"input":{"turn_detection":{"create_response":false}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	d.session, d.turnModeActive, d.isModelReady = session, true, true
	c := newCall(slog.New(slog.DiscardHandler), d)
	engine := &slowEngine{begun: make(chan struct{}), next: make(chan struct{}, 1)}
	c.setEngine(engine)
	var hearing sync.WaitGroup
	hearing.Go(func() {
		if err := c.writeAudio(silentMicrophone{}, mediatest.Tone(time.Second, 24000, 440, 12000), 24000); err != nil {
			t.Error(err)
		}
	})
	<-engine.begun
	for _, kind := range []string{"input_audio_buffer.commit", "response.create"} {
		e, err := parseEvent([]byte(`{"type":"` + kind + `"}`))
		c.handleEvent(nil, e, err)
	}
	hearing.Wait()
	if want := []bridge.Command{bridge.ActivityStart, bridge.ActivityEnd}; !slices.Equal(engine.marks, want) {
		t.Errorf("the marks are %v, want %v", engine.marks, want)
	}
}
