package upstream

import (
	"time"

	"voxgate/bridge/gemini/wire"
)

// Refuse simulates Google's refusal of a caller for lack of quota.
func Refuse(b *Breakers, model, caller, reason string) {
	b.ForModel(model).openFor(caller, QuotaDelay(&wire.CloseError{Code: 1011, Reason: reason}), false)
}

// SizeOf returns the number of models with a breaker, and the largest number of callers of one breaker.
func SizeOf(b *Breakers) (models, callers int) {
	for _, one := range b.byModel {
		callers = max(callers, len(one.refusedCallers))
	}
	return len(b.byModel), callers
}

// RedialDelay reserves a redial.
func RedialDelay(b *Breaker) time.Duration { return b.reserveRedial() }
