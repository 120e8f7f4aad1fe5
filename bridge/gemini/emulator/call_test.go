package emulator_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"voxgate/bridge/gemini/wire"
)

const toolConfig = `{"tools":[{"functionDeclarations":[{"name":"weather"},{"name":"slow","behavior":"BLOCKING"}]}]}`

// respond answers a call.
func (p *peer) respond(id, response, scheduling string) {
	p.t.Helper()
	p.send(wire.ClientMessage{ToolResponse: &wire.ToolResponse{FunctionResponses: []wire.FunctionResponse{
		{ID: id, Response: json.RawMessage(response), Scheduling: scheduling},
	}}})
}

func (p *peer) call(text string) wire.FunctionCall {
	p.t.Helper()
	p.text(text)
	m := p.until(func(m *message) bool { return len(m.ToolCalls) > 0 })
	return m.ToolCalls[0]
}

func TestEmptyResponseIsAskedAgain(t *testing.T) {
	parrot(t, toolConfig, func(t *testing.T, p *peer) {
		first := p.call(`/tool slow`)
		p.respond(first.ID, `{}`, "")
		again := p.until(func(m *message) bool { return len(m.ToolCalls) > 0 }).ToolCalls[0]
		if again.ID == first.ID || again.Name != first.Name {
			t.Errorf("%+v after %+v", again, first)
		}
	})
}

func TestBargeInCancelsABlockingCall(t *testing.T) {
	parrot(t, toolConfig, func(t *testing.T, p *peer) {
		call := p.call(`/tool slow`)
		p.speak(tone(16000, 440, time.Second))
		m := p.until(func(m *message) bool { return len(m.Cancelled) > 0 })
		if m.Cancelled[0] != call.ID {
			t.Errorf("cancelled %q", m.Cancelled)
		}
		if interrupted := p.turn(); !interrupted.interrupted {
			t.Error("the turn of the call was not interrupted")
		}
		p.respond(call.ID, `{"output":"late"}`, "")
		if said := p.turn(); !strings.HasPrefix(said.text, "You said") {
			t.Errorf("says %q", said.text)
		}
	})
}

func TestScheduling(t *testing.T) {
	parrot(t, toolConfig, func(t *testing.T, p *peer) {
		call := p.call("/tool weather")
		p.turn()
		p.text("a long text to be interrupted by the result of a tool")
		p.until(func(m *message) bool { return m.audio != nil })
		p.respond(call.ID, `{"output":"now"}`, "INTERRUPT")
		if said := p.turn(); !said.interrupted {
			t.Error("INTERRUPT waits")
		}
		if said := p.turn(); !strings.Contains(said.text, "now") {
			t.Errorf("says %q", said.text)
		}

		call = p.call("/tool weather")
		p.turn()
		p.text("hello")
		p.until(func(m *message) bool { return m.audio != nil })
		p.respond(call.ID, `{"output":"when idle"}`, "WHEN_IDLE")
		if said := p.turn(); said.interrupted || !strings.HasSuffix(said.text, "hello") {
			t.Errorf("WHEN_IDLE: %+v", said.text)
		}
		if said := p.turn(); !strings.Contains(said.text, "when idle") {
			t.Errorf("says %q", said.text)
		}

		call = p.call("/tool weather")
		p.turn()
		p.respond(call.ID, `{"output":"a secret"}`, "SILENT")
		p.text("/history")
		if said := p.turn(); !strings.Contains(said.text, "a secret") || !strings.HasPrefix(said.text, "I remember") {
			t.Errorf("says %q", said.text)
		}
	})
}
