package bridge_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit/bridgetest"
	"voxgate/store"
)

// forgetful holds models whose handles, once a session was resumed, cover only the turns of one connection.
var forgetful = []string{
	"gemini-3.8-live", "gemini-3.8-live-extended-thinking", "gemini-3.1-flash-live-preview", "gemini-2.5-flash-native-audio-latest",
}

// askForFacts asks the emulator for the facts that it remembers.
func (c *caller) askForFacts() string {
	c.r.t.Helper()
	c.clearLog()
	c.typeText("/history")
	time.Sleep(90 * time.Second) // time for a long spoken answer
	text := ""
	for _, e := range c.contextEntries() {
		if e.Role == "assistant" && strings.Contains(e.Content, "I remember") {
			text = e.Content
		}
	}
	return text
}

// checkFactsKnown checks that the model remembers this number of facts.
func (c *caller) checkFactsKnown(facts int) {
	c.r.t.Helper()
	got := c.askForFacts()
	for i := range facts {
		if !strings.Contains(got, fact(i)) {
			c.r.t.Errorf("fact %d of %d is forgotten:\n%s", i, facts, got)
			return
		}
	}
}

func fact(i int) string { return fmt.Sprintf("my fact number %d is %c%d.", i, 'a'+i, i*i) }

// However often and for whatever reason the connection is replaced, the model remembers the conversation.
func TestNothingIsForgotten(t *testing.T) {
	stalls := []emulator.Fault{}
	for i := range 3 {
		stalls = append(stalls, emulator.Fault{On: emulator.OnText, Nth: 2, Connections: []int{1 + i}, Stall: true})
	}
	for cause, test := range map[string]struct {
		scenario emulator.Scenario
		replace  func(c *caller, name string, i int) *caller
	}{
		"goAway": {emulator.Scenario{}, func(c *caller, _ string, _ int) *caller {
			c.typeText("/goaway 5s")
			time.Sleep(15 * time.Second)
			return c
		}},
		"loss": {emulator.Scenario{}, func(c *caller, _ string, _ int) *caller { c.typeText("/drop"); time.Sleep(15 * time.Second); return c }},
		"refused with 1011": {emulator.Scenario{}, func(c *caller, _ string, _ int) *caller {
			c.typeText("/close 1011 Internal error encountered.")
			time.Sleep(15 * time.Second)
			return c
		}},
		"parked": {emulator.Scenario{}, func(c *caller, _ string, _ int) *caller {
			c.disconnect()
			time.Sleep(10 * time.Second)
			d := c.r.resumeByToken(c.resumeToken())
			time.Sleep(5 * time.Second)
			return d
		}},
		"stall": {emulator.Scenario{Faults: stalls}, func(c *caller, _ string, _ int) *caller { time.Sleep(30 * time.Second); return c }},
		"configuration": {emulator.Scenario{}, func(c *caller, name string, i int) *caller {
			c.updateConfig(fmt.Sprintf(`{"model":%q,"generationConfig":{"temperature":0.%d}}`, name, i+1))
			time.Sleep(10 * time.Second)
			return c
		}},
	} {
		for _, name := range forgetful {
			t.Run(cause+"/"+name, func(t *testing.T) {
				t.Parallel()
				runWithFakeClock(t, func(t *testing.T) {
					r, m := emulated(t, test.scenario, watchful, distant(50*time.Millisecond))
					c := r.meets(bridge.SessionRequest{Resumable: true, Config: json.RawMessage(`{"model":"` + name + `"}`)})
					const rounds = 4
					for i := range rounds {
						c.typeText(fact(i))
						time.Sleep(12 * time.Second)
						c = test.replace(c, name, i)
					}
					if n := len(m.saw(emulator.EventOpened)); n < rounds {
						t.Errorf("%d connections", n)
					}
					c.checkFactsKnown(rounds)
				})
			})
		}
	}
}

// This also holds if gateways take the conversation over from each other.
func TestNothingIsForgottenElsewhere(t *testing.T) {
	for _, name := range forgetful {
		runWithFakeClock(t, func(t *testing.T) {
			shared := store.NewMemory()
			node := func(name string) func(*bridge.Options) {
				return func(o *bridge.Options) { o.Store, o.Node = shared, name }
			}
			m := &model{t: t}
			e := emulator.New(emulator.Options{Espeak: emulator.NoVoice, Observe: m.observe})
			p := bridgetest.NewPipeNetwork()
			p.ServeUntilEnd(t, e, e.Close)
			var nodes []*harness
			for _, name := range []string{"a http://a.test", "b http://b.test"} {
				r := &harness{t: t}
				r.startHost(p.Dial, watchful, node(name))
				nodes = append(nodes, r)
			}
			time.Sleep(5 * time.Second)
			c := nodes[0].meets(bridge.SessionRequest{Resumable: true, Config: json.RawMessage(`{"model":"` + name + `"}`)})
			for i := range 4 {
				c.typeText(fact(i))
				time.Sleep(12 * time.Second)
				c = nodes[(i+1)%2].resumeCaller(c)
				time.Sleep(15 * time.Second)
			}
			c.checkFactsKnown(4)
		})
	}
}

// Of twenty facts that are said at random times, none is forgotten in an hour with seven goAways and three lost
// connections.
func TestAnHourIsRemembered(t *testing.T) {
	for _, name := range []string{"gemini-3.8-live", "gemini-3.1-flash-live-preview"} { // one takes turns in mid-session, one does not
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runWithFakeClock(t, func(t *testing.T) {
				const facts = 20
				random := rand.New(rand.NewPCG(43, 1))
				aging := emulator.Scenario{ConnectionAge: 9 * time.Minute, GoAwayLead: 50 * time.Second}
				r, m := emulated(t, aging, watchful, distant(50*time.Millisecond))
				c := r.meets(bridge.SessionRequest{Config: json.RawMessage(`{"model":"` + name + `"}`)})
				said, dropped := 0, 0
				var times []time.Duration
				for range facts {
					times = append(times, time.Duration(random.Int64N(int64(55*time.Minute))))
				}
				slices.Sort(times)
				for r.elapsed() < time.Hour {
					switch now := r.elapsed(); {
					case dropped < 3 && now > time.Duration(dropped+1)*14*time.Minute:
						dropped++
						c.typeText("/drop")
					case said < facts && now > times[said]:
						c.typeText(fact(said))
						said++
					default:
						c.typeText("let us talk of something else, " + strings.Repeat("word ", random.IntN(10)))
					}
					time.Sleep(10*time.Second + time.Duration(random.Int64N(int64(10*time.Second))))
				}
				if n := len(m.saw(emulator.EventOpened)); n < 8 || dropped < 3 {
					t.Errorf("%d connections, %d dropped", n, dropped)
				}
				c.checkFactsKnown(facts)
			})
		})
	}
}
