package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
)

// Tokens counts the tokens of one or more turns.
type Tokens struct {
	Prompt, Response, Total int

	Cached   int // tokens from the cache; included in Prompt
	ToolUse  int // tokens of tool use; not included in Prompt
	Thoughts int // tokens of thoughts; not included in Response

	// PromptBy and ResponseBy divide Prompt and Response by modality: "TEXT", "AUDIO", "IMAGE", "VIDEO".
	PromptBy, ResponseBy map[string]int
}

// maxTokens limits a count from a server, so that sums do not overflow. Real counts are far lower, because the context
// of a model holds 131,072 tokens.
const maxTokens = 1 << 30

// ParseTokens parses usageMetadata. It accepts the field names of both the Gemini API and Vertex AI.
func ParseTokens(raw json.RawMessage) (Tokens, error) {
	type detail struct {
		Modality   string
		TokenCount count
	}
	var wire struct {
		PromptTokenCount, ResponseTokenCount, CandidatesTokenCount, TotalTokenCount count
		CachedContentTokenCount, ToolUsePromptTokenCount, ThoughtsTokenCount        count
		PromptTokensDetails, ResponseTokensDetails, CandidatesTokensDetails         []detail
	}
	if err := unmarshal("usageMetadata", raw, &wire); err != nil {
		return Tokens{}, fmt.Errorf("gemini: %w", err)
	}
	by := func(lists ...[]detail) map[string]int {
		var split map[string]int
		for _, list := range lists {
			for _, d := range list {
				if split == nil {
					split = make(map[string]int)
				}
				split[d.Modality] = min(split[d.Modality]+int(d.TokenCount), maxTokens)
			}
		}
		return split
	}
	u := Tokens{
		Prompt: int(wire.PromptTokenCount), Response: int(max(wire.ResponseTokenCount, wire.CandidatesTokenCount)),
		Total: int(wire.TotalTokenCount), Cached: int(wire.CachedContentTokenCount),
		ToolUse: int(wire.ToolUsePromptTokenCount), Thoughts: int(wire.ThoughtsTokenCount),
		PromptBy: by(wire.PromptTokensDetails),
	}
	// A message has only the field names of one of the two APIs, so only one list is set.
	if u.ResponseBy = by(wire.ResponseTokensDetails); u.ResponseBy == nil {
		u.ResponseBy = by(wire.CandidatesTokensDetails)
	}
	// The total may be missing, or may omit the thoughts. gemini-3.8-live sent a total of 564 for 522 tokens in, 42 out
	// and 136 thought (discuss.ai.google.dev/t/188765, September 2026).
	u.Total = max(u.Total, u.Prompt+u.Response+u.ToolUse+u.Thoughts)
	return u, nil
}

// count is a number of tokens. In JSON it is a number, or a string, because proto3 JSON encodes 64-bit integers as
// strings. Negative counts become 0.
type count int

// UnmarshalJSON implements json.Unmarshaler.
func (c *count) UnmarshalJSON(data []byte) error {
	f, err := strconv.ParseFloat(strings.Trim(string(data), `"`), 64)
	if *c = 0; err != nil && string(data) != "null" && f == 0 {
		return fmt.Errorf("%.40q is no count of tokens", data)
	}
	if f > 0 && !math.IsNaN(f) {
		*c = count(min(f, maxTokens))
	}
	return nil
}

// Plus returns the sum of two counts.
func (t Tokens) Plus(v Tokens) Tokens {
	sum := func(a, b map[string]int) map[string]int {
		if len(a) == 0 && len(b) == 0 {
			return nil
		}
		out := maps.Clone(a)
		if out == nil {
			out = make(map[string]int, len(b))
		}
		for modality, n := range b {
			out[modality] = addSaturating(out[modality], n)
		}
		return out
	}
	return Tokens{
		Prompt: addSaturating(t.Prompt, v.Prompt), Response: addSaturating(t.Response, v.Response), Total: addSaturating(t.Total, v.Total),
		Cached: addSaturating(t.Cached, v.Cached), ToolUse: addSaturating(t.ToolUse, v.ToolUse), Thoughts: addSaturating(t.Thoughts, v.Thoughts),
		PromptBy: sum(t.PromptBy, v.PromptBy), ResponseBy: sum(t.ResponseBy, v.ResponseBy),
	}
}

// Directions of tokens. Unknown also stands for an unknown modality.
const (
	In, Out, Unknown = "in", "out", "unknown"
)

// SplitByModality divides the tokens that were counted since earlier. The keys are direction and modality, such as
// {"in", "AUDIO"}; both may be "unknown". No number is negative.
func (t Tokens) SplitByModality(earlier Tokens) map[[2]string]int {
	split := map[[2]string]int{}
	rest := t.Total - earlier.Total
	for _, d := range []struct {
		direction    string
		by, before   map[string]int
		all, counted int
	}{
		{In, t.PromptBy, earlier.PromptBy, t.Prompt + t.ToolUse, earlier.Prompt + earlier.ToolUse},
		{Out, t.ResponseBy, earlier.ResponseBy, t.Response + t.Thoughts, earlier.Response + earlier.Thoughts},
	} {
		all := d.all - d.counted
		rest -= all
		for modality, n := range d.by {
			n = max(n-d.before[modality], 0)
			split[[2]string{d.direction, modality}] = n
			all -= n
		}
		split[[2]string{d.direction, Unknown}] = max(all, 0)
	}
	split[[2]string{Unknown, Unknown}] = max(rest, 0)
	maps.DeleteFunc(split, func(_ [2]string, n int) bool { return n == 0 })
	return split
}

// addSaturating returns a+b. Negative numbers count as 0. If the sum overflows, it is the largest int.
func addSaturating(a, b int) int {
	a, b = max(a, 0), max(b, 0)
	if a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}

// TokenMeter adds up the tokens of a conversation. The zero value is ready to use. It is not safe for concurrent use.
//
// A usageMetadata counts the tokens of one turn, not of the session, so the meter adds up turns. Three turns on two
// live models gave prompts of 143, 181, 224 tokens and responses of 19, 24, 24 (pydantic/pydantic-ai #7269, August
// 2026). Every turn reads the whole context again, and Google bills it again.
//
// Within a turn, a report replaces the previous report, because the server may send a growing count several times
// (sierra-research/tau2-bench #454). It is unknown whether the count restarts after a tool call. So the meter assumes a
// restart if a count is lower than the previous count, and then adds the two. It counts too little if a restarted count
// is not lower.
type TokenMeter struct {
	previousTurns Tokens // sum of the previous turns
	finished      Tokens // sum of this turn's counts before the last restart
	last          Tokens // the newest report of this turn
}

// Add adds one report.
func (m *TokenMeter) Add(u Tokens) {
	if u.Response < m.last.Response || u.Prompt < m.last.Prompt {
		m.finished = m.finished.Plus(m.last)
	}
	m.last = Tokens{}.Plus(u) // a copy without negative numbers
}

// Turn returns the tokens of this turn so far.
func (m *TokenMeter) Turn() Tokens { return m.finished.Plus(m.last) }

// EndTurn starts the next turn. If a report comes with turnComplete, call Add first, then EndTurn. Also call EndTurn if a turn
// continues on another connection, because the count restarts there.
func (m *TokenMeter) EndTurn() { m.previousTurns, m.finished, m.last = m.Total(), Tokens{}, Tokens{} }

// Total returns the tokens of the conversation, including this turn.
func (m *TokenMeter) Total() Tokens { return m.previousTurns.Plus(m.Turn()) }
