package liveconfig_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/emulator"
	"voxgate/bridge/gemini/wire"
)

// TestProactive: some models are always proactive, others on request.
func TestProactive(t *testing.T) {
	for _, c := range []struct {
		model         string
		always, asked bool
	}{
		{"gemini-2.5-flash-native-audio-latest", false, true},
		{"gemini-3.1-flash-live-preview", false, false},
		{"gemini-3.8-live", true, true},
	} {
		plain := parse(t, door(false), named(c.model, `{}`)).Profile.Proactive
		asked := parse(t, door(false), named(c.model, `{"proactivity":{"proactiveAudio":true}}`)).Profile.Proactive
		if plain != c.always || asked != c.asked {
			t.Errorf("%s: %v, when asked for %v", c.model, plain, asked)
		}
	}
}

func TestTypedTurn(t *testing.T) {
	const pixel = "/9j/" // begins as a JPEG does
	for _, c := range []struct {
		name, model, parts string
		complete           bool
		want               []string
	}{
		{
			"turn", "gemini-3.8-live", `[{"text":"Hi"}]`, true,
			[]string{`{"clientContent":{"turns":[{"role":"user","parts":[{"text":"Hi"}]}],"turnComplete":true}}`},
		},
		{
			"incomplete", "gemini-2.5-flash-native-audio-latest", `[{"text":"Hi"}]`, false,
			[]string{`{"clientContent":{"turns":[{"role":"user","parts":[{"text":"Hi"}]}]}}`},
		},
		{"only the end", "gemini-3.8-live", ` [ ] `, true, []string{`{"clientContent":{"turnComplete":true}}`}},
		{"nothing", "gemini-3.8-live", `[]`, false, nil},
		{"null", "gemini-3.8-live", `null`, false, nil},
		{
			"text on 3.1", "gemini-3.1-flash-live-preview", `[{"text":"Hi"},{"text":"there"}]`, true,
			[]string{`{"realtimeInput":{"text":"Hi\nthere"}}`},
		},
		{
			"picture on 3.1", "gemini-3.1-flash-live-preview",
			`[{"text":"What is this?"},{"inline_data":{"mime_type":"image/jpeg","data":"` + pixel + `"}},` +
				`{"inlineData":{"mimeType":"audio/pcm","data":"AAAA"}}]`,
			false,
			[]string{`{"realtimeInput":{"video":{"mimeType":"image/jpeg","data":"` + pixel + `"}}}`, `{"realtimeInput":{"text":"What is this?"}}`},
		},
		{"nothing on 3.1", "gemini-3.1-flash-live-preview", `[{"inlineData":{"mimeType":"image/png","data":"%"}},{"text":""}]`, true, nil},
		{"no parts on 3.1", "gemini-3.1-flash-live-preview", `7`, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, m := range parse(t, door(false), named(c.model, `{}`)).TypedTurnMessages(json.RawMessage(c.parts), c.complete) {
				got = append(got, encode(t, m))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestTypedTurnIsAnswered sends typed turns to every model of the emulator, after a history.
func TestTypedTurnIsAnswered(t *testing.T) {
	e := emulator.New(emulator.Options{Espeak: emulator.NoVoice})
	server := httptest.NewServer(e)
	t.Cleanup(func() { server.Close(); e.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, m := range conversational {
		client := door(m.vertex)
		client.BaseURL = server.URL
		config := parse(t, client, named(m.model, `{}`))
		conn, err := gemini.Dial(ctx, client, config.Setup("", []wire.Content{
			{
				Role:  "user",
				Parts: json.RawMessage(`[{"text":"My name is Ada."}]`),
			}, {Role: "model", Parts: json.RawMessage(`[{"text":"Hello Ada."}]`)},
		}))
		if err != nil {
			t.Errorf("%s: %v", m.row, err)
			continue
		}
		for _, message := range config.TypedTurnMessages(json.RawMessage(`[{"text":"/history"}]`), true) {
			if err := conn.Send(ctx, message); err != nil {
				t.Errorf("%s: %v", m.row, err)
			}
		}
		said := ""
		for !strings.Contains(said, "Ada") {
			got, err := conn.Recv(ctx)
			if err != nil {
				t.Errorf("%s said %q: %v", m.row, said, err)
				break
			}
			if got.Content != nil {
				said += got.Content.OutputTranscription
			}
		}
		_ = conn.Close()
	}
}

func TestInPlace(t *testing.T) {
	const (
		live  = "gemini-3.8-live"
		plain = `{"systemInstruction":"A","tools":[{"googleSearch":{}}]}`
	)
	for _, c := range []struct {
		name, model, from, to string
		vertex                bool
		want                  string // "": a new connection
	}{
		{"equal", live, plain, plain, false, `null`},
		{
			"equal in other words", live, `{"systemInstruction":"A"}`,
			`{"system_instruction":{"parts":[{"text":"A"}]},"voxgate":{"maxDuration":"1h"},"x":1}`, false, `null`,
		},
		{"equal on an old model", "gemini-3.1-flash-live-preview", plain, plain, false, `null`},
		{
			"instruction", live, plain, `{"systemInstruction":"B","tools":[{"googleSearch":{}}]}`, false,
			`{"systemInstruction":{"parts":[{"text":"B"}]}}`,
		},
		{"first instruction", live, `{}`, `{"systemInstruction":"B"}`, false, `{"systemInstruction":{"parts":[{"text":"B"}]}}`},
		{"no instruction any more", live, plain, `{"tools":[{"googleSearch":{}}]}`, false, ""},
		{
			"tools", live, plain, `{"systemInstruction":"A","tools":[{"functionDeclarations":[{"name":"f"}]}]}`, false,
			`{"tools":{"tools":[{"functionDeclarations":[{"name":"f"}]}]}}`,
		},
		{"no tools any more", live, plain, `{"systemInstruction":"A"}`, false, `{"tools":{}}`},
		{"both", live, plain, `{"systemInstruction":"B"}`, false, `{"systemInstruction":{"parts":[{"text":"B"}]},"tools":{}}`},
		{"on Vertex", live, plain, `{"systemInstruction":"A"}`, true, `{"tools":{}}`},
		{"extended thinking", "gemini-3.8-live-extended-thinking", plain, `{"systemInstruction":"A"}`, false, `{"tools":{}}`},
		{"a model that cannot", "gemini-3.1-flash-live-preview", plain, `{"systemInstruction":"A"}`, false, ""},
		{"an unknown model", "gemini-9", plain, `{"systemInstruction":"A"}`, false, ""},
		{"voice", live, plain, `{"systemInstruction":"A","tools":[{"googleSearch":{}}],"generationConfig":{"temperature":1}}`, false, ""},
		{"both and voice", live, plain, `{"generationConfig":{"temperature":1}}`, false, ""},
		{"resumption", live, plain, `{"systemInstruction":"A","tools":[{"googleSearch":{}}],"voxgate":{"enableResumption":false}}`, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := door(c.vertex)
			update, ok := parse(t, client, named(c.model, c.from)).InPlaceUpdate(parse(t, client, named(c.model, c.to)))
			if ok != (c.want != "") || ok && encode(t, update) != c.want {
				t.Errorf("%s, %v", encode(t, update), ok)
			}
		})
	}
	if _, ok := parse(t, door(false), named(live, `{}`)).InPlaceUpdate(parse(t, door(false), named("gemini-9", `{}`))); ok {
		t.Error("another model in place")
	}
	if update, ok := parse(t, door(false), nil).InPlaceUpdate(parse(t, door(false), json.RawMessage(`{}`))); update != nil || !ok {
		t.Error("no config is not an empty one")
	}
}
