package wire_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"testing"

	"voxgate/bridge/gemini/wire"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     wire.Tokens
		bad      bool
	}{
		{
			name: "Gemini API",
			in: `{"promptTokenCount":100,"cachedContentTokenCount":40,"responseTokenCount":20,"toolUsePromptTokenCount":3,` +
				`"thoughtsTokenCount":7,"totalTokenCount":130,"promptTokensDetails":[{"modality":"AUDIO","tokenCount":60},` +
				`{"modality":"TEXT","tokenCount":30},{"modality":"AUDIO","tokenCount":10}],` +
				`"responseTokensDetails":[{"modality":"AUDIO","tokenCount":20}]}`,
			want: wire.Tokens{
				Prompt: 100, Response: 20, Total: 130, Cached: 40, ToolUse: 3, Thoughts: 7,
				PromptBy: map[string]int{"AUDIO": 70, "TEXT": 30}, ResponseBy: map[string]int{"AUDIO": 20},
			},
		},
		{
			name: "Vertex",
			in: `{"promptTokenCount":"10","candidatesTokenCount":"5","totalTokenCount":"15",` +
				`"candidatesTokensDetails":[{"modality":"AUDIO","tokenCount":"5"}]}`,
			want: wire.Tokens{
				Prompt: 10, Response: 5, Total: 15, ResponseBy: map[string]int{"AUDIO": 5},
			},
		},
		{
			name: "no total", in: `{"promptTokenCount":10,"responseTokenCount":5,"thoughtsTokenCount":1,"toolUsePromptTokenCount":2}`,
			want: wire.Tokens{Prompt: 10, Response: 5, Thoughts: 1, ToolUse: 2, Total: 18},
		},
		{name: "empty", in: `{}`},
		{name: "null", in: `{"promptTokenCount":null}`},
		{
			name: "absurd", in: `{"promptTokenCount":-5,"responseTokenCount":"1e400","totalTokenCount":"NaN","thoughtsTokenCount":1e300}`,
			want: wire.Tokens{Response: 1 << 30, Thoughts: 1 << 30, Total: 1 << 31},
		},
		{name: "not a count", in: `{"promptTokenCount":{}}`, bad: true},
		{name: "not an object", in: `[]`, bad: true},
		{name: "not JSON", in: `{`, bad: true},
	} {
		got, err := wire.ParseTokens(json.RawMessage(c.in))
		if !reflect.DeepEqual(got, c.want) || (err != nil) != c.bad {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

func TestTokenMeter(t *testing.T) {
	var m wire.TokenMeter
	want := func(what string, got, want wire.Tokens) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	count := func(prompt, response int) wire.Tokens {
		return wire.Tokens{Prompt: prompt, Response: response, Total: prompt + response, ResponseBy: map[string]int{"AUDIO": response}}
	}
	want("nothing", m.Total(), wire.Tokens{})
	// The probe of pydantic-ai #7269: each turn reads the whole context again.
	for _, turn := range [][2]int{{143, 19}, {181, 24}, {224, 24}} {
		m.Add(count(turn[0], turn[1]))
		want("turn", m.Turn(), count(turn[0], turn[1]))
		m.EndTurn()
		want("next turn", m.Turn(), wire.Tokens{})
	}
	want("three turns", m.Total(), count(143+181+224, 19+24+24))

	// Several reports in one turn: the last one counts, until a count falls.
	m = wire.TokenMeter{}
	m.Add(count(100, 5))
	m.Add(count(100, 9))
	m.Add(count(100, 9))
	want("growing", m.Turn(), count(100, 9))
	m.Add(count(120, 4))
	want("after a tool call", m.Turn(), count(220, 13))
	m.Add(count(120, 6))
	want("after it, growing", m.Turn(), count(220, 15))
	m.EndTurn()
	m.Add(count(10, 1))
	want("another connection", m.Turn(), count(10, 1))
	want("both", m.Total(), count(230, 16))

	// A turn without a report costs nothing that we know of.
	m.EndTurn()
	m.EndTurn()
	want("silent turns", m.Total(), count(230, 16))

	m = wire.TokenMeter{}
	for range 3 {
		m.Add(wire.Tokens{Prompt: math.MaxInt, Response: -7, PromptBy: map[string]int{"AUDIO": math.MaxInt, "TEXT": -1}})
		m.EndTurn()
	}
	want("absurd", m.Total(), wire.Tokens{Prompt: math.MaxInt, PromptBy: map[string]int{"AUDIO": math.MaxInt, "TEXT": 0}})

	// The caller may change a result without an effect on the meter.
	m = wire.TokenMeter{}
	m.Add(count(1, 1))
	m.Turn().ResponseBy["AUDIO"] = 99
	m.Total().ResponseBy["AUDIO"] = 99
	want("untouched", m.Turn(), count(1, 1))
}

func TestSplitTokens(t *testing.T) {
	before := wire.Tokens{Prompt: 10, Total: 12, Response: 2, PromptBy: map[string]int{"AUDIO": 8}}
	for name, test := range map[string]struct {
		now  wire.Tokens
		want string
	}{
		"nothing":        {before, "map[]"},
		"a total alone":  {wire.Tokens{Prompt: 10, Response: 2, Total: 32, PromptBy: before.PromptBy}, "map[[unknown unknown]:20]"},
		"a prompt alone": {wire.Tokens{Prompt: 15, Response: 2, Total: 17, PromptBy: before.PromptBy}, "map[[in unknown]:5]"},
		"thoughts and tools": {
			wire.Tokens{Prompt: 10, Response: 2, ToolUse: 3, Thoughts: 4, Total: 19, PromptBy: before.PromptBy},
			"map[[in unknown]:3 [out unknown]:4]",
		},
		"some have modality": {
			wire.Tokens{Prompt: 20, Response: 2, Total: 22, PromptBy: map[string]int{"AUDIO": 12, "TEXT": 1}},
			"map[[in AUDIO]:4 [in TEXT]:1 [in unknown]:5]",
		},
		"more by modality":    {wire.Tokens{Prompt: 11, Response: 2, Total: 13, PromptBy: map[string]int{"AUDIO": 18}}, "map[[in AUDIO]:10]"},
		"a count that shrank": {wire.Tokens{Prompt: 10, Response: 1, Total: 11, PromptBy: map[string]int{"AUDIO": 7}}, "map[]"},
	} {
		if got := fmt.Sprint(test.now.SplitByModality(before)); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
