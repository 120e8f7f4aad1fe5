package testkit_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/internal/testkit"
	"voxgate/internal/testkit/mediatest"
	"voxgate/signaling/access"
	"voxgate/signaling/client/clienttest"
	"voxgate/signaling/compat/openai/openaitest"
)

// floodTime is the duration of a flood. A flood whose CPU time is judged first runs for burstTime, which uses up the burst that a
// connection is granted, and then for longFlood.
const floodTime, burstTime, longFlood = 700 * time.Millisecond, 1500 * time.Millisecond, 1500 * time.Millisecond

// usage holds the resources that this process used during a measurement.
type usage struct {
	heap  uint64 // maximum growth of the heap in use, in bytes
	cores float64

	others float64 // mean number of cores used by other processes
}

// measure runs f and returns the resources that the process used meanwhile.
func measure(t *testing.T, f func()) (u usage) {
	inUse := func() uint64 {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	runtime.GC()
	began, cpu, all, heap := time.Now(), mediatest.CPUTime(t), allCPUTime(), inUse()
	done := make(chan struct{})
	var sampling sync.WaitGroup
	sampling.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			if now := inUse(); now > heap {
				u.heap = max(u.heap, now-heap)
			}
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	})
	f()
	close(done)
	sampling.Wait()
	took := float64(time.Since(began))
	used := float64(mediatest.CPUTime(t) - cpu)
	u.cores, u.others = used/took, (float64(allCPUTime()-all)-used)/took
	return u
}

// allCPUTime returns the CPU time of all processes of the machine (on Linux, in ticks of 10 ms), or 0 if it is unknown.
func allCPUTime() (busy time.Duration) {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line) {
		if ticks, err := strconv.Atoi(field); err == nil && i != 4 && i != 5 && i < 8 { // without idle, iowait and the fields from steal on
			busy += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return busy
}

// Limits of a flood: the growth of the heap in bytes, including the flooder's own, and the number of answers. The gateway
// sends 200 answers at once, and then 50 per second.
const (
	mostHeap    = 120 << 20
	mostAnswers = 400
)

// floods returns the floods over one connection that once slowed down other calls: those listed here, and those of the
// protocols.
func floods(slow *httptest.Server) (all []testkit.Flood) {
	junk := strings.Repeat("A", 15<<20)
	manyAnswers := `{"functionResponses":[` + testkit.RepeatJSON(30000, `{"id":"1","response":{}}`) + `]}`
	toolAnswers := `{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":` + manyAnswers + `}}`
	functions := `{"type":"UPDATE_CONFIG","payload":{"tools":[{"functionDeclarations":[` + testkit.RepeatJSON(20000, `{"name":"f"}`) + `]}]}}`
	all = []testkit.Flood{
		{"media of 11 MB", time.Second / 30, true, floodWeb(
			fmt.Sprintf(floodAudio, junk[:11<<20-100]),
			`{"type":"SEND_REALTIME_INPUT","payload":{"video":{"mimeType":"image/png","data":"`+junk[:11<<20-100]+`"}}}`)},
		{"junk of 15 MB", time.Second / 30, true, floodWeb(junk, fmt.Sprintf(floodAudio, junk), `{"type":"UPDATE_CONFIG","payload":"`+junk+`"}`)},
		{"nonsense", 0, false, floodWeb(`{"type":"NONSENSE"}`, `{}`, `[`, `{"type":"SEND_MESSAGE"}`)},
		{"tool answers, candidates, offers, marks and ids", 0, false, floodWeb(
			`{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"functionResponses":[{"id":"1","response":{}}]}}}`,
			`{"type":"WEBRTC_ICE_CANDIDATE","payload":{"candidate":"candidate:1 1 udp 1 192.0.2.1 9 typ host"}}`,
			`{"type":"WEBRTC_OFFER","payload":{"sdp":"v=0"}}`,
			`{"type":"SEND_REALTIME_INPUT","payload":{"activityStart":true}}`,
			`{"type":"GET_CONTEXT","id":"the same"}`, `{"type":"GET_CONTEXT"}`, fmt.Sprintf(floodAudio, "AAA="))},
		{"tool answers with 30,000 ids", 0, false, judged(0.5, floodWeb(toolAnswers))},
		{"configurations with 20,000 functions", 0, false, judged(0.5, floodWeb(functions))},
		{"both by five sockets", 0, false, judged(1.75, floodFive(toolAnswers, functions))},
		{"second offers with 400 messages behind", 0, false, func(t *testing.T, g *testkit.Gateway) testkit.Flooder {
			c, p := testkit.DialPhone(t, g, `{}`, testkit.PhoneOptions{})
			sound := slices.Repeat([]string{fmt.Sprintf(floodAudio, "AAA=")}, testkit.MoreThanAnyQueue)
			f := testkit.NewSocketFlooder(c, append([]string{clienttest.EncodeOffer(t, p, false)}, sound...)...)
			f.End = func() { p.HangUp(); testkit.DropConnection(c) }
			return f
		}},
		{"text", 0, false, floodWeb(
			`{"type":"SEND_REALTIME_INPUT","payload":{"text":"Tell me all about it."}}`,
			`{"type":"SEND_MESSAGE","payload":{"parts":[{"text":"Tell me all about it."}]}}`)},
		{"pings", 0, false, floodWeb()},
		{
			"messages by a data channel",
			0,
			false,
			floodChannel(`{"type":"NONSENSE"}`, `{"type":"SEND_REALTIME_INPUT","payload":{"text":"Tell me."}}`),
		},
		{"data channels", time.Millisecond, false, func(t *testing.T, g *testkit.Gateway) testkit.Flooder {
			_, p := testkit.DialPhone(t, g, `{}`, testkit.PhoneOptions{Channel: true, NoAudio: true})
			return testkit.Flooder{Send: func(int) bool {
				_, err := p.PC.CreateDataChannel("events", nil)
				return err == nil
			}, End: p.HangUp}
		}},
		{"sideband: text, configurations and nonsense", 0, false, floodSideband(functions,
			`{"type":"SEND_MESSAGE","payload":{"parts":[{"text":"Tell me."}]}}`, `{"type":"NONSENSE"}`, `{"type":"GET_CONTEXT"}`, `[`)},
		{"REST: 20 bodies of 8 MB", 0, false, func(t *testing.T, g *testkit.Gateway) testkit.Flooder { return floodREST(t, g, slow) }},
		{"REST: 6 bodies of 19 MB for the emulator", 0, false, floodEmulator},
		{"OpenAI: secrets and calls without a token", 0, false, func(t *testing.T, _ *testkit.Gateway) testkit.Flooder {
			l, long := testkit.StartLockedGateway(t, nil, openaitest.Serve), junk[:200<<10]
			paths := []string{"/v1/realtime/client_secrets", "/v1/realtime/calls"}
			return testkit.Flooder{Send: func(n int) bool { // if the body were parsed first, the answer would be 400
				resp, text := testkit.SendHTTP(t, http.MethodPost, l.HTTP+paths[n%len(paths)], long, "Content-Type", "application/json")
				if resp.StatusCode != http.StatusUnauthorized {
					t.Errorf("%s: %s", resp.Status, text)
				}
				return resp.StatusCode == http.StatusUnauthorized
			}, End: func() {}}
		}},
		{"SIP: strangers and wrong passwords", 0, false, floodSIP},
	}
	for _, p := range protocols {
		all = append(all, p.Floods...)
	}
	return all
}

const floodAudio = `{"type":"SEND_REALTIME_INPUT","payload":{"audio":{"mimeType":"audio/pcm","data":"%s"}}}`

// floodWeb sends messages of the client protocol over a socket.
func floodWeb(messages ...string) func(*testing.T, *testkit.Gateway) testkit.Flooder {
	return func(t *testing.T, g *testkit.Gateway) testkit.Flooder {
		c := testkit.OpenConversation(t, g, `{}`)
		f := testkit.NewSocketFlooder(c, messages...)
		if messages != nil { // a client that only pings gets no warning
			f.Web = c
		}
		return f
	}
}

// floodFive sends messages like floodWeb, but over five sockets of one address.
func floodFive(messages ...string) func(*testing.T, *testkit.Gateway) testkit.Flooder {
	return func(t *testing.T, g *testkit.Gateway) testkit.Flooder {
		var all []testkit.Flooder
		for range 5 {
			all = append(all, testkit.NewSocketFlooder(testkit.OpenConversation(t, g, `{}`), messages...))
		}
		each := func(f func(testkit.Flooder)) {
			var running sync.WaitGroup
			for _, one := range all {
				running.Go(func() { f(one) })
			}
			running.Wait()
		}
		return testkit.Flooder{
			Send: func(n int) bool {
				var broken atomic.Bool
				each(func(one testkit.Flooder) {
					if !one.Send(n) {
						broken.Store(true)
					}
				})
				return !broken.Load()
			},
			End: func() { each(func(one testkit.Flooder) { one.End() }) }, Stop: func() { each(func(one testkit.Flooder) { one.Stop() }) },
		}
	}
}

// floodChannel sends messages of the client protocol over a data channel.
func floodChannel(messages ...string) func(*testing.T, *testkit.Gateway) testkit.Flooder {
	return func(t *testing.T, g *testkit.Gateway) testkit.Flooder {
		c := testkit.OpenConversation(t, g, `{}`)
		p := testkit.NewPhone(t, c, testkit.PhoneOptions{Channel: true, NoAudio: true})
		p.Negotiate(false)
		p.AwaitConnected()
		return testkit.Flooder{Send: byChannel(p, messages), End: func() { p.HangUp(); testkit.DropConnection(c) }, Web: c}
	}
}

// TestAFloodHurtsNobodyElse floods each endpoint over one connection. Meanwhile another call must get answers, and new calls
// must begin. After the flood its goroutines, descriptors and memory must be released.
func TestAFloodHurtsNobodyElse(t *testing.T) { // not parallel: it measures CPU time
	if os.Getenv("TEST_ALL") == "" {
		t.Skip("make test-all sets TEST_ALL")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(20)) // collect garbage often, so that mostly memory in use counts
	slow := slowBackend(t)
	gate := testkit.Must(access.New(access.Options{
		Agents: testkit.Agents,
		Limits: access.Limits{NewPerSecond: -1, NewPerMinute: -1, SessionsPerAddress: 20, BodyMegabytes: floodBodies},
		Logger: slog.New(slog.DiscardHandler),
	}))
	t.Cleanup(gate.Close)
	// The gate comes first, because later options use it.
	options := append([]testkit.Option{func(d *testkit.Endpoints, _ *bridge.Options) { d.Access = gate }}, serveAll(t)...)
	g := testkit.StartGateway(t, append(options, withREST(t, &api.Client{BaseURL: slow.URL}))...)
	for _, test := range floods(slow) {
		before := awaitIdle(t, g)
		t.Run(test.Name, func(t *testing.T) { runFlood(t, g, test) })
		checkReleased(t, g, test.Name, before)
	}
}

// runFlood floods a gateway, and checks the effect on another call and the resources used.
func runFlood(t *testing.T, g *testkit.Gateway, test testkit.Flood) {
	machine := mediatest.MeasureLateness(t)
	beside, f := neighbour{call: testkit.OpenConversation(t, g, `{}`), g: g}, test.Dial(t, g)
	defer testkit.DropConnection(beside.call)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if f.Stop != nil {
		defer context.AfterFunc(ctx, f.Stop)()
	}
	sent := 0
	over := make(chan time.Time)
	go func() {
		defer close(over)
		tick := time.NewTicker(max(test.Every, 1))
		defer tick.Stop()
		for ; ctx.Err() == nil && f.Send(sent); sent++ {
			if test.Every > 0 {
				<-tick.C
			}
		}
	}()
	last := floodTime
	if f.Cores > 0 {
		last = longFlood
		beside.talks(time.After(burstTime))
		beside.asked, beside.opened = nil, nil
	}
	used := measure(t, func() {
		beside.talks(time.After(last))
		stop()
		beside.talks(over) // finish the question in progress
	})
	checkReplies(t, f.Web, sent)
	f.End()
	t.Logf("%d sent; %d MB of heap, %.2f cores; answers began after %v, calls after %v (median)", sent, used.heap>>20, used.cores,
		median(beside.asked), median(beside.opened))
	if used.heap > mostHeap {
		t.Errorf("it took %d MB", used.heap>>20)
	}
	switch {
	case f.Cores == 0 || used.cores <= f.Cores:
	case used.others > 0.5: // with two busy threads per core, each needs more CPU time for the same work
		t.Logf("not judged: it took %.2f cores, and others %.2f", used.cores, used.others)
	default:
		t.Errorf("it took %.2f cores, want %.2f at most", used.cores, f.Cores)
	}
	if test.Long && sent > 4 {
		t.Errorf("%d of 9 MB and more were read", sent)
	}
	const most = time.Second
	if late := max(median(beside.asked), median(beside.opened)); late > most && machine.CanJudge(t, most) {
		t.Errorf("half of the others waited for %v and more", late)
	}
	if late := max(slices.Max(beside.asked), slices.Max(beside.opened), answered(beside.call)); late > testkit.Patience/5 {
		t.Errorf("somebody waited for %v", late)
	}
}

// neighbour measures the service for others during a flood: the answers in one call, and the start of new calls.
type neighbour struct {
	call *testkit.Client
	g    *testkit.Gateway

	asked, opened []time.Duration // delays of the answers, and of the starts of new calls
}

// talks asks a question and opens a call, at least once and then until the channel until has a value or is closed.
func (n *neighbour) talks(until <-chan time.Time) {
	for len(n.asked) == 0 || goesOn(until) {
		n.asked = append(n.asked, answered(n.call))
		began := time.Now()
		testkit.DropConnection(testkit.OpenConversation(n.call.T, n.g, `{}`))
		n.opened = append(n.opened, time.Since(began))
	}
}

// goesOn reports whether end has neither sent a value nor been closed.
func goesOn(end <-chan time.Time) bool {
	select {
	case <-end:
		return false
	default:
		return true
	}
}

func median(all []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// checkReplies checks what a client of the client protocol has received: one warning that it sends too much, and at most mostAnswers
// answers and errors.
func checkReplies(t *testing.T, c *testkit.Client, sent int) {
	t.Helper()
	if c == nil {
		return
	}
	if n := c.CountMessages("GEMINI_ERROR") + c.CountMessages("CONTEXT"); n > mostAnswers {
		t.Errorf("%d answers", n)
	}
	warned := func() bool { return c.CountWarnings("Too much comes") > 0 } // may come with messages read later
	if sent > mostAnswers && !testkit.PollUntil(testkit.Patience, warned) {
		t.Error("no client was warned")
	}
	if n := c.CountWarnings("Too much comes"); n > 1 {
		t.Errorf("warned %d times", n)
	}
}

// judged returns a flood whose CPU time is limited to this number of cores.
func judged(cores float64, dial func(*testing.T, *testkit.Gateway) testkit.Flooder) func(*testing.T, *testkit.Gateway) testkit.Flooder {
	return func(t *testing.T, g *testkit.Gateway) testkit.Flooder {
		f := dial(t, g)
		f.Cores = cores
		return f
	}
}

func byChannel(p *testkit.Phone, messages []string) func(n int) bool {
	const full = 256 << 10
	low, closed := make(chan struct{}, 1), make(chan struct{})
	p.Channel.SetBufferedAmountLowThreshold(full)
	p.Channel.OnBufferedAmountLow(func() {
		select {
		case low <- struct{}{}:
		default:
		}
	})
	p.Channel.OnClose(sync.OnceFunc(func() { close(closed) }))
	return func(n int) bool {
		for p.Channel.BufferedAmount() > full {
			select {
			case <-low:
			case <-closed:
				return false
			}
		}
		return p.Channel.SendText(messages[n%len(messages)]) == nil
	}
}

// answered types a question, and returns the time until the answer begins. It waits for the end of the answer.
func answered(c *testkit.Client) time.Duration {
	c.T.Helper()
	c.At = len(c.Messages())
	began := time.Now()
	c.Send("SEND_MESSAGE", testkit.TextPayload("Hi"))
	c.AwaitEvent("ASSISTANT_SPEAKING")
	took := time.Since(began)
	c.AwaitEvent("TURN_COMPLETE")
	return took
}
