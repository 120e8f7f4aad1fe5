package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit/bridgetest"
)

// model records the emulator's events of a conversation, with their times.
type model struct {
	t *testing.T

	mu     sync.Mutex
	events []emulator.Event
}

// emulated returns a harness with an emulator that follows the scenario, and the emulator's record.
func emulated(t *testing.T, s emulator.Scenario, change ...func(*bridge.Options)) (*harness, *model) {
	t.Helper()
	m := &model{t: t}
	e := emulator.New(emulator.Options{Espeak: emulator.NoVoice, Scenario: s, Observe: m.observe})
	p := bridgetest.NewPipeNetwork()
	p.ServeUntilEnd(t, e, e.Close)
	r := &harness{t: t}
	r.startHost(p.Dial, change...)
	return r, m
}

func watchful(o *bridge.Options) { o.Stall = 6 * time.Second }

// distant returns an option that delays each connect by d.
func distant(d time.Duration) func(*bridge.Options) {
	return func(o *bridge.Options) {
		direct := o.Client.NetDial
		o.Client.NetDial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			time.Sleep(d)
			return direct(ctx, network, addr)
		}
	}
}

func (m *model) observe(e emulator.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, e)
}

// saw returns the emulator's events of these kinds.
func (m *model) saw(kinds ...emulator.EventKind) []emulator.Event {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []emulator.Event
	for _, e := range m.events {
		if slices.Contains(kinds, e.Kind) {
			found = append(found, e)
		}
	}
	return found
}

// heard checks that the model received sentences of these lengths: each once, complete and in order.
func (m *model) heard(want ...time.Duration) {
	m.t.Helper()
	var got []string
	ok := true
	for i, e := range m.saw(emulator.EventUserTurn) {
		d := voiced(e.PCM)
		got = append(got, fmt.Sprintf("%v on link %d", d, e.Connection))
		ok = ok && i < len(want) && (d-want[i]).Abs() <= 40*time.Millisecond
	}
	if !ok || len(got) != len(want) {
		m.t.Errorf("the model heard %v, want %v", got, want)
	}
}

// voiced returns the total length of the loud samples in 16 kHz audio.
func voiced(pcm []int16) time.Duration {
	n := 0
	for _, s := range pcm {
		if s > 4000 || s < -4000 {
			n++
		}
	}
	return time.Duration(n) * time.Second / 16000
}

// staySilentFor sends silence of the microphone, in real time.
func (c *caller) staySilentFor(d time.Duration) {
	for range int(d / (20 * time.Millisecond)) {
		c.sendAudio(make([]int16, 320))
		time.Sleep(20 * time.Millisecond)
	}
}

// speakAndPause sends speech, a second of silence, and more silence, during which the model answers.
func (c *caller) speakAndPause(speech, silence time.Duration) {
	c.speakFor(speech)
	c.staySilentFor(silence)
}

// ways holds the ends of a connection after which the conversation goes on.
var ways = map[string]emulator.Fault{
	"1000":             {Close: 1000},
	"1001":             {Close: 1001},
	"1006":             {Drop: true},
	"1008 aborted":     {Close: 1008, Reason: "The operation was aborted"},
	"1011 internal":    {Close: 1011, Reason: "Internal error encountered."},
	"1011 unavailable": {Close: 1011, Reason: "The service is currently unavailable."},
	"1011 deadline":    {Close: 1011, Reason: "Deadline expired before operation could complete."},
}

// moments holds the moments at which the connection ends.
var moments = map[string]struct {
	on    emulator.Moment
	nth   int
	after time.Duration
}{
	"idle":             {emulator.OnTurnComplete, 1, 2 * time.Second},
	"person speaking":  {emulator.OnSpeechStart, 2, 1500 * time.Millisecond},
	"person has asked": {emulator.OnSpeechEnd, 2, 0},
	"model speaking":   {emulator.OnAnswer, 2, 800 * time.Millisecond},
	"tool pending":     {emulator.OnToolCall, 1, time.Second},
	"tool answered":    {emulator.OnToolResponse, 1, 0},
}

// Whenever and however the connection ends, all speech arrives once and complete, each answer is played once, and each tool
// runs and is answered once.
func TestLinkEndsAtEveryMoment(t *testing.T) {
	for way, fault := range ways {
		for moment, at := range moments {
			for _, handles := range []string{"prompt", "withheld"} {
				if network := way == "1006"; !network && (handles == "withheld" || way != "1011 internal" && moment != "person speaking") {
					continue // each way at one moment; each moment for the network and for the server, and for both kinds of handles
				}
				t.Run(way+", "+moment+", handles "+handles, func(t *testing.T) {
					t.Parallel()
					runWithFakeClock(t, func(t *testing.T) {
						f := fault
						f.On, f.Nth, f.After, f.Times, f.Connections = at.on, at.nth, at.after, 1, []int{1}
						r, m := emulated(t, emulator.Scenario{Handles: handles, Faults: []emulator.Fault{f}}, watchful)
						c := r.meets(bridge.SessionRequest{Config: json.RawMessage(declare("weather"))})
						said := []time.Duration{1500 * time.Millisecond, 4 * time.Second}
						c.speakAndPause(said[0], 4*time.Second)
						if !strings.Contains(moment, "tool") {
							c.speakAndPause(said[1], 9*time.Second)
						} else {
							said = said[:1]
							c.checkToolCall(m, "weather")
						}
						said = append(said, time.Second)
						c.speakAndPause(said[len(said)-1], 4*time.Second)
						m.heard(said...)
						if n := len(m.saw(emulator.EventFault)); n != 1 {
							t.Fatalf("the link ended %d times", n)
						}
						if n := len(m.saw(emulator.EventOpened)); n != 2 {
							t.Errorf("%d links", n)
						}
						begun, _ := findEvents[bridge.Speaking](c)
						over, _ := findEvents[bridge.TurnComplete](c)
						cut, _ := findEvents[bridge.Interrupted](c)
						if broken := moment == "model speaking"; len(cut) == 1 && broken && cut[0].By == bridge.ByConnectionLoss {
							over = append(over, bridge.TurnComplete{})
						} else if len(cut) > 0 {
							t.Errorf("interrupted: %+v", cut)
						}
						if len(begun) != 3 || len(over) < 3 || len(over) > 3 && !strings.Contains(moment, "tool") { // the calling turns end without an answer
							t.Errorf("%d answers begun, %d complete: %s", len(begun), len(over), c.summarizeEvents())
						}
					})
				})
			}
		}
	}
}

// checkToolCall makes the model call a function, runs it when the client is asked to, and checks that it ran and was answered once.
func (c *caller) checkToolCall(m *model, name string) {
	c.r.t.Helper()
	c.typeText("/tool " + name + ` {"city":"Ulm"}`)
	ran := map[string]bool{}
	for range 10 * 50 {
		c.sendAudio(make([]int16, 320))
		time.Sleep(20 * time.Millisecond)
		asked, at := findEvents[bridge.ToolCall](c)
		cancelled, _ := findEvents[bridge.ToolCallCancellation](c)
		for i, a := range asked {
			id := a.Calls[0].ID
			void := slices.ContainsFunc(cancelled, func(e bridge.ToolCallCancellation) bool { return slices.Contains(e.IDs, id) })
			if !ran[id] && !void && c.r.elapsed()-at[i] >= 3*time.Second {
				ran[id] = true
				c.sendToolResponse(id, name, `{"sun":true}`)
			}
		}
	}
	if len(ran) != 1 {
		c.r.t.Errorf("the tool ran %d times", len(ran))
	}
	answers := 0
	for _, e := range m.saw(emulator.EventToolResponse) {
		if !e.Ignored {
			answers++
		}
	}
	if answers != 1 && !(answers == 2 && len(m.saw(emulator.EventFault)) == 1) {
		c.r.t.Errorf("the model got %d answers", answers)
	}
}

// During a long talk connections end, also while the person speaks. No speech is lost or sent twice, and no answer takes
// longer than usual.
func TestTalkOverManyConnections(t *testing.T) {
	for name, test := range map[string]struct {
		scenario    emulator.Scenario
		from, until time.Duration // time in which the person speaks
		links       int
	}{
		"goAway": {emulator.Scenario{ConnectionAge: 2 * time.Minute, GoAwayLead: time.Minute, Handles: "withheld"}, 0, 3 * time.Minute, 3},
		// Without goAway, the keeper replaces the connection because of its age.
		"no goAway": {emulator.Scenario{ConnectionAge: 10 * time.Minute}, 9 * time.Minute, 10 * time.Minute, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runWithFakeClock(t, func(t *testing.T) {
				const dial = 200 * time.Millisecond
				r, m := emulated(t, test.scenario, watchful, distant(dial))
				c := r.meets(bridge.SessionRequest{})
				var said []time.Duration
				var waits []time.Duration
				time.Sleep(test.from)
				for i := 0; r.elapsed() < test.until; i++ {
					c.clearLog()
					speech := 20 * time.Millisecond * time.Duration(50+7*(i%23)) // of different lengths, so that the sentences can be told apart
					said = append(said, speech)
					end := r.elapsed() + speech
					c.speakAndPause(speech, speech+time.Duration(i%7)*100*time.Millisecond)
					_, at := findEvents[bridge.Speaking](c)
					if len(at) != 1 || strings.Contains(c.summarizeEvents(), "ErrorEvent") || strings.Contains(c.summarizeEvents(), "Log") {
						t.Fatalf("turn %d after %v: %s", i, r.elapsed(), c.summarizeEvents())
					}
					waits = append(waits, at[0]-end)
				}
				m.heard(said...)
				links := m.saw(emulator.EventOpened)
				if len(links) != test.links {
					t.Errorf("%d links", len(links))
				}
				for _, l := range links[1:] {
					if !l.Resumed {
						t.Error("begun anew")
					}
				}
				slices.Sort(waits)
				usual, longest := waits[len(waits)/2], waits[len(waits)-1]
				t.Logf("%d turns, answers after %v, at the longest after %v", len(said), usual, longest)
				if longest-usual > 300*time.Millisecond+dial {
					t.Errorf("a rotation adds %v", longest-usual)
				}
				if over, _ := findEvents[bridge.StateChange](c); slices.ContainsFunc(over, func(e bridge.StateChange) bool { return e.Message != "" }) {
					t.Error("the person learned of a gap")
				}
			})
		})
	}
}

// contextEntries returns the entries of the History that answers GetContext.
func (c *caller) contextEntries() []bridge.Entry {
	c.r.t.Helper()
	c.doCommand(bridge.GetContext{})
	return lastEvent[bridge.History](c).Entries
}

// checkContext checks the history: role and text of each entry, and the played part of answers.
func (c *caller) checkContext(want string) {
	c.r.t.Helper()
	var all []string
	for _, e := range c.contextEntries() {
		words := e.Role[:1] + ": " + strings.TrimSpace(e.Content)
		if e.Interrupted {
			words += fmt.Sprintf(" (cut after %.1f s)", e.Played.Seconds())
		}
		all = append(all, words)
	}
	if got := strings.Join(all, "; "); got != want {
		c.r.t.Errorf("kept\n  %s\nwant\n  %s", got, want)
	}
}

// If a server closes a connection for a reason that would recur, the conversation ends with that reason.
func TestFatalCloseEndsTheConversation(t *testing.T) {
	for moment, f := range map[string]emulator.Fault{
		"person speaking": {Close: 1007, Reason: "Request contains an invalid argument."},
		"tool pending":    {Close: 1008, Reason: "Operation is not implemented, or supported, or enabled."},
	} {
		t.Run(moment, func(t *testing.T) {
			runWithFakeClock(t, func(t *testing.T) {
				at := moments[moment]
				f.On, f.Nth, f.After = at.on, at.nth, at.after
				r, m := emulated(t, emulator.Scenario{Faults: []emulator.Fault{f}}, watchful)
				c := r.meets(bridge.SessionRequest{Config: json.RawMessage(declare("weather")), Resumable: true})
				c.speakAndPause(1500*time.Millisecond, 4*time.Second)
				if moment == "tool pending" {
					c.typeText(`/tool weather {}`)
				}
				c.speakAndPause(4*time.Second, 4*time.Second)
				if e := c.awaitFailure(bridge.CodeRefused); e.Status != f.Close || !strings.Contains(e.Message, f.Reason) {
					t.Errorf("%+v", e)
				}
				if n := len(m.saw(emulator.EventOpened, emulator.EventRefused)); n != 1 {
					t.Errorf("%d links", n)
				}
			})
		})
	}
}

// If the model is silent on every connection of a session, the keeper tries Nudge, another connection, and then another
// session. TestFaults has the case of a single silent or deaf connection.
func TestSilentSession(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r, m := emulated(t, emulator.Scenario{Faults: []emulator.Fault{
			{On: emulator.OnSpeechEnd, Nth: 2, Connections: []int{1}, Stall: true},
			{On: emulator.OnReady, Connections: []int{2}, Stall: true},
		}}, watchful)
		c := r.meets(bridge.SessionRequest{})
		c.speakAndPause(1500*time.Millisecond, 4*time.Second)
		c.clearLog()
		end := r.elapsed() + 3*time.Second
		c.speakAndPause(3*time.Second, 25*time.Second)
		if _, at := findEvents[bridge.Speaking](c); len(at) != 1 || at[0]-end > 22*time.Second {
			t.Fatalf("answered at %v after %v: %s\n%s", at, end, c.summarizeLog(), r.log.b.String())
		}
		if n := len(m.saw(emulator.EventOpened)); n != 3 || c.watchdogAttempts() != "nudge resume fresh" {
			t.Errorf("%d links, tried %s", n, c.watchdogAttempts())
		}
		heard := m.saw(emulator.EventUserTurn)
		if d := voiced(heard[len(heard)-1].PCM); (d - 3*time.Second).Abs() > 40*time.Millisecond {
			t.Errorf("%v of 3 s were said again", d)
		}
		c.clearLog()
		c.speakAndPause(time.Second, 4*time.Second)
		if c.summarizeEvents() != "Speaking TurnComplete" {
			t.Errorf("then: %s", c.summarizeEvents())
		}
	})
}

// watchdogAttempts returns the remedies that were tried, from the Log events.
func (c *caller) watchdogAttempts() string {
	var tried []string
	logs, _ := findEvents[bridge.Log](c)
	for _, l := range logs {
		if what, ok := l.Details["stall"].(string); ok {
			tried = append(tried, what)
		}
	}
	return strings.Join(tried, " ")
}

// hearsAndIsSilent makes a model transcribe each question and never answer it. The transcript comes when the duration after
// of the question was received. With 0 it comes half a second after the question's end.
func hearsAndIsSilent(l *bridgetest.Conn, after time.Duration) {
	var asked, quiet time.Duration
	reported := false
	l.OnInput(func(in bridgetest.Input) {
		if in.Kind != "audio" {
			return
		}
		loud := voiced(in.PCM)
		if asked += loud; loud > 0 {
			quiet = 0
		} else {
			quiet += 20 * time.Millisecond
		}
		over := asked > 0 && quiet >= 500*time.Millisecond
		if !reported && (over && after == 0 || after > 0 && asked >= after) {
			reported = true
			l.SendContent(`"inputTranscription":{"text":"What time is it?"}`)
		}
		if over {
			asked, reported = 0, false
		}
	})
}

// In every session the model hears each question and answers none. At the second question in a row a fresh session begins.
// This holds for any interval of the questions, with or without a pause in them, and for any time of the transcript.
func TestSecondQuestionWithoutAnAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		every  time.Duration // interval of the questions
		breath time.Duration // length of the pause within each question
		after  time.Duration // see hearsAndIsSilent
		want   []string
	}{
		"19 s":                 {19 * time.Second, 0, 0, []string{"nudge resume none", "nudge fresh none", "nudge none", "nudge fresh none"}},
		"the next comes early": {14 * time.Second, 0, 0, []string{"nudge resume", "nudge fresh", "nudge none", "nudge fresh"}},
		"understood as it is said": {
			20 * time.Second, 0, 500 * time.Millisecond,
			[]string{"nudge resume none", "nudge fresh none", "nudge none", "nudge fresh none"},
		},
		"a breath after what was understood": {
			20 * time.Second, 400 * time.Millisecond, 500 * time.Millisecond,
			[]string{"nudge resume none", "nudge fresh none", "nudge none", "nudge fresh none"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, bridge.SessionRequest{Resumable: true}, func(t *testing.T, r *harness, c *caller, l *bridgetest.Conn) {
				l.SendHandle("h")
				hearsAndIsSilent(l, test.after)
				over := make(chan struct{})
				defer close(over)
				go func() {
					for {
						select {
						case l := <-r.up.Conns:
							l.SendSetupComplete().SendHandle("h")
							hearsAndIsSilent(l, test.after)
						case <-over:
							return
						}
					}
				}()
				for i, want := range test.want {
					c.clearLog()
					c.speakWithoutPause(time.Second)
					c.staySilentFor(test.breath)
					c.speakAndPause(time.Second, test.every-2*time.Second-test.breath)
					if got := c.watchdogAttempts(); got != want {
						t.Errorf("question %d: tried %s, want %s", i+1, got, want)
					}
				}
			}, watchful)
		})
	}
}

// The model stops in the middle of its answer.
func TestAnswerThatStops(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		f := emulator.Fault{On: emulator.OnAnswer, Nth: 2, After: 2 * time.Second, Connections: []int{1}, Stall: true}
		r, m := emulated(t, emulator.Scenario{Faults: []emulator.Fault{f}}, watchful)
		c := r.meets(bridge.SessionRequest{})
		c.speakAndPause(1500*time.Millisecond, 4*time.Second)
		c.clearLog()
		c.speakAndPause(8*time.Second, 12*time.Second)
		if got := c.summarizeEvents(); got != "Speaking Log Interrupted" || c.watchdogAttempts() != "resume" {
			t.Errorf("%s, tried %s", got, c.watchdogAttempts())
		}
		c.speakAndPause(time.Second, 4*time.Second)
		m.heard(1500*time.Millisecond, 8*time.Second, time.Second)
		entries := c.contextEntries()
		if e := entries[3]; !e.Interrupted || e.Played < 1800*time.Millisecond || e.Played > 2700*time.Millisecond {
			t.Errorf("kept %+v", e)
		}
	})
}

// If the microphone stops within a sentence, the model is informed. Otherwise it would never end the turn.
func TestMicrophoneThatStops(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r, m := emulated(t, emulator.Scenario{}, watchful)
		c := r.meets(bridge.SessionRequest{})
		c.speakWithoutPause(2 * time.Second)
		end := r.elapsed()
		time.Sleep(5 * time.Second)
		_, at := findEvents[bridge.Speaking](c)
		if len(at) != 1 || at[0]-end > 2*time.Second {
			t.Errorf("answered at %v after %v", at, end)
		}
		m.heard(2 * time.Second)
	})
}

// A server that answers pings late, as Google's has done, does not count as dead.
func TestSlowPongs(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		s := emulator.Scenario{
			SlowPongs: 20 * time.Second, ConnectionAge: time.Minute, GoAwayLead: 30 * time.Second,
		}
		r, m := emulated(t, s, watchful)
		c := r.meets(bridge.SessionRequest{})
		var said []time.Duration
		for i := range 15 {
			said = append(said, time.Second+20*time.Millisecond*time.Duration(i))
			c.speakAndPause(said[i], 3*time.Second)
		}
		m.heard(said...)
		if usage, _ := findEvents[bridge.Usage](c); len(usage) != 15 || usage[14].Total.Total == 0 {
			t.Errorf("%d counts of tokens", len(usage))
		}
		if failures, _ := findEvents[bridge.ErrorEvent](c); len(failures) > 0 || len(m.saw(emulator.EventOpened)) != 3 {
			t.Errorf("%d links, %v", len(m.saw(emulator.EventOpened)), failures)
		}
	})
}
