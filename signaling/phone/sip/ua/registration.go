package ua

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/emiago/sipgo/sip"

	"voxgate/signaling/phone"
)

// registrar keeps the gateway registered at the trunks that require it.
type registrar struct {
	core    *core
	stop    context.CancelFunc // nil until registration begins
	running sync.WaitGroup
	tags    sync.Map // our tags in the registration dialogs; the packet filter accepts responses with them
}

// registerAll starts a registration at each trunk that requires one, in the background.
func (r *registrar) registerAll() {
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	for _, t := range r.core.gate.trunks {
		if t.Outbound != nil && t.Outbound.Register {
			r.running.Go(func() { r.maintainRegistration(ctx, t) })
		}
	}
}

// unregisterAll unregisters at all trunks, and blocks until that is done.
func (r *registrar) unregisterAll() {
	if r.stop != nil {
		r.stop()
	}
	r.running.Wait()
}

// keepAlive is the maximum interval between our requests to a registrar. The requests keep NAT bindings open (RFC 5626,
// section 4.4: 24 to 29 s for UDP). A registration of less than 250 s has a shorter interval, a tenth of its length.
const keepAlive = 25 * time.Second

// registration is the registration at one trunk.
type registration struct {
	registrar *registrar
	trunk     *trunkState
	dialog    *dialog // dialog of all REGISTER requests (RFC 3261, section 10.2.4); nil before the first
	failed    int     // number of failures so far; selects the next server
	least     int     // minimum interval that the registrar demands, in seconds; 0 if unknown
	moved     sip.Uri // target of a redirection; may be zero
}

const (
	// registerPause is the wait after a failed registration (RFC 5626, section 4.5), unless the registrar asks for
	// another time.
	registerPause = 30 * time.Second
	// maxExpires limits the interval that a registrar can demand, in seconds.
	maxExpires = 24 * 60 * 60
)

// maintainRegistration keeps us registered at a trunk until ctx is done, and then unregisters.
func (r *registrar) maintainRegistration(ctx context.Context, t *trunkState) {
	one := &registration{registrar: r, trunk: t}
	defer one.resetDialog()
	defer one.unregister()
	there := false
	for ctx.Err() == nil {
		granted, err := one.registerFor(ctx, t.Outbound.Expires)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			r.core.log.Warn("not registered", "trunk", t.Name, "err", err)
			there = false
			pause := registerPause
			if refused := (*RefusedError)(nil); errors.As(err, &refused) && refused.RetryAfter > 0 {
				pause = refused.RetryAfter
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		default:
			if !there {
				r.core.log.Info("registered", "trunk", t.Name, "for", granted)
			}
			there = true
			one.keepBindingOpen(ctx, granted)
		}
	}
}

// keepBindingOpen keeps the NAT binding open with requests. It blocks until the registration must be renewed.
func (r *registration) keepBindingOpen(ctx context.Context, granted time.Duration) {
	renew := time.After(granted * 8 / 10)
	alive := time.NewTicker(min(keepAlive, granted/10))
	defer alive.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-renew:
			return
		case <-alive.C:
			if _, err := transact(ctx, r.dialog.client, r.dialog.newRequest(sip.OPTIONS)); err != nil { // any response is sufficient
				return
			}
		}
	}
}

// unregister removes the registration, so that the trunk sends no more calls.
func (r *registration) unregister() {
	ctx, cancel := context.WithTimeout(context.Background(), ByeTimeout)
	defer cancel()
	if _, err := r.registerFor(ctx, 0); err != nil {
		r.registrar.core.log.Warn("still registered", "trunk", r.trunk.Name, "err", err)
	}
}

// resetDialog discards the dialog.
func (r *registration) resetDialog() {
	if r.dialog == nil {
		return
	}
	r.registrar.tags.Delete(r.dialog.localTag)
	r.dialog = nil
}

// registerFor registers for a number of seconds, and returns the time that the registrar grants. 0 seconds remove the
// registration. It tries once more if the registrar demands a longer interval (RFC 3261, section 10.2.8) or redirects
// to another server (section 8.1.3.4).
func (r *registration) registerFor(ctx context.Context, seconds int) (granted time.Duration, err error) {
	for first := true; ; first = false {
		if seconds > 0 {
			seconds = max(seconds, r.least)
		}
		res, err := r.sendRegister(ctx, seconds)
		if err != nil {
			r.resetDialog() // the next attempt resolves the server's name again
			r.failed++
			r.moved = sip.Uri{}
			return 0, err
		}
		least, _ := strconv.Atoi(headerText(res, "Min-Expires"))
		contact := res.Contact()
		switch {
		case res.IsSuccess():
			return grantedExpiry(res, r.dialog.contact, seconds), nil
		case first && res.StatusCode == 423 && seconds > 0 && least > seconds && least <= maxExpires:
			r.registrar.core.log.Info("registrar requires a longer interval", "trunk", r.trunk.Name, "seconds", least)
			r.least = least
			continue
		case first && res.StatusCode/100 == 3 && contact != nil && contact.Address.Host != "" && !contact.Address.Wildcard:
			r.registrar.core.log.Info("registrar redirects", "trunk", r.trunk.Name, "at", phone.SanitizeField(hostPort(contact.Address)))
			r.resetDialog()
			r.moved = contact.Address
			continue
		}
		r.moved = sip.Uri{}
		refused := newRefusedError(res)
		if least > 0 {
			refused.Reason += fmt.Sprintf(" (Min-Expires: %d)", least)
		}
		return 0, refused
	}
}

// sendRegister sends one REGISTER and returns its final response.
func (r *registration) sendRegister(ctx context.Context, seconds int) (*sip.Response, error) {
	o := r.trunk.Outbound
	if r.dialog == nil {
		server, err := ParseURI(o.Server)
		if err != nil {
			return nil, err
		}
		transport := strings.ToUpper(server.UriParams.GetOr("transport", "udp"))
		own := o.localURI(server.Host)
		if r.moved.Host != "" {
			server.Host, server.Port = r.moved.Host, r.moved.Port
		}
		servers, err := r.registrar.core.resolveServers(ctx, server, transport)
		if err != nil {
			return nil, err
		}
		r.dialog = r.registrar.core.newOutboundDialog(own, own, servers[r.failed%len(servers):], transport, o)
		r.dialog.target = server
		r.registrar.tags.Store(r.dialog.localTag, nil)
	}
	return r.dialog.send(ctx, r.dialog.newRequest(sip.REGISTER, sip.NewHeader("Expires", strconv.Itoa(seconds))))
}

// grantedExpiry returns how long the registrar keeps our Contact registered. If the response states no time, or less
// than 10 s, it returns the requested time. requested is in seconds. Contacts of other phones in the response are
// ignored.
func grantedExpiry(res *sip.Response, contact sip.Uri, requested int) time.Duration {
	text := ""
	contacts := res.GetHeaders("Contact")
	for _, h := range contacts {
		c, ok := h.(*sip.ContactHeader)
		same := ok && c.Address.User == contact.User && c.Address.Host == contact.Host && c.Address.Port == contact.Port
		if same || ok && len(contacts) == 1 { // a single Contact must be ours, even if a proxy has changed it
			text = c.Params.GetOr("expires", "")
		}
	}
	if h := res.GetHeader("Expires"); text == "" && h != nil {
		text = h.Value()
	}
	if n, err := strconv.Atoi(strings.TrimSpace(text)); err == nil && n >= 10 {
		requested = n
	}
	return time.Duration(requested) * time.Second
}
