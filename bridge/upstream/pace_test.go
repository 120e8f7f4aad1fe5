package upstream_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge/upstream"
	"voxgate/internal/testkit/bridgetest"
)

// young ends a connection right after its setup, or causes its replacement. n is the number of the connection.
type young func(o *owner, l *bridgetest.Conn, n int)

// shortLived returns all ways in which a connection can end right after its setup: by the server, the network or the keeper.
func shortLived() map[string]young {
	send := func(message string) young { return func(_ *owner, l *bridgetest.Conn, _ int) { l.Send("%s", message) } }
	end := func(code int, reason string) young {
		return func(_ *owner, l *bridgetest.Conn, _ int) { l.CloseWith(code, reason) }
	}
	update := func(form string, values ...string) young {
		return func(o *owner, _ *bridgetest.Conn, n int) {
			o.loops(func() {
				o.keeper.ChangeConfig(o.ctx, upstream.ConfigChange{Config: o.config(fmt.Sprintf(form, values[n%len(values)]))})
			})
		}
	}
	parked := func(end young) young {
		return func(o *owner, l *bridgetest.Conn, n int) {
			o.loops(func() { o.keeper.KeepForReturn(o.ctx) })
			end(o, l, n)
			synctest.Wait()
			o.loops(func() { o.keeper.Unpark(o.ctx) })
		}
	}
	cut := func(_ *owner, l *bridgetest.Conn, _ int) { l.DropConnection() }
	const prebuilt = `{"voiceConfig":{"prebuiltVoiceConfig":{"voiceName":"%s"}}}`
	return map[string]young{
		"goAway without a time": send(`{"goAway":{}}`),
		"goAway now":            send(`{"goAway":{"timeLeft":"0s"}}`),
		"goAway below zero":     send(`{"goAway":{"timeLeft":"-3s"}}`),
		"goAway in 0.1 s":       send(`{"goAway":{"timeLeft":"0.1s"}}`),
		"goAway in 90 s":        send(`{"goAway":{"timeLeft":"90s"}}`),
		"goAway, no time":       send(`{"goAway":{"timeLeft":"soon"}}`),
		"goAway in a number":    send(`{"goAway":{"timeLeft":50}}`),
		"goAway in 50 s":        send(`{"goAway":{"timeLeft":"50s"}}`),
		"goAway and a handle":   send(`{"goAway":{"timeLeft":"0s"},"sessionResumptionUpdate":{"newHandle":"h2","resumable":true}}`),
		"goAway, then closed": func(_ *owner, l *bridgetest.Conn, _ int) {
			l.Send(`{"goAway":{"timeLeft":"0s"}}`)
			l.CloseWith(1001,
				"")
		},
		"closed 1000":                 end(1000, ""),
		"closed 1001":                 end(1001, "going away"),
		"closed 1008, aborted":        end(1008, "The operation was aborted."),
		"closed 1008, no session":     end(1008, "BidiGenerateContent session not found"),
		"closed 1011":                 end(1011, "Internal error encountered."),
		"closed 1012":                 end(1012, "service restart"),
		"closed 1013":                 end(1013, "try again later"),
		"closed 4000":                 end(4000, ""),
		"closed 4999":                 end(4999, "what is that?"),
		"cut":                         cut,
		"another voice":               update(`{"generationConfig":{"speechConfig":`+prebuilt+`}}`, "Kore", "Puck"),
		"another temperature":         update(`{"generationConfig":{"temperature":%s}}`, "0.5", "0.6"),
		"another model":               update(`{"model":"%s"}`, "gemini-2.5-flash-native-audio-latest", "gemini-3.8-live"),
		"another model and goAway":    both(update(`{"model":"%s"}`, "gemini-2.5-flash-native-audio-latest", "gemini-3.8-live"), goAway),
		"history cleared":             func(o *owner, _ *bridgetest.Conn, _ int) { o.loops(func() { o.keeper.ClearContext(o.ctx, nil) }) },
		"parked, goAway, and back":    parked(goAway),
		"parked, cut, and back":       parked(cut),
		"parked, closed, and back":    parked(end(1011, "Internal error encountered.")),
		"back before the parked ends": parked(func(*owner, *bridgetest.Conn, int) {}),
	}
}

func goAway(_ *owner, l *bridgetest.Conn, _ int) { l.Send(`{"goAway":{"timeLeft":"50s"}}`) }

func both(a, b young) young {
	return func(o *owner, l *bridgetest.Conn, n int) { b(o, l, n); a(o, l, n) }
}

// TestPace ends every connection right after its set-up, in every way, and counts the dials of a minute: whatever the
// reason, a conversation dials no faster than the back-off after failures allows, in an answer or in silence. The first
// replacement does not wait.
func TestPace(t *testing.T) {
	for name, ends := range shortLived() {
		for _, busy := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, busy %v", name, busy), func(t *testing.T) {
				started(t, `{}`, func(o *owner, l *bridgetest.Conn) {
					o.loops(func() { o.busy = busy })
					n, begin := 0, time.Now()
					for minute := time.After(time.Minute); ; {
						ends(o, l, n)
						n++
						select {
						case l = <-o.gemini.Conns:
							l.SendSetupComplete()
							synctest.Wait()
							continue
						case <-minute:
						}
						break
					}
					// The pauses are random, a second on average: 64 dials are expected, with a standard deviation of 4.5.
					if n > 95 {
						t.Errorf("%d dials in %v", n-1, time.Since(begin))
					}
				})
			})
		}
	}
}

// TestFirstReplacementIsImmediate replaces one young connection. A single goAway or update is carried out without a pause.
func TestFirstReplacementIsImmediate(t *testing.T) {
	for name, ends := range shortLived() {
		if name == "back before the parked ends" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			started(t, `{}`, func(o *owner, l *bridgetest.Conn) {
				time.Sleep(time.Second)
				begin := time.Since(o.begun)
				ends(o, l, 0)
				o.gemini.NextConn().SendSetupComplete()
				o.took(begin, 0)
			})
		})
	}
}

// TestPaceOfAll has 200 conversations whose connections end right after their set-up dial for a minute.
func TestPaceOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		breaker := (&upstream.Breakers{}).ForModel("m")
		dials := 0
		for upstream.RedialDelay(breaker) <= time.Minute {
			dials++
		}
		if dials < 1000 || dials > 1300 {
			t.Errorf("%d dials in a minute", dials)
		}
		time.Sleep(2 * time.Minute)
		if wait := upstream.RedialDelay(breaker); wait != 0 {
			t.Errorf("after a pause the next dial waits %v", wait)
		}
	})
}

// TestBreakers checks which callers a refusal for lack of quota blocks, and for how long.
func TestBreakers(t *testing.T) {
	type refusal struct {
		model, caller, reason string
	}
	const quota = "You exceeded your current quota."
	for name, test := range map[string]struct {
		refusals []refusal
		after    time.Duration
		want     map[string]time.Duration // time until a retry, by "model caller"
	}{
		"the default model": {
			[]refusal{{"d", "a", quota}},
			0,
			map[string]time.Duration{"d a": 30 * time.Second, "d b": 30 * time.Second, "m a": 0, "m b": 0},
		},
		"another model, one caller": {
			[]refusal{{"m", "a", quota}, {"m", "a", quota}, {"m", "a", quota}},
			0,
			map[string]time.Duration{"m a": 30 * time.Second, "m b": 0, "d a": 0, "n a": 0},
		},
		"another model, two callers": {
			[]refusal{{"m", "a", quota}, {"m", "b", quota}},
			10 * time.Second,
			map[string]time.Duration{"m a": 20 * time.Second, "m b": 20 * time.Second, "m c": 20 * time.Second, "d a": 0, "n a": 0},
		},
		"two models, two callers": {
			[]refusal{{"m", "a", quota}, {"n", "b", quota}},
			0,
			map[string]time.Duration{"m b": 0, "n a": 0, "m c": 0, "n c": 0},
		},
		"Google says how long": {
			[]refusal{{"d", "a", quota + " Please retry in 90s."}}, 0, map[string]time.Duration{"d b": 90 * time.Second},
		},
		"Google says a day": {
			[]refusal{{"d", "a", quota + " Please retry in 86400s."}}, 0, map[string]time.Duration{"d b": 10 * time.Minute},
		},
		"the pause is over": {
			[]refusal{{"m", "a", quota}, {"m", "b", quota}}, 30 * time.Second, map[string]time.Duration{"m c": 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				breakers := &upstream.Breakers{Default: "d"}
				for _, r := range test.refusals {
					upstream.Refuse(breakers, r.model, r.caller, r.reason)
				}
				time.Sleep(test.after)
				for who, want := range test.want {
					if _, got := breakers.ForModel(who[:1]).Admit(who[2:]); got != want {
						t.Errorf("%s waits %v, want %v", who, got, want)
					}
				}
			})
		})
	}
}

// TestBreakersAreBounded names very many models and callers without quota.
func TestBreakersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		breakers := &upstream.Breakers{Default: "d"}
		for i := range 10_000 {
			upstream.Refuse(breakers, fmt.Sprint("m", i), "a", "quota")
			upstream.Refuse(breakers, "m", fmt.Sprint("caller", i), "quota")
		}
		models, callers := upstream.SizeOf(breakers)
		if models > 300 || callers > 300 {
			t.Errorf("remembers %d models, %d callers", models, callers)
		}
		time.Sleep(time.Hour)
		upstream.Refuse(breakers, "d", "a", "quota")
		if _, wait := breakers.ForModel("d").Admit("b"); wait == 0 {
			t.Error("the default model has no breaker any more")
		}
	})
}
