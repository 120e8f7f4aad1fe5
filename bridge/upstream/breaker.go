package upstream

import (
	"maps"
	"sync"
	"time"
)

const (
	// QuotaPause is the pause after an exhausted quota if Google does not say how long to wait. Google counts quotas by
	// the minute, including each attempt.
	QuotaPause = 30 * time.Second

	// maxQuotaPause limits the delay that Google may ask for. A daily quota would block the gateway even after the
	// operator has raised it.
	maxQuotaPause = 10 * time.Minute

	// refusalMemory is the time within which the refusals of two callers add up, so that all callers are blocked.
	refusalMemory = 5 * time.Minute

	// maxRefusedCallers and maxBreakers limit the memory that clients can make a gateway use, because clients choose the
	// names of callers and models.
	maxRefusedCallers = 256
	maxBreakers       = 256

	// redialEvery and redialBurst limit the dials to one model by all conversations whose connections end right after
	// their setup. They protect a draining server.
	redialEvery = 50 * time.Millisecond
	redialBurst = 20
)

// Breakers holds a circuit breaker for each model, because Google counts quotas by key and model. It is safe for
// concurrent use. The zero Breakers admits all callers.
type Breakers struct {
	Default string // model of callers that name none

	mu      sync.Mutex
	byModel map[string]*Breaker
}

// ForModel returns the breaker of a model.
func (b *Breakers) ForModel(model string) *Breaker {
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

// RefusedModels returns the models that Google has refused to this gateway for lack of quota, and how long each breaker
// stays open.
func (b *Breakers) RefusedModels() map[string]time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := map[string]time.Duration{}
	for model, breaker := range b.byModel {
		if left := breaker.refusedFor(); left > 0 {
			list[model] = left
		}
	}
	return list
}

// LearnRefusal applies another gateway's report that the quota of a model is exhausted for the remaining time.
func (b *Breakers) LearnRefusal(model string, remaining time.Duration) {
	b.ForModel(model).learnRefusal(min(remaining, maxQuotaPause))
}

// Breaker is the circuit breaker of one model. While the quota is exhausted it rejects new conversations. After the
// pause it admits one as a probe. It is safe for concurrent use.
//
// One refused caller blocks only itself, because clients may choose a model without quota. A second refused caller
// blocks all. A refusal of the default model blocks all at once.
type Breaker struct {
	isDefault bool

	mu          sync.Mutex
	until       time.Time // time until which all callers are rejected; zero means that they are admitted
	isRemote    bool      // another gateway has reported the refusal; Google has refused no caller of this gateway
	callers     map[string]refusal
	redialUntil time.Time // time until which redials are reserved
}

// refusal records when Google refused one caller, and until when the caller must wait.
type refusal struct{ refusedAt, until time.Time }

// refusedFor returns how long the breaker stays open because of a refusal to this gateway. Reports of other gateways do
// not count.
func (b *Breaker) refusedFor() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isRemote || b.until.IsZero() {
		return 0
	}
	return max(time.Until(b.until), 0)
}

func (b *Breaker) learnRefusal(left time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if until := time.Now().Add(left); b.until.IsZero() || b.isRemote && until.After(b.until) {
		b.until, b.isRemote = until, true
	}
}

// isIdle reports whether a new breaker would behave in the same way, so that this one can be removed.
func (b *Breaker) isIdle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgetOld()
	return b.until.IsZero() && len(b.callers) == 0 && time.Now().After(b.redialUntil)
}

// forgetOld deletes refusals that no longer count. The caller must hold mu.
func (b *Breaker) forgetOld() {
	now := time.Now()
	maps.DeleteFunc(b.callers, func(_ string, r refusal) bool { return now.Sub(r.refusedAt) > refusalMemory && now.After(r.until) })
}

// Admit admits a caller's new conversation, or returns when to retry. isProbe means that all others wait for this
// caller; pass it on in [Options].IsProbe.
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
	b.until = time.Now().Add(QuotaPause) // other callers wait for the result of this one
	return true, 0
}

// QuotaDelay returns how long to wait after an exhausted quota: as long as Google asks for, within limits, or else
// QuotaPause.
func QuotaDelay(err error) time.Duration {
	delay := retryDelay(err)
	if delay <= 0 {
		return QuotaPause
	}
	return min(max(delay, time.Second), maxQuotaPause)
}

// openFor opens the breaker for the duration pause, after a refusal for lack of quota. isProbe means that the caller tried
// on behalf of all others.
func (b *Breaker) openFor(caller string, pause time.Duration, isProbe bool) {
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
		b.until, b.isRemote = until, false
	}
}

// closeFor admits all callers again, because Gemini has accepted this caller.
func (b *Breaker) closeFor(caller string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until, b.isRemote = time.Time{}, false
	delete(b.callers, caller)
}

// PassProbe lets the next caller be the probe, because the present probe was not dialled, or failed for another reason.
func (b *Breaker) PassProbe() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.until.IsZero() { // otherwise another caller was served meanwhile
		b.until, b.isRemote = time.Now(), false
	}
}

// redialDelay reserves a redial and returns its delay. redialBurst dials go at once, then one every redialEvery.
func (b *Breaker) redialDelay() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.redialUntil.Before(now) {
		b.redialUntil = now
	}
	b.redialUntil = b.redialUntil.Add(redialEvery)
	return max(b.redialUntil.Sub(now)-redialBurst*redialEvery, 0)
}
