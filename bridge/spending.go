package bridge

import (
	"fmt"
	"log/slog"

	"voxgate/bridge/gemini/wire"
)

// lowBudget is the part of the budget that is left when the client gets a warning.
const lowBudget = 10 // of a hundred

// spending counts the tokens that a conversation uses, and accounts for them. The loop owns it.
type spending struct {
	audience *audience
	observer observer
	log      *slog.Logger
	account  Account
	key      string // see [Origin]
	most     int    // see [Options].MaxTokens

	meter   wire.TokenMeter
	turn    bool        // some were used in this turn
	counted wire.Tokens // what is already accounted for
	low     bool        // the client knows that little is left
}

// add notes a report of the model.
func (p *spending) add(t wire.Tokens) {
	p.meter.Add(t)
	p.turn = true
}

// restore notes what was spent at another gateway, and accounted for there.
func (p *spending) restore(t wire.Tokens) {
	p.meter.Add(t)
	p.meter.EndTurn()
	p.counted = t
}

// endTurn reports the tokens of a turn. It returns the limit that the turn has reached, if any.
func (p *spending) endTurn() (limit error) {
	if !p.turn {
		return nil
	}
	p.turn = false
	u := Usage{Turn: p.meter.Turn()}
	p.meter.EndTurn()
	u.Total = p.meter.Total()
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
	if p.observer.on() && now.Total > before.Total {
		p.observer.report(Spent{p.key, now.Split(before)})
	}
	return now.Total - before.Total
}

// close accounts for an answer that was not over.
func (p *spending) close() {
	p.account.Spend(p.uncounted())
	p.account.End()
}
