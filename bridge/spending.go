package bridge

import (
	"fmt"
	"log/slog"
	"math"

	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/price"
)

// lowBudget is the part of the budget that is left when the client gets a warning.
const lowBudget = 10 // of a hundred

// spending counts the tokens that a conversation uses and what they cost, and accounts for them. The loop owns it.
type spending struct {
	audience *audience
	observer observer
	log      *slog.Logger
	account  Account
	key      string // see [Origin]
	most     int    // see [Options].MaxTokens
	prices   price.Table

	model    string
	price    price.Model // of model
	unpriced bool        // some of the conversation has no price that is known
	paid     float64     // of turns that are over, in millionths of a US dollar

	meter   wire.TokenMeter
	turn    bool        // some were used in this turn
	counted wire.Tokens // what is already accounted for
	charged float64     // likewise, in dollars
	low     bool        // the client knows that little is left
}

// follow notes which model is in force.
func (p *spending) follow(model string) {
	if model == p.model {
		return
	}
	p.settle() // at the prices of the model before
	var ok bool
	p.price, ok = p.prices.Of(model)
	p.model, p.unpriced = model, p.unpriced || !ok
}

// add notes a report of the model.
func (p *spending) add(t wire.Tokens) {
	p.meter.Add(t)
	p.turn = true
}

// restore notes what was spent at another gateway, and accounted for there. No dollars: it is not known how many.
func (p *spending) restore(t wire.Tokens, dollars *float64) {
	p.meter.Add(t)
	p.meter.EndTurn()
	p.counted = t
	if dollars == nil {
		p.unpriced = true
		return
	}
	p.paid = *dollars * 1e6
	p.charged = p.paid
}

// settle ends the turn of the meter, and adds up what it has cost.
func (p *spending) settle() {
	p.paid += p.price.Cost(p.meter.Turn())
	p.meter.EndTurn()
}

// dollars is what the conversation has cost so far; nil: that is not known.
func (p *spending) dollars() *float64 {
	if p.unpriced {
		return nil
	}
	return dollarsOf(p.paid + p.price.Cost(p.meter.Turn()))
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
	p.audience.notify(u)
	left, most := p.account.Spend(p.uncounted())
	switch {
	case p.most > 0 && u.Total.Total >= p.most:
		p.log.Info("token limit reached", "tokens", u.Total.Total)
		return ErrTokenLimit
	case most == 0:
	case left <= 0:
		p.log.Info("budget spent", "tokens", most)
		return ErrBudget
	case left*100 <= most*lowBudget && !p.low:
		p.low = true
		p.audience.notify(Log{
			Level:   "warn",
			Message: fmt.Sprintf("Of %d tokens that may be spent %d are left; then the conversation ends.", most, left),
			Details: map[string]any{"tokensLeft": left},
		})
	}
	return nil
}

// uncounted is how many tokens were used since the last call. It reports them to the observer, too.
func (p *spending) uncounted() int {
	before, now := p.counted, p.meter.Total()
	p.counted = now
	paid := p.paid + p.price.Cost(p.meter.Turn())
	if p.observer.on() && now.Total > before.Total {
		p.observer.report(Spent{p.key, now.Split(before), (paid - p.charged) / 1e6})
	}
	p.charged = paid
	return now.Total - before.Total
}

// close accounts for an answer that was not over.
func (p *spending) close() {
	p.account.Spend(p.uncounted())
	p.account.End()
}
