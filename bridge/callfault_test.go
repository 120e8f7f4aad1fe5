package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/tools"
)

// deaf is a tool that does not look at its context until release is closed.
func deaf(release <-chan struct{}) func(*bridge.Options) {
	return asking(func(context.Context, json.RawMessage) (json.RawMessage, error) {
		<-release
		return nil, nil
	})
}

// Was wrong: onToolCalls tells a canvas that is acknowledged at once (show → s.tell), and the interactive ones only after the loop
// over the message's calls. A model that creates a form and appends a note in one message is drawn the other way round: the
// append comes when there is no canvas, and the create then destroys it. What the board holds is not what the person sees.
func TestCanvasCallsOfOneMessageKeepTheirOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, c, l := withCanvas(t, "gemini-3.8-live", bridge.Open{})
		l.Send(`{"toolCall":{"functionCalls":[{"id":"a","name":"create_canvas_tool","args":%s},{"id":"b","name":"append_to_canvas_tool","args":%s}]}}`,
			schema(question), schema(note))
		synctest.Wait()
		var ids []string
		calls, _ := find[bridge.ToolCall](c)
		for _, e := range calls {
			for _, call := range e.Calls {
				ids = append(ids, call.ID)
			}
		}
		if got := strings.Join(ids, " "); got != "a b" {
			t.Errorf("the client was told of %s, want a b", got)
		}
	})
}

// Was wrong: isInput takes an answer that has a field "error" or "continued" for one of a program, but these are allowed as ids of
// inputs (answerKeys in tools/canvas has action, dismissed and __proto__ only). On a model whose calls are synchronous the
// person fills in a form, presses submit, the client is told that all is well, and Gemini never hears of it.
func TestInputsCalledErrorAreNotDropped(t *testing.T) {
	for _, id := range []string{"error", "continued"} {
		bubble(t, func(t *testing.T) {
			_, c, l := withCanvas(t, "gemini-3.1-flash-live-preview", bridge.Open{})
			l.Call("a", "show_canvas_tool", schema(fmt.Sprintf(`{"elements":[{"type":"input","id":%q},{"type":"button","label":"OK","action":"submit"}]}`, id)))
			answer := fmt.Sprintf(`{%q:"It says 0x80070005","action":"submit"}`, id)
			c.respond("a", "", answer)
			if got := l.Said(); got != "tool, text "+answer {
				t.Errorf("Gemini got %q", got)
			}
		})
	}
}

// Was wrong: after an answer with scheduling SILENT the model says nothing, that is what SILENT is for, but onResult expects an answer
// (expect(forTool)) all the same. The watchdog then takes the connection for stuck: it resumes the session, begins a fresh one and
// plays "say that again" to a person who has said nothing.
func TestSilentAnswersAreNoStall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *bridge.Options) { o.Stall = 7 * time.Second })
		c, l := r.connect(bridge.Open{Config: []byte(`{"model":"gemini-3.8-live","tools":[{"functionDeclarations":[{"name":"f","scheduling":"SILENT"}]}]}`)})
		l.Handle("h")
		l.Call("a", "f", `{}`)
		l.Content(`"turnComplete":true`) // what the model has to say it has said
		synctest.Wait()
		c.respond("a", "", `{"x":1}`)
		dials := r.up.Dialled()
		time.Sleep(6 * time.Second)
		r.up.Set(503, nil)
		time.Sleep(time.Minute)
		if n := r.up.Dialled() - dials; n > 0 {
			t.Errorf("%d dials because of a model that was asked to be silent", n)
		}
		logs, _ := find[bridge.Log](c)
		for _, l := range logs {
			if l.Details["stall"] != nil {
				t.Errorf("the client is told: %s (%v)", l.Message, l.Details["stall"])
			}
		}
		c.do(bridge.Goodbye{})
		c.ends(bridge.ErrGoodbye)
	})
}

// Was wrong: asker puts a question to the client without looking whether its call still runs. A tool that asks (or is about to) when
// its call is cancelled flashes a consent question for something that is called off: TOOL_CALL and at once
// TOOL_CALL_CANCELLATION, after the TOOL_STATUS cancelled.
func TestNobodyIsAskedForACancelledCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, c, l := withCanvas(t, "gemini-3.8-live", bridge.Open{}, asking(func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
			<-ctx.Done()
			_, err := tools.Confirm(ctx, "Pay 5 €?")
			return nil, err
		}))
		l.Call("a", "pay", `{}`)
		l.Send(`{"toolCallCancellation":{"ids":["a"]}}`)
		synctest.Wait()
		c.tells("SetupComplete ToolStatus ToolStatus")
	})
}

// Was wrong: a tool that asks with a context of its own (one that does not end with the call) after its call was answered: the question
// stays on the person's screen for five minutes although nothing waits for it, and its entry in Session.questions is dropped by
// nobody once it is answered.
func TestNobodyIsAskedAfterTheAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		done := make(chan struct{})
		_, c, l := withCanvas(t, "gemini-3.8-live", bridge.Open{}, asking(func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
			go func() {
				defer close(done)
				time.Sleep(time.Second)
				_, _ = tools.Confirm(context.WithoutCancel(ctx), "Pay 5 €?")
			}()
			return nil, nil
		}))
		l.Call("a", "pay", `{}`)
		time.Sleep(2 * time.Second)
		c.tells("SetupComplete ToolStatus ToolStatus")
		time.Sleep(10 * time.Minute)
		<-done
	})
}

// Was wrong: questions are kept by the id the client gets, calls by the model's. A call whose id is "ask-1-a" takes the place of the
// question that a tool asks for call "a" (isOpen looks at calls only): the person's "yes" to a payment answers the other call,
// and the tool waits until it runs out of time.
func TestIDsThatLookLikeQuestions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, asking(func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
			yes, err := tools.Confirm(ctx, "Pay 5 €?")
			return fmt.Appendf(nil, `{"paid":%v}`, yes), err
		}))
		c, l := r.connect(bridge.Open{Origin: bridge.Origin{Screen: true}, Config: []byte(`{"voxgate":{"canvas":true},"tools":[{"functionDeclarations":[{"name":"f"}]}]}`)})
		l.Call("a", "pay", `{}`)
		asked := last[bridge.ToolCall](c).Calls[0].ID
		l.Call("ask-1-a", "f", `{}`)
		c.respond(asked, "show_canvas_tool", `{"action":"submit"}`) // the person has pressed Yes
		l.Answered(`a pay {"paid":true}`)
		_ = c.session.Do(bridge.ToolResponse{ID: "ask-1-a", Response: json.RawMessage(`{"x":1}`)})
	})
}

// Was wrong: replied keeps the parts of the last message only. Pictures that come with progress (willContinue) are accepted and then
// never shown to the model; only if the call runs out of time right after do they go up, with the error.
func TestPicturesOfProgress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.connect(bridge.Open{Config: []byte(`{"model":"gemini-3.8-live","tools":[{"functionDeclarations":[{"name":"take_photo"}]}]}`)})
		l.Call("a", "take_photo", `{}`)
		c.do(bridge.ToolResponse{
			ID: "a", Response: json.RawMessage(`{"photo":1}`), WillContinue: true,
			Parts: json.RawMessage(`[{"inlineData":{"mimeType":"image/jpeg","data":"/9j/"}}]`),
		})
		c.respond("a", "", `{"photos":1}`)
		time.Sleep(2 * time.Second)
		if got := l.Said(); !strings.Contains(got, "typed") && !strings.Contains(got, "picture") {
			t.Errorf("Gemini got %q: the picture is lost", got)
		}
	})
}

// On a model that waits they go behind the answer, and their references may stand on a canvas.
func TestPicturesOfProgressOnAModelThatWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.connect(bridge.Open{Origin: bridge.Origin{Screen: true}, Config: []byte(`{"model":"gemini-3.1-flash-live-preview","voxgate":{"canvas":true},"tools":[{"functionDeclarations":[{"name":"take_photo"},{"name":"long","timeout":"1m"}]}]}`)})
		progress := bridge.ToolResponse{
			ID: "a", Response: json.RawMessage(`{"photo":"photo:1"}`), WillContinue: true,
			Parts: json.RawMessage(`[{"inlineData":{"mimeType":"image/jpeg","data":"/9j/"}}]`),
		}
		l.Call("a", "take_photo", `{}`)
		c.do(progress)
		if got := l.Said(); got != "" {
			t.Errorf("while it waits Gemini got %s", got)
		}
		c.respond("a", "", `{"photos":1}`)
		time.Sleep(2 * time.Second)
		if got := l.Said(); got != "tool, picture image/jpeg" {
			t.Errorf("Gemini got %s", got)
		}
		l.Call("b", "create_canvas_tool", schema(`{"type":"image","src":"photo:1"}`))
		l.Answered(`a take_photo {"photos":1}`, `b create_canvas_tool {"shown":true}`)
		// One that the model was not made to wait for to its end shows them as soon as it goes on.
		l.Call("c", "long", `{}`)
		progress.ID = "c"
		c.do(progress)
		time.Sleep(12 * time.Second)
		c.do(progress)
		time.Sleep(2 * time.Second)
		if got := l.Said(); got != "tool, picture image/jpeg, tool, tool, picture image/jpeg, picture image/jpeg" {
			t.Errorf("Gemini got %s", got)
		}
	})
}

// Was wrong: a call that an older handle knows survives CLEAR_CONTEXT until the new link is there. Answered in between, its answer is
// kept as that of an orphan, and the fresh session, which shall know nothing, is given it for its own question within 30 s: the
// tool does not run, the client gets no TOOL_CALL.
func TestClearedAnswersAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c, l := r.connect(bridge.Open{Config: []byte(`{"model":"gemini-3.8-live","tools":[{"functionDeclarations":[{"name":"f"}]}]}`)})
		l.Call("a", "f", `{}`)
		l.Handle("h")
		c.do(bridge.ClearContext{})
		m := r.up.Next()
		_ = c.session.Do(bridge.ToolResponse{ID: "a", Response: json.RawMessage(`{"of":"the old conversation"}`)})
		synctest.Wait()
		m.Accept()
		synctest.Wait()
		m.Call("b", "f", `{}`)
		for _, got := range m.Responses() {
			if strings.Contains(got, "the old conversation") {
				t.Errorf("after CLEAR_CONTEXT the model's new call got %s", got)
			}
		}
	})
}

// Was wrong: send looks the function up in the configuration of now, not in the call's. When UPDATE_CONFIG has removed the function of
// a call that runs, a model that waits for it gets the picture before the answer, which is what send wants to prevent ("takes
// nothing else while it waits").
func TestPicturesOfARemovedFunction(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		const model = "gemini-3.8-live"
		c, l := r.connect(bridge.Open{Config: fmt.Appendf(nil, `{"model":%q,"tools":[{"functionDeclarations":[{"name":"take_photo","behavior":"BLOCKING"}]}]}`, model)})
		l.Call("a", "take_photo", `{}`)
		c.do(bridge.UpdateConfig{Config: fmt.Appendf(nil, `{"model":%q}`, model)})
		time.Sleep(2 * time.Second)
		c.do(bridge.ToolResponse{ID: "a", Response: json.RawMessage(`{"photo":"photo:1"}`), Parts: json.RawMessage(`[{"inlineData":{"mimeType":"image/jpeg","data":"/9j/"}}]`)})
		time.Sleep(2 * time.Second)
		got := l.Said()
		if answer, picture := strings.Index(got, ", tool"), strings.Index(got, ", typed"); picture < answer {
			t.Errorf("the picture came before the answer: %s", got)
		}
	})
}

// Was wrong: a gateway tool that began while nobody was there is told twice as running: from owed, and by repeatCalls.
func TestRunningIsToldOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig(t, deaf(release))
		c, l := r.connect(bridge.Open{Resumable: true})
		defer close(release)
		l.Handle("h")
		token := c.token()
		c.leaves()
		l.Call("a", "pay", `{}`)
		d := r.back(token)
		d.tells("SetupComplete ToolStatus")
	})
}

// Was wrong: only calls that pass the other checks are counted by the rate limit. A model that calls again and again what does not exist
// (or while 16 calls run) is refused at its own pace without end, and the client gets a GEMINI_ERROR for each.
func TestUndeclaredCallsAreRateLimited(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, c, l := weather(t)
		for i := range 200 {
			l.Call(fmt.Sprint(i), "nothing", `{}`)
		}
		failures, _ := find[bridge.Failure](c)
		if len(failures) > 100 {
			t.Errorf("the client was told %d times in no time that the model calls nonsense", len(failures))
		}
		limited := 0
		for _, got := range l.Responses() {
			if strings.Contains(got, "too many calls in a short time") {
				limited++
			}
		}
		if limited == 0 {
			t.Error("none of 200 calls met the rate limit")
		}
	})
}

// Was wrong: asker enters its question in Session.questions before the loop has heard of it. A caller that comes back in between is
// told of it twice: by repeatCalls and by onAsk. (A loop of 100, because it is a race; about one in four loses.)
func TestQuestionsAreRepeatedOnce(t *testing.T) {
	twice := 0
	for range 100 {
		bubble(t, func(t *testing.T) {
			let := make(chan struct{})
			r, c, l := withCanvas(t, "gemini-3.8-live", bridge.Open{Resumable: true}, asking(func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
				<-let
				_, err := tools.Confirm(ctx, "Really?")
				return nil, err
			}))
			l.Handle("h")
			l.Call("a", "pay", `{}`)
			token := c.token()
			c.leaves()
			go close(let)
			d := r.back(token)
			synctest.Wait()
			calls, _ := find[bridge.ToolCall](d)
			if len(calls) > 1 {
				twice++
			}
			if len(calls) > 0 {
				_ = d.session.Do(bridge.ToolResponse{ID: calls[0].Calls[0].ID, Response: json.RawMessage(`{"action":"submit"}`)})
			}
		})
	}
	if twice > 0 {
		t.Errorf("in %d of 100 the caller that came back was asked twice", twice)
	}
}
