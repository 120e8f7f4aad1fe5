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

// lowBudgetPercent is the percentage of the budget that is left when the client gets a warning.
const lowBudgetPercent = 10

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
	accountedTokens wire.Tokens // tokens already reported to the account
	accountedMicros float64     // cost already reported to the account, in millionths of a US dollar
	isLowReported   bool        // the client was warned that little of the budget is left
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
func (cm *costMeter) setDollarLimit(dollars float64) {
	if cm.cap.Micros = ToMicros(dollars); dollars > 0 {
		cm.isMoneyLimited = true
	}
}

// applyConfig adapts the estimate and the prices to a new configuration.
func (cm *costMeter) applyConfig(c liveconfig.Config) {
	cm.estimate.applyConfig(c)
	if c.Model == cm.model {
		return
	}
	cm.settleTurn() // at the prices of the previous model
	var ok bool
	cm.estimate.prices, ok = cm.prices.PricesOf(c.Model)
	cm.model, cm.hasUnpriced = c.Model, cm.hasUnpriced || !ok
	cm.estimate.startTurn(cm.uplink.MilliTokens.Load())
}

// addUsage adds tokens that the model has reported.
func (cm *costMeter) addUsage(t wire.Tokens) {
	cm.meter.Add(t)
	cm.hasTurnUsage = true
	cm.estimate.recordUsage(t)
}

// restoreUsage restores the usage that another gateway has already counted and reported to the account: all tokens
// used, the tokens in the context, and the cost. dollars is nil if the cost is unknown.
func (cm *costMeter) restoreUsage(total, contextTokens wire.Tokens, dollars *float64) {
	cm.meter.Add(total)
	cm.meter.EndTurn()
	cm.accountedTokens, cm.estimate.context = total, contextTokens
	if dollars == nil {
		cm.hasUnpriced = true
		return
	}
	cm.settledMicros = *dollars * 1e6
	cm.accountedMicros = cm.settledMicros
}

// settleTurn adds the cost of the turn to the total, and starts a new turn in the token meter.
func (cm *costMeter) settleTurn() {
	cm.settledMicros += cm.estimate.prices.Cost(cm.meter.Turn())
	cm.meter.EndTurn()
	cm.estimate.startTurn(cm.uplink.MilliTokens.Load())
}

// totalDollars returns the cost of the conversation so far, or nil if unknown.
func (cm *costMeter) totalDollars() *float64 {
	if cm.hasUnpriced {
		return nil
	}
	return microsToDollars(cm.settledMicros + cm.estimate.prices.Cost(cm.meter.Turn()))
}

// microsToDollars rounds an amount in millionths of a dollar to a whole number and returns it in dollars. It never
// returns nil.
func microsToDollars(micros float64) *float64 {
	dollars := math.Round(micros) / 1e6
	return &dollars
}

// endTurn reports the tokens of a turn that has ended. If the turn has reached a limit, it returns that limit.
func (cm *costMeter) endTurn() (limit error) {
	if !cm.hasTurnUsage {
		return nil
	}
	cm.hasTurnUsage = false
	u := Usage{Turn: cm.meter.Turn()}
	cm.settleTurn()
	u.Total, u.Dollars = cm.meter.Total(), cm.totalDollars()
	cm.voice.notifyInOrder(cm.subscribers, u)
	cost := cm.reportSpending()
	cm.maxTurnTokens = max(cm.maxTurnTokens, cost.Tokens)
	if limit = cm.recordCostAndReserve(cost); limit != nil {
		cm.log.Info("budget used up", "limit", limit, "tokens", u.Total.Total, "dollars", u.Dollars)
	}
	return limit
}

// recordCostAndReserve reports a cost to the account and reserves the cost of the next turn, or of the rest of the
// current turn. If a limit is reached, or would be exceeded by the reservation, it returns that limit.
func (cm *costMeter) recordCostAndReserve(cost Cost) (limit error) {
	next := Cost{Tokens: max(firstTurnTokens, cm.maxTurnTokens)}
	if cm.isMoneyLimited {
		next.Micros = cm.estimate.maxMicros() + int(cm.estimate.prices.Cost(cm.meter.Turn()))
	}
	remaining, most := cm.account.RecordCost(cost, next)
	if own := cm.cap.Micros - int(math.Ceil(cm.settledMicros)); cm.cap.Micros > 0 && (most.Micros == 0 || own < remaining.Micros) {
		remaining.Micros, most.Micros = own, cm.cap.Micros
	}
	switch {
	case cm.cap.Tokens > 0 && cm.meter.Total().Total >= cm.cap.Tokens:
		return ErrTokenLimit
	case most.Tokens > 0 && remaining.Tokens <= 0, most.Micros > 0 && remaining.Micros < next.Micros:
		return ErrBudget
	case cm.isLowReported, cost == (Cost{}): // warns once, at the end of a turn: a zero cost means that no turn has ended
	case most.Tokens > 0 && remaining.Tokens*100 <= most.Tokens*lowBudgetPercent:
		cm.warnLowBudget(fmt.Sprintf("Of a budget of %d tokens %d are left; then the conversation ends.", most.Tokens, remaining.Tokens),
			map[string]any{"tokensLeft": remaining.Tokens})
	case most.Micros > 0 && (remaining.Micros*100 <= most.Micros*lowBudgetPercent ||
		remaining.Micros < 2*next.Micros): // next turn may be the last
		dollars := *microsToDollars(float64(remaining.Micros))
		cm.warnLowBudget(fmt.Sprintf("Of a budget of $%.2f $%.4f are left; the conversation ends when a turn might cost more.",
			float64(most.Micros)/1e6, dollars), map[string]any{"dollarsLeft": dollars})
	}
	return nil
}

func (cm *costMeter) warnLowBudget(message string, details map[string]any) {
	cm.isLowReported = true
	cm.subscribers.notify(Log{Level: "warn", Message: message, Details: details})
}

// extendReserve reserves more money for a turn that takes longer than estimated. spoken is the length of the turn's
// voice so far. If the new reservation would exceed a limit, it returns that limit.
func (cm *costMeter) extendReserve(spoken time.Duration) (limit error) {
	if !cm.isMoneyLimited || !cm.estimate.growReserve(cm.uplink.MilliTokens.Load(), int(spoken.Seconds()*audioTokensPerSecond)) {
		return nil
	}
	return cm.recordCostAndReserve(Cost{})
}

// reserveAgain renews the reservation because the model reads the context again, or the context has changed. If the new
// reservation would exceed a limit, it returns that limit.
func (cm *costMeter) reserveAgain() (limit error) {
	if !cm.isMoneyLimited {
		return nil
	}
	return cm.recordCostAndReserve(Cost{})
}

// reportSpending returns the cost since its previous call. It also reports this cost to the observer.
func (cm *costMeter) reportSpending() (sinceLast Cost) {
	before, now := cm.accountedTokens, cm.meter.Total()
	cm.accountedTokens = now
	paid := cm.settledMicros + cm.estimate.prices.Cost(cm.meter.Turn())
	if cm.observer.isEnabled() && now.Total > before.Total {
		cm.observer.report(SpendingReport{cm.key, now.SplitByModality(before), (paid - cm.accountedMicros) / 1e6})
	}
	cost := Cost{now.Total - before.Total, int(math.Ceil(paid)) - int(math.Ceil(cm.accountedMicros))}
	cm.accountedMicros = paid
	return cost
}

// close records the cost of an unfinished answer, and ends the account's session.
func (cm *costMeter) close() {
	cm.account.RecordCost(cm.reportSpending(), Cost{})
	cm.account.End()
}
