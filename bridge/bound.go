package bridge

import (
	"encoding/json"
	"fmt"

	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/price"
)

const (
	// soundTokens is what a second of sound takes (https://ai.google.dev/gemini-api/docs/live-api, "25 tokens per second").
	soundTokens = 25
	// questionTokens and answerTokens are reserved for each turn: a minute of sound each way. What takes longer reserves
	// more while it lasts.
	questionTokens = 60 * soundTokens
	answerTokens   = 60 * soundTokens
	// bytesPerToken is the least text that a token is, about: 4 bytes is the mean (https://ai.google.dev/gemini-api/docs/tokens).
	bytesPerToken = 2
	// firstTurn is how many tokens are reserved for a turn, while none was more expensive.
	firstTurn = 1000
)

// bound is the most that the turn may cost that is under way, or comes next: the context, which the model has reported and reads anew; what
// went up since; and a question and an answer of a minute.
type bound struct {
	price   price.ModelPrices
	context wire.Tokens // as the next turn reads it
	setup   int         // its bytes
	before  uint64      // see uplink.Uplink.Tokens, when the turn began
	in, out int         // tokens that are reserved besides the context
	answer  int         // of them for one answer
}

// follow notes the configuration in force, which goes into the context.
func (b *bound) follow(c setup.Config) {
	text := c.Effective()
	if len(text) == b.setup {
		return
	}
	b.setup = len(text)
	size := len(text)
	if b.context.Prompt == 0 {
		for _, h := range c.Options.History {
			size += len(h.Content)
		}
	}
	b.context = b.context.Plus(textTokens(size / bytesPerToken))
	var limit struct {
		GenerationConfig struct{ MaxOutputTokens int }
	}
	_ = json.Unmarshal(text, &limit) // it was made here
	b.answer = answerTokens
	if most := limit.GenerationConfig.MaxOutputTokens; most > 0 {
		b.answer = min(b.answer, most)
	}
}

func textTokens(n int) wire.Tokens {
	return wire.Tokens{Prompt: n, Total: n, PromptBy: map[string]int{"TEXT": n}}
}

// read notes what the model has reported of a turn: the next one reads all that this one has read and answered.
func (b *bound) read(t wire.Tokens) {
	b.context = wire.Tokens{PromptBy: t.PromptBy}.Plus(wire.Tokens{PromptBy: t.ResponseBy})
	b.context.Prompt, b.context.Total = t.Total, t.Total
}

// begin is the bound of a turn that has not begun.
func (b *bound) begin(sent uint64) {
	b.before, b.in, b.out = sent, questionTokens, b.answer
}

// grow reserves more for a turn that takes longer than was reserved, and reports whether it does. Sent is what went up so far, in
// thousandths of tokens, spoken what was answered.
func (b *bound) grow(sent uint64, spoken int) bool {
	in := int((sent - b.before) / 1000)
	long := b.answer == answerTokens && 4*spoken > 3*b.out // the last 15 s are for what is not stopped at once: see farewellTime
	if in <= b.in && !long {
		return false
	}
	b.in = max(b.in, in+questionTokens)
	if long {
		b.out = spoken + answerTokens
	}
	return true
}

// micros is the bound in millionths of a US dollar.
func (b *bound) micros() int {
	return int(b.price.Cost(b.context)+b.price.MaxCost(b.in, b.out)) + 1
}

// afford returns the bound of the first turn of a conversation, or why its money cannot be limited.
func (h *shared) afford(o Open, c setup.Config, at string) (first Cost, err error) {
	m, ok := h.options.Prices.PricesOf(c.Model)
	most := o.Dollars()
	money := most > 0
	if !money {
		_, money = o.Account.Limits()
	}
	if money && !ok {
		return Cost{}, &Error{
			Code: CodeForbidden, Field: at + ".model",
			Message: fmt.Sprintf("%s.model %q has no price that this gateway knows, and what may be spent is limited.", at, c.Model),
		}
	}
	b := bound{price: m}
	b.follow(c)
	b.begin(0)
	first = Cost{Tokens: firstTurn}
	if money {
		first.Micros = b.micros()
	}
	if most > 0 && first.Micros > Micros(most) {
		return Cost{}, &Error{
			Code: CodeBusy, Err: ErrBudget,
			Message: fmt.Sprintf("A turn may cost $%.4f, and the conversation may cost $%.4f.", float64(first.Micros)/1e6, most),
		}
	}
	return first, nil
}
