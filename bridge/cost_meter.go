package bridge

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/pricing"
	"voxgate/bridge/uplink"
)

// lowBudgetPercent is the remaining share of the budget at which the client gets a warning.
const lowBudgetPercent = 10 // percent of the budget

// costMeter counts the tokens and costs of a conversation, and reports them to its account. It belongs to the session's
// loop.
type costMeter struct {
	subscribers    *subscribers
	voice          *voice
	observer       observer
	log            *slog.Logger
	account        Account
	key            string // see [Origin]
	cap            Cost   // limit of this conversation: [Options].MaxTokens and SessionRequest.MaxDollars
	isMoneyLimited bool   // a money limit applies
	prices         pricing.Table
	uplink         *uplink.Uplink

	model         string
	hasUnpriced   bool    // part of the conversation has an unknown price
	settledMicros float64 // cost of ended turns, in millionths of a US dollar
	estimate      turnEstimate

	meter           wire.TokenMeter
	hasTurnUsage    bool        // tokens were used in this turn
	maxTurnTokens   int         // tokens of the largest turn so far
	accountedTokens wire.Tokens // already accounted for
	accountedMicros float64     // already accounted for, in millionths of a US dollar
	isLowReported   bool        // the client was warned that little is left
}

func newCostMeter(h *hostState, o SessionRequest, a *subscribers, v *voice, ob observer, log *slog.Logger, up *uplink.Uplink) *costMeter {
	p := &costMeter{
		subscribers: a, voice: v, observer: ob, log: log, uplink: up,
		account: o.Account, key: o.Origin.Key, cap: Cost{Tokens: h.options.MaxTokens}, prices: h.options.Prices,
	}
	_, p.isMoneyLimited = o.Account.HasLimits()
	p.setDollarLimit(o.MaxDollars())
	return p
}

// setDollarLimit sets the budget of the conversation in US dollars; 0 means that only the account limits it.
func (p *costMeter) setDollarLimit(dollars float64) {
	if p.cap.Micros = ToMicros(dollars); dollars > 0 {
		p.isMoneyLimited = true
	}
}

// applyConfig applies the configuration in force.
func (p *costMeter) applyConfig(c liveconfig.Config) {
	p.estimate.applyConfig(c)
	if c.Model == p.model {
		return
	}
	p.settleTurn() // at the prices of the previous model
	var ok bool
	p.estimate.prices, ok = p.prices.PricesOf(c.Model)
	p.model, p.hasUnpriced = c.Model, p.hasUnpriced || !ok
	p.estimate.startTurn(p.uplink.MilliTokens.Load())
}

// addUsage adds reported tokens.
func (p *costMeter) addUsage(t wire.Tokens) {
	p.meter.Add(t)
	p.hasTurnUsage = true
	p.estimate.recordUsage(t)
}

// restoreUsage restores what was used and accounted for at another gateway. dollars is nil if unknown.
func (p *costMeter) restoreUsage(t, context wire.Tokens, dollars *float64) {
	p.meter.Add(t)
	p.meter.EndTurn()
	p.accountedTokens, p.estimate.context = t, context
	if dollars == nil {
		p.hasUnpriced = true
		return
	}
	p.settledMicros = *dollars * 1e6
	p.accountedMicros = p.settledMicros
}

// settleTurn ends the turn of the token meter, and adds its cost.
func (p *costMeter) settleTurn() {
	p.settledMicros += p.estimate.prices.Cost(p.meter.Turn())
	p.meter.EndTurn()
	p.estimate.startTurn(p.uplink.MilliTokens.Load())
}

// totalDollars returns the cost of the conversation so far, or nil if unknown.
func (p *costMeter) totalDollars() *float64 {
	if p.hasUnpriced {
		return nil
	}
	return microsToDollars(p.settledMicros + p.estimate.prices.Cost(p.meter.Turn()))
}

// microsToDollars converts millionths of a dollar to dollars.
func microsToDollars(micros float64) *float64 {
	dollars := math.Round(micros) / 1e6
	return &dollars
}

// endTurn reports the tokens of a turn. It returns the limit that the turn has reached, if any.
func (p *costMeter) endTurn() (limit error) {
	if !p.hasTurnUsage {
		return nil
	}
	p.hasTurnUsage = false
	u := Usage{Turn: p.meter.Turn()}
	p.settleTurn()
	u.Total, u.Dollars = p.meter.Total(), p.totalDollars()
	p.voice.notifyInOrder(p.subscribers, u)
	cost := p.takeUnaccounted()
	p.maxTurnTokens = max(p.maxTurnTokens, cost.Tokens)
	if limit = p.reserveNext(cost); limit != nil {
		p.log.Info("budget used up", "limit", limit, "tokens", u.Total.Total, "dollars", u.Dollars)
	}
	return limit
}

// reserveNext reports a cost to the account and reserves the cost of the next turn, or of the rest of the current turn.
// It returns the limit that this would exceed, or nil.
func (p *costMeter) reserveNext(cost Cost) (limit error) {
	next := Cost{Tokens: max(firstTurnTokens, p.maxTurnTokens)}
	if p.isMoneyLimited {
		next.Micros = p.estimate.maxMicros() + int(p.estimate.prices.Cost(p.meter.Turn()))
	}
	remaining, most := p.account.RecordCost(cost, next)
	if own := p.cap.Micros - int(math.Ceil(p.settledMicros)); p.cap.Micros > 0 && (most.Micros == 0 || own < remaining.Micros) {
		remaining.Micros, most.Micros = own, p.cap.Micros
	}
	switch {
	case p.cap.Tokens > 0 && p.meter.Total().Total >= p.cap.Tokens:
		return ErrTokenLimit
	case most.Tokens > 0 && remaining.Tokens <= 0, most.Micros > 0 && remaining.Micros < next.Micros:
		return ErrBudget
	case p.isLowReported, cost == (Cost{}): // warns once, at the end of a turn, when there is a caller
	case most.Tokens > 0 && remaining.Tokens*100 <= most.Tokens*lowBudgetPercent:
		p.warnLowBudget(fmt.Sprintf("Of a budget of %d tokens %d are left; then the conversation ends.", most.Tokens, remaining.Tokens),
			map[string]any{"tokensLeft": remaining.Tokens})
	case most.Micros > 0 && (remaining.Micros*100 <= most.Micros*lowBudgetPercent ||
		remaining.Micros < 2*next.Micros): // next turn may be the last
		dollars := *microsToDollars(float64(remaining.Micros))
		p.warnLowBudget(fmt.Sprintf("Of a budget of $%.2f $%.4f are left; the conversation ends when a turn might cost more.",
			float64(most.Micros)/1e6, dollars), map[string]any{"dollarsLeft": dollars})
	}
	return nil
}

func (p *costMeter) warnLowBudget(message string, details map[string]any) {
	p.isLowReported = true
	p.subscribers.notify(Log{Level: "warn", Message: message, Details: details})
}

// extendReserve reserves more for a turn that takes longer than estimated. It returns the limit that this would exceed,
// or nil.
func (p *costMeter) extendReserve(spoken time.Duration) (limit error) {
	if !p.isMoneyLimited || !p.estimate.growReserve(p.uplink.MilliTokens.Load(), int(spoken.Seconds()*audioTokensPerSecond)) {
		return nil
	}
	return p.reserveNext(Cost{})
}

// reserveAgain renews the reservation for the next turn, or for the rest of this turn, when the model reads the context
// once more or the context has changed.
func (p *costMeter) reserveAgain() (limit error) {
	if !p.isMoneyLimited {
		return nil
	}
	return p.reserveNext(Cost{})
}

// takeUnaccounted returns what was used since the last call, and reports it to the observer.
func (p *costMeter) takeUnaccounted() Cost {
	before, now := p.accountedTokens, p.meter.Total()
	p.accountedTokens = now
	paid := p.settledMicros + p.estimate.prices.Cost(p.meter.Turn())
	if p.observer.isEnabled() && now.Total > before.Total {
		p.observer.report(SpendingReport{p.key, now.Split(before), (paid - p.accountedMicros) / 1e6})
	}
	cost := Cost{now.Total - before.Total, int(math.Ceil(paid)) - int(math.Ceil(p.accountedMicros))}
	p.accountedMicros = paid
	return cost
}

// close records the cost of an unfinished answer, and ends the account's session.
func (p *costMeter) close() {
	p.account.RecordCost(p.takeUnaccounted(), Cost{})
	p.account.End()
}
