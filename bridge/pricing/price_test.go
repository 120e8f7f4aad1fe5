package pricing_test

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/pricing"
)

// The wanted costs of usageMetadata were computed by hand from Google's prices. The messages are Google's own. The first has
// tokens without a modality, and thoughts outside the total (discuss.ai.google.dev/t/188765). The second has the field names
// of Vertex AI, and the others are from REST.
func TestReceipts(t *testing.T) {
	synctest.Test(t, receipts) // the simulated clock begins before any change of prices
}

func receipts(t *testing.T) {
	for name, test := range map[string]struct {
		model, usage string
		want         float64 // millionths of a dollar
	}{
		"no modality, thoughts": {
			"gemini-3.8-live", `{"promptTokenCount":522,"responseTokenCount":42,"totalTokenCount":564,
				"promptTokensDetails":[{"modality":"TEXT","tokenCount":332},{"modality":"AUDIO","tokenCount":165}],
				"responseTokensDetails":[{"modality":"AUDIO","tokenCount":42}],"thoughtsTokenCount":136}`,
			332*0.75 + 165*3 + 25*0.75 + 42*12 + 136*4.5,
		},
		"Vertex AI": {
			"gemini-live-2.5-flash-native-audio", `{"promptTokenCount":1300,"candidatesTokenCount":75,"totalTokenCount":1375,
				"promptTokensDetails":[{"modality":"AUDIO","tokenCount":1000},{"modality":"VIDEO","tokenCount":258}],
				"candidatesTokensDetails":[{"modality":"AUDIO","tokenCount":75}]}`,
			1000*3 + 258*3 + 42*0.5 + 75*12,
		},
		"only sums": {
			"gemini-3.1-flash-live-preview", `{"promptTokenCount":143,"responseTokenCount":19,"totalTokenCount":162}`, 143*3 + 19*12,
		},
		"only a total": {"models/gemini-3.8-live-extended-thinking", `{"totalTokenCount":"100"}`, 100 * 12},
		"results of tools": {
			"gemini-3.8-flash", `{"promptTokenCount":42,"toolUsePromptTokenCount":900,"candidatesTokenCount":60,"thoughtsTokenCount":500,
				"totalTokenCount":1502}`, 942*0.75 + 560*3.75,
		},
		"a cache": {
			"gemini-2.5-flash", `{"promptTokenCount":1000,"cachedContentTokenCount":500,"candidatesTokenCount":10,"totalTokenCount":1010,
				"promptTokensDetails":[{"modality":"TEXT","tokenCount":800},{"modality":"AUDIO","tokenCount":200}]}`,
			(800*0.3+200*1)/2 + (800*0.03+200*0.1)/2 + 10*2.5,
		},
	} {
		tokens, err := wire.ParseTokens([]byte(test.usage))
		if err != nil {
			t.Fatal(err)
		}
		model, ok := pricing.Default.PricesOf(test.model)
		got := model.Cost(tokens)
		if !ok || math.Abs(got-test.want) > test.want/1000 {
			t.Errorf("%s: %.1f, want %.1f", name, got, test.want)
		}
		if most := model.MaxCost(tokens.Prompt+tokens.ToolUse, tokens.Total-tokens.Prompt-tokens.ToolUse); most < got {
			t.Errorf("%s: at most %.1f, and it is %.1f", name, most, got)
		}
	}
}

func TestModelsWithoutAPrice(t *testing.T) {
	for _, model := range []string{"gemini-9-live", "gemini-2.5-flash-image", "gemini-2.5-pro", "", "gemini-3.8-flash-2027"} {
		if m, ok := pricing.Default.PricesOf(model); ok {
			t.Errorf("%q costs %v", model, m)
		}
	}
}

// A price takes effect at the beginning of its day in UTC.
func TestAPriceChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, day := range []struct {
			on   string
			want float64
		}{{"2026-12-31T23:59:59Z", 0.75}, {"2027-01-01T00:00:00Z", 1.5}, {"2031-01-01T00:00:00Z", 1.5}} {
			at, err := time.Parse(time.RFC3339, day.on)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Until(at))
			if m, _ := pricing.Default.PricesOf("gemini-3.8-flash"); m.Input["TEXT"] != day.want {
				t.Errorf("on %s it costs %v", day.on, m.Input)
			}
		}
	})
}

// An operator's file replaces the table. The error of an invalid file names the place.
func TestAnOperatorsPrices(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prices.json")
	read := func(text string) (pricing.Table, error) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return pricing.ReadFile(file)
	}
	table, err := read(`{"date":"2027-01-01","models":{
		"my-*":{"input":{"TEXT":1},"output":{"TEXT":2}},
		"my-own":{"input":{"TEXT":5},"output":{"TEXT":6}}}}`)
	if err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]float64{"my-own": 5, "models/my-other": 1, "gemini-3.8-live": 0} {
		if m, _ := table.PricesOf(model); m.Input["TEXT"] != want {
			t.Errorf("%s: %v", model, m)
		}
	}
	model := func(more string) string {
		return `{"models":{"a":{"input":{"TEXT":1},"output":{"TEXT":1}` + more + `}}}`
	}
	for text, want := range map[string]string{
		`{"models":{}}`: "models: must not be empty",
		`{"models":{"[":{"input":{"TEXT":1},"output":{"TEXT":1}}}}`:            "not a valid name or pattern",
		`{"models":{"a":{"input":{"TEXT":1},"output":{"AUDIO":1}}}}`:           `models["a"].output.TEXT: missing`,
		`{"models":{"a":{"input":{"TEXT":1,"AUDIO":-1},"output":{"TEXT":1}}}}`: `models["a"].input.AUDIO: must not be negative (-1)`,

		model(`,"thinks":1`):                                 `unknown field "thinks"`,
		model(`,"cached":{}`):                                "cached.TEXT: missing",
		model(`,"thinking":-2`):                              "thinking: must not be negative (-2)",
		model(`,"from":{"soon":{}}`):                         `models["a"].from["soon"] is not a date`,
		model(`,"from":{"2027-01-01":{"input":{"TEXT":1}}}`): `.from["2027-01-01"].output.TEXT: missing`,
	} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := pricing.ReadFile(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there can be read")
	}
}

// talk returns the cost in dollars of a conversation of this length, as docs/cost.md describes it. A context of trigger tokens
// is compressed to target tokens. A trigger of 0 means that it is never compressed.
func talk(m pricing.ModelPrices, minutes, trigger, target int) float64 {
	const prompt, heard, said, turns = 500, 500, 200, 3 // tokens; turns a minute
	cost, context := 0.0, 0
	for range minutes * turns {
		context += heard
		cost += m.Cost(wire.Tokens{
			Prompt: prompt + context, Response: said, Total: prompt + context + said,
			PromptBy: map[string]int{"TEXT": prompt, "AUDIO": context}, ResponseBy: map[string]int{"AUDIO": said},
		})
		if context += said; trigger > 0 && prompt+context >= trigger {
			context = target - prompt
		}
	}
	return cost / 1e6
}

// The tables of docs/cost.md must follow from the prices, so that they cannot become outdated.
func TestTheDocumentOfCosts(t *testing.T) {
	text, err := os.ReadFile("../../docs/cost.md")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	m, _ := pricing.Default.PricesOf("gemini-3.8-live")
	for _, c := range []struct {
		name            string
		trigger, target int
	}{{"none: the context grows", 0, 0}, {"Google's own, `{}`", 104_857, 52_428}, {"the gateway's default", 25_600, 12_800}} {
		lines = append(lines, fmt.Sprintf("| %s | $ %.2f | $ %.2f | $ %.2f |", c.name,
			talk(m, 5, c.trigger, c.target), talk(m, 20, c.trigger, c.target), talk(m, 60, c.trigger, c.target)))
	}
	for _, model := range slices.Sorted(maps.Keys(pricing.Default)) {
		m := pricing.Default[model]
		dollars := func(prices map[string]float64) string {
			var list []string
			for _, modality := range slices.Sorted(maps.Keys(prices)) {
				list = append(list, fmt.Sprintf("%s %g", strings.ToLower(modality), prices[modality]))
			}
			return strings.Join(list, ", ")
		}
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s | %s |", model, dollars(m.Input), dollars(m.Cached), dollars(m.Output)))
		for _, day := range slices.Sorted(maps.Keys(m.ValidFrom)) {
			m := m.ValidFrom[day]
			lines = append(lines, fmt.Sprintf("| from %s | %s | %s | %s |", day, dollars(m.Input), dollars(m.Cached), dollars(m.Output)))
		}
	}
	for _, table := range [][]string{lines[:3], lines[3:]} {
		if want := strings.Join(table, "\n"); !strings.Contains(string(text), want) {
			t.Errorf("docs/cost.md should have\n%s", want)
		}
	}
}
