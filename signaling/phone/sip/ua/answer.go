package ua

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"

	"voxgate/signaling/phone"
)

const (
	DefaultTimeout        = 32 * time.Second       // default of Options.Timeout: 64 times T1 (RFC 3261, sections 9.1 and 13.3.1.4)
	retransmitInterval    = 500 * time.Millisecond // T1
	maxRetransmitInterval = 4 * time.Second        // T2
)

// EndOnCancel makes a CANCEL end the call from now on. If a CANCEL has already arrived and was answered, it returns
// [ErrCancelled].
func (c *Call) EndOnCancel() error {
	if !c.tx.OnCancel(func(*sip.Request) { c.End(ErrCancelled) }) {
		return ErrCancelled
	}
	return nil
}

// HasEarlyCancel reports whether the CANCEL of the call arrived before its INVITE.
func (c *Call) HasEarlyCancel() bool { return c.core.gate.hasEarlyCancel(c.dialog.invite) }

// Ring sends the provisional response. If earlyMedia is true and the INVITE has an offer, the response contains our
// session description, and sentSDP is true. If the response is sent reliably, Ring blocks until it is acknowledged.
func (c *Call) Ring(earlyMedia bool) (sentSDP bool, err error) {
	req := c.dialog.invite
	must := requiresOption(req, "100rel")
	rings := c.dialog.buildResponse(req, 180, "Ringing")
	switch offered := findSDP(req) != nil; {
	case !offered && must: // a reliable response would have to contain our offer, so none is sent
		return false, nil
	case !offered || !earlyMedia:
		return false, c.sendProvisional(rings, must)
	}
	must = supportsOption(req, "100rel")
	rings = c.dialog.buildResponse(req, 183, "Session Progress")
	setBody(rings, typeSDP, c.Media.LocalDescription())
	return true, c.sendProvisional(rings, must)
}

// sendProvisional sends a provisional response. If isReliable is true, it repeats the response and blocks until the peer
// acknowledges it.
func (c *Call) sendProvisional(res *sip.Response, isReliable bool) error {
	req, tx := c.dialog.invite, c.tx
	if !isReliable {
		_ = tx.Respond(res) // an error is ignored: the final response repeats the content
		return nil
	}
	c.mu.Lock()
	c.reliable.invite = strings.ToUpper(req.CSeq().Value())
	if c.reliable.number == 0 {
		c.reliable.number = rand.Uint32N(1 << 31) // RFC 3262, section 3
	}
	c.reliable.number++
	number := c.reliable.number
	c.mu.Unlock()
	res.AppendHeader(sip.NewHeader("Require", "100rel"))
	res.AppendHeader(sip.NewHeader("RSeq", fmt.Sprint(number)))
	_, err := c.sendUntilAcked(res, tx, c.reliable.acked)
	switch {
	case errors.Is(err, errNoACK):
		_ = tx.Respond(c.dialog.buildResponse(req, 504, "Server Time-out"))
		return errNoPRACK
	case errors.Is(err, ErrHungUp): // a BYE may come before our final response (RFC 3261, section 15.1.2)
		_ = tx.Respond(c.dialog.buildResponse(req, 487, "Request Terminated"))
	}
	return err
}

// AnswerAndAwaitAck answers the call, and blocks until the answer is acknowledged.
func (c *Call) AnswerAndAwaitAck() error {
	req := c.dialog.invite
	res := c.addCallHeaders(c.dialog.buildResponse(req, 200, "OK"))
	setBody(res, typeSDP, c.Media.LocalDescription())
	body, err := c.sendUntilAcked(res, c.tx, c.acked)
	if err != nil {
		return err
	}
	if findSDP(req) == nil { // the INVITE had no offer, so we made it
		if err := c.Media.ApplyAnswer(body); err != nil {
			return err
		}
	}
	<-c.changing // unlock: the media can be renegotiated from now on
	c.isAnswered.Store(true)
	return nil
}

// sendUntilAcked sends a response repeatedly until it is acknowledged, and returns the body of the ACK. It fails when
// the call ends, or after [Options.Timeout].
func (c *Call) sendUntilAcked(res *sip.Response, tx sip.ServerTransaction, acked <-chan []byte) (body []byte, err error) {
	select {
	case <-c.ending:
		return nil, c.EndReason()
	default:
	}
	select {
	case <-c.acked: // discards a late ACK of an earlier response
	default:
	}
	c.awaitedACK.Store(res.CSeq().SeqNo)
	defer c.awaitedACK.Store(0)
	if err := tx.Respond(res); err != nil {
		return nil, err
	}
	timeout := time.NewTimer(c.core.timeout)
	defer timeout.Stop()
	pause := retransmitInterval
	again := time.NewTimer(pause)
	defer again.Stop()
	for {
		select {
		case body := <-acked:
			return body, nil
		case ack := <-tx.Acks(): // some peers send the ACK with the branch of the INVITE, so sipgo delivers it here
			return findSDP(ack), nil
		case <-c.ending: // the call has ended, for example by a BYE that overtook the ACK
			return nil, c.EndReason()
		case <-timeout.C:
			return nil, errNoACK
		case <-again.C:
			_ = c.core.server.WriteResponse(res)
			pause = min(2*pause, maxRetransmitInterval)
			again.Reset(pause)
		}
	}
}

// onAck passes the body of an ACK to sendUntilAcked if it belongs to our newest response. A repeated ACK of an older
// response is ignored.
func (c *Call) onAck(req *sip.Request) {
	if c.awaitedACK.CompareAndSwap(req.CSeq().SeqNo, 0) {
		phone.TrySend(c.acked, findSDP(req))
	}
}

// onPrack handles a PRACK, which acknowledges a reliable provisional response.
func (c *Call) onPrack(req *sip.Request, tx sip.ServerTransaction) {
	text := ""
	if h := req.GetHeader("RAck"); h != nil {
		text = h.Value()
	}
	number, invite, _ := strings.Cut(strings.TrimSpace(text), " ")
	n, err := strconv.ParseUint(number, 10, 32)
	c.mu.Lock()
	isPending := err == nil && c.reliable.number > 0 && uint32(n) == c.reliable.number &&
		strings.ToUpper(strings.TrimSpace(invite)) == c.reliable.invite
	c.mu.Unlock()
	refused := checkBody(req)
	switch {
	case !isPending:
		_ = tx.Respond(c.dialog.buildResponse(req, 481, "Call/Transaction Does Not Exist"))
		return
	case refused != nil:
		c.respond(tx, req, refused)
	case findSDP(req) != nil: // a second offer before the first one is answered
		_ = tx.Respond(c.dialog.buildResponse(req, 488, "Not Acceptable Here"))
	default:
		_ = tx.Respond(c.dialog.buildResponse(req, 200, "OK"))
	}
	phone.TrySend(c.reliable.acked, nil) // no effect if the response was acknowledged before
}

// handleMediaChange handles a re-INVITE or an UPDATE, which may renegotiate the media. sendResponse sends the response.
// For a re-INVITE, it blocks until the ACK arrives and returns the body of the ACK.
func (c *Call) handleMediaChange(req *sip.Request, tx sip.ServerTransaction, sendResponse func(*sip.Response) ([]byte, error)) {
	select { // waits a moment: a request that is sent right after an ACK may be read before the ACK
	case c.changing <- struct{}{}:
		defer func() { <-c.changing }()
	case <-time.After(retransmitInterval):
		_ = tx.Respond(c.dialog.buildResponse(req, 491, "Request Pending"))
		return
	}
	if refused := checkBody(req); refused != nil {
		c.respond(tx, req, refused)
		return
	}
	offer := findSDP(req)
	hasSDP := offer != nil || req.Method == sip.INVITE // the response contains a session description
	isOurOffer := hasSDP && offer == nil               // a re-INVITE without an offer asks for ours
	if hasSDP && !isOurOffer {
		if err := c.Media.ApplyOffer(offer); err != nil {
			c.respond(tx, req, NotAcceptable(err))
			return
		}
	}
	c.dialog.setTarget(req.Contact())
	c.recordRefresh()
	res := c.addCallHeaders(c.dialog.buildResponse(req, 200, "OK"))
	switch {
	case isOurOffer:
		setBody(res, typeSDP, c.Media.BuildReoffer())
	case hasSDP:
		setBody(res, typeSDP, c.Media.LocalDescription())
	}
	body, err := sendResponse(res)
	if isOurOffer && err == nil && len(body) > 0 {
		err = c.Media.ApplyAnswer(body)
	}
	if err != nil {
		c.End(err)
	}
}

func (c *Call) onReinvite(req *sip.Request, tx sip.ServerTransaction) {
	c.handleMediaChange(req, tx, func(res *sip.Response) ([]byte, error) { return c.sendUntilAcked(res, tx, c.acked) })
}

func (c *Call) onUpdate(req *sip.Request, tx sip.ServerTransaction) {
	c.handleMediaChange(req, tx, func(res *sip.Response) ([]byte, error) { return nil, tx.Respond(res) })
}

// onInfo handles an INFO request with a DTMF digit. Phones send digits by INFO, although RFC 6086 defines no INFO
// package for digits.
func (c *Call) onInfo(req *sip.Request, tx sip.ServerTransaction) {
	part, refused := findBody(req, typeDTMFRelay, typeDTMF)
	if part != nil && !c.OnDigit(part.kind, string(part.data)) {
		refused = &Refusal{Code: 415, Reason: "Unsupported Media Type"}
	}
	if refused == nil {
		refused = &Refusal{Code: 200, Reason: "OK"}
	}
	c.respond(tx, req, refused)
}
