package keeper

import (
	"maps"
	"sync"
	"time"
)

const (
	// QuotaPause is how long no new conversation is dialled after Google has said that the quota is used up, unless it
	// says how long. Quotas are counted by the minute, and each try counts.
	QuotaPause = 30 * time.Second

	// maxQuotaPause bounds the pause that Google may ask for: a quota by the day would keep a gateway shut until
	// somebody restarts it, though the operator may have bought more in the meantime.
	maxQuotaPause = 10 * time.Minute

	// refusalMemory is how long the refusal of one caller counts towards that of another.
	refusalMemory = 5 * time.Minute

	// maxRefusedCallers and maxBreakers bound what clients can make a gateway remember: they choose the names.
	maxRefusedCallers = 256
	maxBreakers       = 256

	// redialEvery and redialBurst bound the dials of all conversations with one model whose connections keep ending right
	// after their set-up: a server that is being drained would else be dialled by all of them at the rate that it accepts.
	redialEvery = 50 * time.Millisecond
	redialBurst = 20
)

// Breakers has one circuit breaker for each model, since Google counts quotas by key and model and the gateway has one
// key. Any goroutine may call its methods. The zero Breakers lets everybody through.
type Breakers struct {
	Default string // the model that is used where none is named

	mu      sync.Mutex
	byModel map[string]*Breaker
}

// For returns the breaker of a model.
func (b *Breakers) For(model string) *Breaker {
	b.mu.Lock()
	defer b.mu.Unlock()
	breaker := b.byModel[model]
	if breaker != nil {
		return breaker
	}
	if len(b.byModel) >= maxBreakers {
		maps.DeleteFunc(b.byModel, func(_ string, old *Breaker) bool { return old.isIdle() })
	}
	breaker = &Breaker{isDefault: model == b.Default}
	if len(b.byModel) < maxBreakers || breaker.isDefault {
		if b.byModel == nil {
			b.byModel = map[string]*Breaker{}
		}
		b.byModel[model] = breaker
	}
	return breaker
}

// Refused returns the models whose quota Google has refused this gateway, and how long each breaker stays open.
func (b *Breakers) Refused() map[string]time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := map[string]time.Duration{}
	for model, breaker := range b.byModel {
		if left := breaker.refused(); left > 0 {
			list[model] = left
		}
	}
	return list
}

// Learn takes over another gateway's report that the quota of a model is used up for that long.
func (b *Breakers) Learn(model string, left time.Duration) {
	b.For(model).learn(min(left, maxQuotaPause))
}

// Breaker is the circuit breaker of one model. While the quota is used up it keeps new conversations from Gemini, and
// after the pause lets one through as a probe. Clients choose the model, and a model may have a quota of none: one
// caller's refusal keeps only that caller away, until a second caller is refused as well. A refusal of the default model
// counts for all at once. It also paces redials; see redialDelay. Any goroutine may call its methods.
type Breaker struct {
	isDefault bool

	mu      sync.Mutex
	until   time.Time // zero: everybody is let through
	others  bool      // another gateway reported it: Google has refused none of ours
	callers map[string]refusal
	redial  time.Time // until when redials are reserved
}

// refusal is what Google has said to one caller.
type refusal struct{ at, until time.Time }

// refused is for how long it still keeps conversations away because Google has refused ours; 0: it does not.
func (b *Breaker) refused() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.others || b.until.IsZero() {
		return 0
	}
	return max(time.Until(b.until), 0)
}

func (b *Breaker) learn(left time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if until := time.Now().Add(left); b.until.IsZero() || b.others && until.After(b.until) {
		b.until, b.others = until, true
	}
}

// isIdle reports whether a new breaker would do the same.
func (b *Breaker) isIdle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgetOld()
	return b.until.IsZero() && len(b.callers) == 0 && time.Now().After(b.redial)
}

// forgetOld deletes refusals that count for nothing any more. Needs mu.
func (b *Breaker) forgetOld() {
	now := time.Now()
	maps.DeleteFunc(b.callers, func(_ string, r refusal) bool { return now.Sub(r.at) > refusalMemory && now.After(r.until) })
}

// Admit lets a caller's new conversation through, or says when to come back. isProbe is set for the one that tries for
// all others; [Options].IsProbe passes it on.
func (b *Breaker) Admit(caller string) (isProbe bool, retry time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if left := time.Until(b.callers[caller].until); left > 0 {
		return false, left
	}
	if b.until.IsZero() {
		return false, 0
	}
	if left := time.Until(b.until); left > 0 {
		return false, left
	}
	b.until = time.Now().Add(QuotaPause) // the others wait for this one
	return true, 0
}

// QuotaDelay returns how long to stay away after Google has refused for want of quota: as long as it asks for, within
// reason, or else QuotaPause.
func QuotaDelay(err error) time.Duration {
	wanted := retryDelay(err)
	if wanted <= 0 {
		return QuotaPause
	}
	return min(max(wanted, time.Second), maxQuotaPause)
}

// open notes that Google has refused a caller for want of quota, and keeps new conversations away for a while:
// the caller's, or everybody's. isProbe: the caller tried for all others.
func (b *Breaker) open(caller string, pause time.Duration, isProbe bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgetOld()
	now := time.Now()
	until := now.Add(pause)
	if b.callers == nil {
		b.callers = map[string]refusal{}
	}
	_, known := b.callers[caller]
	another := len(b.callers) > 1 || len(b.callers) == 1 && !known
	if known || len(b.callers) < maxRefusedCallers {
		b.callers[caller] = refusal{now, until}
	}
	if b.isDefault || isProbe || another {
		b.until, b.others = until, false
	}
}

// close lets everybody through again: Gemini has taken one.
func (b *Breaker) close(caller string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until, b.others = time.Time{}, false
	delete(b.callers, caller)
}

// Release makes the next one the probe: this one was not dialled, or has failed for another reason.
func (b *Breaker) Release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.until.IsZero() { // else another one was served meanwhile
		b.until, b.others = time.Now(), false
	}
}

// redialDelay reserves a dial of a conversation whose connections keep ending right after their set-up, and returns how
// long it waits for its turn: redialBurst go at once, and then one every redialEvery.
func (b *Breaker) redialDelay() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.redial.Before(now) {
		b.redial = now
	}
	b.redial = b.redial.Add(redialEvery)
	return max(b.redial.Sub(now)-redialBurst*redialEvery, 0)
}
