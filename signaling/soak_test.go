package signaling_test

import (
	"log/slog"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
)

// soak is how many conversations TestSoak opens and closes. `make bench-churn` has more, with a gateway of its own.
const soak = 120

// soakPark is how long a conversation waits for its lost client.
const soakPark = 100 * time.Millisecond

// endings are the ways in which a conversation ends, as often as they stand here. Each returns when the client has gone.
var endings = []struct {
	name  string
	visit func(*testing.T, *gateway)
}{
	{"goodbye", func(t *testing.T, g *gateway) { leave(connect(t, g, `{}`)) }},
	{"cut", func(t *testing.T, g *gateway) { cut(connect(t, g, `{}`)) }},
	{"parked", func(t *testing.T, g *gateway) {
		c := dial(t, g.url)
		c.send("CONNECT_GEMINI", `{"initialConfig":{},"resumable":true}`)
		setup(t, c.expect("SETUP_COMPLETE"), false)
		cut(c)
	}},
	{"replaced", func(t *testing.T, g *gateway) {
		first, second := dial(t, g.url), dial(t, g.url)
		first.send("CONNECT_GEMINI", `{"initialConfig":{},"resumable":true}`)
		_, token := setup(t, first.expect("SETUP_COMPLETE"), false)
		second.send("CONNECT_GEMINI", `{"resumable":true,"resumeToken":"`+token+`"}`)
		setup(t, second.expect("SETUP_COMPLETE"), true)
		first.expect("GEMINI_DISCONNECTED")
		first.closeCode()
		leave(second)
	}},
	{"refused", func(t *testing.T, g *gateway) {
		c := dial(t, g.url)
		c.send("CONNECT_GEMINI", `{"initialConfig":{"tools":"a hammer"}}`)
		c.expect("GEMINI_DISCONNECTED")
		c.closeCode()
	}},
	{"refused by the model", func(t *testing.T, g *gateway) {
		c := dial(t, g.url)
		c.send("CONNECT_GEMINI", `{"initialConfig":{"model":"gemini-that-nobody-knows"}}`)
		c.expect("GEMINI_DISCONNECTED")
		c.closeCode()
	}},
	{"the model is lost", func(t *testing.T, g *gateway) {
		c := connect(t, g, weatherTool)
		c.send("SEND_MESSAGE", typed(`/tool get_weather {"location":"London"}`))
		c.expect("TOOL_CALL")
		c.wait(c.at, "another connection", func(m message) bool { return strings.Contains(string(m.Payload), `"resuming"`) })
		leave(c)
	}},
	{"a word", func(t *testing.T, g *gateway) {
		c := connect(t, g, `{}`)
		c.ask("Hi")
		cut(c)
	}},
	{"nothing said", func(t *testing.T, g *gateway) { cut(dial(t, g.url)) }},
	{"nonsense", func(t *testing.T, g *gateway) {
		c := dial(t, g.url)
		c.send("NONSENSE", "")
		c.expect("GEMINI_ERROR")
		cut(c)
	}},
	{"cut in the set-up", func(t *testing.T, g *gateway) {
		c := dial(t, g.url)
		c.send("CONNECT_GEMINI", `{"initialConfig":{},"resumable":true}`)
		c.expect("GEMINI_CONNECTED")
		cut(c)
	}},
	{"WebRTC", func(t *testing.T, g *gateway) {
		c, p := call(t, g, `{}`, phoneOptions{channel: true})
		p.send("DISCONNECT_GEMINI", "")
		c.expect("GEMINI_DISCONNECTED")
		c.closeCode()
		p.hangUp()
	}},
	{"WebRTC, cut", func(t *testing.T, g *gateway) {
		c, p := call(t, g, `{}`, phoneOptions{channel: true})
		p.hangUp()
		cut(c)
	}},
	{"an offer and no more", func(t *testing.T, g *gateway) {
		c := connect(t, g, `{}`)
		newPhone(t, c, phoneOptions{channel: true}).offerOnly(false)
		c.expect("WEBRTC_ANSWER")
		leave(c)
	}},
}

func leave(c *client) {
	c.t.Helper()
	c.send("DISCONNECT_GEMINI", "")
	c.expect("GEMINI_DISCONNECTED")
	c.closeCode()
}

func cut(c *client) {
	c.conn.Close()
	<-c.done
}

// resources are what must be given back.
type resources struct {
	goroutines, descriptors int
	heap                    uint64
}

func held(t *testing.T, g *gateway) (r resources) {
	t.Helper()
	g.logs.forget()
	for range 2 { // what has a finalizer goes with the second
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return resources{runtime.NumGoroutine(), len(files), m.HeapAlloc}
}

// TestSoak opens and closes conversations in every way, some at a time; what they took is there again when they are over.
func TestSoak(t *testing.T) { // alone: it counts what the process has
	log := slog.New(slog.DiscardHandler)
	model := emulator.New(emulator.Options{Logger: log, Espeak: emulator.NoVoice, Scenario: emulator.Scenario{
		HandleTTL: soakPark, Faults: []emulator.Fault{{On: emulator.OnToolCall, Close: 1011}},
	}})
	upstream := httptest.NewServer(model)
	defer upstream.Close()
	defer model.Close()
	g := newGateway(t, func(_ *doors, o *bridge.Options) {
		o.Client, o.Park = &api.Client{BaseURL: upstream.URL}, soakPark
	})
	const atOnce = 12
	visits := func(n int) {
		var next atomic.Int64
		var running sync.WaitGroup
		for range atOnce {
			running.Go(func() {
				for {
					i := int(next.Add(1) - 1)
					if i >= n {
						return
					}
					way := endings[i%len(endings)]
					t.Run(way.name, func(t *testing.T) { way.visit(t, g) }) // whose end frees what its client has
				}
			})
		}
		running.Wait()
		eventually(t, "end of all conversations", func() bool { return len(g.host.Sessions()) == 0 })
	}
	visits(2 * len(endings)) // what is made once
	var before, after resources
	within(time.Second, func() bool { // the last goroutines end a moment after their conversation
		before = held(t, g)
		return false
	})
	visits(soak)
	back := func() bool {
		after = held(t, g)
		return after.goroutines <= before.goroutines && after.descriptors <= before.descriptors
	}
	if !within(patience, back) {
		stacks := make([]byte, 1<<20)
		t.Errorf("not everything was given back:\n%s", stacks[:runtime.Stack(stacks, true)])
	}
	t.Logf("%d conversations; before %+v, after %+v", soak, before, after)
	if after.heap > before.heap+4<<20 {
		t.Errorf("%d KB of heap were kept, %d bytes of each conversation", (after.heap-before.heap)>>10, (after.heap-before.heap)/soak)
	}
}
