package testkit_test

import (
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit"
)

// soak is the number of conversations that the test opens and closes. A run with 20,000 has found no other leak (2026-11-23).
const soak = 120

// soakPark is the time for which a conversation waits for its lost client.
const soakPark = 100 * time.Millisecond

// endings lists the ways in which conversations end, in the proportion of their occurrences in the list. visit returns when
// the client has gone.
var endings = []struct {
	name  string
	visit func(*testing.T, *testkit.Gateway)
}{
	{"goodbye", func(t *testing.T, g *testkit.Gateway) { leave(testkit.OpenConversation(t, g, `{}`)) }},
	{"cut", func(t *testing.T, g *testkit.Gateway) {
		testkit.DropConnection(testkit.OpenConversation(t, g, `{}`))
	}},
	{"parked", func(t *testing.T, g *testkit.Gateway) {
		c := testkit.DialWebSocket(t, g.URL)
		c.Send("CONNECT_GEMINI", `{"initialConfig":{},"resumable":true}`)
		testkit.ParseSetup(t, c.AwaitEvent("SETUP_COMPLETE"), false)
		testkit.DropConnection(c)
	}},
	{"replaced", func(t *testing.T, g *testkit.Gateway) {
		first, second := testkit.DialWebSocket(t, g.URL), testkit.DialWebSocket(t, g.URL)
		first.Send("CONNECT_GEMINI", `{"initialConfig":{},"resumable":true}`)
		_, token := testkit.ParseSetup(t, first.AwaitEvent("SETUP_COMPLETE"), false)
		second.Send("CONNECT_GEMINI", `{"resumable":true,"resumeToken":"`+token+`"}`)
		testkit.ParseSetup(t, second.AwaitEvent("SETUP_COMPLETE"), true)
		first.AwaitEvent("GEMINI_DISCONNECTED")
		first.AwaitCloseCode()
		leave(second)
	}},
	{"refused", func(t *testing.T, g *testkit.Gateway) {
		c := testkit.DialWebSocket(t, g.URL)
		c.Send("CONNECT_GEMINI", `{"initialConfig":{"tools":"a hammer"}}`)
		c.AwaitEvent("GEMINI_DISCONNECTED")
		c.AwaitCloseCode()
	}},
	{"refused by the model", func(t *testing.T, g *testkit.Gateway) {
		c := testkit.DialWebSocket(t, g.URL)
		c.Send("CONNECT_GEMINI", `{"initialConfig":{"model":"gemini-that-nobody-knows"}}`)
		c.AwaitEvent("GEMINI_DISCONNECTED")
		c.AwaitCloseCode()
	}},
	{"the model is lost", func(t *testing.T, g *testkit.Gateway) {
		c := testkit.OpenConversation(t, g, testkit.WeatherTool)
		c.Send("SEND_MESSAGE", testkit.TextPayload(`/tool get_weather {"location":"London"}`))
		c.AwaitEvent("TOOL_CALL")
		c.AwaitMatch(c.At, "another connection", func(m testkit.Message) bool { // without a handle, the new connection is reseeded
			return strings.Contains(string(m.Payload), `"resuming"`) || strings.Contains(string(m.Payload), `"reseeding"`)
		})
		leave(c)
	}},
	{"a word", func(t *testing.T, g *testkit.Gateway) {
		c := testkit.OpenConversation(t, g, `{}`)
		c.AskText("Hi")
		testkit.DropConnection(c)
	}},
	{"nothing said", func(t *testing.T, g *testkit.Gateway) { testkit.DropConnection(testkit.DialWebSocket(t, g.URL)) }},
	{"nonsense", func(t *testing.T, g *testkit.Gateway) {
		c := testkit.DialWebSocket(t, g.URL)
		c.Send("NONSENSE", "")
		c.AwaitEvent("GEMINI_ERROR")
		testkit.DropConnection(c)
	}},
	{"cut in the set-up", func(t *testing.T, g *testkit.Gateway) {
		c := testkit.DialWebSocket(t, g.URL)
		c.Send("CONNECT_GEMINI", `{"initialConfig":{},"resumable":true}`)
		c.AwaitEvent("GEMINI_CONNECTED")
		testkit.DropConnection(c)
	}},
	{"WebRTC", func(t *testing.T, g *testkit.Gateway) {
		c, p := testkit.DialPhone(t, g, `{}`, testkit.PhoneOptions{Channel: true})
		p.Send("DISCONNECT_GEMINI", "")
		c.AwaitEvent("GEMINI_DISCONNECTED")
		c.AwaitCloseCode()
		p.HangUp()
	}},
	{"WebRTC, cut", func(t *testing.T, g *testkit.Gateway) {
		c, p := testkit.DialPhone(t, g, `{}`, testkit.PhoneOptions{Channel: true})
		p.HangUp()
		testkit.DropConnection(c)
	}},
	{"an offer and no more", func(t *testing.T, g *testkit.Gateway) {
		c := testkit.OpenConversation(t, g, `{}`)
		testkit.NewPhone(t, c, testkit.PhoneOptions{Channel: true}).SendOfferOnly(false)
		c.AwaitEvent("WEBRTC_ANSWER")
		leave(c)
	}},
}

func leave(c *testkit.Client) {
	c.T.Helper()
	c.Send("DISCONNECT_GEMINI", "")
	c.AwaitEvent("GEMINI_DISCONNECTED")
	c.AwaitCloseCode()
}

// resources counts the resources that ended conversations must release.
type resources struct {
	goroutines, descriptors int
	heap                    uint64
}

func heldResources(t *testing.T, g *testkit.Gateway) (r resources) {
	t.Helper()
	g.Logs.ClearLog()
	for range 2 { // objects with a finalizer are freed by the second collection
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

// TestConversationsReleaseTheirResources opens and closes conversations in every way, some of them at the same time. After
// their end, all their resources must be free again.
func TestConversationsReleaseTheirResources(t *testing.T) { // not parallel: it counts the resources of the process
	if os.Getenv("TEST_ALL") == "" {
		t.Skip("make test-all sets TEST_ALL")
	}
	log := slog.New(slog.DiscardHandler)
	model := testkit.StartModel(t, emulator.Options{Logger: log, Scenario: emulator.Scenario{
		HandleTTL: soakPark, Faults: []emulator.Fault{{On: emulator.OnToolCall, Close: 1011}},
	}})
	g := testkit.StartGateway(t, func(_ *testkit.Endpoints, o *bridge.Options) {
		o.Client, o.Park = model, soakPark
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
					t.Run(way.name, func(t *testing.T) { way.visit(t, g) }) // the end of the subtest closes its clients
				}
			})
		}
		running.Wait()
		testkit.Eventually(t, "end of all conversations", func() bool { return len(g.Host.Sessions()) == 0 })
	}
	visits(2 * len(endings)) // warm up, because some resources are created only once
	var before, after resources
	testkit.PollUntil(time.Second, func() bool { // the last goroutines end a moment after their conversation
		before = heldResources(t, g)
		return false
	})
	visits(soak)
	back := func() bool {
		after = heldResources(t, g)
		return after.goroutines <= before.goroutines && after.descriptors <= before.descriptors
	}
	if !testkit.PollUntil(testkit.Patience, back) {
		stacks := make([]byte, 1<<20)
		t.Errorf("not everything was given back:\n%s", stacks[:runtime.Stack(stacks, true)])
	}
	t.Logf("%d conversations; before %+v, after %+v", soak, before, after)
	if after.heap > before.heap+4<<20 {
		t.Errorf("%d KB of heap were kept, %d bytes of each conversation", (after.heap-before.heap)>>10, (after.heap-before.heap)/soak)
	}
}
