package emulator_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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

func TestChain(t *testing.T) {
	for name, tools := range map[string]string{
		"in one turn":           `{"name":"photo","behavior":"BLOCKING"},{"name":"show","behavior":"BLOCKING"},{"name":"send","behavior":"BLOCKING"}`,
		"in turns of their own": `{"name":"photo"},{"name":"show"},{"name":"send"}`,
		"mixed":                 `{"name":"photo","behavior":"BLOCKING"},{"name":"show"},{"name":"send","behavior":"BLOCKING"}`,
	} {
		t.Run(name, func(t *testing.T) {
			parrot(t, `{"tools":[{"functionDeclarations":[`+tools+`]}]}`, func(t *testing.T, p *peer) {
				p.text(`/chain [{"name":"photo"},
					{"name":"show","args":{"src":"$1.photo","size":"$1.size","pair":["$1.of.1"],"text":"at $1.size: $1.photo."}},
					{"name":"send","args":{"all":"$1","was":"$2.output","price":"5 $"}}]`)
				first := p.calls()
				if len(first) != 1 || first[0].Name != "photo" {
					t.Fatalf("%+v", first)
				}
				p.respond(first[0].ID, `{"photo":"photo:1","size":9007199254740993,"of":["a","b"]}`, "")
				second := p.calls()
				want := `{"pair":["b"],"size":9007199254740993,"src":"photo:1","text":"at 9007199254740993: photo:1."}`
				if len(second) != 1 || second[0].Name != "show" || string(second[0].Args) != want {
					t.Fatalf("%s, want %s", second[0].Args, want)
				}
				p.respond(first[0].ID, `{"photo":"again"}`, "") // which nobody waits for any more
				p.progress(second[0].ID, `{"output":"not yet"}`, "SILENT")
				p.respond(second[0].ID, `{"output":"shown"}`, "SILENT") // the script goes on all the same
				third := p.calls()
				want = `{"all":{"of":["a","b"],"photo":"photo:1","size":9007199254740993},"price":"5 $","was":"shown"}`
				if len(third) != 1 || third[0].Name != "send" || string(third[0].Args) != want {
					t.Fatalf("%s, want %s", third[0].Args, want)
				}
				p.respond(third[0].ID, `{"output":"sent"}`, "")
				p.until(func(m *message) bool { return m.Content != nil && m.Content.TurnComplete })
				if said := p.turn(); said.text != `The tool send says: {"output":"sent"}` {
					t.Errorf("says %q", said.text)
				}
			})
		})
	}
}

func TestChainStops(t *testing.T) {
	for _, test := range []struct{ second, result, want string }{
		{`{"name":"slow"}`, `{"error":"no camera"}`, "The chain stops: weather has failed: no camera."},
		{`{"name":"slow","args":{"a":"$1.photo"}}`, `{"picture":"x"}`, "The chain stops: there is no $1.photo."},
		{`{"name":"slow","args":{"a":"see $1.list.7"}}`, `{"list":[1]}`, "The chain stops: there is no $1.list.7."},
		{`{"name":"slow","args":{"a":["$2"]}}`, `{"a":1}`, "The chain stops: there is no $2."},
	} {
		parrot(t, toolConfig, func(t *testing.T, p *peer) {
			call := p.call(`/chain [{"name":"weather"},` + test.second + `]`)
			p.turn()
			p.respond(call.ID, test.result, "SILENT") // it is said all the same
			if said := p.turn(); said.text != test.want || len(said.audio) == 0 {
				t.Errorf("says %q, want %q", said.text, test.want)
			}
		})
	}
}

// TestWhatIsMadeOfResultsIsBounded asks for far more than what was sent.
func TestWhatIsMadeOfResultsIsBounded(t *testing.T) {
	large := `{"a":"` + strings.Repeat("x", 50_000) + `"}`
	deep := `{"a":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`
	tooMuch := "The chain stops: results of more than 262144 bytes are asked for in one call."
	for _, test := range []struct{ name, args, result, want string }{
		{"the same text many times", `{"a":"` + strings.Repeat("$1.a", 10_000) + `"}`, large, tooMuch},
		{"the same value many times", `{"a":["$1"` + strings.Repeat(`,"$1"`, 10_000) + `]}`, large, tooMuch},
		{"a deep one", `{"a":"$1"}`, deep, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			parrot(t, toolConfig, func(t *testing.T, p *peer) {
				call := p.call(`/chain [{"name":"weather"},{"name":"slow","args":` + test.args + `}]`)
				p.turn()
				p.respond(call.ID, test.result, "SILENT")
				if test.want == "" {
					if got := len(p.calls()[0].Args); got > 2*len(test.result) {
						t.Errorf("%d bytes of arguments were made of %d", got, len(test.result))
					}
				} else if said := p.turn(); said.text != test.want {
					t.Errorf("says %.100q, want %q", said.text, test.want)
				}
			})
		})
	}
	t.Run("calls that nobody answers", func(t *testing.T) {
		parrot(t, toolConfig, func(t *testing.T, p *peer) {
			p.text(`/tools [{"name":"slow"}` + strings.Repeat(`,{"name":"slow"}`, 256) + `]`)
			if said := p.turn(); said.text != "More than 256 calls would be open." {
				t.Errorf("says %q", said.text)
			}
		})
	})
}

func TestChainThatIsAskedAgainGoesOn(t *testing.T) {
	parrot(t, toolConfig, func(t *testing.T, p *peer) {
		p.respond(p.call(`/chain [{"name":"slow"},{"name":"weather"}]`).ID, `{}`, "")
		p.respond(p.calls()[0].ID, `{"output":"x"}`, "")
		if call := p.calls()[0]; call.Name != "weather" {
			t.Errorf("calls %s", call.Name)
		}
	})
}

func TestBargeInEndsAChain(t *testing.T) {
	parrot(t, toolConfig, func(t *testing.T, p *peer) {
		call := p.call(`/chain [{"name":"slow"},{"name":"slow"}]`)
		p.speak(tone(16000, 440, time.Second))
		p.until(func(m *message) bool { return slices.Equal(m.Cancelled, []string{call.ID}) })
		p.turn() // that was interrupted
		p.respond(call.ID, `{"output":"late"}`, "")
		if said := p.turn(); !strings.HasPrefix(said.text, "You said") {
			t.Errorf("says %q", said.text)
		}
		p.text("/history")
		m := p.until(func(m *message) bool { return len(m.ToolCalls) > 0 || m.Content != nil && m.Content.TurnComplete })
		if len(m.ToolCalls) > 0 {
			t.Errorf("calls %+v", m.ToolCalls)
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

func TestScriptsThatMakeNoSense(t *testing.T) {
	parrot(t, toolConfig, func(t *testing.T, p *peer) {
		for text, want := range map[string]string{
			`/tools`:                                       "The calls must be a JSON array",
			`/tools []`:                                    "The calls must be a JSON array",
			`/tools [{"name":"nothing"}]`:                  "No tool is named nothing",
			`/tools [{"name":"slow","args":[]}]`:           "The arguments must be a JSON object.",
			`/chain [{"name":"slow"},{"name":""}]`:         "No tool is named ,",
			`/chain [{"name":"slow","args":{"a":"$1.b"}}]`: "The chain stops: there is no $1.b.",
			`/tool nothing {}`:                             "No tool is named nothing, but these: slow, weather.",
			`/tool slow [`:                                 "The arguments must be a JSON object.",
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
