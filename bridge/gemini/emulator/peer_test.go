package emulator_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/wire"
	"voxgate/internal/testkit/bridgetest"
)

// silent is an emulator without espeak-ng, so that a test does not depend on what is installed.
var silent = emulator.Options{Espeak: emulator.NoVoice}

// newPeer starts an emulator on pipes and returns a client of it.
func newPeer(t *testing.T, o emulator.Options) *api.Client {
	t.Helper()
	p, e := bridgetest.NewPipeNetwork(), emulator.New(o)
	p.ServeUntilEnd(t, e, e.Close)
	return &api.Client{BaseURL: "http://gemini.test/some/prefix/", NetDial: p.Dial}
}

// message is a server message with its own audio, and when it came.
type message struct {
	*wire.ServerMessage
	audio []int16
	at    time.Time
}

// peer is one Live session that collects what comes.
type peer struct {
	t    testing.TB
	conn *gemini.Conn
	in   chan *message
	err  error // after in is closed
}

func join(t testing.TB, client *api.Client, config string) *peer {
	t.Helper()
	return resume(t, client, config, "")
}

// parrot runs a test in a bubble, with a session of a configuration.
func parrot(t *testing.T, config string, f func(*testing.T, *peer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, join(t, newPeer(t, silent), config)) })
}

func resume(t testing.TB, client *api.Client, config, handle string) *peer {
	t.Helper()
	parsed, err := liveconfig.Parse(json.RawMessage(config), "config", liveconfig.Scope{Screen: true})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := gemini.Dial(t.Context(), client, parsed.Setup(handle, nil))
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, conn: conn, in: make(chan *message, 10000)}
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(p.in)
		for {
			m, err := conn.Recv(context.Background())
			if err != nil {
				p.err = err
				return
			}
			own := &message{ServerMessage: m, at: time.Now()}
			if m.Content != nil {
				own.audio = slices.Clone(m.Content.Audio)
			}
			p.in <- own
		}
	})
	t.Cleanup(func() { _ = conn.Close(); reader.Wait() })
	return p
}

func (p *peer) send(m wire.ClientMessage) {
	p.t.Helper()
	if err := p.conn.Send(context.Background(), m); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) text(text string) {
	p.t.Helper()
	p.send(wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{Text: text}})
}

// audio sends 16 kHz audio in pieces of 20 ms, as fast as the server takes it.
func (p *peer) audio(pcm []int16) {
	p.t.Helper()
	for piece := range slices.Chunk(pcm, 320) {
		if err := p.conn.SendAudio(context.Background(), piece, 16000); err != nil {
			p.t.Fatal(err)
		}
	}
}

// speak sends speech with silence around it.
func (p *peer) speak(pcm []int16) {
	p.t.Helper()
	p.audio(make([]int16, 3200))
	p.audio(pcm)
	p.audio(make([]int16, 16000))
}

// next returns the next message.
func (p *peer) next() *message {
	p.t.Helper()
	select {
	case m, ok := <-p.in:
		if !ok {
			p.t.Fatalf("the session is over: %v", p.err)
		}
		return m
	case <-time.After(20 * time.Second):
		p.t.Fatal("nothing comes")
		return nil
	}
}

func (p *peer) until(is func(*message) bool) *message {
	p.t.Helper()
	for {
		if m := p.next(); is(m) {
			return m
		}
	}
}

// modelTurn holds everything received in one turn of the model.
type modelTurn struct {
	audio                             []int16
	text, heard                       string
	interrupted, generated            bool
	first, last, complete, generation time.Time // of the audio, and of the end
	usage, grounding                  json.RawMessage
	fields                            []string
	empty                             int
}

// turn collects messages until a turn is complete.
func (p *peer) turn() modelTurn {
	p.t.Helper()
	var s modelTurn
	for {
		m := p.next()
		c := m.Content
		if c == nil {
			if m.Usage == nil && m.Resumption == nil && m.VoiceActivity == nil && m.ToolCalls == nil && m.Cancelled == nil {
				s.empty++
			}
			continue
		}
		if len(m.audio) > 0 {
			if s.audio = append(s.audio, m.audio...); s.first.IsZero() {
				s.first = m.at
			}
			s.last = m.at
		}
		s.text += c.OutputTranscription
		s.heard += c.InputTranscription
		s.fields = append(s.fields, string(c.Fields))
		s.interrupted = s.interrupted || c.Interrupted
		if c.Grounding != nil {
			s.grounding = c.Grounding
		}
		if c.GenerationComplete {
			s.generated, s.generation = true, m.at
		}
		if c.TurnComplete {
			s.complete, s.usage = m.at, m.Usage
			return s
		}
	}
}

// closes waits for the end of the session and checks how it ended.
func (p *peer) closes(code int, reason string) {
	p.t.Helper()
	for range p.in {
		continue
	}
	closed, ok := errors.AsType[*wire.CloseError](p.err)
	if !ok || closed.Code != code || !strings.Contains(closed.Reason, reason) {
		p.t.Errorf("%v, want %d with %q", p.err, code, reason)
	}
}

func tone(rate int, hz float64, d time.Duration) []int16 {
	pcm := make([]int16, int(d.Seconds()*float64(rate)))
	for i := range pcm {
		pcm[i] = int16(8000 * math.Sin(2*math.Pi*hz*float64(i)/float64(rate)))
	}
	return pcm
}

func duration(samples, rate int) time.Duration {
	return time.Duration(samples) * time.Second / time.Duration(rate)
}
