package bridge_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/bridge/bridgetest"
)

func TestLinkLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		l.Handle("old")
		l.Handle("new")
		l.Send(`{"sessionResumptionUpdate":{"resumable":false}}`) // generating
		l.Say(7, 2*time.Second)
		time.Sleep(500 * time.Millisecond)
		l.Cut()
		m := r.up.Next().DialledFor("", "new").Accept()
		time.Sleep(3 * time.Second)
		// What came of the answer is played out; nothing more of it will come.
		c.tells("SetupComplete Speaking 7*100 Interrupted")
		c.works(m)
		m.Content(`"modelTurn":{"parts":[{"text":"thoughts"}]}`)
		m.Cut()
		c.works(r.up.Next().Accept())
		if lost := r.log.find("link lost"); len(lost) != 2 || lost[0]["level"] != "WARN" {
			t.Errorf("logged %v", lost)
		}
	})
}

// A turn that was cut off is not completed by the loss of the link.
func TestLinkLostAfterInterruption(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		l.Handle("h")
		l.Say(7, 10*time.Second)
		time.Sleep(990 * time.Millisecond)
		c.typed("stop")
		l.Cut()
		r.up.Next().Accept()
		c.tells("SetupComplete Speaking 7*50 Interrupted")
	})
}

func TestLinkLostWithoutHandle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		l.Cut()
		m := r.up.Next().DialledFor("", "").Accept()
		c.tells("SetupComplete Failure")
		c.warned("may be lost")
		c.works(m)
	})
}

// A session that dies whenever it is resumed is first told less, and then given up.
func TestLinksThatDieAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		begin := r.since()
		fresh := 0
		for {
			l.Handle("h")
			time.Sleep(4 * time.Second) // longer than a passing outage, shorter than any calm
			l.End(1011, "Internal error encountered.")
			select {
			case l = <-r.up.Links:
				l.Accept()
				if l.Setup.SessionResumption.Handle == "" {
					fresh++
				}
				continue
			case <-c.over:
			}
			break
		}
		if e := c.fails(bridge.CodeWebSocketError); e.Status != 1011 {
			t.Errorf("status %d", e.Status)
		}
		if took := r.since() - begin; took < 30*time.Second || took > 60*time.Second || fresh < 2 {
			t.Errorf("given up after %v, %d of the links were fresh", took, fresh)
		}
		r.up.Idle()
	})
}

func TestStrikesAreForgiven(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		for range 10 {
			l.Handle("h")
			time.Sleep(10 * time.Second)
			l.Cut()
			l = r.up.Next().Accept()
			synctest.Wait()
		}
		c.works(l)
	})
}

// A link that lived well and was replaced as planned forgives as well.
func TestStrikesAreForgivenByAPlannedRedial(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		l.Handle("h")
		for range 2 {
			l.Cut()
			l = r.up.Next().Accept()
			synctest.Wait()
		}
		time.Sleep(10 * time.Second)
		l.Send(`{"goAway":{"timeLeft":"50s"}}`)
		for range 3 {
			l = r.up.Next().Accept()
			synctest.Wait()
			l.Cut()
		}
		c.works(r.up.Next().Accept())
	})
}

func TestLinkClosed(t *testing.T) {
	for name, test := range map[string]struct {
		code   int
		reason string
		want   bridge.Code // "": goes on
	}{
		"invalid argument": {1007, "Request contains an invalid argument.", bridge.CodeRefused},
		"not implemented":  {1008, "Operation is not implemented, or supported, or enabled.", bridge.CodeRefused},
		"aborted":          {1008, "The operation was aborted", ""},
		"internal":         {1011, "Internal error encountered.", ""},
		"normal":           {1000, "", ""},
		"quota":            {1011, "RESOURCE_EXHAUSTED", bridge.CodeBusy},
		"quota in words":   {1011, "You exceeded your current Quota", bridge.CodeBusy},
		"stale, 1008":      {1008, "BidiGenerateContent session not found", ""},
		"stale, 1007":      {1007, "Invalid session handle", ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				c, l := r.plain()
				l.Handle("h")
				l.End(test.code, test.reason)
				if test.want != "" {
					if e := c.fails(test.want); e.Status != test.code {
						t.Errorf("status %d", e.Status)
					}
					r.up.Idle()
					return
				}
				c.works(r.up.Next().DialledFor("", "h").Accept())
			})
		})
	}
}

func TestErrorFrames(t *testing.T) {
	for frame, want := range map[string]bridge.Code{
		`{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"no"}}`: bridge.CodeRefused,
		`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}`:              bridge.CodeBusy,
		`{"error":{"code":503,"status":"UNAVAILABLE"}}`:                     "",
	} {
		bubble(t, func(t *testing.T) {
			r := newRig(t)
			c, l := r.plain()
			l.Handle("h")
			l.Send("%s", frame)
			if want != "" {
				c.fails(want)
				return
			}
			c.works(r.up.Next().DialledFor("", "h").Accept())
		})
	}
}

func TestFirstDialRefused(t *testing.T) {
	for status, code := range map[int]bridge.Code{
		400: bridge.CodeRefused, 401: bridge.CodeAPIKeyMissing, 403: bridge.CodeAPIKeyMissing,
		429: bridge.CodeBusy, 503: bridge.CodeConnectionFailed,
	} {
		bubble(t, func(t *testing.T) {
			r := newRig(t)
			r.up.Set(status, nil)
			c := r.join(bridge.Open{Resumable: true})
			if e := c.fails(code); e.Status != status {
				t.Errorf("%d became %d", status, e.Status)
			}
			c.tells("")
		})
	}
}

func TestFirstDialClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c := r.join(bridge.Open{})
		r.up.Next().End(1008, "models/x is not found for API version v1beta, or is not supported for bidiGenerateContent.")
		c.fails(bridge.CodeRefused)
	})
}

func TestDialThatNeverAnswers(t *testing.T) {
	for name, dial := range map[string]func(*rig) func(context.Context, string, string) (net.Conn, error){
		"connects": func(*rig) func(context.Context, string, string) (net.Conn, error) {
			return func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
		},
		"sets up": func(r *rig) func(context.Context, string, string) (net.Conn, error) { return r.up.Dial },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := &rig{t: t, up: bridgetest.NewUpstream(t)}
				r.serve(dial(r))
				c := r.join(bridge.Open{})
				c.fails(bridge.CodeConnectionNotEstablished)
				if took := r.since(); took < 30*time.Second || took > 31*time.Second { // three dials
					t.Errorf("after %v", took)
				}
			})
		})
	}
}

func TestGoAwayDuringATurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		l.Handle("h")
		l.Say(7, 5*time.Second)
		l.Send(`{"goAway":{"timeLeft":"50s"}}`)
		time.Sleep(2 * time.Second)
		l.Content(`"generationComplete":true`)
		time.Sleep(2 * time.Second)
		r.up.Idle()
		l.Content(`"turnComplete":true`)
		r.up.Idle() // the handle does not know of the turn yet
		l.Handle("h2")
		m := r.up.Next().DialledFor("", "h2").Accept()
		time.Sleep(3 * time.Second)
		c.tells("SetupComplete Speaking 7*250 TurnComplete")
		c.works(m)
	})
}

// An answer in text is a turn, too: it must not be cut in half.
func TestGoAwayDuringAnAnswerInText(t *testing.T) {
	for _, begin := range []string{`"modelTurn":{"parts":[{"text":"half of "}]}`, bridgetest.Voice(7, time.Second)} {
		bubble(t, func(t *testing.T) {
			r := newRig(t)
			c, l := r.connect(bridge.Open{Config: []byte(`{"generationConfig":{"responseModalities":["TEXT"]}}`)})
			l.Handle("h")
			l.Content("%s", begin)
			l.Send(`{"goAway":{"timeLeft":"50s"}}`)
			time.Sleep(2 * time.Second)
			r.up.Idle()
			l.Content(`"turnComplete":true`)
			r.up.Next().Accept()
			c.tells("SetupComplete TurnComplete")
		})
	}
}

func TestGoAwayDuringACall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, c, l := weather(t)
		l.Calls("a weather")
		l.Handle("h")
		l.Send(`{"goAway":{"timeLeft":"50s"}}`)
		r.up.Idle()
		c.respond("a", "", `{"x":1}`)
		l.Answered(`a weather {"x":1}`)
		l.Answer(7, time.Second)
		r.up.Next().Accept()
		time.Sleep(2 * time.Second)
		c.tells("SetupComplete ToolCall(a) Speaking 7*50 TurnComplete")
	})
}

// A handle that is older than a call leads to a model that never asked.
func TestCallAcrossReconnectWithOlderHandle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, c, l := weather(t)
		l.Handle("h")
		l.Calls("a weather", "b weather")
		c.respond("b", "", `{"x":2}`)
		l.Cut()
		m := r.up.Next().DialledFor("", "h").Accept()
		c.tells("SetupComplete ToolCall(a b) ToolCallCancellation(a)")
		c.late("a", "")
		time.Sleep(time.Minute)
		m.Answered()
		m.Calls("a weather")
		c.respond("a", "", `{"x":3}`)
		m.Answered(`a weather {"x":3}`)
	})
}

func TestCallAcrossReconnectWithNewerHandle(t *testing.T) {
	for name, answer := range map[string]func(c *caller){
		"during the gap": func(c *caller) { c.respond("a", "", `{"x":1}`) },
		"afterwards":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r, c, l := weather(t)
				l.Calls("a weather", "b weather")
				l.Handle("h")
				l.Cut()
				m := r.up.Next().DialledFor("", "h")
				if answer != nil {
					answer(c)
				}
				m.Accept()
				if answer == nil {
					m.Answered()
					c.respond("a", "", `{"x":1}`)
				}
				m.Answered(`a weather {"x":1}`)
				time.Sleep(time.Minute)
				m.Answered(`a weather {"x":1}`, `b weather {"error":"the tool did not answer in time (30s)"}`)
				c.tells("SetupComplete ToolCall(a b) ToolCallCancellation(b) Failure")
				c.late("a", "")
			})
		})
	}
}

// The answer was given, but the link died before it was sent; the handle in use knows nothing of the call.
func TestUnsentAnswerOfAnOlderHandle(t *testing.T) {
	for _, newer := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			r, c, l := weather(t)
			l.Handle("h")
			l.Calls("a weather", "b rm")
			l.Answered(`b rm {"error":"there is no tool \"rm\" here"}`)
			if newer {
				l.Handle("h2")
			}
			l.Halt()
			c.do(bridge.Text{Text: "taken"})
			c.do(bridge.Text{Text: "stuck"})
			c.respond("a", "", `{"x":1}`)
			m := r.up.Next().Accept()
			l.Resume()
			if newer {
				m.Answered(`a weather {"x":1}`, `b rm {"error":"there is no tool \"rm\" here"}`) // it may not have had that
			} else {
				m.Answered()
			}
			time.Sleep(10 * time.Second)
			// The model has answered neither of the texts.
			if got := m.Said(); newer && got != "tool, tool, text taken, text stuck" || !newer && got != "text taken, text stuck" {
				t.Errorf("%q came", got)
			}
		})
	}
}

// A fresh session has asked for nothing, whatever the old handles knew.
func TestCallAcrossAFreshSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, c, l := weather(t)
		l.Calls("a weather", "b weather")
		l.Handle("h")
		l.Cut()
		m := r.up.Next().DialledFor("", "h")
		c.respond("b", "", `{"x":2}`)
		m.End(1008, "BidiGenerateContent session not found")
		n := r.up.Next().DialledFor("", "").Accept()
		c.tells("SetupComplete ToolCall(a b) ToolCallCancellation(a) Failure")
		c.late("a", "")
		time.Sleep(time.Minute)
		n.Answered()
	})
}

// outage has every dial's set-up refused until a time has passed or one comes without a handle, and returns the link after
// that and how many had one.
func (r *rig) outage(d time.Duration) (l *bridgetest.Link, resumes int) {
	r.t.Helper()
	begin := r.since()
	for {
		l = r.up.Next()
		if l.Setup.SessionResumption.Handle == "" || r.since()-begin >= d {
			return l, resumes
		}
		resumes++
		l.End(1011, "Internal error encountered.")
	}
}

// A session that Gemini refuses to resume three times is begun anew, but not before a passing trouble has passed.
func TestThreeRefusals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		l.Handle("h")
		time.Sleep(11 * time.Second)
		begin := r.since()
		l.End(1011, "Internal error encountered.")
		m, resumes := r.outage(time.Minute)
		if took := r.since() - begin; resumes < 3 || took < 3*time.Second || took > 8*time.Second {
			t.Errorf("begun anew after %v and %d refusals", took, resumes)
		}
		m.Accept()
		time.Sleep(3 * time.Second)
		c.works(m)
	})
}

// When the network has cut a link, the server may hold it for a while, and refuse the handle: the handle is kept.
func TestHandleIsKeptWhileTheServerHoldsTheOldLink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		l.Handle("h")
		time.Sleep(11 * time.Second)
		l.Cut()
		m, _ := r.outage(10 * time.Second)
		m.DialledFor("", "h").Accept()
		time.Sleep(4 * time.Second)
		c.works(m)
	})
}

// A question that kills each session that hears it is dropped, and the client is told.
func TestPoison(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		l.Handle("h")
		time.Sleep(11 * time.Second)
		c.typed("poison")
		for deaths := 0; ; deaths++ {
			time.Sleep(time.Second)
			if !strings.Contains(l.Said(), "poison") {
				break
			}
			if deaths > 12 {
				t.Fatal("it is sent for ever")
			}
			l.End(1011, "Internal error encountered.")
			l = r.up.Next().Accept()
		}
		c.warned("was dropped")
		time.Sleep(3 * time.Second)
		c.works(l)
	})
}

// Of a very long sentence the last ten seconds can be said again, and the client learns that it is not all.
func TestVeryLongSentence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.plain()
		l.Handle("h")
		c.pace(loud(14 * time.Second))
		l.Cut()
		m := r.up.Next().Accept()
		time.Sleep(6 * time.Second)
		if d := voiced(m.PCM()); d < 9500*time.Millisecond || d > 10*time.Second {
			t.Errorf("%v were said again", d)
		}
		if e := last[bridge.Failure](c).Err; e.Code != bridge.CodeAudioStream || !strings.Contains(e.Message, "first 4 s") {
			t.Errorf("%+v", e)
		}
	})
}

// What a fresh session is told is bounded: the newest twenty turns, 8 KB.
func TestSeedIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, size := range []int{10, 1000} {
			r := newRig(t)
			_, l := r.plain()
			for i := range 40 {
				l.Content(`"inputTranscription":{"text":"q%d %s"},"modelTurn":{"parts":[{"text":"a%d"}]},"turnComplete":true`, i, strings.Repeat("x", size), i)
			}
			time.Sleep(time.Second)
			l.Cut()
			m := r.up.Next().Accept()
			got := m.Said()
			if turns := strings.Count(got, "+") + 1; turns > 20 || len(got) > 9<<10 || !strings.Contains(got, "a39") || size == 10 && turns < 20 || size == 1000 && turns < 12 {
				t.Errorf("%d turns, %d bytes", turns, len(got))
			}
		}
	})
}
