package bridge

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/price"
	"voxgate/bridge/uplink"
)

// lowBudget is the part of the budget that is left when the client gets a warning.
const lowBudget = 10 // of a hundred

// spending counts the tokens that a conversation uses and what they cost, and accounts for them. The loop owns it.
type spending struct {
	audience *audience
	voice    *voice
	observer observer
	log      *slog.Logger
	account  Account
	key      string // see [Origin]
	most     Cost   // of this conversation: [Options].MaxTokens and Open.dollars
	money    bool   // is limited
	prices   price.Table
	up       *uplink.Uplink

	model    string
	unpriced bool    // some of the conversation has no price that is known
	paid     float64 // of turns that are over, in millionths of a US dollar
	next     bound

	meter   wire.TokenMeter
	turn    bool        // some were used in this turn
	dearest int         // tokens of the most expensive turn
	counted wire.Tokens // what is already accounted for
	charged float64     // likewise, in millionths of a US dollar
	low     bool        // the client knows that little is left
}

func newSpending(h *shared, o Open, a *audience, v *voice, ob observer, log *slog.Logger, up *uplink.Uplink) *spending {
	p := &spending{
		audience: a, voice: v, observer: ob, log: log, up: up,
		account: o.Account, key: o.Origin.Key, most: Cost{Tokens: h.options.MaxTokens}, prices: h.options.Prices,
	}
	_, p.money = o.Account.Limits()
	p.limit(o.Dollars())
	return p
}

// limit is what the conversation may cost in US dollars; 0: no limit of its own.
func (p *spending) limit(dollars float64) {
	if p.most.Micros = Micros(dollars); dollars > 0 {
		p.money = true
	}
}

// follow notes the configuration in force.
func (p *spending) follow(c setup.Config) {
	p.next.follow(c)
	if c.Model == p.model {
		return
	}
	p.settle() // at the prices of the model before
	var ok bool
	p.next.price, ok = p.prices.PricesOf(c.Model)
	p.model, p.unpriced = c.Model, p.unpriced || !ok
	p.next.begin(p.up.MilliTokens.Load())
}

// add notes a report of the model.
func (p *spending) add(t wire.Tokens) {
	p.meter.Add(t)
	p.turn = true
	p.next.read(t)
}

// restore notes what was spent at another gateway, and accounted for there. No dollars: it is not known how many.
func (p *spending) restore(t, context wire.Tokens, dollars *float64) {
	p.meter.Add(t)
	p.meter.EndTurn()
	p.counted, p.next.context = t, context
	if dollars == nil {
		p.unpriced = true
		return
	}
	p.paid = *dollars * 1e6
	p.charged = p.paid
}

// settle ends the turn of the meter, and adds up what it has cost.
func (p *spending) settle() {
	p.paid += p.next.price.Cost(p.meter.Turn())
	p.meter.EndTurn()
	p.next.begin(p.up.MilliTokens.Load())
}

// dollars is what the conversation has cost so far; nil: that is not known.
func (p *spending) dollars() *float64 {
	if p.unpriced {
		return nil
	}
	return dollarsOf(p.paid + p.next.price.Cost(p.meter.Turn()))
}

// dollarsOf are millionths of a dollar as dollars, to the millionth.
func dollarsOf(micros float64) *float64 {
	dollars := math.Round(micros) / 1e6
	return &dollars
}

// endTurn reports the tokens of a turn. It returns the limit that the turn has reached, if any.
func (p *spending) endTurn() (limit error) {
	if !p.turn {
		return nil
	}
	p.turn = false
	u := Usage{Turn: p.meter.Turn()}
	p.settle()
	u.Total, u.Dollars = p.meter.Total(), p.dollars()
	p.voice.notifyInOrder(p.audience, u)
	cost := p.uncounted()
	p.dearest = max(p.dearest, cost.Tokens)
	if limit = p.reserve(cost); limit != nil {
		p.log.Info("what may be spent is spent", "limit", limit, "tokens", u.Total.Total, "dollars", u.Dollars)
	}
	return limit
}

// reserve accounts for a cost and reserves the next turn, or what the one under way may still cost. It returns the limit that leaves no
// room for that.
func (p *spending) reserve(cost Cost) (limit error) {
	next := Cost{Tokens: max(firstTurn, p.dearest)}
	if p.money {
		next.Micros = p.next.micros() + int(p.next.price.Cost(p.meter.Turn()))
	}
	left, most := p.account.Spend(cost, next)
	if own := p.most.Micros - int(math.Ceil(p.paid)); p.most.Micros > 0 && (most.Micros == 0 || own < left.Micros) {
		left.Micros, most.Micros = own, p.most.Micros
	}
	switch {
	case p.most.Tokens > 0 && p.meter.Total().Total >= p.most.Tokens:
		return ErrTokenLimit
	case most.Tokens > 0 && left.Tokens <= 0, most.Micros > 0 && left.Micros < next.Micros:
		return ErrBudget
	case p.low, cost == (Cost{}): // at the end of turns only, when somebody is there
	case most.Tokens > 0 && left.Tokens*100 <= most.Tokens*lowBudget:
		p.warn(fmt.Sprintf("Of %d tokens that may be spent %d are left; then the conversation ends.", most.Tokens, left.Tokens),
			map[string]any{"tokensLeft": left.Tokens})
	case most.Micros > 0 && (left.Micros*100 <= most.Micros*lowBudget || left.Micros < 2*next.Micros): // or the next turn may be the last
		dollars := *dollarsOf(float64(left.Micros))
		p.warn(fmt.Sprintf("Of $%.2f that may be spent $%.4f are left; the conversation ends when a turn might cost more.",
			float64(most.Micros)/1e6, dollars), map[string]any{"dollarsLeft": dollars})
	}
	return nil
}

func (p *spending) warn(message string, details map[string]any) {
	p.low = true
	p.audience.notify(Log{Level: "warn", Message: message, Details: details})
}

// watch reserves more for a turn that takes longer than was reserved for it. It returns the limit that leaves no room for that.
func (p *spending) watch(spoken time.Duration) (limit error) {
	if !p.money || !p.next.grow(p.up.MilliTokens.Load(), int(spoken.Seconds()*soundTokens)) {
		return nil
	}
	return p.reserve(Cost{})
}

// again reserves the next turn, or the rest of this one, where the context is read once more or has changed.
func (p *spending) again() (limit error) {
	if !p.money {
		return nil
	}
	return p.reserve(Cost{})
}

// uncounted is what was used since the last call. It reports that to the observer, too.
func (p *spending) uncounted() Cost {
	before, now := p.counted, p.meter.Total()
	p.counted = now
	paid := p.paid + p.next.price.Cost(p.meter.Turn())
	if p.observer.on() && now.Total > before.Total {
		p.observer.report(Spent{p.key, now.Split(before), (paid - p.charged) / 1e6})
	}
	cost := Cost{now.Total - before.Total, int(math.Ceil(paid)) - int(math.Ceil(p.charged))}
	p.charged = paid
	return cost
}

// close accounts for an answer that was not over.
func (p *spending) close() {
	p.account.Spend(p.uncounted(), Cost{})
	p.account.End()
}
