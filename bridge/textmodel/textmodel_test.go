package textmodel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/textmodel"
	"voxgate/bridge/upstream"
)

// model simulates a model that answers each request by a script.
type model struct {
	*testing.T
	*textmodel.Dialer
	conn     upstream.Conn
	requests []string
	late     wire.Tokens // tokens reported after the end of their connection
}

// script returns the pieces of an answer, its tokens, and the error at its end. It may block until ctx is done.
type script func(ctx context.Context, request string) (pieces []string, tokens int, err error)

func newModel(t *testing.T, answer script) *model {
	m := &model{T: t}
	generate := func(ctx context.Context, name string, request json.RawMessage, piece func(json.RawMessage) error) (int, error) {
		if name != "a-model" {
			t.Errorf("asked %s", name)
		}
		m.requests = append(m.requests, string(request))
		pieces, tokens, err := answer(ctx, string(request))
		for _, p := range pieces {
			if failed := piece(json.RawMessage(p)); failed != nil {
				return tokens, failed
			}
		}
		return tokens, err
	}
	m.Dialer = textmodel.NewDialer(generate)
	m.dial(gemini.Setup{})
	return m
}

func (m *model) dial(s gemini.Setup) {
	m.Helper()
	s.Object = json.RawMessage(`{"model":"models/a-model","systemInstruction":{"parts":[{"text":"Be brief."}]},
		"generationConfig":{"responseModalities":["TEXT"],"temperature":0},"tools":[{"functionDeclarations":[{"name":"f"}]}]}`)
	s.OnLateTokens = func(t wire.Tokens) { m.late = m.late.Plus(t) }
	var err error
	if m.conn, err = m.Dial(m.Context(), s); err != nil {
		m.Fatal(err)
	}
}

func (m *model) send(message wire.ClientMessage) {
	m.Helper()
	if err := m.conn.Send(m.Context(), message); err != nil {
		m.Fatal(err)
	}
}

func (m *model) types(text string) {
	m.send(wire.ClientMessage{ClientContent: &wire.ClientContent{
		Turns: []wire.Content{{Role: "user", Parts: wire.TextPart(text).JSON()}}, TurnComplete: true,
	}})
}

// sees compares the next messages, in a short form, with the wanted ones.
func (m *model) sees(want ...string) (calls []wire.FunctionCall) {
	m.Helper()
	var got []string
	for range want {
		s, err := m.conn.Recv(m.Context())
		if err != nil {
			m.Fatal(err)
		}
		word := ""
		switch c := s.Content; {
		case s.Tokens != nil:
			word = fmt.Sprint(s.Tokens.Total, " tokens")
		case s.Failed != nil:
			word = "failed: " + s.Failed.Error()
		case s.Resumption != nil:
			word = "handle"
		case s.Cancelled != nil:
			word = fmt.Sprint("cancelled ", len(s.Cancelled))
		case s.ToolCalls != nil:
			calls = append(calls, s.ToolCalls...)
			word = fmt.Sprint("calls ", len(s.ToolCalls))
		case c.Interrupted:
			word = "interrupted"
		case c.TurnComplete:
			word = "end"
		case c.HasThought:
			word = "thought " + c.Thoughts
		default:
			word = c.Text
		}
		got = append(got, word)
	}
	if !slices.Equal(got, want) {
		m.Errorf("got %q, want %q", got, want)
	}
	return calls
}

// contents returns the conversation in the last request, without spaces.
func (m *model) contents() string {
	var request struct {
		Contents         json.RawMessage
		GenerationConfig json.RawMessage
	}
	last := m.requests[len(m.requests)-1]
	if err := json.Unmarshal([]byte(last), &request); err != nil || string(request.GenerationConfig) != `{"temperature":0}` {
		m.Errorf("%v: the request is %s", err, last)
	}
	return string(request.Contents)
}

func parts(list ...string) string {
	return `{"candidates":[{"content":{"parts":[` + strings.Join(list, ",") + `]}}],` +
		`"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":2}}`
}

const says = `{"text":"Well."}`

// In a conversation, the model's text is delivered at once. Each request has the whole conversation, with signed parts
// unchanged. A connection that begins with the handle continues the conversation.
func TestConversation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const call = `{"functionCall":{"name":"f","args":{"n":1}},"thoughtSignature":"s"}`
		m := newModel(t, func(_ context.Context, request string) ([]string, int, error) {
			if strings.Count(request, "functionCall")+1 > strings.Count(request, "Call it") {
				return []string{parts(`{"text":"Hm.","thought":true}`), parts(says)}, 12, nil
			}
			return []string{parts(call)}, 12, nil
		})
		m.types("Hello.")
		m.sees("thought Hm.", "Well.", "0 tokens", "12 tokens", "end", "handle")
		m.types("Call it.")
		calls := m.sees("0 tokens", "12 tokens", "calls 1")
		m.send(wire.ClientMessage{ToolResponse: &wire.ToolResponse{FunctionResponses: []wire.FunctionResponse{
			{ID: calls[0].ID, Name: "f", Response: json.RawMessage(`{"m":2}`)},
		}}})
		m.sees("thought Hm.", "Well.", "0 tokens", "12 tokens", "end", "handle")
		const want = `[{"role":"user","parts":[{"text":"Hello."}]},{"role":"model","parts":[{"text":"Hm.","thought":true},{"text":"Well."}]},` +
			`{"role":"user","parts":[{"text":"Call it."}]},{"role":"model","parts":[` + call + `]},` +
			`{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"m":2}}}]}`
		if got := m.contents(); got != want+"]" {
			t.Errorf("the model got\n%s, want\n%s", got, want+"]")
		}
		m.conn.Close()
		m.dial(gemini.Setup{Handle: "saved"})
		m.types("On it goes.")
		m.sees("thought Hm.", "Well.", "0 tokens", "12 tokens", "end", "handle")
		if got := m.contents(); !strings.HasPrefix(got, want) {
			t.Errorf("after another dial the model got\n%s", got)
		}
		m.conn.Close()
		m.dial(gemini.Setup{History: []wire.Content{{Role: "model", Parts: json.RawMessage(`[{"text":"Elsewhere."}]`)}}})
		m.types("Here.")
		m.sees("thought Hm.", "Well.", "0 tokens", "12 tokens", "end", "handle")
		if got := m.contents(); !strings.Contains(got, "Elsewhere.") || strings.Contains(got, "Hello.") {
			t.Errorf("a fresh one got\n%s", got)
		}
		m.conn.Close()
		if owed := m.late; owed.Total != 0 {
			t.Errorf("%+v are owed", owed)
		}
	})
}

// If the model calls too many tools at once, each call in its history has a result, even if the person continues before. Google
// rejects a request with a call without a result, and all later requests.
func TestEachCallHasAResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const call = `{"functionCall":{"name":"f","args":{}}}`
		m := newModel(t, func(_ context.Context, request string) ([]string, int, error) {
			if strings.Contains(request, call) {
				return []string{parts(says)}, 12, nil
			}
			return []string{parts(call + strings.Repeat(","+call, 19))}, 12, nil
		})
		m.types("Go.")
		calls := m.sees("0 tokens", "12 tokens", "calls 16")
		m.send(wire.ClientMessage{ToolResponse: &wire.ToolResponse{FunctionResponses: []wire.FunctionResponse{
			{ID: calls[3].ID, Name: "f", Response: json.RawMessage(`{"done":1}`)},
		}}})
		m.types("And?")
		m.sees("cancelled 15", "interrupted", "handle", "Well.", "0 tokens", "12 tokens", "end", "handle")
		got := m.contents()
		n := []int{strings.Count(got, `"functionCall"`), strings.Count(got, `"functionResponse"`), strings.Count(got, "cancelled")}
		if !slices.Equal(n, []int{16, 16, 15}) {
			t.Errorf("%v calls, results and cancellations: %s", n, got)
		}
		m.conn.Close()
	})
}

// The tokens of an interrupted answer are reported: by its connection, or after its end by OnLateTokens.
func TestInterruptedAnswersAreBilled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, func(ctx context.Context, _ string) ([]string, int, error) {
			<-ctx.Done()
			return nil, 7, ctx.Err()
		})
		m.types("One.")
		m.send(wire.ClientMessage{ClientContent: &wire.ClientContent{}}) // stops the answer
		m.sees("0 tokens", "7 tokens", "interrupted", "handle")
		m.types("Two.")
		m.conn.Close()
		if _, err := m.conn.Recv(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a closed connection: %v", err)
		}
		if owed := m.late; owed.Total != 7 {
			t.Errorf("%+v are owed", owed)
		}
	})
}

// Real-time text, such as the late result of a tool, waits for the end of the current answer. Then it gets its own answer.
func TestTextDuringAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		m := newModel(t, func(context.Context, string) ([]string, int, error) {
			<-goOn
			return []string{parts(says)}, 12, nil
		})
		m.types("One.")
		m.send(wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{Text: "By the way."}})
		goOn <- struct{}{}
		m.sees("Well.", "0 tokens", "12 tokens", "end", "handle")
		goOn <- struct{}{}
		m.sees("Well.", "0 tokens", "12 tokens", "end", "handle")
		if got := m.contents(); !strings.HasSuffix(got, `{"role":"user","parts":[{"text":"By the way."}]}]`) {
			t.Errorf("the model got %s", got)
		}
		m.conn.Close()
	})
}

// A failure ends only the answer, not the conversation. So does a model that calls tools again and again.
func TestFailures(t *testing.T) {
	t.Parallel()
	const calls = `{"candidates":[{"content":{"parts":[{"functionCall":{"id":"x","name":"f","args":{}}}]}`
	for name, test := range map[string]struct {
		pieces []string
		err    error
		want   string
	}{
		"refused":           {nil, errors.New("busy"), "busy"},
		"blocked":           {[]string{`{"promptFeedback":{"blockReason":"SAFETY"}}`}, nil, "the answer is not finished: SAFETY"},
		"cut off":           {[]string{calls + `,"finishReason":"MAX_TOKENS"}]}`}, nil, "the answer is not finished: MAX_TOKENS"},
		"nonsense":          {[]string{`[]`}, nil, "malformed"},
		"calls for ever":    {[]string{calls + `}]}`}, nil, "TOO_MANY_TOOL_CALLS"},
		"calls and refuses": {[]string{calls + `}]}`}, errors.New("broken"), "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newModel(t, func(_ context.Context, request string) ([]string, int, error) {
					if strings.Contains(request, "Again.") {
						return []string{parts(says)}, 12, nil
					}
					return test.pieces, 0, test.err
				})
				m.types("Go.")
				for failed := false; !failed; {
					s, err := m.conn.Recv(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					for _, c := range s.ToolCalls {
						m.send(wire.ClientMessage{ToolResponse: &wire.ToolResponse{FunctionResponses: []wire.FunctionResponse{
							{ID: c.ID, Name: c.Name, Response: json.RawMessage(`{"ok":1}`)},
						}}})
					}
					if failed = s.Failed != nil; failed && !strings.Contains(s.Failed.Error(), test.want) {
						t.Errorf("%v, want %s", s.Failed, test.want)
					}
				}
				m.sees("end", "handle")
				m.types("Again.")
				m.sees("Well.", "0 tokens", "12 tokens", "end", "handle")
				if got := m.contents(); strings.Count(got, `"functionCall"`) != strings.Count(got, `"functionResponse"`) {
					t.Errorf("the model got %s", got)
				}
				m.conn.Close()
			})
		})
	}
}

// Of a long conversation, the model gets only the newest questions, each with its whole answer.
func TestLongConversationsAreShortened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, func(context.Context, string) ([]string, int, error) { return []string{parts(says)}, 0, nil })
		for i := range 30 {
			m.types(fmt.Sprint("Question ", i, strings.Repeat(" word", 4000)))
			m.sees("Well.", "0 tokens", "12 tokens", "end", "handle")
		}
		const first = `[{"role":"user","parts":[{"text":"Question 1`
		if got := m.contents(); len(got) > 430<<10 || len(got) < 300<<10 || !strings.HasPrefix(got, first) {
			t.Errorf("%d bytes, beginning with %.60s", len(got), got)
		}
		m.conn.Close()
	})
}
