package bridge

import (
	"encoding/json"
	"fmt"

	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/pricing"
)

const (
	// audioTokensPerSecond is the number of tokens that the model counts for a second of audio:
	// https://ai.google.dev/gemini-api/docs/live-api, "25 tokens per second".
	audioTokensPerSecond = 25
	// questionTokens and answerTokens are reserved for each turn: a minute of audio in each direction. If a turn takes
	// longer, more is reserved.
	questionTokens = 60 * audioTokensPerSecond
	answerTokens   = 60 * audioTokensPerSecond
	// bytesPerToken is a low estimate of the bytes of text per token, so that token counts are not underestimated. The
	// mean is 4 bytes (https://ai.google.dev/gemini-api/docs/tokens).
	bytesPerToken = 2
	// firstTurnTokens is the number of tokens that are reserved for each turn as long as no turn has used more.
	firstTurnTokens = 1000
)

// turnEstimate is an upper bound for the cost of the current or next turn. It is the sum of three parts:
//
//   - the context, which the model reads again
//   - the input since the model last reported the size of the context
//   - a question and an answer of a minute each
type turnEstimate struct {
	prices                  pricing.ModelPrices
	context                 wire.Tokens // input of the next turn
	configBytes             int         // size of the configuration that context includes
	sentBefore              uint64      // uplink.Uplink.MilliTokens at the start of the turn
	reservedIn, reservedOut int         // tokens reserved in addition to the context
	answerReserve           int         // reservedOut at the start of a turn: the tokens of an answer
}

// applyConfig adds the tokens of the current configuration to the context.
func (te *turnEstimate) applyConfig(c liveconfig.Config) {
	text := c.Effective()
	if len(text) == te.configBytes {
		return
	}
	te.configBytes = len(text)
	size := len(text)
	if te.context.Prompt == 0 {
		for _, h := range c.Options.History {
			size += len(h.Content)
		}
	}
	te.context = te.context.Plus(textTokens(size / bytesPerToken))
	var limit struct {
		GenerationConfig struct{ MaxOutputTokens int }
	}
	_ = json.Unmarshal(text, &limit) // cannot fail: text is valid JSON
	te.answerReserve = answerTokens
	if most := limit.GenerationConfig.MaxOutputTokens; most > 0 {
		te.answerReserve = min(te.answerReserve, most)
	}
}

func textTokens(n int) wire.Tokens {
	return wire.Tokens{Prompt: n, Total: n, PromptBy: map[string]int{"TEXT": n}}
}

// recordUsage records the tokens of a turn. They become the context, because the next turn reads everything that this
// turn has read and generated.
func (te *turnEstimate) recordUsage(t wire.Tokens) {
	te.context = wire.Tokens{PromptBy: t.PromptBy}.Plus(wire.Tokens{PromptBy: t.ResponseBy})
	te.context.Prompt, te.context.Total = t.Total, t.Total
}

// startTurn starts the estimate of a new turn. sentMilliTokens is the number of tokens sent before the turn, in
// thousandths.
func (te *turnEstimate) startTurn(sentMilliTokens uint64) {
	te.sentBefore, te.reservedIn, te.reservedOut = sentMilliTokens, questionTokens, te.answerReserve
}

// growReserve extends the reserve if the turn needs more. spokenTokens is the number of tokens of the answer so far.
// hasGrown reports whether the reserve was extended.
func (te *turnEstimate) growReserve(sentMilliTokens uint64, spokenTokens int) (hasGrown bool) {
	in := int((sentMilliTokens - te.sentBefore) / 1000)
	// The answer may go on for farewellTime after the budget is used up. So the reserve grows as soon as only a quarter
	// of it, which is at least 15 s, is left.
	long := te.answerReserve == answerTokens && 4*spokenTokens > 3*te.reservedOut
	if in <= te.reservedIn && !long {
		return false
	}
	te.reservedIn = max(te.reservedIn, in+questionTokens)
	if long {
		te.reservedOut = spokenTokens + answerTokens
	}
	return true
}

// maxMicros returns the estimate in millionths of a US dollar.
func (te *turnEstimate) maxMicros() int {
	return int(te.prices.Cost(te.context)+te.prices.MaxCost(te.reservedIn, te.reservedOut)) + 1
}

// checkBudget returns the estimated cost of the first turn of a conversation. If money is limited, it returns an error
// for a model without a known price, and for a first turn that may cost more than the limit. field is the path of the
// config in the client's message, as in checkModel.
func (h *hostState) checkBudget(o SessionRequest, c liveconfig.Config, field string) (first Cost, err error) {
	m, ok := h.options.Prices.PricesOf(c.Model)
	most := o.MaxDollars()
	money := most > 0
	if !money {
		_, money = o.Account.HasLimits()
	}
	if money && !ok {
		return Cost{}, &Error{
			Code: CodeForbidden, Field: field + ".model",
			Message: fmt.Sprintf("%s.model %q has no known price, and the budget is limited.", field, c.Model),
		}
	}
	b := turnEstimate{prices: m}
	b.applyConfig(c)
	b.startTurn(0)
	first = Cost{Tokens: firstTurnTokens}
	if money {
		first.Micros = b.maxMicros()
	}
	if most > 0 && first.Micros > ToMicros(most) {
		return Cost{}, &Error{
			Code: CodeBusy, Err: ErrBudget,
			Message: fmt.Sprintf("A turn may cost up to $%.4f, but the budget of the conversation is $%.4f.", float64(first.Micros)/1e6, most),
		}
	}
	return first, nil
}
