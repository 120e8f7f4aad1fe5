package pricing_test

import (
	"encoding/json"
	"math"
	"testing"

	"voxgate/bridge/gemini/traces"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/pricing"
)

// Google reports 4 to 15 % of a prompt's tokens without a modality (3.x models). Each of them is priced as text.
func TestRecordedUsageIsPaidInFull(t *testing.T) {
	list, err := traces.ReadTests("../gemini/traces/testdata")
	if err != nil {
		t.Fatal(err)
	}
	model, ok := pricing.Default.PricesOf("gemini-3.8-live")
	if !ok {
		t.Fatal("gemini-3.8-live has no price")
	}
	reports, unlisted := 0, 0
	for _, trace := range list {
		for i, l := range trace.Lines {
			var m struct{ UsageMetadata json.RawMessage }
			if json.Unmarshal(l.Msg, &m) != nil || m.UsageMetadata == nil {
				continue
			}
			tokens, err := wire.ParseTokens(m.UsageMetadata)
			if err != nil {
				t.Fatalf("%s, message %d: %v", trace.Name, i, err)
			}
			listed, in, out := tokens, 0, 0
			for _, n := range tokens.PromptBy {
				in += n
			}
			for _, n := range tokens.ResponseBy {
				out += n
			}
			if tokens.PromptBy == nil && tokens.ResponseBy == nil {
				continue // then all tokens count as audio
			}
			listed.Prompt, listed.Response = in, out
			listed.Total = in + out + tokens.ToolUse + tokens.Thoughts
			rest := tokens.Prompt - in + tokens.Response - out + tokens.Total - tokens.Prompt - tokens.Response - tokens.ToolUse - tokens.Thoughts
			want := model.Input["TEXT"]*float64(tokens.Prompt-in) + model.Output["TEXT"]*float64(rest-tokens.Prompt+in)
			if got := model.Cost(tokens) - model.Cost(listed); math.Abs(got-want) > 1e-6 {
				t.Errorf("%s, message %d: %d unlisted tokens cost %.2f millionths of a dollar, want %.2f", trace.Name, i, rest, got, want)
			}
			reports++
			unlisted += rest
		}
	}
	t.Logf("%d reports, %d tokens without a modality", reports, unlisted)
}
