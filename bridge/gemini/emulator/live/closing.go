package live

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/gorilla/websocket"
)

// Close codes with which the Live API ends a session.
const (
	CloseInvalid  = websocket.CloseInvalidFramePayloadData // 1007: invalid message of the client
	ClosePolicy   = websocket.ClosePolicyViolation         // 1008: unknown model, session or operation
	CloseInternal = websocket.CloseInternalServerErr       // 1011
)

// Reasons in Google's close frames that are used in more than one place.
const (
	QuotaExceeded = "You exceeded your current quota, please check your plan and billing details."
	NotEnabled    = "Operation is not implemented, or supported, or enabled."
)

// Closing is an error that ends a session. The emulator then sends a close frame with this code and reason.
type Closing struct {
	Code   int
	Reason string
}

// usualReasons maps close codes to the reasons that Google's server usually sends with them.
var usualReasons = map[int]string{
	CloseInvalid:  "Request contains an invalid argument.",
	ClosePolicy:   "The operation was aborted",
	CloseInternal: "Internal error encountered.",
}

// NewClosing returns a Closing. If reason is "", it has the usual reason for the code.
func NewClosing(code int, reason string) *Closing {
	return &Closing{code, cmp.Or(reason, usualReasons[code])}
}

func newInvalidClosing(format string, args ...any) error {
	return &Closing{CloseInvalid, fmt.Sprintf(format, args...)}
}

func (c *Closing) Error() string { return fmt.Sprintf("%d %s", c.Code, c.Reason) }

// Frame returns the payload of the close frame, with a reason of at most 123 bytes: a control frame may have 125 bytes,
// and the code takes two (RFC 6455, section 5.5).
func (c *Closing) Frame() []byte {
	reason := c.Reason
	if len(reason) > 123 {
		reason = strings.ToValidUTF8(reason[:123], "")
	}
	return websocket.FormatCloseMessage(c.Code, reason)
}

// IsValidCloseCode reports whether an emulated connection may end with the code. These are the codes that a close frame
// may contain (RFC 6455, 7.4), and two others: 1006 stands for a missing close frame, and 1005 for a close frame
// without a code.
func IsValidCloseCode(code int) bool {
	switch code {
	case websocket.CloseAbnormalClosure, websocket.CloseNoStatusReceived:
		return true
	case 1004, websocket.CloseTLSHandshake:
		return false
	}
	return code >= 1000 && code <= 1014 || code >= 3000 && code <= 4999
}
