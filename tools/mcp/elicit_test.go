package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"voxgate/tools"
	"voxgate/tools/mcp"
)

// asked is a user who gets questions as canvases, and gives the listed answers.
type asked struct {
	canvases []string
	answers  []string
}

func (a *asked) env() *tools.Env {
	return &tools.Env{AskPerson: func(_ context.Context, canvas json.RawMessage) (json.RawMessage, error) {
		a.canvases = append(a.canvases, string(canvas))
		return json.RawMessage(a.answers[min(len(a.canvases), len(a.answers))-1]), nil
	}}
}

const everyKind = `{"message":"Who <is> it?","schema":{"type":"object","required":["name","age"],"properties":{
	"name":{"type":"string","title":"Your name","description":"as in the passport","default":"Ada"},
	"age":{"type":"integer"},
	"action":{"type":"string","format":"email"},
	"color":{"type":"string","enum":["r","g"],"enumNames":["Red <1>","Green"]},
	"days":{"type":"array","items":{"type":"string","enum":["mon","tue","wed"]},"default":["mon","tue"]},
	"height":{"type":"number","default":1.5},
	"member":{"type":"boolean","default":true},
	"size":{"type":"string","oneOf":[{"const":"s","title":"Small"},{"const":"l","title":"Large"}]},
	"site":{"type":"string","format":"uri"},
	"when":{"type":"string","format":"date-time"}}}}`

const everyCanvas = `{"elements":[{"type":"text","value":"Who \u0026lt;is\u0026gt; it?"},` +
	`{"hint":"as in the passport","id":"value-0","label":"Your name","required":true,"type":"input","value":"Ada"},` +
	`{"id":"value-1","kind":"number","label":"age","required":true,"type":"input"},` +
	`{"id":"value-2","kind":"email","label":"action","required":false,"type":"input"},` +
	`{"type":"text","value":"color"},{"items":["Red \u0026lt;1\u0026gt;","Green"],"ordered":true,"type":"list"},` +
	`{"hint":"(one of these, or its number)","id":"value-3","label":"color","required":false,"type":"input"},` +
	`{"type":"text","value":"days"},{"items":["mon","tue","wed"],"ordered":true,"type":"list"},` +
	`{"hint":"(several of these, with commas between them)","id":"value-4","label":"days","required":false,` +
	`"type":"input","value":"mon, tue"},` +
	`{"id":"value-5","kind":"number","label":"height","required":false,"type":"input","value":"1.5"},` +
	`{"hint":"(yes or no)","id":"value-6","label":"member","required":false,"type":"input","value":"Yes"},` +
	`{"id":"value-7","kind":"url","label":"site","required":false,"type":"input"},` +
	`{"type":"text","value":"size"},{"items":["Small","Large"],"ordered":true,"type":"list"},` +
	`{"hint":"(one of these, or its number)","id":"value-8","label":"size","required":false,"type":"input"},` +
	`{"hint":"(as 2026-11-21T21:06:00Z)","id":"value-9","label":"when","required":false,"type":"input"},` +
	`{"action":"submit","label":"Send","type":"button"},{"action":"decline","label":"Decline","type":"button"}],"type":"canvas"}`

func TestElicitation(t *testing.T) {
	everyNewWay(t, func(t *testing.T, o mcp.Options) {
		s := connect(t, o)
		for name, test := range map[string]struct {
			args     string
			answers  []string
			want     string
			canvases int
		}{
			"all": {
				everyKind,
				[]string{`{"value-0":" Ada ","value-1":"9007199254740992","value-2":"a@b.c","value-3":"green","value-4":"mon, 3",` +
					`"value-5":"1.75","value-6":"no","value-7":"","value-8":"2","action":"submit"}`},
				`{"action":"accept","content":{"action":"a@b.c","age":9007199254740992,"color":"g","days":["mon","wed"],"height":1.75,` +
					`"member":false,"name":"Ada","size":"l"}}`, 1,
			},
			"asked again": {
				everyKind,
				[]string{`{"value-0":"Ada","value-1":"old","action":"submit"}`, `{"value-0":"Ada","value-1":36,"action":"submit"}`},
				`{"action":"accept","content":{"age":36,"days":["mon","tue"],"height":1.5,"member":true,"name":"Ada"}}`, 2,
			},
			"asked in vain": {everyKind, []string{`{"value-0":"","action":"submit"}`}, `{"action":"cancel"}`, 5},
			"declined":      {everyKind, []string{`{"value-0":"Ada","action":"decline"}`}, `{"action":"decline"}`, 1},
			"hidden":        {everyKind, []string{`{"dismissed":true}`}, `{"action":"cancel"}`, 1},
			"nothing wanted": {
				`{"message":"Sure?","schema":{"type":"object","properties":{}}}`,
				[]string{`{"action":"submit"}`},
				`{"action":"accept"}`, 1,
			},
			"a button": {
				`{"message":"Which?","schema":{"type":"object","properties":{"c":{"type":"string","enum":["x","y"]}}}}`,
				[]string{`{"action":"choice-1"}`},
				`{"action":"accept","content":{"c":"y"}}`, 1,
			},
			"no": {
				`{"message":"Sure?","schema":{"type":"object","required":["sure"],"properties":{"sure":{"type":"boolean"}}}}`,
				[]string{`{"action":"choice-1"}`},
				`{"action":"accept","content":{"sure":false}}`, 1,
			},
		} {
			person := &asked{answers: test.answers}
			got, err := run(t, tools.WithEnv(t.Context(), person.env()), s, "ask", test.args)
			if err != nil || compact(t, got) != compact(t, test.want) || len(person.canvases) != test.canvases {
				t.Errorf("%s: %s, %v, after %d canvases; want %s", name, got, err, len(person.canvases), test.want)
			}
			switch {
			case name == "all" && person.canvases[0] != everyCanvas:
				t.Errorf("canvas\n%s, want\n%s", person.canvases[0], everyCanvas)
			case name == "asked again" && !strings.Contains(person.canvases[1], `age: \u0026#34;old\u0026#34; is not a number`):
				t.Errorf("asked again without saying why: %s", person.canvases[1])
			case name == "a button" && !strings.Contains(person.canvases[0], `{"action":"choice-1","label":"y","type":"button"}`):
				t.Errorf("canvas %s", person.canvases[0])
			}
		}
	})
}

// compact returns JSON in a normal form, so that two texts can be compared.
func compact(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Errorf("%s: %v", text, err)
	}
	return encode(t, v)
}

func TestElicitationWithoutUser(t *testing.T) {
	everyNewWay(t, func(t *testing.T, o mcp.Options) {
		s := connect(t, o)
		if _, err := run(t, t.Context(), s, "ask", everyKind); err == nil || !strings.Contains(err.Error(), tools.ErrNobody.Error()) {
			t.Errorf("%v", err)
		}
	})
}

// TestElicitationReachesItsCaller: a question reaches the user of its own call while other calls run. In the older protocol a
// question names no call, so it reaches no user, even if only one call runs.
func TestElicitationReachesItsCaller(t *testing.T) {
	question := `{"message":"Sure?","schema":{"type":"object","properties":{}}}`
	everyNewWay(t, func(t *testing.T, o mcp.Options) {
		s := connect(t, o)
		runs, done := make(chan struct{}), make(chan error)
		other := &asked{answers: []string{`{"dismissed":true}`}}
		env := other.env()
		env.SendPartial = func(json.RawMessage) { close(runs) }
		go func() {
			_, err := run(t, tools.WithEnv(t.Context(), env), s, "progress", `{}`)
			done <- err
		}()
		<-runs
		person := &asked{answers: []string{`{"action":"submit"}`}}
		if got, err := run(t, tools.WithEnv(t.Context(), person.env()), s, "ask", question); err != nil || !strings.Contains(got, `"accept"`) {
			t.Errorf("%s, %v", got, err)
		}
		if len(other.canvases) != 0 {
			t.Errorf("somebody else was asked: %s", other.canvases)
		}
		if _, err := run(t, t.Context(), s, "release", `{}`); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	everyLegacyWay(t, func(t *testing.T, o mcp.Options) {
		person := &asked{answers: []string{`{"action":"submit"}`}}
		got, err := run(t, tools.WithEnv(t.Context(), person.env()), connect(t, o), "ask", question)
		if err == nil || !strings.Contains(err.Error(), "does not say which call") || len(person.canvases) > 0 {
			t.Errorf("%s, %v, after %s", got, err, person.canvases)
		}
	})
}

// TestLateQuestion: if the server asks a question for a cancelled call, no user gets it. The only other user with a pending
// call would answer for someone else.
func TestLateQuestion(t *testing.T) {
	everyLegacyWay(t, func(t *testing.T, o mcp.Options) {
		s := connect(t, o)
		ada, hangUp := context.WithCancelCause(t.Context())
		ada = tools.WithEnv(ada, &tools.Env{
			SessionInfo: tools.SessionInfo{Session: "ada"}, SendPartial: func(json.RawMessage) { hangUp(tools.ErrCancelled) },
		})
		if _, err := run(t, ada, s, "late", `{}`); !errors.Is(err, tools.ErrCancelled) {
			t.Error(err)
		}
		bob := &asked{answers: []string{`{"value-0":"Bob's PIN","action":"submit"}`}}
		got, err := run(t, tools.WithEnv(t.Context(), bob.env()), s, "asked", `{}`)
		if err != nil || !strings.Contains(got, "does not say which call") || len(bob.canvases) > 0 {
			t.Errorf("Bob was asked %s; the server got %s, %v", bob.canvases, got, err)
		}
	})
}
