package sip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"voxgate/agents"
	"voxgate/bridge"
	sipmedia "voxgate/signaling/phone/sip/media"
	"voxgate/signaling/phone/sip/ua"
	"voxgate/tools"
)

// The reasons for which this package ends a call. Package ua has further reasons.
var (
	errMachine         = errors.New("no person has answered")
	errMessage         = errors.New("the message was left")
	errByBackend       = errors.New("the backend has ended the call")
	errRefused         = errors.New("the call was refused")
	errTransferred     = errors.New("the call was transferred")
	errPartner         = errors.New("the other side of the transfer has hung up")
	errNotTaken        = errors.New("the colleague did not decide in time")
	errColleagueSilent = errors.New("the colleague said nothing")
	errTakeOver        = errors.New("the supervisor takes the call over")
	errSessionOver     = errors.New("the call that they listened to is over")
)

// refusalFor returns the SIP response that refuses a call because of an error of the gateway.
func refusalFor(err error) *ua.Refusal {
	if errors.Is(err, ua.ErrCancelled) || errors.Is(err, ua.ErrHungUp) {
		return &ua.Refusal{Code: 487, Reason: "Request Terminated", Rule: "cancelled"}
	}
	e := bridge.AsError(err)
	r := &ua.Refusal{Code: 500, Reason: "Server Internal Error", Rule: string(e.Code) + ": " + e.Message}
	r.WithWarning(e.Message)
	switch {
	case e.Code == bridge.CodeForbidden, e.Code == bridge.CodeUnauthorized:
		r.Code, r.Reason = 403, "Forbidden"
	case e.Field == agents.ErrorField:
		r.Code, r.Reason = 404, "Not Found"
	case e.Code == bridge.CodeBusy, errors.Is(err, bridge.ErrShutdown), errors.Is(err, context.Canceled):
		r.Code, r.Reason = 503, "Service Unavailable"
		if seconds := int(e.Retry.Seconds() + 0.999); seconds > 0 {
			r.WithHeader("Retry-After", strconv.Itoa(seconds))
		}
	}
	return r
}

// reasonHeader returns the Reason header of our BYE (RFC 3326), which the other side may log.
func reasonHeader(err error) string {
	cause := 16 // 16 is normal call clearing (ITU-T Q.850)
	text := bridge.DescribeEnd(err)
	switch {
	case errors.Is(err, sipmedia.ErrSilence), errors.Is(err, ua.ErrRefresh):
		cause, text = 102, err.Error() // recovery on timer expiry
	case errors.Is(err, errMachine), errors.Is(err, errMessage), errors.Is(err, errTransferred), errors.Is(err, errPartner),
		errors.Is(err, errNotTaken), errors.Is(err, errSessionOver):
		text = err.Error()
	case errors.Is(err, bridge.ErrReplaced):
		text = "Replaced"
	case text != "":
		cause = 41 // temporary failure
		var limit bridge.Limit
		if errors.As(err, &limit) {
			cause = 31 // normal, unspecified
		}
	}
	return fmt.Sprintf("Q.850;cause=%d;text=%q", cause, cmp.Or(tools.Truncate(text, 100), "Normal call clearing"))
}
