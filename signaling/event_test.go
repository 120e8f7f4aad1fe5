package signaling

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
)

// told returns what Notify made of events, and the ways they would go.
func told(c *webClient, list ...bridge.Body) (texts []string, ways []way) {
	for _, e := range list {
		c.Notify(bridge.Event{Body: e})
	}
	for {
		l, ok, _, err := c.out.box.next()
		if !ok || err != nil {
			return texts, ways
		}
		texts, ways = append(texts, string(l.text)), append(ways, l.way)
	}
}

func TestAnswersGoBackWhereTheRequestsCameFrom(t *testing.T) {
	t.Parallel()
	c := &webClient{out: newWays(nil), setups: []way{socket, channel}, contexts: []way{channel, socket}}
	refused := &bridge.Error{Code: bridge.CodeConfigUpdateFailed, Message: "No.", Field: "payload.x", Status: 1007, Retry: time.Minute}
	texts, ways := told(c, bridge.History{}, bridge.SetupComplete{}, bridge.History{}, bridge.SetupFailed{Err: refused}, bridge.History{})
	if want := []way{channel, socket, socket, channel, channel, events}; !slices.Equal(ways, want) {
		t.Errorf("%v went by %v, want %v", texts, ways, want)
	}
	want := `{"type":"SETUP_COMPLETE","payload":{"success":false,"error":{"code":1007,"message":"No.",` +
		`"details":{"code":"session_config_update_failed","field":"payload.x","retryAfter":60}}}}`
	if texts[3] != want {
		t.Errorf("a refused change:\n got %s\nwant %s", texts[3], want)
	}
}

// TestEveryEventIsTold fails when bridge has an event that Notify does not know, or this test.
func TestEveryEventIsTold(t *testing.T) {
	t.Parallel()
	failed := &bridge.Error{Code: bridge.CodeUnknown, Message: "x"}
	source, err := os.ReadFile("../bridge/event.go")
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{}
	for _, m := range regexp.MustCompile(`func \((\w+)\) +event\(\)`).FindAllSubmatch(source, -1) {
		missing["bridge."+string(m[1])] = true
	}
	for _, e := range []bridge.Body{bridge.UserText{}, bridge.AssistantText{}, bridge.Thought{}} { // CONTENT_MESSAGE has them
		delete(missing, fmt.Sprintf("%T", e))
	}
	for _, e := range []bridge.Body{
		bridge.SetupComplete{},
		bridge.SetupFailed{Err: failed},
		bridge.Raw{ServerContent: json.RawMessage("{}")},
		bridge.Grounding{Metadata: json.RawMessage("{}")},
		bridge.Speaking{},
		bridge.Interrupted{},
		bridge.TurnComplete{},
		bridge.ToolCall{},
		bridge.ToolCallCancellation{},
		bridge.ToolStatus{},
		bridge.Log{},
		bridge.StateChange{},
		bridge.UserSpeaking{},
		bridge.Usage{},
		bridge.Latency{},
		bridge.Failure{Err: failed},
		bridge.History{},
	} {
		delete(missing, fmt.Sprintf("%T", e))
		texts, ways := told(&webClient{out: newWays(nil)}, e)
		if len(texts) == 0 {
			t.Errorf("%T is not told", e)
		}
		if slices.ContainsFunc(ways, func(w way) bool { return w != events }) {
			t.Errorf("%T, which nobody asked for, went by %v", e, ways)
		}
		for _, text := range texts {
			if !json.Valid([]byte(text)) {
				t.Errorf("%T is told as %s", e, text)
			}
		}
	}
	for name := range missing {
		t.Errorf("%s is not in this test", name)
	}
}

// TestProtocolListsCodesAndStates compares PROTOCOL.md with bridge, both ways.
func TestProtocolListsCodesAndStates(t *testing.T) {
	t.Parallel()
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	find := func(text, pattern string) []string {
		var found []string
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			found = append(found, m[1])
		}
		slices.Sort(found)
		return found
	}
	section := func(heading string) string {
		_, text, _ := strings.Cut(read("PROTOCOL.md"), "\n"+heading+"\n")
		text, _, _ = strings.Cut(text, "\n#")
		return text
	}
	const row = "(?m)^\\| `(\\w+)` \\|"
	codes := find(read("../bridge/errors.go"), `Code\w+ +Code += "(\w+)"`)
	if listed := find(section("## Errors"), row); len(codes) < 20 || !slices.Equal(listed, codes) {
		t.Errorf("PROTOCOL.md lists the codes\n%q, bridge has\n%q", listed, codes)
	}
	nobodyIsThere := func(s string) bool {
		return s == string(bridge.StateParked) || s == string(bridge.StateEnded)
	}
	states := slices.DeleteFunc(find(read("../bridge/state.go"), `State\w+ +State += "(\w+)"`), nobodyIsThere)
	if listed := find(section("### States"), row); len(states) < 5 || !slices.Equal(listed, states) {
		t.Errorf("PROTOCOL.md lists the states\n%q, bridge has\n%q", listed, states)
	}
}
