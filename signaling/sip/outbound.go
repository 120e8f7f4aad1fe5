package sip

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/icholy/digest"

	"voxgate/bridge"
	"voxgate/signaling/access"
	"voxgate/signaling/phone"
)

// ringTimeout is how long it may ring.
const ringTimeout = 60 * time.Second

// Dial is a call that we make.
type Dial struct {
	To    string      `json:"to"`    // a number
	Trunk string      `json:"trunk"` // that takes it
	Agent phone.Agent `json:"agent"` // who talks
}

// Call makes a call. It returns when it rings there, or cannot be made; the call goes on by itself. The id names it in the log.
func (d *Door) Call(ctx context.Context, what Dial) (id string, err error) {
	lane, err := d.outbound(what)
	if err != nil {
		return "", err
	}
	c, err := d.newOutbound(ctx, what, lane)
	if err != nil {
		return "", err
	}
	id = c.dialog.callID
	c.log = d.log.With("trunk", lane.Name, "sip", id)
	if !d.enter(c) {
		c.release()
		return "", bridge.ErrShutdown
	}
	rings := make(chan error, 1)
	d.running.Go(func() {
		c.log.Info("call", "to", what.To, "sound", c.stream.port)
		d.carry(c, func() error { return c.ring(rings) })
	})
	select {
	case err := <-rings:
		return id, err
	case <-ctx.Done():
		c.end(errCancelled)
		return "", ctx.Err()
	}
}

// outbound is the trunk for a call, if it may be made.
func (d *Door) outbound(what Dial) (*lane, error) {
	t := d.gate.trunk(what.Trunk)
	switch {
	case t == nil || t.Outbound == nil:
		return nil, &bridge.Error{Code: bridge.CodeBadMessage, Field: "trunk", Message: fmt.Sprintf("trunk: %q takes no calls of ours.", what.Trunk)}
	case !phone.Matches(t.Outbound.To, what.To) || strings.ContainsAny(what.To, "<>\"@;? \r\n"):
		return nil, &bridge.Error{Code: bridge.CodeForbidden, Field: "to", Message: fmt.Sprintf("to: %q may not be called by this trunk.", what.To)}
	case !d.host.Ready():
		return nil, bridge.ErrShutdown
	}
	return t, nil
}

func (d *Door) newOutbound(ctx context.Context, what Dial, t *lane) (*call, error) {
	server, err := parseURI(t.Outbound.Server)
	if err != nil {
		return nil, err
	}
	peer, err := resolve(ctx, server.Host)
	if err != nil {
		return nil, err
	}
	if rule := d.gate.begin(t, ""); rule != "" {
		return nil, &bridge.Error{Code: bridge.CodeBusy, Message: "There are too many " + rule + ".", Retry: 10 * time.Second}
	}
	c := newCall(d, t, &what.Agent)
	c.party = phone.Party{Number: what.To}
	if c.stream, err = d.ports.open(); err != nil {
		d.gate.end(t, "")
		return nil, err
	}
	transport := strings.ToUpper(server.UriParams.GetOr("transport", "udp"))
	c.local = local{address: d.ownAddress(peer), port: c.stream.port, id: mathrand.Uint64() >> 1, version: 1}
	if t.SRTP == srtpRequired {
		c.offered = offeredKeys()
	}
	to := server
	to.User = what.To
	c.dialog = d.calling(to, t.Outbound.identity(server.Host), peer, transport)
	return c, nil
}

// identity is our own URI.
func (o *Outbound) identity(host string) sip.Uri {
	if uri, err := parseURI(o.From); err == nil {
		return uri
	}
	return sip.Uri{Scheme: "sip", User: o.From, Host: host, UriParams: sip.NewParams()}
}

func resolve(ctx context.Context, host string) (netip.Addr, error) {
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return a, nil
	}
	list, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.Addr{}, err
	}
	return list[0].Unmap(), nil
}

// calling is the dialog of a call of ours that has no answer yet.
func (d *Door) calling(to, from sip.Uri, peer netip.Addr, transport string) *dialog {
	own := &dialog{
		client: d.client, callID: rand.Text(), transport: transport, contact: d.contact(transport, peer), from: d.socket(transport), localTag: newTag(), target: to,
	}
	own.local = sip.FromHeader{Address: from, Params: sip.NewParams()}
	own.local.Params.Add("tag", own.localTag)
	own.remote = sip.ToHeader{Address: to, Params: sip.NewParams()}
	return own
}

// answered takes what a final answer says of the dialog.
func (d *dialog) answered(res *sip.Response) {
	d.mu.Lock()
	d.remoteTag = res.To().Params.GetOr("tag", "")
	d.remote.Params.Remove("tag")
	d.remote.Params.Add("tag", d.remoteTag)
	d.routes = nil
	for _, h := range res.GetHeaders("Record-Route") { // in the reverse order: RFC 3261, section 12.1.2
		if route, ok := h.(*sip.RecordRouteHeader); ok {
			d.routes = append([]sip.Uri{route.Address}, d.routes...)
		}
	}
	d.source = res.Source()
	d.mu.Unlock()
	d.refresh(res.Contact())
}

// tell says how a call begins to who made it, if they still listen.
func tell(rings chan<- error, err error) {
	select {
	case rings <- err:
	default:
	}
}

// ring calls and, when somebody answers, has the conversation. rings is told when it rings, or why it does not.
func (c *call) ring(rings chan<- error) error {
	res, err := c.inviteThem(rings)
	if err != nil {
		tell(rings, err)
		return err
	}
	sequence := res.CSeq().SeqNo
	c.dialog.answered(res)
	if err := c.dialog.ack(sequence); err != nil {
		tell(rings, err)
		return c.hangUp(err)
	}
	tell(rings, nil)
	if err := c.takeAnswer(res.Body()); err != nil {
		return c.hangUp(err)
	}
	c.timer = agreedRefresh(res)
	<-c.changing // from now on it can be
	if err := c.openSound(); err != nil {
		return c.hangUp(err)
	}
	return c.hangUp(<-c.start())
}

// RefusedError is a call that somebody has not taken.
type RefusedError struct {
	Status int // of SIP: 486 is busy
	Reason string
}

func (e *RefusedError) Error() string { return fmt.Sprintf("not answered: %d %s", e.Status, e.Reason) }

// inviteThem sends an INVITE, with the password if it is asked for, and waits for the answer.
func (c *call) inviteThem(rings chan<- error) (*sip.Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), ringTimeout)
	defer cancel()
	o := c.lane.Outbound
	var auth sip.Header
	for range 2 {
		req := c.dialog.request(sip.INVITE, sip.NewHeader("Allow", allowed), sip.NewHeader("Supported", "timer, replaces"))
		if auth != nil {
			req.AppendHeader(auth)
		}
		setBody(req, "application/sdp", offer(c.local, c.offered, "sendrecv"))
		res, err := c.invite(ctx, req, rings)
		switch {
		case err != nil:
			return nil, err
		case res.IsSuccess():
			return res, nil
		}
		if auth != nil || o.Username == "" {
			return nil, &RefusedError{res.StatusCode, res.Reason}
		}
		if auth, err = answerChallenge(req, res, o.Username, o.Password); err != nil {
			return nil, &RefusedError{res.StatusCode, res.Reason}
		}
	}
	return nil, errors.New("the password was refused")
}

// invite sends one INVITE. A call that is given up is cancelled (RFC 3261, section 9.1).
func (c *call) invite(ctx context.Context, req *sip.Request, rings chan<- error) (*sip.Response, error) {
	tx, err := c.dialog.client.TransactionRequest(ctx, req, addVia)
	if err != nil {
		return nil, err
	}
	defer tx.Terminate()
	ended, given := c.ended, ctx.Done()
	rang := false
	giveUp := func() {
		ended, given = nil, nil
		cancel := sip.NewRequest(sip.CANCEL, req.Recipient)
		for _, name := range []string{"Via", "Route", "From", "To", "Call-ID", "Max-Forwards"} {
			sip.CopyHeaders(name, req, cancel)
		}
		cancel.AppendHeader(&sip.CSeqHeader{SeqNo: req.CSeq().SeqNo, MethodName: sip.CANCEL})
		cancel.SetTransport(req.Transport())
		cancel.SetDestination(req.Destination())
		cancel.SetBody(nil)
		cancel.Laddr = req.Laddr
		c.door.running.Go(func() {
			ctx, stop := context.WithTimeout(context.Background(), byeTimeout)
			defer stop()
			_, _ = transact(ctx, c.dialog.client, cancel, nil)
		})
	}
	for {
		select {
		case res := <-tx.Responses():
			switch {
			case !res.IsProvisional():
				if res.IsSuccess() && given == nil { // it was answered as we gave up
					c.dialog.answered(res)
					_ = c.dialog.ack(res.CSeq().SeqNo)
					c.dialog.bye("")
					return nil, errCancelled
				}
				return res, nil
			case res.StatusCode >= 180 && !rang:
				rang = true
				tell(rings, nil)
			}
		case <-tx.Done():
			return nil, cmp.Or(tx.Err(), error(errCancelled))
		case <-ended:
			giveUp()
		case <-given:
			giveUp()
		}
	}
}

// answerChallenge is the header that answers a 401 or 407.
func answerChallenge(req *sip.Request, res *sip.Response, username, password string) (sip.Header, error) {
	name, reply := "WWW-Authenticate", "Authorization"
	if res.StatusCode == 407 {
		name, reply = "Proxy-Authenticate", "Proxy-Authorization"
	}
	for _, h := range res.GetHeaders(name) {
		challenge, err := digest.ParseChallenge(h.Value())
		if err != nil || !digest.CanDigest(challenge) {
			continue
		}
		answer, err := digest.Digest(challenge, digest.Options{Method: string(req.Method), URI: req.Recipient.String(), Username: username, Password: password, Count: 1})
		if err == nil {
			return sip.NewHeader(reply, answer.String()), nil
		}
	}
	return nil, fmt.Errorf("%d without a challenge that can be answered", res.StatusCode)
}

// register tells a trunk where we are, as long as ctx lasts, and then that we are not there any more.
func (d *Door) register(ctx context.Context, t *lane) {
	o := t.Outbound
	wait := time.Duration(0)
	for {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			d.unregister(t)
			return
		}
		granted, err := d.sendRegister(ctx, t, o.Expires)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			d.log.Warn("not registered", "trunk", t.Name, "err", err)
			wait = 30 * time.Second // RFC 5626, section 4.5
		default:
			if wait == 0 {
				d.log.Info("registered", "trunk", t.Name, "for", granted)
			}
			wait = granted * 8 / 10
		}
	}
}

// unregister has a trunk send no more calls.
func (d *Door) unregister(t *lane) {
	ctx, cancel := context.WithTimeout(context.Background(), byeTimeout)
	defer cancel()
	if _, err := d.sendRegister(ctx, t, 0); err != nil {
		d.log.Warn("still registered", "trunk", t.Name, "err", err)
	}
}

// sendRegister registers for so many seconds; 0 ends a registration.
func (d *Door) sendRegister(ctx context.Context, t *lane, seconds int) (time.Duration, error) {
	server, err := parseURI(t.Outbound.Server)
	if err != nil {
		return 0, err
	}
	peer, err := resolve(ctx, server.Host)
	if err != nil {
		return 0, err
	}
	transport := strings.ToUpper(server.UriParams.GetOr("transport", "udp"))
	own := t.Outbound.identity(server.Host)
	dialog := d.calling(own, own, peer, transport)
	dialog.target = server
	var auth sip.Header
	for range 2 {
		req := dialog.request(sip.REGISTER, sip.NewHeader("Expires", strconv.Itoa(seconds)))
		if auth != nil {
			req.AppendHeader(auth)
		}
		res, err := dialog.send(ctx, req)
		if err != nil {
			return 0, err
		}
		if res.IsSuccess() {
			return expiry(res, seconds), nil
		}
		if auth, err = answerChallenge(req, res, t.Outbound.Username, t.Outbound.Password); err != nil {
			return 0, &RefusedError{res.StatusCode, res.Reason}
		}
	}
	return 0, errors.New("the password was refused")
}

// expiry is for how long a registration was granted.
func expiry(res *sip.Response, asked int) time.Duration {
	text := ""
	if c := res.Contact(); c != nil {
		text = c.Params.GetOr("expires", "")
	}
	if h := res.GetHeader("Expires"); text == "" && h != nil {
		text = h.Value()
	}
	if n, err := strconv.Atoi(strings.TrimSpace(text)); err == nil && n >= 10 {
		asked = n
	}
	return time.Duration(asked) * time.Second
}

// maxDial bounds a request to make a call, in bytes.
const maxDial = 64 << 10

// ServeHTTP makes a call for who has a server key that may: POST /v1/calls with a [Dial]. It answers when it rings.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, err := access.From(r.Context()).Key(access.MayCall)
	var what Dial
	if err == nil {
		dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxDial))
		dec.DisallowUnknownFields()
		if wrong := dec.Decode(&what); wrong != nil {
			err = &bridge.Error{Code: bridge.CodeBadMessage, Message: "The body is no call: " + wrong.Error()}
		}
	}
	var id string
	if err == nil {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(ringTimeout + byeTimeout))
		id, err = d.Call(r.Context(), what)
	}
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": "not_answered", "message": refused.Error(), "sip": refused.Status}})
	case err != nil:
		d.log.Warn("call not made", "key", key, "trunk", what.Trunk, "to", what.To, "err", err)
		access.Refuse(w, err)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"id": id})
	}
}
