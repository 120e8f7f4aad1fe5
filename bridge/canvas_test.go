package bridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
	"voxgate/tools"
)

// schema returns the arguments of a canvas tool.
func schema(text string) string { return fmt.Sprintf(`{"schema":%q}`, text) }

const (
	note     = `{"type":"canvas","elements":[{"type":"text","value":"Hi"}]}`
	question = `{"type":"canvas","elements":[{"type":"input","id":"name"},{"type":"button","label":"OK","action":"submit"}]}`
)

// canvasOn requests a resumable conversation with a model, for a client that can show a canvas.
func canvasOn(model string) bridge.SessionRequest {
	config := fmt.Appendf(nil, `{"model":%q,"voxgate":{"canvas":true}}`, model)
	return bridge.SessionRequest{Resumable: true, Origin: bridge.Origin{HasScreen: true}, Config: config}
}

func TestCanvasIsAcknowledged(t *testing.T) {
	converse(t, canvasOn("gemini-3.8-live"), func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		if !strings.Contains(l.Raw, `"create_canvas_tool"`) || !strings.Contains(l.Raw, `"append_to_canvas_tool"`) ||
			!strings.Contains(l.Raw, `"show_canvas_tool"`) {
			t.Fatalf("not declared: %s", l.Raw)
		}
		l.CallTool(
			"a",
			"create_canvas_tool",
			schema(`{"type":"canvas","elements":[{"type":"text","value":"<b onclick=x>Hi</b><script>1</script>"}]}`),
		)
		l.AssertToolResponses(`a create_canvas_tool {"shown":true}`)
		args := string(lastEvent[bridge.ToolCall](c).Calls[0].Args)
		if !strings.Contains(args, `<b>Hi</b>`) && !strings.Contains(args, `\u003cb\u003eHi\u003c/b\u003e`) ||
			strings.Contains(args, "onclick") ||
			strings.Contains(args, "script") {
			t.Errorf("the client got %s", args)
		}
		c.sendToolResponse("a", "create_canvas_tool", `{"dismissed":true}`) // not needed, and not an error
		c.checkAnswerRejected("a", "")
		time.Sleep(5 * time.Second)
		l.AssertToolResponses(`a create_canvas_tool {"shown":true}`)
		c.checkLog("SetupComplete ToolCall(a)")
	})
}

func TestCanvasThatIsWrong(t *testing.T) {
	converse(t, canvasOn("gemini-3.8-live"), func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.CallTool("a", "append_to_canvas_tool", schema(note))
		l.CallTool("b", "create_canvas_tool",
			schema(`{"type":"canvas","elements":[{"type":"button","label":"X","action":"javascript:alert(1)"}]}`))
		l.CallTool("c", "create_canvas_tool", `{}`)
		got := l.ToolResponses()
		if len(got) != 3 || !strings.Contains(got[0], "no canvas to append to") || !strings.Contains(got[1], "elements[0].action") ||
			!strings.Contains(got[2], "missing property 'schema'") {
			t.Errorf("%q", got)
		}
		if calls, _ := findEvents[bridge.ToolCall](c); len(calls) > 0 {
			t.Errorf("the client was asked to show %v", calls)
		}
	})
}

// A model that would wait gets an answer at once. The person's input follows as text.
func TestCanvasOnAModelThatWaits(t *testing.T) {
	converse(t, canvasOn("gemini-3.1-flash-live-preview"), func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.CallTool("a", "show_canvas_tool", schema(question))
		l.CallTool("b", "append_to_canvas_tool", schema(`{"elements":[{"type":"button","label":"More","action":"more"}]}`))
		want := `{"shown":true,"input":"what the person puts in follows as text"}`
		l.AssertToolResponses(`a show_canvas_tool `+want, `b append_to_canvas_tool `+want)
		c.sendAudio(countingPCM(0, 3200))
		if len(l.ReceivedPCM()) == 0 {
			t.Error("the microphone is deaf")
		}
		c.sendToolResponse("a", "", `{"continued":true}`)
		c.sendToolResponse("b", "", `{"name":"Ada","action":"more"}`)
		if got := l.InputLog(); got != `tool, tool, text {"name":"Ada","action":"more"}` {
			t.Errorf("%s came", got)
		}
	})
}

// An answer without an ID belongs to the waiting canvas, acknowledged or not, and is accepted once.
func TestCanvasAnsweredByName(t *testing.T) {
	converse(t, canvasOn("gemini-3.1-flash-live-preview"), func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.CallTool("a", "show_canvas_tool", schema(question))
		c.sendToolResponse("", "show_canvas_tool", `{"name":"Ada","action":"submit"}`)
		c.checkAnswerRejected("", "show_canvas_tool")
		l.CallTool("b", "show_canvas_tool", schema(question))
		c.sendToolResponse("", "show_canvas_tool", `{"name":"Bob","action":"submit"}`)
		if got := l.InputLog(); got != `tool, text {"name":"Ada","action":"submit"}, tool, text {"name":"Bob","action":"submit"}` {
			t.Errorf("%s came", got)
		}
	})
	converse(t, canvasOn("gemini-3.8-live"), func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.CallTool("a", "show_canvas_tool", schema(note)) // nobody waits for what is answered to that
		l.CallTool("b", "show_canvas_tool", schema(question))
		c.sendToolResponse("", "show_canvas_tool", `{"name":"Ada","action":"submit"}`)
		c.sendToolResponse("", "show_canvas_tool", `{"shown":true}`)
		c.checkAnswerRejected("", "show_canvas_tool")
		l.AssertToolResponses(`a show_canvas_tool {"shown":true}`, `b show_canvas_tool {"name":"Ada","action":"submit"}`)
	})
}

// A person's input has the size limit of a tool's answer, also for a model that waits.
func TestInputOfACanvasIsBounded(t *testing.T) {
	converse(t, canvasOn("gemini-3.1-flash-live-preview"), func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.CallTool("a", "show_canvas_tool", schema(question))
		err := c.session.Do(
			bridge.ToolResponse{ID: "a", Response: fmt.Appendf(nil, `{"name":%q,"action":"submit"}`, strings.Repeat("x", tools.MaxResult))},
		)
		if err == nil || bridge.AsError(err).Code != bridge.CodeBadMessage || !strings.Contains(err.Error(), "65536") {
			t.Errorf("%v", err)
		}
		c.sendToolResponse("a", "", `{"name":"Ada","action":"submit"}`) // the person may shorten it
		if got := l.InputLog(); got != `tool, text {"name":"Ada","action":"submit"}` {
			t.Errorf("%d bytes came: %.80s", len(got), got)
		}
	})
}

func TestNoCanvasOnATelephone(t *testing.T) {
	converse(
		t,
		bridge.SessionRequest{Config: []byte(`{"voxgate":{"canvas":true}}`), Origin: bridge.Origin{Protocol: "sip"}},
		func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
			if strings.Contains(l.Raw, "canvas_tool") {
				t.Error("declared")
			}
			c.checkWarning("nothing can be shown here")
		},
	)
}

// asking returns options of a gateway with a tool that runs f.
func asking(f tools.Func) func(*bridge.Options) {
	return func(o *bridge.Options) {
		o.Tools = func() []tools.Tool {
			return []tools.Tool{{Declaration: tools.Declaration{Name: "pay", Title: "Paying…", Timeout: 20 * time.Second}, Run: f}}
		}
	}
}

func TestToolsMayAsk(t *testing.T) {
	confirm := asking(func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		yes, err := tools.Confirm(ctx, "Pay 5 €?")
		return fmt.Appendf(nil, `{"paid":%v}`, yes), err
	})
	for name, fate := range map[string]struct {
		do         func(c *caller, l *bridgetest.Conn, id string)
		want, tell string
	}{
		"yes": {func(c *caller, _ *bridgetest.Conn, id string) { c.sendToolResponse(id, "", `{"action":"submit"}`) }, `{"paid":true}`, ``},
		"no":  {func(c *caller, _ *bridgetest.Conn, id string) { c.sendToolResponse(id, "", `{"dismissed":true}`) }, `{"paid":false}`, ``},
		"after minutes": {func(c *caller, _ *bridgetest.Conn, id string) {
			time.Sleep(4 * time.Minute) // does not count against the time limit of the tool
			c.sendToolResponse(id, "", `{"action":"submit"}`)
		}, `{"paid":true}`, ``},
		"never": {
			func(_ *caller, _ *bridgetest.Conn, _ string) { time.Sleep(5 * time.Minute) }, `{"paid":false}`,
			` ToolCallCancellation(ask)`,
		},
		"cancelled": {
			func(_ *caller, l *bridgetest.Conn, _ string) { l.Send(`{"toolCallCancellation":{"ids":["a"]}}`) }, ``,
			` ToolStatus ToolCallCancellation(ask)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, canvasOn("gemini-3.8-live"), func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
				l.CallTool("a", "pay", `{}`)
				asked := lastEvent[bridge.ToolCall](c).Calls[0]
				if !strings.HasPrefix(asked.ID, "ask-") || asked.Name != "show_canvas_tool" || asked.Title != "Paying…" ||
					!strings.Contains(string(asked.Args), "Pay 5") {
					t.Errorf("asked %+v", asked)
				}
				fate.do(c, l, asked.ID)
				if fate.want == "" {
					l.AssertToolResponses()
					c.checkLog("SetupComplete ToolStatus ToolCall(ask)" + fate.tell)
					return
				}
				l.AssertToolResponses("a pay " + fate.want)
				c.checkLog("SetupComplete ToolStatus ToolCall(ask)" + fate.tell + " ToolStatus")
				c.checkAnswerRejected(asked.ID, "")
			}, confirm)
		})
	}
}

// A model that would wait is not blocked by a person: it learns that the result follows, and hears speech meanwhile.
func TestToolsMayAskOnAModelThatWaits(t *testing.T) {
	converse(t, canvasOn("gemini-3.1-flash-live-preview"), func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.CallTool("a", "pay", `{"to":"Ada"}`)
		const first = `a pay {"status":"not done yet","result":"follows as text; do not call again"}`
		l.AssertToolResponses(first)
		c.sendAudio(countingPCM(0, 3200))
		if len(l.ReceivedPCM()) == 0 {
			t.Error("the microphone is deaf")
		}
		time.Sleep(4 * time.Minute)
		c.sendToolResponse(lastEvent[bridge.ToolCall](c).Calls[0].ID, "", `{"action":"submit"}`)
		l.AssertToolResponses(first)
		if got := l.InputLog(); !strings.HasSuffix(got, `, text {"args":{"to":"Ada"},"result":{"paid":true},"tool":"pay"}`) {
			t.Errorf("Gemini got %s", got)
		}
		c.checkLog("SetupComplete ToolStatus ToolCall(ask) ToolStatus")
	}, asking(func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		yes, err := tools.Confirm(ctx, "Pay 5 €?")
		return fmt.Appendf(nil, `{"paid":%v}`, yes), err
	}))
}

// A tool may have a longer time limit than a model can be blocked, and can use all of it.
func TestLongToolsOnAModelThatWaits(t *testing.T) {
	const config = `{"model":"gemini-3.1-flash-live-preview","tools":[{"functionDeclarations":[` +
		`{"name":"f","timeout":"1m"},{"name":"g","timeout":"5s"}]}]}`
	const first = `a f {"status":"not done yet","result":"follows as text; do not call again"}`
	for name, fate := range map[string]struct {
		do   func(c *caller, l *bridgetest.Conn)
		want string
	}{
		"done": {
			func(c *caller, _ *bridgetest.Conn) { c.sendToolResponse("a", "", `{"x":1}`) },
			`tool, text {"args":{},"result":{"x":1},"tool":"f"}`,
		},
		"too late": {
			func(*caller, *bridgetest.Conn) { time.Sleep(time.Minute) },
			`tool, text {"args":{},"result":{"error":"the tool did not answer in time (1m0s)"},"tool":"f"}`,
		},
		"cancelled": {func(_ *caller, l *bridgetest.Conn) { l.Send(`{"toolCallCancellation":{"ids":["a"]}}`) }, `tool`},
		"hung up":   {func(c *caller, _ *bridgetest.Conn) { c.doCommand(bridge.Goodbye{}); c.awaitEnd(bridge.ErrGoodbye) }, `tool`},
	} {
		t.Run(name, func(t *testing.T) {
			converse(t, bridge.SessionRequest{Config: []byte(config)}, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
				l.CallTool("a", "f", `{}`)
				time.Sleep(10*time.Second - time.Millisecond)
				l.AssertToolResponses()
				time.Sleep(time.Millisecond)
				l.AssertToolResponses(first)
				fate.do(c, l)
				l.AssertToolResponses(first)
				if got := l.InputLog(); got != fate.want {
					t.Errorf("Gemini got %s", got)
				}
			})
		})
	}
	converse(t, bridge.SessionRequest{Config: []byte(config)}, func(t *testing.T, _ *harness, _ *caller, l *bridgetest.Conn) {
		l.CallTool("b", "g", `{}`)
		time.Sleep(5 * time.Second)
		l.AssertToolResponses(`b g {"error":"the tool did not answer in time (5s)"}`)
	})
}

func TestNobodyToAsk(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t, asking(func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
			_, err := tools.Confirm(ctx, "Really?")
			return nil, err
		}))
		_, l := r.connectCaller(bridge.SessionRequest{Origin: bridge.Origin{Protocol: "sip"}})
		l.CallTool("a", "pay", `{}`)
		l.AssertToolResponses(`a pay {"error":"no user with a screen can be asked"}`)
	})
}

func TestToolsKnowWhoCalls(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		var env tools.Env
		r := newHarness(t, asking(func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
			env = *tools.EnvOf(ctx)
			return nil, nil
		}))
		c, l := r.connectCaller(bridge.SessionRequest{Origin: bridge.Origin{
			Protocol: "sip", Identity: "+49301234",
			Grant: json.RawMessage(`{"tools":["pay"]}`),
		}})
		l.CallTool("a", "pay", `{}`)
		l.AssertToolResponses(`a pay {"output":"done"}`)
		if env.Call != "a" || env.Protocol != "sip" || env.Session != c.session.ID() || env.Caller != "+49301234" ||
			string(env.Grant) != `{"tools":["pay"]}` {
			t.Errorf("%+v", env)
		}
	})
}

// A tool may report its progress. A model that waits, or that would then not speak of the result, gets no such reports.
func TestToolProgress(t *testing.T) {
	for model, seen := range map[string]bool{
		"gemini-3.8-live": true, "gemini-3.1-flash-live-preview": false, "gemini-3.8-live-extended-thinking": false,
	} {
		runWithFakeClock(t, func(t *testing.T) {
			r := newHarness(t, asking(func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
				tools.ReportProgress(ctx, json.RawMessage(`{"percent":50}`))
				return json.RawMessage(`{"percent":100}`), nil
			}))
			config := fmt.Appendf(nil, `{"model":%q,"tools":[{"functionDeclarations":[{"name":"f","scheduling":"SILENT"}]}]}`, model)
			c, l := r.connectCaller(bridge.SessionRequest{Config: config})
			l.CallTool("a", "pay", `{}`)
			l.CallTool("b", "f", `{}`)
			for i, more := range []bool{true, true, false} {
				c.doCommand(bridge.ToolResponse{ID: "b", Response: fmt.Appendf(nil, `{"n":%d}`, i), WillContinue: more})
			}
			c.checkAnswerRejected("b", "")
			var got []string
			l.ToolResponses() // waits for them
			for _, in := range l.Inputs() {
				if in.Kind == "tool" {
					got = append(got, in.Raw)
				}
			}
			answer := func(id, name, response, rest string) string {
				return fmt.Sprintf(`{"toolResponse":{"functionResponses":[{"id":%q,"name":%q,"response":%s%s}]}}`, id, name, response, rest)
			}
			want := []string{answer("a", "pay", `{"percent":100}`, ``), answer("b", "f", `{"n":2}`, ``)}
			if seen {
				want = []string{
					answer("a", "pay", `{"percent":50}`, `,"willContinue":true`), answer("a", "pay", `{"percent":100}`, ``),
					answer(
						"b",
						"f",
						`{"n":0}`,
						`,"scheduling":"SILENT","willContinue":true`,
					), answer("b", "f", `{"n":1}`, `,"scheduling":"SILENT","willContinue":true`),
					answer("b", "f", `{"n":2}`, `,"scheduling":"SILENT"`),
				}
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("%s got\n%s\nwant\n%s", model, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// The arguments are checked before the tool sees them, and the model learns what was wrong.
func TestArgumentsAreChecked(t *testing.T) {
	converse(
		t,
		bridge.SessionRequest{
			Config: []byte(`{"tools":[{"functionDeclarations":[{"name":"f",` +
				`"parameters":{"type":"OBJECT","properties":{"n":{"type":"INTEGER"}},"required":["n"]}}]}]}`),
		},
		func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
			l.CallTool("a", "f", `{"n":"many"}`)
			l.AssertToolResponses(`a f {"error":"the arguments do not fit the function: args.n: got string, want integer"}`)
			c.checkLog("SetupComplete ErrorEvent")
			l.CallTool("b", "f", `{"n":9007199254740993}`)
			if got := string(lastEvent[bridge.ToolCall](c).Calls[0].Args); got != `{"n":9007199254740993}` {
				t.Errorf("the client got %s", got)
			}
		},
	)
}

func TestCallsAreRateLimited(t *testing.T) {
	converse(t, weather, func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		refused := 0
		for i := range 40 {
			id := fmt.Sprint(i)
			l.CallTool(id, "weather", fmt.Sprintf(`{"n":%d}`, i))
			if c.session.Do(bridge.ToolResponse{ID: id, Response: json.RawMessage(`{"x":1}`)}) != nil {
				refused++
			}
			synctest.Wait()
		}
		if got := l.ToolResponses(); len(got) != 40 || refused != 10 || !strings.Contains(got[39], "too many calls in a short time") {
			t.Errorf("%d refused, %d answers, the last %s", refused, len(got), got[len(got)-1])
		}
		time.Sleep(2 * time.Second)
		l.CallTool("later", "weather", `{}`)
		c.sendToolResponse("later", "", `{"x":1}`)
	})
}

// A tool's pictures are sent to the model before the tool's answer, or after it if the model waits for the answer. A canvas
// may contain a reference to a picture that a tool has returned.
func TestPicturesOfATool(t *testing.T) {
	const live, waits = "gemini-3.8-live", "gemini-3.1-flash-live-preview"
	const picture = "picture image/jpeg"
	show := func(c *caller, more bool) {
		c.doCommand(bridge.ToolResponse{
			ID: "a", Response: json.RawMessage(`{"photo":"photo:1"}`), WillContinue: more,
			Parts: json.RawMessage(`[{"inlineData":{"mimeType":"image/jpeg","data":"/9j/"}}]`),
		})
		time.Sleep(2 * time.Second)
	}
	progress := func(c *caller) {
		show(c, true)
		c.sendToolResponse("a", "", `{"photos":1}`)
		time.Sleep(2 * time.Second)
	}
	for name, test := range map[string]struct {
		model, function string
		talk            func(c *caller)
		want            string
	}{
		"an answer":                       {live, `{"name":"f"}`, func(c *caller) { show(c, false) }, "tool, typed, tool"},
		"an answer to a model that waits": {waits, `{"name":"f"}`, func(c *caller) { show(c, false) }, "tool, tool, " + picture},
		"progress":                        {live, `{"name":"f"}`, progress, "tool, typed, tool, tool"},
		"progress, and the model waits":   {waits, `{"name":"f"}`, progress, "tool, tool, " + picture},
		"progress, and the model waits no longer": {waits, `{"name":"f","timeout":"1m"}`, func(c *caller) {
			show(c, true)
			time.Sleep(12 * time.Second)
			show(c, true)
		}, "tool, tool, " + picture + ", " + picture},
		"the function has been removed": {live, `{"name":"f","behavior":"BLOCKING"}`, func(c *caller) {
			c.updateConfig(`{"model":"gemini-3.8-live","voxgate":{"canvas":true}}`)
			time.Sleep(2 * time.Second)
			show(c, false)
		}, "tool, typed"},
	} {
		t.Run(name, func(t *testing.T) {
			config := fmt.Appendf(nil, `{"model":%q,"voxgate":{"canvas":true},"tools":[{"functionDeclarations":[%s]}]}`, test.model, test.function)
			converse(t, bridge.SessionRequest{Origin: bridge.Origin{HasScreen: true}, Config: config}, func(t *testing.T, _ *harness, c *caller,
				l *bridgetest.Conn,
			) {
				canvas := schema(`{"type":"image","src":"photo:1"}`)
				l.CallTool("no", "create_canvas_tool", canvas)
				l.CallTool("a", "f", `{}`)
				test.talk(c)
				if got := l.InputLog(); !strings.HasSuffix(got, test.want) {
					t.Errorf("%q came, want %q", got, test.want)
				}
				l.CallTool("b", "create_canvas_tool", canvas)
				got := l.ToolResponses()
				if !strings.Contains(got[0], "photo:1") || got[len(got)-1] != `b create_canvas_tool {"shown":true}` {
					t.Errorf("%q", got)
				}
			})
		})
	}
}

func TestSearchSuggestionsGetAPage(t *testing.T) {
	converse(t, canvasOn("gemini-3.8-live"), func(t *testing.T, _ *harness, c *caller, l *bridgetest.Conn) {
		l.SendContent(`"groundingMetadata":{"searchEntryPoint":{"renderedContent":"<a>x</a>"}}`)
		if g := lastEvent[bridge.Grounding](c); g.SuggestionsPage != "canvas/chips?<a>x</a>" || len(g.Metadata) == 0 {
			t.Errorf("%+v", g)
		}
		l.SendContent(`"groundingMetadata":{"webSearchQueries":["x"]}`)
		if g := lastEvent[bridge.Grounding](c); g.SuggestionsPage != "" {
			t.Errorf("%+v", g)
		}
	}, func(o *bridge.Options) {
		o.SuggestionsPage = func(html string) string { return "canvas/chips?" + html }
	})
}

var errNo = errors.New("no")

// The observer gets the end of each call.
func TestCallsAreObserved(t *testing.T) {
	runWithFakeClock(t, func(t *testing.T) {
		ends := make(chan bridge.CallEnd, 10)
		observe := func(_ string, o bridge.Observation) {
			if e, ok := o.(bridge.CallEnd); ok {
				ends <- e
			}
		}
		r := newHarness(t, func(o *bridge.Options) { o.Observe = observe },
			asking(func(context.Context, json.RawMessage) (json.RawMessage, error) {
				time.Sleep(time.Second)
				return nil, errNo
			}))
		_, l := r.connectCaller(bridge.SessionRequest{Config: []byte(declare("weather"))})
		l.CallTool("a", "pay", `{}`)
		l.CallTool("b", "weather", `{}`)
		time.Sleep(time.Minute)
		if got := fmt.Sprint(<-ends, <-ends); got != "{{pay gateway failed 1s} 1} {{weather client timeout 30s} 1}" {
			t.Error(got)
		}
	})
}
