package keeper

import (
	"time"

	"voxgate/bridge/gemini/wire"
)

// Refuse has Google refuse a caller for want of quota.
func Refuse(b *Breakers, model, caller, reason string) {
	b.For(model).open(caller, QuotaDelay(&wire.CloseError{Code: 1011, Reason: reason}), false)
}

// SizeOf counts what breakers remember: models, and the most callers of one.
func SizeOf(b *Breakers) (models, callers int) {
	for _, one := range b.byModel {
		callers = max(callers, len(one.callers))
	}
	return len(b.byModel), callers
}

// RedialDelay reserves a redial.
func RedialDelay(b *Breaker) time.Duration { return b.redialDelay() }
