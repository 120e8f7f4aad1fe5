package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/uplink"
	"voxgate/bridge/upstream"
	"voxgate/internal/testkit/bridgetest"
)

// owner runs the loop that a keeper belongs to, and records the keeper's events.
type owner struct {
	*testing.T
	gemini   *bridgetest.Upstream
	uplink   *uplink.Uplink
	breakers *upstream.Breakers
	keeper   *upstream.Keeper
	ctx      context.Context
	do       chan func() // functions for the loop to run
	begun    time.Time

	// Owned by the loop.
	busy, calling bool
	log           []string // events since the last call of sees
}

const stall = 6 * time.Second

// bubble runs f with simulated time, and with a keeper that was not started yet.
func bubble(t *testing.T, config string, f func(o *owner)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := &owner{
			T:        t,
			gemini:   bridgetest.NewUpstream(t),
			uplink:   uplink.New(nil),
			breakers: &upstream.Breakers{},
			do:       make(chan func()),
			begun:    time.Now(),
		}
		o.keeper = upstream.New(upstream.Options{
			Dial: func(ctx context.Context, s gemini.Setup) (upstream.Conn, error) {
				c, err := gemini.Dial(ctx, &api.Client{BaseURL: "http://gemini.test", NetDial: o.gemini.Dial}, s)
				if err != nil {
					return nil, err
				}
				return c, nil
			},
			Breakers: o.breakers, StallTimeout: stall, Uplink: o.uplink, Logger: slog.New(slog.DiscardHandler),
			Notify: o.seen, IsIdle: func() bool { return !o.busy }, WaitsForTool: func() bool { return o.calling },
			History: func(bool, int) []wire.Content { return nil },
		}, o.config(config))
		ctx, cancel := context.WithCancel(context.Background())
		o.ctx = ctx
		over := make(chan struct{})
		go func() {
			defer close(over)
			o.loop()
		}()
		defer func() { cancel(); <-over; o.keeper.Close() }()
		f(o)
	})
}

// started runs f with a keeper that has a connection and the handle "h".
func started(t *testing.T, config string, f func(o *owner, l *bridgetest.Conn)) {
	t.Helper()
	bubble(t, config, func(o *owner) {
		o.loops(func() { o.keeper.Start(o.ctx, false) })
		l := o.gemini.NextConn().SendSetupComplete()
		l.SendHandle("h")
		o.sees("HandleChanged, Connected first fresh, ResendPending, SetupComplete, HandleChanged")
		f(o, l)
	})
}

func (o *owner) config(raw string) liveconfig.Config {
	o.Helper()
	c, err := liveconfig.Parse([]byte(raw), "config", liveconfig.Scope{})
	if err != nil {
		o.Fatal(err)
	}
	return c
}

func (o *owner) loop() {
	for {
		select {
		case f := <-o.keeper.Work():
			f(o.ctx)
		case <-o.keeper.Alarms():
			o.keeper.OnAlarm(o.ctx)
		case f := <-o.do:
			f()
		case <-o.ctx.Done():
			return
		}
		o.keeper.ReplaceIfIdle(o.ctx)
	}
}

// loops makes the loop run f, and waits.
func (o *owner) loops(f func()) {
	done := make(chan struct{})
	o.do <- func() { f(); close(done) }
	<-done
	synctest.Wait()
}

// seen is the Notify function of [upstream.Options]. It does not record the most frequent events.
func (o *owner) seen(_ context.Context, e upstream.Event) {
	word := strings.TrimPrefix(fmt.Sprintf("%T", e), "upstream.")
	is := func(yes bool, what string) {
		if yes {
			word += " " + what
		}
	}
	switch e := e.(type) {
	case upstream.Message, upstream.ConfigChanged, upstream.DialOutcome, upstream.ConnectionEnd:
		return
	case upstream.Connected:
		is(e.First, "first")
		is(e.Fresh, "fresh")
		is(e.NewModel, "another model")
		is(e.Cleared, "cleared")
	case upstream.Replayed:
		word += fmt.Sprintf(" %v", e.Speech)
	case upstream.ConfigResult:
		is(e.Err != nil, "refused")
	case upstream.WaitNotice:
		is(e.Long, "long")
		is(e.Unsure, "unsure")
	case upstream.ModelStalled:
		word = string(e.Remedy)
	case upstream.AnswerAbandoned:
		is(e.GaveUp, "gave up")
		is(e.Aside, "aside")
	case upstream.ConversationFailed:
		is(e.WasConnected, "used")
	}
	o.log = append(o.log, word)
}

// sees compares the events since its last call with the wanted ones.
func (o *owner) sees(want string) {
	o.Helper()
	synctest.Wait()
	o.loops(func() {
		if got := strings.Join(o.log, ", "); got != want {
			o.Errorf("got\n  %s\nwant\n  %s", got, want)
		}
		o.log = nil
	})
}

// timed runs f, and returns the events of these kinds within a time, each with the seconds since the start of f.
func (o *owner) timed(within time.Duration, f func(), kinds ...string) string {
	o.loops(func() { o.log = nil; f() })
	var got []string
	begun := time.Now()
	for time.Since(begun) <= within {
		synctest.Wait() // waits for everything that is due at this moment
		o.loops(func() {
			for _, w := range o.log {
				if len(kinds) == 0 || slices.Contains(kinds, strings.Fields(w)[0]) {
					got = append(got, fmt.Sprintf("%v %s", time.Since(begun).Round(50*time.Millisecond).Seconds(), w))
				}
			}
			o.log = nil
		})
		select {
		case l := <-o.gemini.Conns:
			l.SendSetupComplete().SendHandle("h")
		case <-time.After(50 * time.Millisecond):
		}
	}
	return strings.Join(got, ", ")
}

// took checks the time that has passed since a moment, which is given as a time since begun.
func (o *owner) took(since, want time.Duration) {
	o.Helper()
	if got := time.Since(o.begun) - since; (got - want).Abs() > 20*time.Millisecond {
		o.Errorf("it took %v, want %v", got, want)
	}
}

// A connection that Gemini is about to close is replaced at an idle moment, or shortly before the deadline.
func TestReplacement(t *testing.T) {
	goAwayIn := func(left string) func(o *owner, l *bridgetest.Conn) {
		return func(_ *owner, l *bridgetest.Conn) { l.Send(`{"goAway":{"timeLeft":"%s"}}`, left) }
	}
	goAway := goAwayIn("50s")
	age := func(*owner, *bridgetest.Conn) { time.Sleep(9*time.Minute + 15*time.Second) }
	for name, test := range map[string]struct {
		why   func(o *owner, l *bridgetest.Conn)
		busy  bool
		after time.Duration
	}{
		"goAway in silence":         {goAway, false, 0},
		"goAway in an answer":       {goAway, true, 45 * time.Second},
		"goAway at the last moment": {goAwayIn("2s"), true, 0},
		"goAway in 3 min, silence":  {goAwayIn("180s"), false, 90 * time.Second},
		"goAway in 3 min, answer":   {goAwayIn("180s"), true, 175 * time.Second},
		"goAway in years, silence":  {goAwayIn("9999999999999s"), false, 9*time.Minute + 15*time.Second},
		"goAway in years, answer":   {goAwayIn("9999999999999s"), true, 9*time.Minute + 45*time.Second},
		"goAway, first in years": {func(o *owner, l *bridgetest.Conn) {
			goAwayIn("9999999999999s")(o, l)
			goAway(o, l)
		}, true, 45 * time.Second},
		"age in silence":   {age, false, 9*time.Minute + 15*time.Second},
		"age in an answer": {age, true, 9*time.Minute + 45*time.Second},
		"update in an answer": {func(o *owner, _ *bridgetest.Conn) {
			o.loops(func() {
				o.keeper.ChangeConfig(o.ctx, upstream.ConfigChange{Config: o.config(`{"generationConfig":{"temperature":0.5}}`)})
			})
		}, true, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			started(t, `{}`, func(o *owner, l *bridgetest.Conn) {
				begin := time.Since(o.begun)
				o.loops(func() { o.busy = test.busy })
				test.why(o, l)
				time.Sleep(test.after - time.Since(o.begun) + begin)
				m := o.gemini.NextConn()
				o.took(begin, test.after)
				if m.Setup.SessionResumption.Handle != "h" {
					t.Errorf("dialled with handle %q", m.Setup.SessionResumption.Handle)
				}
				if _, closed := l.ClosedAt(); !closed {
					t.Error("both connections are open")
				}
				m.SendSetupComplete()
				want := "Disconnected, WaitOver, Connected, ResendPending"
				if strings.HasPrefix(name, "update") {
					want += ", ConfigResult"
				}
				if test.busy {
					o.loops(func() { o.busy = false })
				}
				o.sees(want)
				time.Sleep(9 * time.Minute) // the deadline applied to the old connection
				o.gemini.AssertNoDial()
			})
		})
	}
}

// HandleChanged reports only handles that cover more than the previous one. The newest handle is used.
func TestHandlesThatKnowNoMore(t *testing.T) {
	started(t, `{"model":"gemini-3.1-flash-live-preview"}`, func(o *owner, l *bridgetest.Conn) {
		for i := range 20 {
			if i == 10 {
				o.loops(func() { o.keeper.RecordEvent() })
			}
			l.SendHandle(fmt.Sprint("h", i))
			time.Sleep(500 * time.Millisecond)
		}
		o.sees("HandleChanged")
		l.DropConnection()
		o.gemini.NextConn().AssertSetup("", "h19")
	})
}

// An idle connection is kept for a while until a handle covers the last turn.
func TestReplacementWaitsForTheHandle(t *testing.T) {
	for _, comes := range []bool{true, false} {
		started(t, `{}`, func(o *owner, l *bridgetest.Conn) {
			o.loops(func() { o.keeper.RecordEvent() })
			begin := time.Since(o.begun)
			l.Send(`{"goAway":{"timeLeft":"50s"}}`)
			time.Sleep(time.Second)
			o.gemini.AssertNoDial()
			if comes {
				l.SendHandle("h2")
				o.gemini.NextConn().AssertSetup("", "h2")
				o.took(begin, time.Second)
				return
			}
			o.gemini.NextConn().AssertSetup("", "h")
			o.took(begin, 3*time.Second)
		})
	}
}

// The pauses before further dials are random and grow: 0.25, 0.5, 1 and then 2 s at most.
func TestBackoff(t *testing.T) {
	longest := make([]time.Duration, 6)
	for range 20 {
		started(t, `{}`, func(o *owner, l *bridgetest.Conn) {
			for i := range longest {
				begin := time.Now()
				l.DropConnection()
				l = o.gemini.NextConn().SendSetupComplete()
				synctest.Wait()
				longest[i] = max(longest[i], time.Since(begin))
			}
		})
	}
	for i, limit := range []time.Duration{0, 250, 500, 1000, 2000, 2000} {
		if limit *= time.Millisecond; longest[i] > limit || longest[i] < limit/2 {
			t.Errorf("of the pauses before dial %d the longest was %v, want up to %v", i+1, longest[i], limit)
		}
	}
}

// Without a network, a conversation ends after 30 s. A waiting person is informed after 1 s, and then repeatedly.
func TestNoNetwork(t *testing.T) {
	started(t, `{}`, func(o *owner, l *bridgetest.Conn) {
		o.gemini.SetFailure(0, errors.New("no route"))
		got := o.timed(32*time.Second, l.DropConnection, "WaitNotice", "ConversationFailed")
		if !strings.HasPrefix(got, "1 WaitNotice, 3 WaitNotice, 5 WaitNotice long, 7 WaitNotice long, ") ||
			!strings.HasSuffix(got, "29 WaitNotice long, 30 ConversationFailed used") {
			t.Errorf("got %s", got)
		}
	})
}

// An in-place change is answered after half a second, the time in which Gemini may reject it by closing the connection. Other
// changes need another connection. A rejected change leaves the current configuration in force.
func TestUpdate(t *testing.T) {
	inPlace, other := `{"systemInstruction":"short"}`, `{"systemInstruction":"long","generationConfig":{"temperature":0.5}}`
	for name, test := range map[string]struct {
		config string
		happen func(o *owner, l *bridgetest.Conn)
		seen   string
		want   string // the instruction in force
	}{
		"in place": {inPlace, func(_ *owner, l *bridgetest.Conn) {
			time.Sleep(time.Second)
			if got := l.InputLog(); !strings.HasPrefix(got, "update") || !strings.Contains(got, "short") {
				t.Errorf("came %q", got)
			}
		}, "ConfigResult", "short"},
		"in place, refused": {inPlace, func(o *owner, l *bridgetest.Conn) {
			l.CloseWith(1007, "Request contains an invalid argument.")
			o.gemini.NextConn().AssertSetup("", "h").SendSetupComplete()
		}, "ConfigResult refused, Disconnected, WaitOver, Connected, ResendPending", "long"},
		"in place, and the connection is lost": {inPlace, func(o *owner, l *bridgetest.Conn) {
			l.DropConnection()
			o.gemini.NextConn().SendSetupComplete()
			time.Sleep(time.Second)
		}, "Disconnected, WaitOver, Connected, ResendPending, ConfigResult", "short"},
		"in place, and refused by the next connection": {inPlace, func(o *owner, l *bridgetest.Conn) {
			l.DropConnection()
			o.gemini.NextConn().CloseWith(1007, "Request contains an invalid argument.")
			o.gemini.NextConn().AssertSetup("", "h").SendSetupComplete()
		}, "Disconnected, ConfigResult refused, WaitOver, Connected, ResendPending", "long"},
		"two in place": {inPlace, func(o *owner, l *bridgetest.Conn) {
			o.loops(func() {
				o.keeper.ChangeConfig(o.ctx, upstream.ConfigChange{Config: o.config(`{"systemInstruction":"shorter"}`)})
			})
			if got := l.InputLog(); !strings.Contains(got, `"short"`) || !strings.Contains(got, `"shorter"`) {
				t.Errorf("at once came %q", got)
			}
			time.Sleep(time.Second)
		}, "ConfigResult, ConfigResult", "shorter"},
		"two in place, the second refused": {inPlace, func(o *owner, l *bridgetest.Conn) {
			o.loops(func() {
				o.keeper.ChangeConfig(o.ctx, upstream.ConfigChange{Config: o.config(`{"systemInstruction":"shorter"}`)})
			})
			l.CloseWith(1007, "Request contains an invalid argument.")
			m := o.gemini.NextConn().AssertSetup("", "h").SendSetupComplete()
			if got := m.InputLog(); !strings.Contains(got, `"shorter"`) {
				t.Errorf("the next connection got %q", got)
			}
			m.CloseWith(1007, "Request contains an invalid argument.")
			o.gemini.NextConn().AssertSetup("", "h").SendSetupComplete()
		}, "Disconnected, WaitOver, Connected, ResendPending, ConfigResult, ConfigResult refused, " +
			"Disconnected, WaitOver, Connected, ResendPending", "short"},
		"another connection": {
			other, func(o *owner, _ *bridgetest.Conn) { o.gemini.NextConn().AssertSetup("0.5", "h").SendSetupComplete() },
			"Disconnected, WaitOver, Connected, ResendPending, ConfigResult", "long",
		},
		"another connection, refused": {other, func(o *owner, _ *bridgetest.Conn) {
			o.gemini.NextConn().AssertSetup("0.5", "h").CloseWith(1007, "Request contains an invalid argument.")
			o.gemini.NextConn().AssertSetup("", "h").SendSetupComplete()
		}, "Disconnected, ConfigResult refused, WaitOver, Connected, ResendPending", "long"},
		"a model that is unknown": {`{"model":"gemini-9","systemInstruction":"long"}`, func(o *owner, _ *bridgetest.Conn) {
			o.gemini.NextConn().AssertSetup("", "").CloseWith(1008, "Requested entity was not found.")
			o.gemini.NextConn().AssertSetup("", "h").SendSetupComplete()
		}, "Disconnected, ConfigResult refused, WaitOver, Connected, ResendPending", "long"},
		"another model": {`{"model":"gemini-3.1-flash-live-preview","systemInstruction":"long"}`, func(o *owner, _ *bridgetest.Conn) {
			o.gemini.NextConn().AssertSetup("", "").SendSetupComplete()
		}, "Disconnected, WaitOver, HandleChanged, Connected fresh another model, ResendPending, ConfigResult", "long"},
	} {
		t.Run(name, func(t *testing.T) {
			started(t, `{"systemInstruction":"long"}`, func(o *owner, l *bridgetest.Conn) {
				o.loops(func() { o.keeper.ChangeConfig(o.ctx, upstream.ConfigChange{Config: o.config(test.config)}) })
				test.happen(o, l)
				o.sees(test.seen)
				if got := string(o.keeper.Config().Effective()); !strings.Contains(got, test.want) {
					t.Errorf("in force is %s", got)
				}
				o.gemini.AssertNoDial()
			})
		})
	}
}

// The remedies for a silent model come in their order and at their times. The model is silent on every connection.
func TestLadder(t *testing.T) {
	for name, test := range map[string]struct {
		config string
		what   upstream.Trigger
		then   func(o *owner)
		want   string
	}{
		"speech that may be noise": {`{}`, upstream.ForSpeech, nil, "6 nudge, 9 resume, 15 fresh, 21 none"},
		"text":                     {`{}`, upstream.ForText, nil, "6 resume, 12 fresh, 18 none"},
		"a tool's answer":          {`{}`, upstream.ForTool, nil, "6 resume, 12 fresh, 18 none"},
		"marked by hand":           {`{"voxgate":{"vad":{"enabled":false}}}`, upstream.ForSpeech, nil, "6 resume, 12 fresh, 18 none"},
		"it thinks slowly":         {`{"model":"gemini-3.8-live-extended-thinking"}`, upstream.ForText, nil, "30 resume"},
		"a tool runs":              {`{}`, upstream.ForText, func(o *owner) { o.calling = true }, ""},
		"on hold":                  {`{}`, upstream.ForText, func(o *owner) { o.keeper.SetHold(o.ctx, true) }, ""},
		"on hold, and back": {`{}`, upstream.ForText, func(o *owner) {
			o.keeper.SetHold(o.ctx, true)
			o.keeper.ExpectReply(upstream.ForText)
			o.keeper.SetHold(o.ctx, false)
		}, "6 resume, 12 fresh, 18 none"},
		"not wanted":      {`{}`, upstream.ForText, func(o *owner) { o.keeper.DiscardReply(o.ctx) }, ""},
		"it has answered": {`{}`, upstream.ForText, func(o *owner) { o.keeper.OnModelActivity(o.ctx, true, false) }, ""},
		"it stops in its answer": {`{}`, upstream.ForText, func(o *owner) {
			o.keeper.OnAnswerPart(o.ctx)
			o.keeper.OnAnswer()
		}, "9 resume"},
	} {
		t.Run(name, func(t *testing.T) {
			started(t, test.config, func(o *owner, _ *bridgetest.Conn) {
				got := o.timed(32*time.Second, func() {
					o.keeper.ExpectReply(test.what)
					if test.then != nil {
						test.then(o)
					}
				}, "nudge", "resume", "fresh", "none")
				if got != test.want {
					t.Errorf("tried %s, want %s", got, test.want)
				}
			})
		})
	}
}

// After a question without an answer, not all remedies are tried for each question. The second and fourth in a row lead to a
// fresh session, the third does not. An answer resets the count. Noise leads only to a Nudge.
func TestSilenceInARow(t *testing.T) {
	started(t, `{}`, func(o *owner, _ *bridgetest.Conn) {
		ask := func(what upstream.Trigger) string {
			return o.timed(30*time.Second, func() { o.keeper.ExpectReply(what) }, "nudge", "resume", "fresh", "none")
		}
		for i, want := range []string{"6 resume, 12 fresh, 18 none", "6 fresh, 12 none", "6 none", "6 fresh, 12 none"} {
			if got := ask(upstream.ForText); got != want {
				t.Errorf("question %d: tried %s, want %s", i+1, got, want)
			}
		}
		if got := ask(upstream.ForSpeech); got != "6 nudge, 9 none" {
			t.Errorf("noise: tried %s", got)
		}
		o.loops(func() {
			o.keeper.ExpectReply(upstream.ForText)
			o.keeper.OnAnswer()
			o.keeper.OnModelActivity(o.ctx, true, false)
		})
		if got := ask(upstream.ForText); got != "6 resume, 12 fresh, 18 none" {
			t.Errorf("after an answer: tried %s", got)
		}
	})
}

// Noise before or between unanswered questions does not affect their count.
func TestNoiseAmongQuestions(t *testing.T) {
	started(t, `{}`, func(o *owner, _ *bridgetest.Conn) {
		for i, step := range []struct {
			what upstream.Trigger
			want string
		}{
			{upstream.ForSpeech, "6 nudge, 9 resume, 15 fresh, 21 none"},
			{upstream.ForSpeech, "6 nudge, 9 none"},
			{upstream.ForText, "6 resume, 12 fresh, 18 none"},
			{upstream.ForSpeech, "6 nudge, 9 none"},
			{upstream.ForText, "6 fresh, 12 none"},
			{upstream.ForSpeech, "6 nudge, 9 none"},
			{upstream.ForText, "6 none"},
		} {
			got := o.timed(30*time.Second, func() { o.keeper.ExpectReply(step.what) }, "nudge", "resume", "fresh", "none")
			if got != step.want {
				t.Errorf("step %d: tried %s, want %s", i+1, got, step.want)
			}
		}
	})
}
