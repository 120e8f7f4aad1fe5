package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"voxgate/client"
	"voxgate/internal/testkit"
	"voxgate/internal/testkit/mediatest"
)

func TestMain(m *testing.M) { testkit.RunTests(m) }

// dial opens a conversation with a gateway that has the emulator behind it.
func dial(t *testing.T, o client.Options) *client.Conversation {
	t.Helper()
	if o.URL == "" {
		o.URL = testkit.StartGateway(t).URL
	}
	c, err := client.Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// awaitEvent reads events until one of type E for which accept returns true.
func awaitEvent[E client.Event](t *testing.T, c *client.Conversation, accept func(E) bool) E {
	t.Helper()
	timeout := time.After(testkit.Patience)
	for {
		select {
		case e, ok := <-c.Events():
			if !ok {
				t.Fatalf("the conversation has ended: %v", c.Err())
			}
			if e, ok := e.(E); ok && (accept == nil || accept(e)) {
				return e
			}
		case <-timeout:
			t.Fatalf("no %T", *new(E))
		}
	}
}

func typeText(t *testing.T, c *client.Conversation, text string) {
	t.Helper()
	if err := c.SendText(t.Context(), text); err != nil {
		t.Fatal(err)
	}
}

func TestTypedTextIsAnsweredAloud(t *testing.T) {
	t.Parallel()
	c := dial(t, client.Options{})
	typeText(t, c, "Good morning")
	var voice []int16
	var text strings.Builder
	for complete := false; !complete; {
		switch e := (<-c.Events()).(type) {
		case client.Audio:
			voice = append(voice, e.PCM...)
		case client.ModelText:
			text.WriteString(e.Text)
		case client.TurnComplete:
			complete = true
		case nil:
			t.Fatal("the conversation has ended", c.Err())
		}
	}
	if len(testkit.TrimSilence(voice)) < client.VoiceRate/4 || !strings.Contains(text.String(), "Good morning") {
		t.Errorf("%d samples, %q", len(voice), text.String())
	}
}

func TestSpeechIsAnswered(t *testing.T) {
	t.Parallel()
	c := dial(t, client.Options{MicrophoneRate: 16000})
	var speaking sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer speaking.Wait()
	defer stop()
	speaking.Go(func() { // a second of speech, then silence
		pcm := mediatest.SynthesizeSpeech(time.Second, 16000)
		for tick := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			frame := make([]int16, 320)
			pcm = pcm[copy(frame, pcm):]
			if err := c.SendAudio(frame); err != nil {
				t.Error(err)
				return
			}
		}
	})
	awaitEvent[client.UserText](t, c, nil)
	awaitEvent[client.Speaking](t, c, nil)
	awaitEvent(t, c, func(a client.Audio) bool { return len(testkit.TrimSilence(a.PCM)) > 0 })
}

func TestToolsRunInTheClient(t *testing.T) {
	t.Parallel()
	args := make(chan string, 1)
	c := dial(t, client.Options{Tools: []client.Tool{{
		Name: "get_weather", Description: "The weather at a place.",
		Parameters: map[string]any{"type": "object", "properties": map[string]any{"location": map[string]any{"type": "string"}}},
		Run: func(_ context.Context, a json.RawMessage) (any, error) {
			args <- string(a)
			return map[string]string{"temperature": "15C"}, nil
		},
	}, {
		Name: "fail", Description: "Always fails.",
		Run: func(context.Context, json.RawMessage) (any, error) { return nil, errors.New("out of order") },
	}}})
	typeText(t, c, `/tool get_weather {"location":"London"}`)
	if got := <-args; got != `{"location":"London"}` {
		t.Error(got)
	}
	awaitEvent(t, c, func(e client.ModelText) bool { return strings.Contains(e.Text, "15C") })
	awaitEvent[client.TurnComplete](t, c, nil)
	typeText(t, c, `/tool fail {}`)
	awaitEvent(t, c, func(e client.ModelText) bool { return strings.Contains(e.Text, "order") })
}

func TestInterruptEndsTheAnswer(t *testing.T) {
	t.Parallel()
	c := dial(t, client.Options{})
	typeText(t, c, "Tell me a long story about bells and bicycles, and about the people who ride them to work")
	awaitEvent[client.Audio](t, c, nil)
	if err := c.Interrupt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := awaitEvent[client.Interrupted](t, c, nil); e.By != "client" || e.Turn != 1 {
		t.Errorf("%+v", e)
	}
	typeText(t, c, "Hello again")
	if e := awaitEvent[client.TurnComplete](t, c, nil); e.Turn != 2 {
		t.Errorf("%+v", e)
	}
}

func TestRefusedConfigurationIsAnError(t *testing.T) {
	t.Parallel()
	_, err := client.Dial(t.Context(), client.Options{
		URL: testkit.StartGateway(t).URL, Config: map[string]any{"generationConfig": map[string]any{"temperature": "hot"}},
	})
	var refusal *client.Error
	if !errors.As(err, &refusal) || refusal.Code == "" || refusal.Message == "" {
		t.Errorf("%v", err)
	}
}

// failingDialer is a PeerDialer that cannot open a peer.
type failingDialer struct{ err error }

func (d failingDialer) OpenPeer(func(string, any) error) (client.Peer, error) { return nil, d.err }

func TestDialFailsAfterTheWebSocketIsOpen(t *testing.T) {
	t.Parallel()
	want := errors.New("no sockets left")
	c, err := client.Dial(t.Context(), client.Options{URL: testkit.StartGateway(t).URL, WebRTC: failingDialer{want}})
	if c != nil || !errors.Is(err, want) {
		t.Errorf("%v, %v", c, err)
	}
}

func TestCloseEndsTheConversation(t *testing.T) {
	t.Parallel()
	gateway := testkit.StartGateway(t)
	c := dial(t, client.Options{URL: gateway.URL})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.SendText(t.Context(), "too late"); !errors.Is(err, client.ErrEnded) || c.Err() != nil {
		t.Errorf("%v, %v", err, c.Err())
	}
	testkit.Eventually(t, "end of the session", func() bool { return len(gateway.Host.Sessions()) == 0 })
}

// proxy forwards TCP connections, and drops them on request.
type proxy struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func startProxy(t *testing.T, to string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: listener}
	var forwarding sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		p.dropConnections()
		forwarding.Wait()
	})
	forwarding.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, from, out)
			p.mu.Unlock()
			for _, pair := range [][2]net.Conn{{from, out}, {out, from}} {
				forwarding.Go(func() {
					_, _ = io.Copy(pair[0], pair[1])
					_ = pair[0].Close()
				})
			}
		}
	})
	return p
}

func (p *proxy) dropConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

func TestConversationGoesOnAfterALostConnection(t *testing.T) {
	t.Parallel()
	gateway := testkit.StartGateway(t)
	p := startProxy(t, strings.TrimPrefix(gateway.HTTP, "http://"))
	c := dial(t, client.Options{URL: strings.Replace(gateway.URL, strings.TrimPrefix(gateway.HTTP, "http://"), p.Addr().String(), 1)})
	typeText(t, c, "first")
	awaitEvent[client.TurnComplete](t, c, nil)
	p.dropConnections()
	awaitEvent[client.ConnectionLost](t, c, nil)
	if e := awaitEvent[client.Resumed](t, c, nil); e.IsNew {
		t.Error("another conversation began")
	}
	typeText(t, c, "second")
	if e := awaitEvent[client.TurnComplete](t, c, nil); e.Turn != 2 {
		t.Errorf("%+v: the conversation began anew", e)
	}
	if n := len(gateway.Host.Sessions()); n != 1 {
		t.Errorf("%d sessions", n)
	}
}
