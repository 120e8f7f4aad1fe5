package emulator_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"voxgate/bridge/gemini/wire"
)

// calls returns the next calls that come together.
func (p *peer) calls() []wire.FunctionCall {
	p.t.Helper()
	return p.until(func(m *message) bool { return len(m.ToolCalls) > 0 }).ToolCalls
}

// progress answers a call, but not for the last time.
func (p *peer) progress(id, response, scheduling string) {
	p.t.Helper()
	p.send(wire.ClientMessage{ToolResponse: &wire.ToolResponse{FunctionResponses: []wire.FunctionResponse{
		{ID: id, Response: json.RawMessage(response), Scheduling: scheduling, WillContinue: true},
	}}})
}

func TestParallelCalls(t *testing.T) {
	parrot(t, toolConfig, func(t *testing.T, p *peer) {
		p.text(`/tools [{"name":"weather","args":{"city":"Bern"}},{"name":"slow"},{"name":"slow","args":{"n":1}}]`)
		calls := p.calls()
		if len(calls) != 3 || calls[0].Name != "weather" || string(calls[0].Args) != `{"city":"Bern"}` || calls[1].Name != "slow" ||
			string(calls[1].Args) != `{}` || calls[1].ID == calls[2].ID {
			t.Fatalf("%+v", calls)
		}
		for i, call := range slices.Backward(calls) { // in whatever order
			p.respond(call.ID, fmt.Sprintf(`{"output":"the answer %d"}`, i), "")
		}
		p.turn() // of the turn that asked
		var texts string
		for range calls {
			texts += p.turn().text
		}
		for i := range calls {
			if !strings.Contains(texts, fmt.Sprintf("the answer %d", i)) {
				t.Errorf("says %q", texts)
			}
		}
	})
}

// A text that is typed during the comment on one result is answered before the model comments on the other result.
func TestTypedTextComesBeforeQueuedResults(t *testing.T) {
	parrot(t, toolConfig, func(t *testing.T, p *peer) {
		p.text(`/tools [{"name":"weather"},{"name":"weather","args":{"n":1}}]`)
		calls := p.calls()
		p.turn() // of the turn that asked
		p.respond(calls[0].ID, `{"output":"`+strings.Repeat("rain ", 40)+`"}`, "")
		p.respond(calls[1].ID, `{"output":"the other result"}`, "")
		p.until(func(m *message) bool { return len(m.audio) > 0 })
		p.text("Good morning")
		if said := p.turn(); !said.interrupted {
			t.Errorf("%+v is not interrupted", said)
		}
		if said := p.turn(); said.text != "You said: Good morning" {
			t.Errorf("says %q", said.text)
		}
		if said := p.turn(); !strings.Contains(said.text, "the other result") {
			t.Errorf("says %q", said.text)
		}
	})
}

func TestPendingCallsAreBounded(t *testing.T) {
	parrot(t, toolConfig, func(t *testing.T, p *peer) {
		p.text(`/tools [{"name":"slow"}` + strings.Repeat(`,{"name":"slow"}`, 256) + `]`)
		if said := p.turn(); said.text != "More than 256 calls would be open." {
			t.Errorf("says %q", said.text)
		}
	})
}

func TestCancel(t *testing.T) {
	parrot(t, toolConfig, func(t *testing.T, p *peer) {
		p.text(`/tools [{"name":"weather"},{"name":"slow"},{"name":"weather"}]`)
		open := make(map[string]bool)
		for _, call := range p.calls() {
			open[call.ID] = true
		}
		p.text("/cancel")
		for len(open) > 0 {
			for _, id := range p.until(func(m *message) bool { return len(m.Cancelled) > 0 }).Cancelled {
				if !open[id] {
					t.Errorf("%s is cancelled, again or for nothing", id)
				}
				delete(open, id)
			}
		}
		if said := p.turn(); said.text != "I have taken all my calls back." {
			t.Errorf("says %q", said.text)
		}
	})
}

func TestInvalidTypedCalls(t *testing.T) {
	parrot(t, toolConfig, func(t *testing.T, p *peer) {
		for text, want := range map[string]string{
			`/tools`:                             "The calls must be a JSON array",
			`/tools []`:                          "The calls must be a JSON array",
			`/tools [{"name":"nothing"}]`:        "No tool is named nothing",
			`/tools [{"name":"slow","args":[]}]`: "The arguments must be a JSON object.",
			`/tool nothing {}`:                   "No tool is named nothing, but these: slow, weather.",
			`/tool slow [`:                       "The arguments must be a JSON object.",
		} {
			p.text(text)
			if said := p.turn(); !strings.HasPrefix(said.text, want) {
				t.Errorf("%s: says %q", text, said.text)
			}
		}
	})
}

func TestProgress(t *testing.T) {
	parrot(t, toolConfig, func(t *testing.T, p *peer) {
		call := p.call("/tool weather")
		p.turn()
		p.progress(call.ID, `{"output":"a secret"}`, "SILENT")
		p.progress(call.ID, `{"output":"half"}`, "")
		if said := p.turn(); !strings.Contains(said.text, "half") || strings.Contains(said.text, "secret") {
			t.Errorf("says %q", said.text)
		}
		p.respond(call.ID, `{"output":"whole"}`, "INTERRUPT")
		p.respond(call.ID, `{"output":"twice"}`, "")
		if said := p.turn(); !strings.Contains(said.text, "whole") {
			t.Errorf("says %q", said.text)
		}

		call = p.call("/tool slow")
		p.progress(call.ID, `{"output":"one half"}`, "SILENT")
		p.progress(call.ID, `{"output":"two halves"}`, "")
		p.respond(call.ID, `{"output":"done"}`, "")
		p.turn() // of the turn that asked
		if said := p.turn(); said.text != `The tool slow says: {"output":"done"}` {
			t.Errorf("says %q", said.text)
		}
	})
}

func TestPhoto(t *testing.T) {
	config := strings.ReplaceAll(toolConfig, "slow", "take_photo")
	parrot(t, config, func(t *testing.T, p *peer) {
		for response, want := range map[string]string{
			`{"photo":"photo:1"}`:   "I have seen your photo.",
			`{"error":"no camera"}`: `The tool take_photo says: {"error":"no camera"}`,
		} {
			p.respond(p.call("/tool take_photo").ID, response, "")
			for said := p.turn(); said.text != want; said = p.turn() {
				if said.text != "" {
					t.Fatalf("%s: says %q", response, said.text)
				}
			}
		}
	})
}
