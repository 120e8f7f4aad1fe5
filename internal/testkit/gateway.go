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
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/bridge/gemini/emulator"
	"voxgate/bridge/pricing"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/client"
	"voxgate/signaling/rtc"
)

// Patience is the timeout for events that must happen. It is far longer than they take, even under -race on a busy
// machine.
const Patience = time.Minute

// Gateway is a complete gateway with an emulator as its backend, in the configuration of `gateway serve`.
type Gateway struct {
	URL    string // address for WebSockets
	HTTP   string
	Host   *bridge.Host
	Server *signaling.Server
	Logs   *LogBook // the log so far
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
	// Conversations take time but little CPU, so three tests run at the same time even on fewer processors. More would
	// be too slow with -race on two processors.
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
	logs := &LogBook{}
	log := slog.New(slog.NewTextHandler(logs, nil))
	model := StartModel(t, emulator.Options{Logger: log})
	peers, err := rtc.New(rtc.Options{UDPAddr: "127.0.0.1:0", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	ho := bridge.Options{Client: model, Backend: "emulator", Park: time.Minute}
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

// smallBuffers is a listener whose connections have small kernel buffers, because filling the default buffers of
// several megabytes with voice takes minutes.
type smallBuffers struct{ net.Listener }

func (s smallBuffers) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok {
		err = tcp.SetWriteBuffer(SmallBuffer)
	}
	return conn, err
}

// Agents holds the agents for the protocols that need an agent, and for the gate of a [LockedGateway].
var Agents = agents.New(
	&agents.Agent{Name: "desk", Prompt: "Be brief."}, &agents.Agent{Name: "eager", Greeting: new("Greet.")},
	&agents.Agent{Name: "telephone", Numbers: []string{"*"}, Protocols: []string{"sip"}},
	&agents.Agent{Name: "waits", Numbers: []string{"*"}, Protocols: []string{"telephony"}, Greeting: new("")},
)

// ExtractAgents removes the agents from a JSON configuration, and returns them as a folder of agents.
func ExtractAgents(t testing.TB, config string) (rest string, folder *agents.Folder) {
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

// Eventually polls a condition, and fails the test if it does not become true. It is for conditions that the test
// cannot await in another way.
func Eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	if !PollUntil(Patience, condition) {
		t.Fatalf("no %s within %v", what, Patience)
	}
}

// PollUntil polls a condition, and reports whether it became true within d.
func PollUntil(d time.Duration, condition func() bool) (ok bool) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(d)
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			return false
		}
	}
	return true
}
