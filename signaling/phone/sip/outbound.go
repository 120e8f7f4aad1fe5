package sip

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/internal/crash"
	"voxgate/signaling/phone"
)

// placeCall makes a registered call. It blocks until the phone rings or the call fails; after that the call runs in the background.
func (d *Server) placeCall(ctx context.Context, r *outboundCall) error {
	t, err := d.checkDial(r.dial)
	if err != nil {
		return err
	}
	repeatable := r.dial.IdempotencyKey != "" // the registry drops the rest when the call has ended
	var agent *agents.Agent
	var supervised *call
	if r.dial.Supervise == "" {
		agent, err = d.resolveAgent(r.dial.Agent, r.dial.Variables)
	} else if supervised, err = d.findSupervised(r.dial.Supervise); err == nil {
		agent = supervised.agent
	}
	if err != nil {
		return err
	}
	c, err := d.newOutbound(ctx, r, t, agent)
	if err != nil {
		return err
	}
	if supervised != nil {
		c.superviseCall(supervised)
	}
	rings := make(chan error, 1)
	if err := d.startOutboundCall(c, rings); err != nil {
		return err
	}
	select {
	case err := <-rings:
		return err
	case <-ctx.Done():
		if !repeatable { // else the backend repeats its request
			c.endCall(errCancelled)
		}
		return ctx.Err()
	}
}

// startOutboundCall starts a call in the background. rings receives the result of ringing, see [call.ringAndAnswer].
func (d *Server) startOutboundCall(c *call, rings chan<- error) error {
	if !d.addCall(c) {
		c.release()
		return bridge.ErrShutdown
	}
	r := c.outbound
	d.outboundCalls.setCall(r, c)
	from, to := r.dial.From, r.dial.To
	d.running.Go(func() {
		c.logBegin(from, to)
		d.runCallToEnd(c, func() error {
			err := c.ringAndAnswer(rings)
			d.outboundCalls.setEnded(c, err)
			return err
		})
	})
	return nil
}

// notInNumber are the characters that would change the meaning of a number in a URI.
const notInNumber = "<>\"@;? \r\n"

// checkDial returns the trunk for a call, or an error if the call is not allowed.
func (d *Server) checkDial(what Dial) (*trunkState, error) {
	t := d.gate.findTrunk(what.Trunk)
	wrong := func(code bridge.Code, field, format string, args ...any) error {
		return &bridge.Error{Code: code, Field: field, Message: field + ": " + fmt.Sprintf(format, args...)}
	}
	switch {
	case t == nil || t.Outbound == nil:
		return nil, wrong(bridge.CodeBadMessage, "trunk", "%q takes no outgoing calls.", phone.ClipField(what.Trunk))
	case !phone.Number(what.To).Matches(t.Outbound.To) || strings.ContainsAny(what.To, notInNumber):
		return nil, wrong(bridge.CodeForbidden, "to", "%q may not be called by this trunk.", phone.ClipField(what.To))
	case what.From != "" && !phone.Number(what.From).Matches(t.Outbound.Callers) || strings.ContainsAny(what.From, notInNumber):
		return nil, wrong(bridge.CodeForbidden, "from",
			"%q is no number that this trunk may show; outbound.callers lists them.", phone.ClipField(what.From))
	case what.Machine != nil && len(what.Machine.Say) > maxSay:
		return nil, wrong(bridge.CodeBadMessage, "machine.say", "%d bytes are more than %d.", len(what.Machine.Say), maxSay)
	case what.Supervise != "" && (what.Machine != nil || what.Variables != nil || what.Agent.Name != "" || what.Agent.Agent != nil):
		return nil, wrong(bridge.CodeBadMessage, "supervise", "no agent talks to a supervisor: leave out agent, variables and machine.")
	case what.RingSeconds < 0 || what.RingSeconds > maxRingSeconds:
		return nil, wrong(bridge.CodeBadMessage, "ringSeconds", "%d is not within 1 to %d.", what.RingSeconds, maxRingSeconds)
	case !d.host.IsReady():
		return nil, bridge.ErrShutdown
	}
	if name := badHeader(what.Headers); name != "" {
		return nil, wrong(bridge.CodeBadMessage, "headers",
			"%q: only X- headers and User-to-User may be sent, %d at most, of one line of %d bytes each.", name, maxHeaders, maxHeader)
	}
	return t, nil
}

// resolveAgent returns the agent that a backend has chosen, with values for its prompt.
func (d *Server) resolveAgent(c agents.Choice, values map[string]string) (*agents.Agent, error) {
	a, err := d.agents.Resolve(c, protocolName, values)
	if err != nil {
		return nil, err
	}
	if err := d.config.Collect.CheckAgent(a); err != nil {
		return nil, &bridge.Error{Code: bridge.CodeBadMessage, Field: "agent", Message: "agent." + err.Error() + "."}
	}
	return a, nil
}

func (d *Server) newOutbound(ctx context.Context, r *outboundCall, t *trunkState, agent *agents.Agent) (*call, error) {
	what := r.dial
	server, err := parseURI(t.Outbound.Server)
	if err != nil {
		return nil, err
	}
	transport := strings.ToUpper(server.UriParams.GetOr("transport", "udp"))
	servers, unknown := d.resolveServers(ctx, server, transport)
	if unknown != nil { // the call has an ID, so it fails like an unanswered one
		servers = []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), 0)}
	}
	if rule := d.gate.countCall(t, ""); rule != "" {
		return nil, &bridge.Error{Code: bridge.CodeBusy, Message: "There are too many " + rule + ".", Retry: 10 * time.Second}
	}
	c := newCall(d, agent)
	c.outbound, c.lookupErr = r, unknown
	c.party = phone.Party{Number: phone.Number(what.To), IsOutbound: true}
	to := server
	to.User = what.To
	from := t.Outbound.localURI(server.Host)
	from.User = cmp.Or(what.From, from.User)
	c.dialog = d.newOutboundDialog(to, from, servers, transport, t.Outbound)
	c.log = d.log.With("trunk", t.Name, "sip", c.dialog.callID)
	c.dialog.log = c.log
	c.party.Attributes.Add("call-id", c.dialog.callID)
	s := d.newMedia(t, servers[0].Addr(), c)
	c.screen = newCallScreen(what.Machine)
	if err := s.OpenPort(); err != nil {
		d.gate.releaseCall(t, "")
		return nil, err
	}
	c.assignTrunk(t, s, "")
	return c, nil
}

// localURI returns our own URI.
func (o *Outbound) localURI(host string) sip.Uri {
	if uri, err := parseURI(o.From); err == nil {
		return uri
	}
	return sip.Uri{Scheme: "sip", User: o.From, Host: host, UriParams: sip.NewParams()}
}

// maxServers bounds the addresses that are tried for one name.
const maxServers = 8

// resolveServers returns the addresses of a server, best first. A name without a port is resolved by its SRV records (RFC 3263, section
// 4.2), if it has any, else by its addresses. NAPTR records are not used: the configuration gives the transport. With TLS, SRV records are
// not used either: sipgo would check the certificate against the name in the record, instead of the trunk's (RFC 5922).
func (d *Server) resolveServers(ctx context.Context, server sip.Uri, transport string) ([]netip.AddrPort, error) {
	host, port := strings.Trim(server.Host, "[]"), uint16(cmp.Or(server.Port, sip.DefaultPort(transport)))
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(a, port)}, nil
	}
	names := []*net.SRV{{Target: host, Port: port}}
	if server.Port == 0 && transport != "TLS" {
		if _, list, err := d.resolver.LookupSRV(ctx, "sip", strings.ToLower(transport), host); err == nil && len(list) > 0 {
			names = list // sorted by priority, and randomly by weight
		}
	}
	var found []netip.AddrPort
	var failed error
	for _, name := range names[:min(len(names), maxServers)] {
		list, err := d.resolver.LookupNetIP(ctx, "ip", name.Target)
		if err != nil {
			failed = err
			continue
		}
		for _, a := range list { // addresses of one family only, since our Contact has one address
			if a = a.Unmap(); len(found) == 0 || len(found) < maxServers && a.Is4() == found[0].Addr().Is4() {
				found = append(found, netip.AddrPortFrom(a, name.Port))
			}
		}
	}
	if len(found) == 0 {
		return nil, failed
	}
	return found, nil
}

// newOutboundDialog returns the dialog of an outgoing call before its answer.
func (d *Server) newOutboundDialog(to, from sip.Uri, servers []netip.AddrPort, transport string, login *Outbound) *dialog {
	out := &dialog{
		client: d.client, callID: rand.Text(), transport: transport, contact: d.contactURI(transport, servers[0].Addr()),
		from:     d.localUDPAddr(transport),
		localTag: newTag(), target: to, login: login,
	}
	if transport != "TLS" { // a certificate is for the name
		out.servers = servers
	}
	out.contact.User = cmp.Or(from.User, out.contact.User) // a trunk where we register calls this user
	out.local = sip.FromHeader{Address: from, Params: sip.NewParams()}
	out.local.Params.Add("tag", out.localTag)
	out.remote = sip.ToHeader{Address: to, Params: sip.NewParams()}
	return out
}

// handleAnswer updates the dialog from a final response.
func (d *dialog) handleAnswer(res *sip.Response) {
	d.mu.Lock()
	d.remoteTag = res.To().Params.GetOr("tag", "")
	d.remote.Params.Remove("tag")
	d.remote.Params.Add("tag", d.remoteTag)
	d.routes = nil
	for _, h := range res.GetHeaders("Record-Route") { // in reverse order: RFC 3261, section 12.1.2
		if route, ok := h.(*sip.RecordRouteHeader); ok {
			d.routes = append([]sip.Uri{route.Address}, d.routes...)
		}
	}
	d.source = res.Source()
	d.mu.Unlock()
	d.addOwner(res.Source())
	d.setTarget(res.Contact())
}

// ringAndAnswer dials, and runs the conversation once the call is answered. rings receives nil when the phone rings, or the error.
func (c *call) ringAndAnswer(rings chan<- error) error {
	if c.lookupErr != nil {
		err := fmt.Errorf("%w: %w", errUnknown, c.lookupErr)
		trySend(rings, err)
		return err
	}
	res, err := c.sendInvites(rings)
	if err != nil {
		trySend(rings, cmp.Or(c.endReason(), err))
		return err
	}
	c.media.DropReceived() // early media, such as a ringback tone, is not the person's voice
	if err := c.dialog.sendAck(res.CSeq().SeqNo); err != nil {
		trySend(rings, err)
		return c.hangUp(err)
	}
	c.server.outboundCalls.setState(c, StateAnswered)
	trySend(rings, nil)
	answer := sessionIn(res)
	if answer == nil { // it was in a provisional response (RFC 6337, section 3.1.1)
		answer = c.earlySDP.answerFor(res)
	}
	if err := c.media.ApplyAnswer(answer); err != nil {
		return c.hangUp(err)
	}
	c.mu.Lock()
	c.timer = agreedRefresh(res)
	c.mu.Unlock()
	<-c.changing // from now on the agreement can change
	return c.hangUp(<-c.startConversation())
}

var errUnknown = errors.New("the server's address was not found")

var errNoAnswer = errors.New("nobody has answered in time")

// RefusedError is the error of a call that was refused.
type RefusedError struct {
	Status int    // SIP status: 486 is busy
	Reason string // reason phrase, with the text of the Reason header
	// RetryAfter is the minimum wait before another try, if the response states it (RFC 3261, section 20.33); else 0.
	RetryAfter time.Duration
}

func refusedBy(res *sip.Response) *RefusedError {
	return &RefusedError{res.StatusCode, reasonIn(res.Reason, res), retryAfter(res)}
}

// maxRetryAfter caps the wait that another side demands.
const maxRetryAfter = time.Hour

// retryAfter parses Retry-After, such as "120;duration=3600 (in a meeting)". It returns 0 if the header is missing.
func retryAfter(res *sip.Response) time.Duration {
	text, _, _ := strings.Cut(headerText(res, "Retry-After"), ";")
	text, _, _ = strings.Cut(text, "(")
	seconds, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31)
	if err != nil {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}

func (e *RefusedError) Error() string { return fmt.Sprintf("not answered: %d %s", e.Status, e.Reason) }

// reasonIn returns a reason with the text of a message's Reason header added: the cause from the phone network (RFC 3326).
func reasonIn(reason string, m interface {
	GetHeaders(name string) []sip.Header
},
) string {
	var texts []string
	for _, h := range m.GetHeaders("Reason") {
		texts = append(texts, h.Value())
	}
	if len(texts) == 0 {
		return phone.ClipField(reason)
	}
	return fmt.Sprintf("%s (%s)", phone.ClipField(reason), phone.ClipField(strings.Join(texts, ", ")))
}

// sendInvites sends the INVITE, with credentials if challenged, and waits for its final response.
func (c *call) sendInvites(rings chan<- error) (*sip.Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.outbound.ringTimeout())
	defer cancel()
	var auth passwordAnswers
	moved := false
	var more []sip.Header
	for { // each server, and the target of a redirection, may challenge
		req := c.dialog.newRequest(sip.INVITE, sip.NewHeader("Allow", allowed), sip.NewHeader("Supported", "timer, replaces"))
		setBody(req, "application/sdp", c.media.LocalDescription())
		headers := auth.authHeaders(c.dialog.login, req)
		for _, h := range headers {
			req.AppendHeader(h)
		}
		for _, h := range more {
			req.AppendHeader(h)
		}
		for name, value := range c.outbound.dial.Headers {
			req.AppendHeader(sip.NewHeader(name, value))
		}
		res, err := c.sendInvite(ctx, req, rings)
		switch {
		case (errors.Is(err, errSilent) || err == nil && res.StatusCode == 503) && c.dialog.nextServer(): // RFC 3263, section 4.3
			c.log.Info("trying the next server", "server", c.dialog.servers[0])
			auth = passwordAnswers{}
			continue
		case err != nil:
			return nil, err
		case res.IsSuccess():
			c.dialog.mu.Lock()
			c.dialog.proof = headers
			c.dialog.mu.Unlock()
			return res, nil
		case !moved && c.followRedirect(ctx, res):
			moved, auth = true, passwordAnswers{}
			continue
		case res.StatusCode == 422 && more == nil: // RFC 4028, section 7.3
			if least, err := strconv.Atoi(headerText(res, "Min-SE")); err == nil && least > 0 {
				more = []sip.Header{sip.NewHeader("Session-Expires", strconv.Itoa(least)), sip.NewHeader("Min-SE", strconv.Itoa(least))}
				continue
			}
		}
		if !auth.addChallenges(c.dialog.login, res) {
			return nil, refusedBy(res)
		}
	}
}

// followRedirect makes the dialog follow a 3xx by the same trunk, if the new number is allowed. It uses the number of the best Contact (RFC
// 3261, section 8.1.3.4) or, for 305, the Contact as proxy for the same number.
func (c *call) followRedirect(ctx context.Context, res *sip.Response) bool {
	if res.StatusCode/100 != 3 {
		return false
	}
	for _, contact := range contactsIn(res) {
		if res.StatusCode == 305 {
			servers, err := c.server.resolveServers(ctx, contact.Address, c.dialog.transport)
			if err != nil || c.dialog.transport == "TLS" { // the certificate would be another server's
				continue
			}
			c.log.Info("call redirected", "proxy", phone.ClipField(hostPort(contact.Address)))
			c.dialog.mu.Lock()
			c.dialog.servers = servers
			c.dialog.mu.Unlock()
			return true
		}
		number := numberIn(contact.Address)
		if number == "" || !number.Matches(c.trunk.Outbound.To) || strings.ContainsAny(string(number), notInNumber) {
			continue
		}
		c.log.Info("call redirected", "to", phone.ClipField(number))
		c.dialog.mu.Lock()
		c.dialog.target.User = string(number)
		c.dialog.mu.Unlock()
		return true
	}
	return false
}

// contactsIn returns the Contacts of a response, best first (RFC 3261, section 20.10).
func contactsIn(res *sip.Response) (list []*sip.ContactHeader) {
	for _, h := range res.GetHeaders("Contact") {
		if contact, ok := h.(*sip.ContactHeader); ok && !contact.Address.Wildcard {
			list = append(list, contact)
		}
	}
	preference := func(c *sip.ContactHeader) float64 {
		q, err := strconv.ParseFloat(c.Params.GetOr("q", "1"), 64)
		if err != nil {
			return 1
		}
		return q
	}
	slices.SortStableFunc(list, func(a, b *sip.ContactHeader) int { return cmp.Compare(preference(b), preference(a)) })
	return list
}

// maxForks bounds the phones of a forked call that send early answers.
const maxForks = 16

// earlyAnswers holds the session descriptions of provisional responses, by the tag of their sender: a call may be forked.
type earlyAnswers map[string][]byte

func (e *earlyAnswers) addAnswer(res *sip.Response) {
	if answer := sessionIn(res); answer != nil && len(*e) < maxForks {
		if *e == nil {
			*e = earlyAnswers{}
		}
		(*e)[tagOf(res)] = answer
	}
}

// answerFor returns the early answer from the sender of a response, or nil.
func (e earlyAnswers) answerFor(res *sip.Response) []byte { return e[tagOf(res)] }

func tagOf(res *sip.Response) string {
	if res.To() == nil {
		return ""
	}
	return res.To().Params.GetOr("tag", "")
}

// serverTimeout bounds the silence of a server, after which the next one of its name is tried. By then an INVITE is sent four times, at 0,
// 0.5, 1.5 and 3.5 s (RFC 3261, timer A).
const serverTimeout = 4 * time.Second

var errSilent = errors.New("the server does not answer")

// sendInvite sends one INVITE and waits for its final response. It returns [errSilent] if the server does not answer. A
// call that is given up is cancelled, and has [Options.Timeout] to end, or less if the gateway stops (RFC 3261, section
// 9.1). sipgo itself waits without limit after a provisional response.
func (c *call) sendInvite(ctx context.Context, req *sip.Request, rings chan<- error) (*sip.Response, error) {
	tx, err := c.dialog.client.TransactionRequest(ctx, req, addVia)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSilent, err)
	}
	defer tx.Terminate()
	var serverTimer, cancelDeadline <-chan time.Time // serverTimer is nil without another server, cancelDeadline until the call is given up
	if len(c.dialog.servers) > 1 {
		serverTimer = time.After(serverTimeout)
	}
	var stopping <-chan struct{}
	hasResponse, isRinging := false, false
	endRequested, ctxDone := c.endRequested, ctx.Done()
	giveUp := func() {
		endRequested, ctxDone, serverTimer = nil, nil, nil
		cancelDeadline, stopping = time.After(c.server.timeout), c.server.closing
		c.sendCancel(req)
	}
	for {
		select {
		case res := <-tx.Responses():
			serverTimer, hasResponse = nil, true
			switch {
			case res.IsSuccess():
				// Before the transaction ends: otherwise an immediate repetition would be taken for the answer of another phone.
				c.dialog.handleAnswer(res)
				if ctxDone == nil { // it was answered while we gave up
					_ = c.dialog.sendAck(res.CSeq().SeqNo)
					c.dialog.sendBye("")
					return nil, errCancelled
				}
				return res, nil
			case !res.IsProvisional():
				return res, nil
			}
			c.earlySDP.addAnswer(res)
			if res.StatusCode >= 180 && !isRinging {
				isRinging = true
				c.server.outboundCalls.setState(c, StateRinging)
				trySend(rings, nil)
			}
		case <-serverTimer:
			return nil, errSilent
		case <-tx.Done():
			if !hasResponse && ctxDone != nil {
				return nil, fmt.Errorf("%w: %w", errSilent, cmp.Or(tx.Err(), error(errCancelled)))
			}
			return nil, cmp.Or(tx.Err(), error(errCancelled))
		case <-endRequested:
			giveUp()
		case <-ctxDone:
			c.endCall(errNoAnswer)
			giveUp()
		case <-stopping:
			stopping, cancelDeadline = nil, time.After(byeTimeout)
		case <-cancelDeadline:
			return nil, errCancelled
		}
	}
}

// sendCancel sends the CANCEL of an INVITE, in the background.
func (c *call) sendCancel(invite *sip.Request) {
	req := sip.NewRequest(sip.CANCEL, invite.Recipient)
	for _, name := range []string{"Via", "Route", "From", "To", "Call-ID", "Max-Forwards"} {
		sip.CopyHeaders(name, invite, req)
	}
	req.AppendHeader(&sip.CSeqHeader{SeqNo: invite.CSeq().SeqNo, MethodName: sip.CANCEL})
	req.SetTransport(invite.Transport())
	req.SetDestination(invite.Destination())
	req.SetBody(nil)
	req.Laddr = invite.Laddr
	c.server.running.Go(func() {
		defer crash.Recover(c.log, "sip call", c.endCall)
		ctx, stop := context.WithTimeout(context.Background(), byeTimeout)
		defer stop()
		_, _ = transact(ctx, c.dialog.client, req)
	})
}
