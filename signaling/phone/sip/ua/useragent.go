// Package ua is a SIP user agent (RFC 3261) for calls from and to configured trunks. It admits requests, registers at trunks, and
// implements the signalling of calls: dialogs, session timers, reliable responses, transfers. sipgo implements transports and
// transactions. A [Media] negotiates the media of a call.
package ua

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"
)

// UserAgent is our endpoint for the signalling of all calls and registrations. [New] makes it.
type UserAgent struct {
	*core
	calls     *callTable
	registrar *registrar
	onCall    func(*Call)
}

// Options configure a UserAgent.
type Options struct {
	External string // address or host name that peers use; if empty, the address that we listen at
	TLS      TLS    // certificates for outgoing connections
	Trunks   []*Trunk
	Calls    int // limit on concurrent calls of all trunks
	Resolver *net.Resolver
	// Timeout limits how long a response is repeated until it is acknowledged, and how long a cancelled outgoing call may take to end.
	// The default is 32 s.
	Timeout time.Duration
	// OnCall is called with each new incoming call. It must either refuse the call, or answer the call and release it
	// when it has ended.
	OnCall func(*Call)
	// OnRefused counts refused calls and packets by rule, such as "sip no agent". It may be nil.
	OnRefused func(rule string)
	Logger    *slog.Logger
}

// New returns a user agent without sockets: see [UserAgent.Listen].
func New(o Options) (*UserAgent, error) {
	local, err := newLocalAddr(o.External, o.Resolver, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("external: %w", err)
	}
	secure, err := o.TLS.Config(o.Trunks, o.Logger)
	if err != nil {
		return nil, err
	}
	shared := &core{
		gate: newGate(o.Trunks, o.Calls, time.Now), refusals: newRefusals(o.OnRefused, o.Logger), names: nameCache{resolver: o.Resolver},
		timeout: cmp.Or(o.Timeout, DefaultTimeout), closing: make(chan struct{}),
	}
	u := &UserAgent{core: shared, calls: &callTable{byTag: map[string]*Call{}}, registrar: &registrar{core: shared}, onCall: o.OnCall}
	filter := &packetFilter{shared, u.calls, u.registrar}
	if shared.transport, err = newTransport(local, secure, o.Logger, filter.filterPacket, u.onRepeatedAnswer); err != nil {
		return nil, err
	}
	u.setHandlers()
	return u, nil
}

// Listen opens the sockets, starts to answer requests, and then registers at the trunks. If it fails, call Close.
func (u *UserAgent) Listen(addresses []Listen) error {
	for i, l := range addresses {
		if err := u.openListener(l, u.gate, u.refusals); err != nil {
			return fmt.Errorf("listen[%d]: %w", i, err)
		}
	}
	for _, l := range u.listens {
		u.log.Info("listening", "transport", l.transport, "at", l.at)
		u.running.Go(func() { _ = l.serve() }) // ends when the listener is closed
		u.awaitSocket(l)
	}
	u.registrar.registerAll()
	return nil
}

// Addresses returns the listening addresses, in the order of the configuration.
func (u *UserAgent) Addresses() (list []netip.AddrPort) {
	for _, l := range u.listens {
		list = append(list, l.at)
	}
	return list
}

// NewCall returns an outgoing call by a trunk. If `from` is "", the trunk's own number is used. NewCall blocks while it
// looks up the trunk's server. If the look-up fails, [Call.Dial] returns the error.
func (u *UserAgent) NewCall(ctx context.Context, trunk, number, from string) (*Call, error) {
	t := u.gate.findTrunk(trunk)
	server, err := ParseURI(t.Outbound.Server)
	if err != nil {
		return nil, err
	}
	transport := strings.ToUpper(server.UriParams.GetOr("transport", "udp"))
	servers, unknown := u.resolveServers(ctx, server, transport)
	if unknown != nil { // the call is created nevertheless, because its ID is needed to report the failure
		servers = []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), 0)}
	}
	to := server
	to.User = number
	caller := t.Outbound.localURI(server.Host)
	caller.User = cmp.Or(from, caller.User)
	c := newCall(u.core, t, u.newOutboundDialog(to, caller, servers, transport, t.Outbound), u.log)
	c.lookupErr = unknown
	return c, nil
}

// FindReplaced returns the call of the same trunk that c is to replace, or nil. earlyOnly means that the old call may
// be replaced only before it is answered.
func (u *UserAgent) FindReplaced(c *Call) (old *Call, earlyOnly bool, refused *Refusal) {
	headers := c.dialog.invite.GetHeaders("Replaces")
	if len(headers) == 0 {
		return nil, false, nil
	}
	r, ok := readReplaces(headers[0].Value())
	if !ok || len(headers) > 1 {
		return nil, false, &Refusal{Code: 400, Reason: "Bad Request", Rule: "replaces: the header cannot be read"}
	}
	old = u.calls.find(r.local)
	if old == nil || old.trunk != c.trunk || !old.dialog.isDialog(r.callID, r.remote) {
		return nil, false, &Refusal{Code: 481, Reason: "Call/Transaction Does Not Exist", Rule: "replaces: there is no such call"}
	}
	return old, r.earlyOnly, nil
}

// Begin adds a call, so that its requests are served. It returns [ErrClosed] if no new call may begin. Call Release in both
// cases.
func (u *UserAgent) Begin(c *Call) error {
	if !u.calls.add(c) {
		return ErrClosed
	}
	if c.dialog.invite != nil {
		c.prefetchHosts()
	}
	return nil
}

// Release removes a call, and stops counting it against its limits.
func (u *UserAgent) Release(c *Call) {
	u.calls.remove(c)
	c.release()
}

// Close ends the remaining calls for a reason, unregisters at the trunks and closes all sockets. It blocks until that is done.
func (u *UserAgent) Close(reason error) {
	for _, c := range u.calls.close(u.closing) {
		c.End(reason)
	}
	for _, c := range u.calls.all() { // the sockets stay open until the calls have sent their BYEs
		<-c.released
	}
	u.registrar.unregisterAll()
	u.calls.stop() // stops before the sockets close: sipgo would open a new socket for a response
	_ = u.agent.Close()
	for _, l := range u.listens {
		_ = l.close()
	}
	u.running.Wait()
	u.names.running.Wait()
	u.closeLateSockets()
}
