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

// ticket is a single-use permission for a provider to connect one call, or to fetch the XML of one transfer.
type ticket struct {
	provider *Provider
	agent    *agents.Agent
	call     string // the provider's call ID; empty if not yet known
	party    phone.Party
	open     bridge.SessionRequest // session request, with the account to which the call is charged
	target   string                // target of the transfer; empty if the ticket is for a call
	expires  time.Time
}

// ticketLifetime is the lifetime of a ticket: the provider must connect the call, or fetch the XML of the transfer,
// within this time after our answer.
const ticketLifetime = 30 * time.Second

// tickets holds the issued tickets that have not been used yet.
type tickets struct {
	mu      sync.Mutex
	pending map[string]ticket
}

// issue stores a ticket and returns its random name.
func (t *tickets) issue(data ticket) string {
	name := rand.Text() // 128 bits
	now := time.Now()
	data.expires = now.Add(ticketLifetime)
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.pending, func(_ string, old ticket) bool { return now.After(old.expires) })
	t.pending[name] = data
	return name
}

// redeem removes a ticket and returns it. ok is false if the ticket is unknown, expired, or of another provider. A
// ticket of another provider is not removed.
func (t *tickets) redeem(name string, p *Provider) (redeemed ticket, ok bool) {
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
