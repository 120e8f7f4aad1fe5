package sip

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/emiago/sipgo/sip"
)

var errNoPRACK = errors.New("our ringing was not acknowledged")

// reliable is the state of a reliable provisional response (RFC 3262).
type reliable struct {
	invite string // the CSeq of its INVITE: "1 INVITE"
	number uint32 // RSeq of the response; 0 without one
	acked  chan []byte
}

// sendReliable sends a provisional response. If must is true the response is reliable: it is repeated, and
// sendReliable blocks, until it is acknowledged.
func (c *call) sendReliable(req *sip.Request, res *sip.Response, tx sip.ServerTransaction, must bool) error {
	if !must {
		_ = tx.Respond(res) // if this fails, the final response has the same content
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
	case errors.Is(err, errHungUp): // by BYE, which may come before our final response (RFC 3261, section 15.1.2)
		_ = tx.Respond(c.dialog.buildResponse(req, 487, "Request Terminated"))
	}
	return err
}

// onPrack handles the acknowledgement of a provisional response.
func (c *call) onPrack(req *sip.Request, tx sip.ServerTransaction) {
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
	case sessionIn(req) != nil: // another offer before the first is answered
		_ = tx.Respond(c.dialog.buildResponse(req, 488, "Not Acceptable Here"))
	default:
		_ = tx.Respond(c.dialog.buildResponse(req, 200, "OK"))
	}
	trySend(c.reliable.acked, nil) // unless acknowledged already
}
