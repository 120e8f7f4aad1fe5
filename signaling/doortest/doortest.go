// Package doortest is what the tests of the doors share: a whole gateway with the emulator behind it, a client of each door, a peer with
// WebRTC, and sound to say and to find again. Its own tests are those that hold every door to the same.
package doortest

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
	"voxgate/bridge/price"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/rtc"
	"voxgate/signaling/web"
)

// Patience is how long a test waits for something that must happen: far more than it takes, even under -race on a
// machine with other work.
const Patience = time.Minute

// Gateway is a whole gateway with an emulator behind it, as `gateway serve` makes it.
type Gateway struct {
	URL    string // of the WebSocket
	HTTP   string
	Host   *bridge.Host
	Server *signaling.Server
	Logs   *logBook // what was logged
}

// Option changes the gateway of a test.
type Option func(*Doors, *bridge.Options)

// Doors is what a test may change of the front doors.
type Doors struct {
	web.Door
	Origins, Hosts []string
	Access         *access.Gate
	Agents         *agents.Folder // known to everybody where there is no Access
	SmallBuffers   bool           // the kernel keeps little for a client that does not read
	more           []func(*bridge.Host, *rtc.API) []signaling.Endpoint
}

// Add opens further doors.
func (d *Doors) Add(doors func(*bridge.Host, *rtc.API) []signaling.Endpoint) {
	d.more = append(d.more, doors)
}

// Main runs the tests of a package and checks that no goroutine is left.
func Main(m *testing.M) {
	// Conversations take their time and little else: more of them at once than there are processors, and few enough to be heard
	// in real time under -race on two. -parallel overrides it.
	if err := flag.Set("test.parallel", "3"); err != nil {
		panic(err)
	}
	// genai pulls in opencensus, which starts a worker when it is loaded and never ends it.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// NewGateway returns a gateway with the first door and the page, and with those of the options. It ends with the test.
func NewGateway(t testing.TB, options ...Option) *Gateway {
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
	ho.Prices, ho.Logger = price.Default, log
	so := Doors{Door: web.Door{RTC: peers, Logger: log}}
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
	page := Must(web.Read(nil, files)).Page(web.Status{Backend: "emulator"}, nil)
	list := []signaling.Endpoint{
		{Pattern: "/ws", Socket: &so.Door},
		{Pattern: "/{$}", Socket: &so.Door, Handler: page, Public: true},
		{Pattern: "/", Handler: page, Public: true},
	}
	for _, doors := range so.more {
		list = append(list, doors(host, so.RTC)...)
	}
	admission := signaling.Options{Access: so.Access, Logger: log}
	for _, text := range so.Origins {
		admission.Origins = append(admission.Origins, Must(signaling.ParseOrigin(text)))
	}
	for _, text := range so.Hosts {
		admission.Hosts = append(admission.Hosts, Must(signaling.ParseHost(text)))
	}
	door := signaling.NewServer(admission, list...)
	server := httptest.NewUnstartedServer(door)
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
		if err := door.Close(ctx); err != nil {
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
	return &Gateway{URL: "ws" + strings.TrimPrefix(server.URL, "http"), HTTP: server.URL, Host: host, Server: door, Logs: logs}
}

// SmallBuffer is how much the kernel keeps of a connection, at least, in bytes.
const SmallBuffer = 4 << 10

// smallBuffers are connections for which the kernel keeps little: by itself it is megabytes, which take minutes to fill with voice.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok {
		err = tcp.SetWriteBuffer(SmallBuffer)
	}
	return conn, err
}

// logBook collects what is logged.
type logBook struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// Forget drops what was logged so far.
func (l *logBook) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TakeAgents takes the agents out of a configuration in JSON, as their files would have them.
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

// Must is for what cannot fail in a test.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Eventually polls what has no event of its own.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !Within(Patience, ok) {
		t.Fatalf("no %s within %v", what, Patience)
	}
}

// Within waits for something, and reports whether it has come in time.
func Within(d time.Duration, ok func() bool) bool {
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
