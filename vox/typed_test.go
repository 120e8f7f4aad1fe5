package vox_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"voxgate/bridge"
	"voxgate/internal/testkit"
	"voxgate/signaling/compat/geminirest"
	"voxgate/vox"
	"voxgate/vox/voxtest"
)

// A typed conversation is like others: it is in the list, its end reports what was said and what it cost, it starts
// only after the check by Options.Admit, and the operator's backend takes part.
func TestVOXTypedTalkIsAConversation(t *testing.T) {
	t.Parallel()
	ended, admitted := make(chan bridge.SessionEnded, 1), make(chan string, 1)
	watched := func(_ *testkit.Endpoints, o *bridge.Options) {
		o.Admit = func(_ context.Context, id string, o *bridge.SessionRequest) error {
			admitted <- id
			o.Override.Prompt = "You are the webhook's."
			return nil
		}
		o.Observe = func(_ string, o bridge.Observation) {
			if e, ok := o.(bridge.SessionEnded); ok {
				ended <- e
			}
		}
	}
	seen := make(chan string, 10)
	spied := voxtest.Serve(t, nil, func(d *vox.Server) {
		generate := d.Generate
		d.Generate = func(
			ctx context.Context, account bridge.Account, model string, request json.RawMessage, piece func(json.RawMessage) error,
		) (bridge.Cost, error) {
			seen <- string(request)
			return generate(ctx, account, model, request, piece)
		}
	})
	g := testkit.StartGateway(t, spied, watched)
	c := voxtest.Dial(t, g, nil)
	r := c.StartConversation(`,"model":"models/gemini-3.8-flash"`)
	if id := <-admitted; id != r.SessionID || r.Model != "gemini-3.8-flash" || r.Mode != "text" {
		t.Errorf("admitted %s, began %+v", id, r)
	}
	c.SendText("Hello there.")
	c.AwaitEvent("state", func(f voxtest.Fields) bool { return f.State == "live" })
	if request := <-seen; !strings.Contains(request, "You are the webhook's.") || strings.Contains(request, "responseModalities") {
		t.Errorf("the model got %s", request)
	}
	list := g.Host.Sessions()
	if len(list) != 1 || list[0].ID != r.SessionID || list[0].Protocol != "vox" || list[0].Model != "gemini-3.8-flash" ||
		list[0].Tokens == 0 ||
		list[0].Dollars == nil || *list[0].Dollars == 0 {
		t.Errorf("the list is %+v", list)
	}
	session, steered := g.Host.Session(r.SessionID), make(chan struct{}, 1)
	if _, err := session.Watch(func(e bridge.Event) {
		if done, ok := e.Body.(bridge.SetupComplete); ok && done.Update {
			steered <- struct{}{}
		}
	}); err != nil {
		t.Fatal(err)
	}
	for _, command := range []bridge.Command{ // of the backend
		bridge.Prompt{Instruction: "Say that lunch is ready."},
		bridge.BackendUpdate{Agent: bridge.Agent{Prompt: "Be brief."}},
	} {
		if err := session.Do(command); err != nil {
			t.Fatalf("%T: %v", command, err)
		}
	}
	c.AwaitEvent("transcript", says("lunch is ready"))
	<-seen
	<-steered
	c.SendText("And now?")
	c.AwaitEvent("transcript", says("And now?"))
	request := <-seen
	for _, part := range []string{"Be brief.", "Hello there.", "lunch"} {
		if !strings.Contains(request, part) {
			t.Errorf("the model lacks %q: %s", part, request)
		}
	}
	if err := session.Do(bridge.Goodbye{}); err != nil {
		t.Fatal(err)
	}
	if f := c.AwaitEvent("session_end", nil); f.Reason != "user" {
		t.Errorf("%+v", f)
	}
	e := <-ended
	said := []string{}
	for _, entry := range e.Transcript {
		said = append(said, entry.Role+": "+entry.Content)
	}
	want := []string{
		"user: Hello there.", "assistant: You said: Hello there.", "assistant: You said: Say that lunch is ready.",
		"user: And now?", "assistant: You said: And now?",
	}
	if !slices.Equal(said, want) || e.ID != r.SessionID {
		t.Errorf("%s has ended with %q, want %q", e.ID, said, want)
	}
}

// A typed conversation waits for its lost client, and the model keeps what was said.
func TestVOXTypedTalkResumes(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, voxtest.Serve(t, nil, nil))
	first := voxtest.Dial(t, g, nil)
	r := first.StartConversation(`,"model":"gemini-3.8-flash","resume":true`)
	first.CallFunction("add_tool", `{"tool_id":"stripe"}`)
	first.AwaitEvent("state", func(f voxtest.Fields) bool { return f.State == "live" })
	first.Conn.Close()
	<-first.Done
	second := voxtest.Dial(t, g, nil)
	again := second.StartConversation(`,"resume":"` + r.Resume + `"`)
	if again.SessionID != r.SessionID || !again.Resumed || again.Mode != "text" {
		t.Errorf("%+v became %+v", r, again)
	}
	second.AwaitEvent("ui_action", func(f voxtest.Fields) bool { return f.ToolID == "stripe" })
	second.SendText("Still there?")
	second.AwaitEvent("transcript", says("Still there?"))
}

// Text that is typed during an answer stops it, and so does `interrupt`: the request to the model ends, and the rest
// is not sent.
func TestVOXTypedTalkStops(t *testing.T) {
	t.Parallel()
	asked, left := make(chan struct{}, 4), make(chan struct{}, 4)
	chat := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(`data: {"choices":[{"index":0,"delta":{"content":"It is a long story. And"}}]}` + "\n\n"))
		w.(http.Flusher).Flush()
		asked <- struct{}{}
		<-r.Context().Done()
		left <- struct{}{}
	}))
	t.Cleanup(chat.Close)
	route := geminirest.Route{Model: "gpt-*", OpenAI: &geminirest.OpenAI{URL: chat.URL + "/v1"}}
	g := testkit.StartGateway(t, voxtest.Serve(t, nil, nil, route))
	c := voxtest.Dial(t, g, nil)
	r := c.StartConversation(`,"model":"gpt-6-astra"`)
	c.SendText("Tell me.")
	<-asked
	c.AwaitEvent("transcript", says("It is a long story."))
	c.SendText("Another one.")
	<-left
	c.AwaitEvent("interrupted", nil)
	<-asked
	c.AwaitEvent("transcript", says("It is a long story."))
	c.Send(`{"type":"interrupt"}`)
	<-left
	c.AwaitEvent("interrupted", nil)
	c.AwaitEvent("state", func(f voxtest.Fields) bool { return f.State == "live" })
	stories := 0
	_, err := g.Host.Session(r.SessionID).Watch(func(e bridge.Event) {
		if h, ok := e.Body.(bridge.History); ok {
			for _, entry := range h.Entries {
				if strings.Contains(entry.Content, "It is a long story. And") {
					stories++
				}
			}
		}
	})
	if err != nil || stories != 2 {
		t.Errorf("%d answers are kept as far as they were written (%v)", stories, err)
	}
}
