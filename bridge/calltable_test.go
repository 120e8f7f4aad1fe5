package bridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
	"voxgate/tools"
)

// callMode describes how a model calls a function.
type callMode struct {
	model, behavior string
	blocking        bool // the model waits for the answer, and gets no audio meanwhile
	schedules       bool // the model accepts the scheduling of an answer
	vertex          bool
}

var modelWays = []callMode{
	{model: "gemini-2.5-flash-native-audio-latest", blocking: true},
	{model: "gemini-2.5-flash-native-audio-latest", behavior: "BLOCKING", blocking: true},
	{model: "gemini-2.5-flash-native-audio-latest", behavior: "NON_BLOCKING", schedules: true},
	{model: "gemini-3.1-flash-live-preview", blocking: true},
	{model: "gemini-3.1-flash-live-preview", behavior: "NON_BLOCKING", blocking: true},
	{model: "gemini-3.8-live", schedules: true},
	{model: "gemini-3.8-live", behavior: "BLOCKING", blocking: true},
	{model: "gemini-3.8-live", behavior: "NON_BLOCKING", schedules: true},
	{model: "gemini-3.8-live-extended-thinking"},
	{model: "gemini-3.8-live-extended-thinking", behavior: "BLOCKING"},
	{model: "gemini-3.8-live-extended-thinking", behavior: "NON_BLOCKING"},
	{model: "gemini-9-unheard-of", schedules: true},
	{model: "gemini-9-unheard-of", behavior: "BLOCKING", blocking: true},
	{model: "gemini-3.8-live", schedules: true, vertex: true},
	{model: "gemini-3.8-live", behavior: "BLOCKING", blocking: true, vertex: true},
	{model: "gemini-live-2.5-flash-native-audio", blocking: true, vertex: true},
	{model: "gemini-live-2.5-flash-native-audio", behavior: "NON_BLOCKING", blocking: true, vertex: true},
}

func (c callMode) timeout() time.Duration {
	if c.blocking {
		return 10 * time.Second
	}
	return 30 * time.Second
}

// on sets the backend of the model in the gateway's options.
func (c callMode) on(o *bridge.Options) {
	if c.vertex {
		onVertex(o)
	}
}

// job is a tool of the gateway that is controlled by a test.
type job struct {
	ends    chan func() (json.RawMessage, error)
	stopped chan error // the cause for which the tool's context was done
}

func newJob() *job {
	return &job{ends: make(chan func() (json.RawMessage, error), 1), stopped: make(chan error, 1)}
}

func (j *job) run(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
	select {
	case end := <-j.ends:
		return end()
	case <-ctx.Done():
		j.stopped <- context.Cause(ctx)
		return nil, context.Cause(ctx)
	}
}

// cell is one cell of the table: a pending call and its participants.
type cell struct {
	*testing.T
	callMode
	r        *harness
	c        *caller
	l        *bridgetest.Conn
	ours     bool // the tool runs in the gateway
	job      *job
	gone     []*caller          // the callers before c
	links    []*bridgetest.Conn // the connections before l
	response string             // the answer that Gemini should have received, once; "" means none
	client   []string           // events that the client should have received in addition to the call
}

// ends makes the tool end with a response or an error.
func (cl *cell) ends(response string, err error) {
	switch {
	case cl.ours:
		cl.job.ends <- func() (json.RawMessage, error) { return json.RawMessage(response), err }
	case err != nil:
		cl.c.sendToolResponse("a", "f", fmt.Sprintf(`{"error":%q}`, err))
	default:
		cl.c.sendToolResponse("a", "f", response)
	}
	synctest.Wait()
}

// over adds the event that the client should get at the end of the call. For the client's own tools, only a cancellation
// has an event.
func (cl *cell) over(status string, cancelled bool) {
	if cl.ours {
		cl.client = append(cl.client, "status "+status)
	} else if cancelled {
		cl.client = append(cl.client, "cancelled a")
	}
}

// fates returns functions that end or disturb a call in each possible way.
func fates() map[string]func(x *cell) {
	return map[string]func(x *cell){
		"answered": func(x *cell) {
			x.ends(`{"x":9007199254740993}`, nil)
			x.response = `{"x":9007199254740993}`
			x.over("done", false)
		},
		"slow": func(x *cell) {
			time.Sleep(x.timeout() - time.Millisecond)
			x.nothing()
			time.Sleep(time.Millisecond)
			x.response = fmt.Sprintf(`{"error":"the tool did not answer in time (%v)"}`, x.timeout())
			x.over("failed", true)
		},
		"fails": func(x *cell) {
			x.ends("", errors.New("broken"))
			x.response = `{"error":"broken"}`
			x.over("failed", false)
		},
		"panics": func(x *cell) {
			if !x.ours { // for a function of the client, this is a failure
				x.meets("fails")
				return
			}
			x.job.ends <- func() (json.RawMessage, error) { panic("ouch") }
			x.response = `{"error":"the tool crashed: ouch"}`
			x.over("failed", false)
		},
		"cancelled": func(x *cell) {
			x.l.Send(`{"toolCallCancellation":{"ids":["a"]}}`)
			x.stops()
			x.over("cancelled", true)
		},
		"hang-up": func(x *cell) {
			x.c.doCommand(bridge.Goodbye{})
			x.c.awaitEnd(bridge.ErrGoodbye)
			x.stops()
			x.response = `{"error":"the conversation has ended"}`
		},
		"client lost for good": func(x *cell) {
			x.l.SendHandle("h")
			x.c.disconnect()
			time.Sleep(2 * time.Minute)
			x.ending()
		},
		"client back": func(x *cell) {
			x.returns(3 * time.Second)
			x.ends(`{"x":1}`, nil)
			x.response = `{"x":1}`
			x.over("done", false)
		},
		"client back, link gone": func(x *cell) {
			x.returns(8 * time.Second)
			x.dialled("h")
			x.ends(`{"x":1}`, nil)
			x.response = `{"x":1}`
			x.over("done", false)
		},
		"barge-in": func(x *cell) {
			x.l.SendContent(`"interrupted":true`)
			if x.blocking { // Gemini does this to calls that it waits for
				x.meets("cancelled")
				return
			}
			x.l.SendContent(`"turnComplete":true`)
			x.meets("answered")
		},
		"resumed by a newer handle": func(x *cell) {
			x.l.SendHandle("h")
			x.goesOn("h")
			x.nothing()
			x.meets("answered")
		},
		"resumed by an older handle": func(x *cell) {
			x.goesOn("old")
			x.stops()
			x.over("cancelled", true)
		},
		"begun anew": func(x *cell) {
			x.l.SendHandle("h")
			x.l.DropConnection()
			x.r.up.NextConn().CloseWith(1008, "BidiGenerateContent session not found")
			x.dialled("")
			x.stops()
			x.over("cancelled", true)
		},
	}
}

func (cl *cell) meets(name string) { fates()[name](cl) }

// stops checks that a tool of the gateway was cancelled.
func (cl *cell) stops() {
	cl.Helper()
	synctest.Wait()
	if !cl.ours {
		return
	}
	select {
	case <-cl.job.stopped:
	default:
		cl.Error("the tool runs on")
	}
}

// ending waits for the end of a conversation whose caller did not return.
func (cl *cell) ending() {
	cl.Helper()
	cl.c.awaitEnd(nil)
	if len(cl.job.stopped) == 0 && cl.ours {
		cl.Error("the tool runs on")
	}
	cl.client = nil // there was no client
}

// nothing checks that Gemini has got no answer yet.
func (cl *cell) nothing() {
	cl.Helper()
	for _, l := range append(cl.links, cl.l) {
		l.AssertToolResponses()
	}
}

// TestCallTable answers each kind of call. It runs every fate for each class of model: one that waits, one that supports
// scheduling, and one that does neither.
func TestCallTable(t *testing.T) {
	for name := range fates() {
		for i, w := range modelWays {
			first := slices.IndexFunc(modelWays, func(o callMode) bool { return o.blocking == w.blocking && o.schedules == w.schedules })
			if name != "answered" && i != first {
				continue
			}
			for _, ours := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s %s vertex=%v gateway=%v", name, w.model, w.behavior, w.vertex, ours), func(t *testing.T) {
					t.Parallel()
					runWithFakeClock(t, func(t *testing.T) { newCell(t, w, ours).check(name) })
				})
			}
		}
	}
}

func newCell(t *testing.T, w callMode, ours bool) *cell {
	x := &cell{T: t, callMode: w, ours: ours, job: newJob()}
	x.r = newHarness(t, func(o *bridge.Options) {
		w.on(o)
		if ours {
			o.Tools = func() []tools.Tool {
				return []tools.Tool{
					{
						Declaration: tools.Declaration{Name: "f", Title: "Doing…", Behavior: tools.Behavior(w.behavior), Scheduling: tools.Interrupt},
						Run:         x.job.run,
					},
				}
			}
		}
	})
	config := fmt.Sprintf(
		`{"model":%q,"tools":[{"functionDeclarations":[{"name":"f","title":"Doing…","defaultBehavior":%q,"defaultScheduling":"INTERRUPT"}]}]}`,
		w.model,
		w.behavior,
	)
	if ours {
		config = fmt.Sprintf(`{"model":%q}`, w.model)
	}
	x.c, x.l = x.r.connectCaller(bridge.SessionRequest{Resumable: true, Config: json.RawMessage(config)})
	x.l.SendHandle("old")
	x.l.CallTools("a f")
	synctest.Wait()
	// Speech during the call reaches the model, unless the model waits.
	x.c.sendAudio(countingPCM(0, 3200))
	if heard := len(x.l.ReceivedPCM()) > 0; heard == w.blocking {
		t.Errorf("audio during the call was sent: %v", heard)
	}
	return x
}

func (cl *cell) check(moment string) {
	cl.meets(moment)
	synctest.Wait()
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	var got []string
	for _, l := range append(cl.links, cl.l) {
		for _, in := range l.Inputs() {
			for _, r := range in.Tools {
				text := string(r.Response)
				if strings.Contains(in.Raw, `"scheduling":"INTERRUPT"`) {
					text += " at once"
				}
				got = append(got, r.ID+" "+text)
			}
		}
	}
	var want []string
	if cl.response != "" {
		w := "a " + cl.response
		if cl.schedules && moment != "hang-up" {
			w += " at once"
		}
		want = append(want, w)
	}
	if !slices.Equal(got, want) {
		cl.Errorf("Gemini got %q, want %q", got, want)
	}
	cl.checkClient(moment)
	if cl.c.session != nil && moment != "client lost for good" && moment != "hang-up" {
		cl.c.checkAnswerRejected("a", "")
	}
}

// checkClient compares the events of the call that the client has received with the expected ones.
func (cl *cell) checkClient(moment string) {
	var got []string
	calls := 0
	for _, c := range append(cl.gone, cl.c) {
		for _, e := range c.entries() {
			switch e := e.event.(type) {
			case bridge.ToolCall:
				calls += len(e.Calls)
			case bridge.ToolCallCancellation:
				got = append(got, "cancelled "+strings.Join(e.IDs, " "))
			case bridge.ToolStatus:
				if e.Status == bridge.StatusRunning {
					calls++
				} else {
					got = append(got, "status "+e.Status)
				}
				if e.Title != "Doing…" {
					cl.Errorf("%+v", e)
				}
			}
		}
	}
	want := 1
	if strings.HasPrefix(moment, "client back") {
		want = 2 // asked again, with the same id, or informed again that it runs
	}
	if calls != want {
		cl.Errorf("the client learned of the call %d times, want %d", calls, want)
	}
	if !slices.Equal(got, cl.client) {
		cl.Errorf("the client got %q, want %q", got, cl.client)
	}
}

// canvasFate describes something that can happen to a canvas with an input field. The first expectation is for a model that
// does not wait, and the second for one that waits. A stroke separates connections and callers.
type canvasFate struct {
	meet   func(x *cell)
	gemini [2]string // answers that the model got
	client [2]string // canvases that the client was asked to show, and to withdraw (-)
}

const (
	filled = `{"name":"Ada","action":"submit"}`
	acked  = `a {"shown":true,"input":"what the person puts in follows as text"}`
)

// fill answers the newest canvas for the person.
func (cl *cell) fill() {
	cl.c.sendToolResponse(lastEvent[bridge.ToolCall](cl.c).Calls[0].ID, "", filled)
}

// goesOn cuts the connection, and accepts the next one, which must be dialled with the handle.
func (cl *cell) goesOn(handle string) {
	cl.l.DropConnection()
	cl.dialled(handle)
}

// dialled accepts the next connection, which must be dialled with the handle.
func (cl *cell) dialled(handle string) {
	cl.links = append(cl.links, cl.l)
	cl.l = cl.r.up.NextConn().AssertSetup("", handle).SendSetupComplete()
	synctest.Wait()
}

// returns makes the caller leave, and come back after a time.
func (cl *cell) returns(after time.Duration) {
	cl.l.SendHandle("h")
	token := cl.c.resumeToken()
	cl.c.disconnect()
	time.Sleep(after)
	cl.gone = append(cl.gone, cl.c)
	cl.c = cl.r.resumeByToken(token)
}

func canvasFates() map[string]canvasFate {
	return map[string]canvasFate{
		"answered": {(*cell).fill, [2]string{"a " + filled, acked + ", " + filled}, [2]string{"a", "a"}},
		"put away": {
			func(x *cell) { x.c.sendToolResponse("a", "", `{"dismissed":true}`) },
			[2]string{`a {"dismissed":true}`, acked},
			[2]string{"a", "a"},
		},
		"forgotten": {func(x *cell) { time.Sleep(6 * time.Minute) }, [2]string{`a {"dismissed":true}`, acked}, [2]string{"a -a", "a"}},
		"cancelled": {func(x *cell) {
			x.l.Send(`{"toolCallCancellation":{"ids":["a"]}}`)
			time.Sleep(6 * time.Minute)
		}, [2]string{"", acked}, [2]string{"a -a", "a"}},
		"hang-up": {func(x *cell) {
			x.c.doCommand(bridge.Goodbye{})
			x.c.awaitEnd(bridge.ErrGoodbye)
		}, [2]string{`a {"dismissed":true}`, acked}, [2]string{"a", "a"}},
		"resumed by a newer handle": {func(x *cell) {
			x.l.SendHandle("h")
			x.goesOn("h")
			x.fill()
		}, [2]string{" / a " + filled, acked + " / " + acked + ", " + filled}, [2]string{"a", "a"}},
		"resumed by an older handle": {func(x *cell) { x.goesOn("old") }, [2]string{" / ", acked + " / "}, [2]string{"a -a", "a"}},
		"resumed by an older handle, asked again": {func(x *cell) { // what a model that waits has shown is still there
			x.goesOn("old")
			x.l.CallTool("b", "show_canvas_tool", schema(question))
			x.fill()
		}, [2]string{" / b " + filled, acked + " / b" + acked[1:] + ", " + filled}, [2]string{"a -a b", "a"}},
		"client back": {func(x *cell) {
			x.returns(3 * time.Second)
			x.fill()
		}, [2]string{"a " + filled, acked + ", " + filled}, [2]string{"a / a", "a / a"}},
		"client back, link gone": {func(x *cell) {
			x.returns(8 * time.Second)
			x.dialled("h")
			x.fill()
		}, [2]string{" / a " + filled, acked + " / " + acked + ", " + filled}, [2]string{"a / a", "a / a"}},
		"client lost for good": {func(x *cell) {
			x.l.SendHandle("h")
			x.c.disconnect()
			time.Sleep(2 * time.Minute)
		}, [2]string{"", acked}, [2]string{"a", "a"}},
		"configured anew": {func(x *cell) {
			x.c.doCommand(bridge.UpdateConfig{Config: fmt.Appendf(nil, `{"model":%q}`, x.model)})
			x.fill()
		}, [2]string{"a " + filled, acked + ", " + filled}, [2]string{"a", "a"}},
		"context cleared": {func(x *cell) {
			x.l.SendHandle("h")
			x.c.doCommand(bridge.ClearContext{})
			x.dialled("")
		}, [2]string{" / ", acked + " / "}, [2]string{"a -a", "a"}},
	}
}

// TestCanvasTable runs each fate of a canvas, which is a call that a person answers. A model need not wait for that.
func TestCanvasTable(t *testing.T) {
	for name, fate := range canvasFates() {
		met := map[bool]bool{}
		for _, w := range modelWays {
			if w.behavior != "NON_BLOCKING" || met[w.blocking] && name != "answered" { // a canvas is declared as that
				continue
			}
			met[w.blocking] = true
			t.Run(fmt.Sprintf("%s/%s vertex=%v", name, w.model, w.vertex), func(t *testing.T) {
				t.Parallel()
				runWithFakeClock(t, func(t *testing.T) {
					x := &cell{T: t, callMode: w}
					x.r = newHarness(t, w.on)
					x.c, x.l = x.r.connectCaller(canvasOn(w.model))
					x.l.SendHandle("old")
					x.l.CallTool("a", "show_canvas_tool", schema(question))
					fate.meet(x)
					x.checkCanvas(fate)
				})
			})
		}
	}
}

func (cl *cell) checkCanvas(fate canvasFate) {
	var links, callers []string
	for _, l := range append(cl.links, cl.l) {
		var got []string
		l.ToolResponses() // waits for them
		for _, in := range l.Inputs() {
			for _, r := range in.Tools {
				got = append(got, fmt.Sprintf("%s %s", r.ID, r.Response))
			}
			if in.Kind == "text" {
				got = append(got, in.Text)
			}
		}
		links = append(links, strings.Join(got, ", "))
	}
	for _, c := range append(cl.gone, cl.c) {
		var got []string
		for _, e := range c.entries() {
			switch e := e.event.(type) {
			case bridge.ToolCall:
				got = append(got, e.Calls[0].ID)
			case bridge.ToolCallCancellation:
				got = append(got, "-"+e.IDs[0])
			}
		}
		callers = append(callers, strings.Join(got, " "))
	}
	kind := 0
	if cl.blocking {
		kind = 1
	}
	if got := strings.Join(links, " / "); got != fate.gemini[kind] {
		cl.Errorf("Gemini got\n  %s\nwant\n  %s", got, fate.gemini[kind])
	}
	if got := strings.Join(callers, " / "); got != fate.client[kind] {
		cl.Errorf("the client got\n  %s\nwant\n  %s", got, fate.client[kind])
	}
}

// TestAnswersBeforeAHangUp checks that answers accepted before a hang-up, or before a shutdown, reach Gemini before the
// connection is closed.
func TestAnswersBeforeAHangUp(t *testing.T) {
	const given, none = `a weather {"x":1}`, `b time {"error":"the conversation has ended"}`
	for name, end := range map[string]func(r *harness, c *caller){
		"goodbye": func(_ *harness, c *caller) {
			_ = c.session.Do(bridge.Goodbye{})
			c.awaitEnd(bridge.ErrGoodbye)
		},
		"shutdown": func(r *harness, c *caller) {
			if err := r.host.Shutdown(context.Background()); err != nil {
				c.r.t.Error(err)
			}
			c.awaitEnd(bridge.ErrShutdown)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 { // a race: the answer is on its way through the tool's goroutine
				converse(t, weather, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
					l.CallTools("a weather", "b time")
					synctest.Wait()
					_ = c.session.Do(bridge.ToolResponse{ID: "a", Response: json.RawMessage(`{"x":1}`)})
					end(r, c)
					l.AssertToolResponses(given, none)
					if took := r.elapsed(); took != 0 {
						t.Errorf("it took %v", took)
					}
				})
			}
		})
	}
	t.Run("of the gateway", func(t *testing.T) {
		for k := range 120 { // a race, too: at any step of the way there is one answer
			runWithFakeClock(t, func(t *testing.T) {
				let := make(chan struct{})
				r := newHarness(t, deaf(let))
				c, l := r.plain()
				l.CallTool("a", "pay", `{}`)
				close(let)
				for range k % 60 {
					runtime.Gosched()
				}
				_ = c.session.Do(bridge.Goodbye{})
				c.awaitEnd(bridge.ErrGoodbye)
				if got := l.ToolResponses(); len(got) != 1 {
					t.Errorf("after %d steps Gemini got %q", k%60, got)
				}
			})
		}
	})
	for _, slow := range []bool{true, false} {
		t.Run(fmt.Sprintf("slow %v", slow), func(t *testing.T) { // or stuck
			converse(t, weather, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				l.CallTools("a weather")
				synctest.Wait()
				l.StopReading()
				c.doCommand(bridge.Text{Text: "one"})
				c.doCommand(bridge.Text{Text: "two"})
				c.sendToolResponse("a", "", `{"x":1}`)
				begin := r.elapsed()
				_ = c.session.Do(bridge.Goodbye{})
				if slow {
					time.Sleep(100 * time.Millisecond)
					l.ContinueReading()
				}
				c.awaitEnd(bridge.ErrGoodbye)
				if took := r.elapsed() - begin; took > time.Second {
					t.Errorf("the hang-up took %v", took)
				}
				if slow {
					l.AssertToolResponses(given)
				}
				l.ContinueReading()
			})
		})
	}
}
