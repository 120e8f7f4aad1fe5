package toolcalls

import (
	"errors"
	"slices"
	"time"

	"voxgate/bridge/gemini/liveconfig"
	"voxgate/tools"
)

// CallSnapshot holds what another gateway needs to continue an open call.
type CallSnapshot struct {
	tools.Call
	IsCovered   bool     `json:"Known"`           // the newest handle covers the call
	Detached    bool     `json:"Later,omitempty"` // the model was told that the result follows as text
	QuestionIDs []string `json:"Asked,omitempty"` // IDs of the requests to the client for this call
}

// Snapshot returns the open calls.
func (c *Calls) Snapshot() (list []CallSnapshot) {
	for _, o := range c.callsByAge() {
		k := CallSnapshot{Call: o.Call, IsCovered: c.Handles.IsCoveredByHandle(o.event), Detached: o.isDetached}
		for id, q := range c.questions {
			if q.call == o {
				k.QuestionIDs = append(k.QuestionIDs, id)
			}
		}
		slices.Sort(k.QuestionIDs)
		list = append(list, k)
	}
	return list
}

// errCallLost is the answer to a call whose tool was running in a gateway that is gone. The tool may have had its
// effect.
var errCallLost = errors.New("the connection to this tool was lost while it ran: it is not known what it has done")

// RestoreCalls continues the open calls of a conversation that began at another gateway. Calls that the client runs
// stay open. Calls that ran in the other gateway are answered with errCallLost.
func (c *Calls) RestoreCalls(list []CallSnapshot) {
	var asked []tools.Call
	var withdrawn []string
	for _, k := range list {
		function, declared := c.Functions.FindFunction(k.Name)
		switch {
		case !k.IsCovered: // the session resumed with such a handle makes the call again
			withdrawn = append(withdrawn, k.QuestionIDs...)
		case declared && function.Where == liveconfig.InClient:
			o := &call{Call: k.Call, function: function, startedAt: time.Now(), isDetached: k.Detached}
			asked = append(asked, c.registerClientCall(o).Call)
		default:
			withdrawn = append(withdrawn, k.QuestionIDs...)
			if lost := (reply{response: tools.BuildOutcome(nil, errCallLost).Response}); k.Detached {
				c.sendFollowUp(&call{Call: k.Call}, lost)
			} else {
				c.sendAnswer(k.Call, 0, lost)
				c.Notify(ReplyExpected{})
			}
		}
	}
	c.notifyWithdrawn(withdrawn)
	if len(asked) > 0 {
		c.Notify(ClientCalls{asked})
	}
	c.UpdateAudioGate()
}
