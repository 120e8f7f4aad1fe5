package mediastream

import (
	"crypto/rand"
	"errors"
	"maps"
	"sync"
	"time"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/signaling/phone"
)

// ticket permits a provider to connect one call, or to fetch the XML of one transfer.
type ticket struct {
	provider *Provider
	agent    *agents.Agent
	call     string // the provider's call ID; empty if not yet known
	party    phone.Party
	open     bridge.SessionRequest // session request, with the account to which the call is charged
	target   string                // target of the transfer; empty if the ticket is for a call
	expires  time.Time
}

// ticketLifetime is the time in which the provider must connect a call after our answer, or fetch the XML of a transfer.
const ticketLifetime = 30 * time.Second

// tickets holds the issued tickets that have not been used yet.
type tickets struct {
	mu      sync.Mutex
	pending map[string]ticket
}

// issue stores a ticket and returns its random name.
func (t *tickets) issue(one ticket) string {
	name := rand.Text() // 128 bits
	now := time.Now()
	one.expires = now.Add(ticketLifetime)
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.pending, func(_ string, old ticket) bool { return now.After(old.expires) })
	t.pending[name] = one
	return name
}

// redeem removes a ticket and returns it. It returns false if the ticket is unknown, expired, or of another provider. A
// ticket of another provider is not removed.
func (t *tickets) redeem(name string, p *Provider) (ticket, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one, ok := t.pending[name]
	if !ok || one.provider != p {
		return ticket{}, false
	}
	delete(t.pending, name)
	return one, time.Now().Before(one.expires)
}

var errToken = errors.New("the token is unknown, used or too old")
