// Package testkit is the test kit of the endpoints: a whole gateway with the emulator behind it, a client of each protocol, a WebRTC
// peer, and audio to send and to recognize. The tests of this package check the same rules for all endpoints.
package testkit

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
	"voxgate/bridge/pricing"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/client"
	"voxgate/signaling/rtc"
)

// Patience is the timeout for events that must happen. They take far less, even under -race on a machine with other
// work.
const Patience = time.Minute

// Gateway is a complete gateway with an emulator as its backend, in the configuration of `gateway serve`.
type Gateway struct {
	URL    string // address for WebSockets
	HTTP   string
	Host   *bridge.Host
	Server *signaling.Server
	Logs   *logBook // the log so far
}

// Option changes the gateway of a test.
type Option func(*Endpoints, *bridge.Options)

// Endpoints is the configuration of the endpoints that a test may change.
type Endpoints struct {
	client.Server
	Origins, Hosts []string
	Access         *access.Gate
	Agents         *agents.Folder // available to everyone if Access is not set
	SmallBuffers   bool           // small kernel buffers, so that a client that does not read is noticed soon
	more           []func(*bridge.Host, *rtc.API) []signaling.Endpoint
}

// AddEndpoints adds further endpoints.
func (e *Endpoints) AddEndpoints(endpoints func(*bridge.Host, *rtc.API) []signaling.Endpoint) {
	e.more = append(e.more, endpoints)
}

// RunTests runs the tests of a package and checks that no goroutine is left.
func RunTests(m *testing.M) {
	// Conversations take time but little CPU, so more of them run at once than there are processors. -race on two
	// processors bounds them.
	if err := flag.Set("test.parallel", "3"); err != nil {
		panic(err)
	}
	// genai imports opencensus, which starts a worker at initialization and never ends it.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// StartGateway returns a gateway with the client protocol, the page, and the endpoints of the options. It ends with the
// test.
func StartGateway(t testing.TB, options ...Option) *Gateway {
	t.Helper()
	logs := &logBook{}
	log := slog.New(slog.NewTextHandler(logs, nil))
	model := emulator.New(emulator.Options{Logger: log, Espeak: emulator.NoVoice})
	upstream := httptest.NewServer(model)
	peers, err := rtc.New(rtc.Options{UDPAddr: "127.0.0.1:0", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	ho := bridge.Options{Client: &api.Client{BaseURL: upstream.URL}, Backend: "emulator", Park: time.Minute}
	ho.Prices, ho.Logger = pricing.Default, log
	so := Endpoints{Server: client.Server{RTC: peers, Logger: log}}
	for _, o := range options {
		o(&so, &ho)
	}
	if so.Access == nil && so.Agents != nil {
		so.Access = Must(access.New(access.Options{Agents: so.Agents, Logger: log}))
		t.Cleanup(so.Access.Close)
	}
	host := bridge.NewHost(ho)
	so.Host = host
	files := fstest.MapFS{"index.html": {Data: []byte("<!doctype html><title>page</title>")}}
	page := Must(client.ReadSite(nil, files)).Handler(client.Status{Backend: "emulator"}, nil)
	list := []signaling.Endpoint{
		{Pattern: "/ws", Socket: &so.Server},
		{Pattern: "/{$}", Socket: &so.Server, Handler: page, Public: true},
		{Pattern: "/", Handler: page, Public: true},
	}
	for _, endpoints := range so.more {
		list = append(list, endpoints(host, so.RTC)...)
	}
	admission := signaling.Options{Access: so.Access, Logger: log}
	for _, text := range so.Origins {
		admission.Origins = append(admission.Origins, Must(signaling.ParseOrigin(text)))
	}
	for _, text := range so.Hosts {
		admission.Hosts = append(admission.Hosts, Must(signaling.ParseHost(text)))
	}
	endpoints := signaling.NewServer(admission, list...)
	server := httptest.NewUnstartedServer(endpoints)
	if so.SmallBuffers {
		server.Listener = smallBuffers{server.Listener}
	}
	server.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if err := host.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := endpoints.Close(ctx); err != nil {
			t.Error(err)
		}
		server.Close()
		model.Close()
		upstream.Close()
		if err := peers.Close(); err != nil {
			t.Errorf("close rtc: %v", err)
		}
		if t.Failed() {
			t.Log(logs.String())
		}
	})
	return &Gateway{URL: "ws" + strings.TrimPrefix(server.URL, "http"), HTTP: server.URL, Host: host, Server: endpoints, Logs: logs}
}

// SmallBuffer is the size of the kernel's buffer for a connection, in bytes; the kernel may use more.
const SmallBuffer = 4 << 10

// smallBuffers is a listener whose connections have small kernel buffers. The default is megabytes, which take minutes
// to fill with voice.
type smallBuffers struct{ net.Listener }

func (s smallBuffers) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok {
		err = tcp.SetWriteBuffer(SmallBuffer)
	}
	return conn, err
}

// logBook collects log messages.
type logBook struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// ClearLog discards the log so far.
func (l *logBook) ClearLog() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Agents holds the agents for the protocols that need an agent, and for the gate of a [LockedGateway].
var Agents = agents.New(
	&agents.Agent{Name: "desk", Prompt: "Be brief."}, &agents.Agent{Name: "eager", Greeting: new("Greet.")},
	&agents.Agent{Name: "telephone", Numbers: []string{"*"}, Protocols: []string{"sip"}},
	&agents.Agent{Name: "waits", Numbers: []string{"*"}, Protocols: []string{"telephony"}, Greeting: new("")},
)

// TakeAgents moves the agents of a JSON configuration into a folder, as their files would define them.
func TakeAgents(t testing.TB, config string) (rest string, folder *agents.Folder) {
	t.Helper()
	fields := map[string]json.RawMessage{}
	var list []*agents.Agent
	if err := cmp.Or(json.Unmarshal([]byte(config), &fields), json.Unmarshal(fields["agents"], &list)); err != nil {
		t.Fatal(err)
	}
	for i, a := range list {
		a.Name = fmt.Sprint("agent-", i)
	}
	delete(fields, "agents")
	return string(Must(json.Marshal(fields))), agents.New(list...)
}

// Must returns v, and panics on an error that cannot occur in a test.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Eventually polls a condition that has no event of its own, and fails the test if it does not become true.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !PollUntil(Patience, ok) {
		t.Fatalf("no %s within %v", what, Patience)
	}
}

// PollUntil polls a condition, and reports whether it became true in time.
func PollUntil(d time.Duration, ok func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(d)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			return false
		}
	}
	return true
}
