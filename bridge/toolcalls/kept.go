package toolcalls

import (
	"errors"
	"slices"
	"time"

	"voxgate/bridge/gemini/setup"
	"voxgate/tools"
)

// Kept is what another gateway needs to know of an open call to go on with the conversation.
type Kept struct {
	tools.Call
	Known bool     `json:"Known"`           // to the session behind the newest handle
	Later bool     `json:"Later,omitempty"` // the model knows that the result follows as text
	Asked []string `json:"Asked,omitempty"` // ids of what the client was asked because of it
}

// Kept are the calls that are open.
func (c *Calls) Kept() (list []Kept) {
	for _, o := range c.oldestFirst() {
		k := Kept{Call: o.Call, Known: c.Model.Knows(o.when), Later: o.detached}
		for id, q := range c.questions {
			if q.of == o {
				k.Asked = append(k.Asked, id)
			}
		}
		slices.Sort(k.Asked)
		list = append(list, k)
	}
	return list
}

// errElsewhere is the answer of a tool that ran in a gateway which is gone. It may have done its work.
var errElsewhere = errors.New("the connection to this tool was lost while it ran: it is not known what it has done")

// Restore takes over the open calls of a conversation from another gateway. Those that the client runs stay open; those
// that ran in that gateway are lost.
func (c *Calls) Restore(list []Kept) {
	var asked []tools.Call
	var withdrawn []string
	for _, k := range list {
		function, declared := c.Model.Find(k.Name)
		switch {
		case !k.Known: // the model will call again
			withdrawn = append(withdrawn, k.Asked...)
		case declared && function.Where == setup.InClient:
			o := &call{Call: k.Call, function: function, began: time.Now(), detached: k.Later}
			asked = append(asked, c.askFor(o).Call)
		default:
			withdrawn = append(withdrawn, k.Asked...)
			if lost := (reply{response: tools.Respond(nil, errElsewhere).Response}); k.Later {
				c.followUp(&call{Call: k.Call}, lost)
			} else {
				c.respond(k.Call, 0, lost)
				c.Model.Expect()
			}
		}
	}
	c.withdraw(withdrawn)
	if len(asked) > 0 {
		c.Client.Ask(asked)
	}
	c.Gate()
}
