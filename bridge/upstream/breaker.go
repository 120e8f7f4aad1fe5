package upstream

import (
	"maps"
	"sync"
	"time"
)

const (
	// QuotaPause is the pause after the quota was exhausted, if Google does not say how long to wait. Google counts
	// quotas by the minute, and each attempt counts.
	QuotaPause = 30 * time.Second

	// maxQuotaPause limits the pause that Google may ask for. If a daily quota is exhausted, Google asks for a pause
	// that would block the gateway even after the operator has raised the quota.
	maxQuotaPause = 10 * time.Minute

	// refusalMemory is the time within which a second refused caller makes the breaker block all callers.
	refusalMemory = 5 * time.Minute

	// maxRefusedCallers and maxBreakers limit the memory that clients can make the gateway use, because clients choose
	// the names of callers and models.
	maxRefusedCallers = 256
	maxBreakers       = 256

	// redialEvery and redialBurst limit how often all conversations together dial one model again after connections
	// that ended right after their setup. The limit protects a server that is draining.
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

// RefusedModels returns the models that Google has refused to this gateway because the quota is exhausted. The value of
// each is the time for which its breaker stays open.
func (b *Breakers) RefusedModels() map[string]time.Duration {
	return b.list((*Breaker).refusedFor)
}

// ClosedModels returns the models for which no caller is admitted, as Google has refused callers of this gateway or of
// another one. The value of each is the time until the next attempt.
func (b *Breakers) ClosedModels() map[string]time.Duration {
	return b.list((*Breaker).closedFor)
}

// list returns the models with a time that is not 0.
func (b *Breakers) list(timeOf func(*Breaker) time.Duration) map[string]time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := map[string]time.Duration{}
	for model, breaker := range b.byModel {
		if left := timeOf(breaker); left > 0 {
			list[model] = left
		}
	}
	return list
}

// LearnRefusal records the report of another gateway that the quota of a model will be exhausted for the remaining
// time.
func (b *Breakers) LearnRefusal(model string, remaining time.Duration) {
	b.ForModel(model).learnRefusal(min(remaining, maxQuotaPause))
}

// Breaker is the circuit breaker of one model. While the quota is exhausted, it rejects new conversations. After the
// pause it admits one conversation as a probe. It is safe for concurrent use.
//
// The first caller that Google refuses is the only one blocked, because a client may have chosen a model without quota.
// A second refused caller makes the breaker block all callers. If the default model is refused, all callers are blocked
// at once.
type Breaker struct {
	isDefault bool

	mu             sync.Mutex
	until          time.Time // time until which all callers are rejected; zero means that they are admitted
	isRemote       bool      // another gateway has reported the refusal; Google has refused no caller of this gateway
	refusedCallers map[string]refusal
	redialUntil    time.Time // time until which redials are reserved
}

// refusal records when Google refused one caller, and until when the caller must wait.
type refusal struct{ refusedAt, until time.Time }

// refusedFor returns how long the breaker stays open because Google has refused a caller of this gateway. It ignores
// reports of other gateways.
func (b *Breaker) refusedFor() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isRemote || b.until.IsZero() {
		return 0
	}
	return max(time.Until(b.until), 0)
}

// closedFor returns how long the breaker rejects all callers.
func (b *Breaker) closedFor() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() {
		return 0
	}
	return max(time.Until(b.until), 0)
}

func (b *Breaker) learnRefusal(remaining time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if until := time.Now().Add(remaining); b.until.IsZero() || b.isRemote && until.After(b.until) {
		b.until, b.isRemote = until, true
	}
}

// isIdle reports whether a new breaker would behave in the same way. If so, this one can be removed.
func (b *Breaker) isIdle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgetOldRefusals()
	return b.until.IsZero() && len(b.refusedCallers) == 0 && time.Now().After(b.redialUntil)
}

// forgetOldRefusals deletes refusals that no longer count. The caller must hold mu.
func (b *Breaker) forgetOldRefusals() {
	now := time.Now()
	maps.DeleteFunc(b.refusedCallers, func(_ string, r refusal) bool { return now.Sub(r.refusedAt) > refusalMemory && now.After(r.until) })
}

// Admit returns 0 if a caller may begin a new conversation, and otherwise the time until its next attempt. isProbe
// means that all other callers wait for the result of this one. The caller of Admit must pass it on in
// [Options].IsProbe.
func (b *Breaker) Admit(caller string) (isProbe bool, retry time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if left := time.Until(b.refusedCallers[caller].until); left > 0 {
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

// QuotaDelay returns how long to wait after the quota was exhausted. That is the time that Google asks for, within
// limits, or otherwise QuotaPause.
func QuotaDelay(err error) time.Duration {
	delay := retryDelay(err)
	if delay <= 0 {
		return QuotaPause
	}
	return min(max(delay, time.Second), maxQuotaPause)
}

// openFor opens the breaker for the duration pause, because Google has refused caller for lack of quota. isProbe means
// that caller was the probe for which all others waited.
func (b *Breaker) openFor(caller string, pause time.Duration, isProbe bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgetOldRefusals()
	now := time.Now()
	until := now.Add(pause)
	if b.refusedCallers == nil {
		b.refusedCallers = map[string]refusal{}
	}
	_, known := b.refusedCallers[caller]
	another := len(b.refusedCallers) > 1 || len(b.refusedCallers) == 1 && !known
	if known || len(b.refusedCallers) < maxRefusedCallers {
		b.refusedCallers[caller] = refusal{now, until}
	}
	if b.isDefault || isProbe || another {
		b.until, b.isRemote = until, false
	}
}

// closeFor admits all callers again, because Gemini has accepted this one.
func (b *Breaker) closeFor(caller string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until, b.isRemote = time.Time{}, false
	delete(b.refusedCallers, caller)
}

// PassProbe makes the next caller the probe, because the present probe was not dialled, or failed for a reason other
// than the quota.
func (b *Breaker) PassProbe() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.until.IsZero() { // otherwise another caller was served meanwhile
		b.until, b.isRemote = time.Now(), false
	}
}

// reserveRedial reserves a redial and returns how long to wait before it. The first redialBurst dials need not wait.
// After them, one dial is allowed every redialEvery.
func (b *Breaker) reserveRedial() (delay time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.redialUntil.Before(now) {
		b.redialUntil = now
	}
	b.redialUntil = b.redialUntil.Add(redialEvery)
	return max(b.redialUntil.Sub(now)-redialBurst*redialEvery, 0)
}
