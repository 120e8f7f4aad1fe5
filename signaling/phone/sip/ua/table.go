package ua

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/emiago/sipgo/sip"
)

// callTable holds the calls, with our tag as the key.
type callTable struct {
	mu        sync.Mutex
	byTag     map[string]*Call
	isClosed  bool           // no new call may begin
	isStopped bool           // requests are not answered any more
	serving   sync.WaitGroup // requests in progress
}

// add adds a call. ok is false if the table is closed, so that no new call may begin.
func (t *callTable) add(c *Call) (ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isClosed {
		return false
	}
	t.byTag[c.dialog.localTag] = c
	return true
}

func (t *callTable) remove(c *Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byTag, c.dialog.localTag)
}

// find returns the call with our tag, or nil.
func (t *callTable) find(tag string) *Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byTag[tag]
}

// all returns all calls.
func (t *callTable) all() []*Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.byTag))
}

// findDialog returns the call of a request within a dialog, or nil.
func (t *callTable) findDialog(req *sip.Request) *Call {
	c := t.find(req.To().Params.GetOr("tag", ""))
	if c == nil || !c.dialog.isDialog(req.CallID().Value(), req.From().Params.GetOr("tag", "")) || errors.Is(c.EndReason(), ErrHungUp) {
		return nil
	}
	return c
}

// hasForeignInvite reports whether a call's INVITE has the same branch as the CANCEL, although the CANCEL does not
// belong to that call.
func (t *callTable) hasForeignInvite(cancel *sip.Request) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.byTag {
		if i := c.dialog.invite; i != nil && branchOf(i) == branchOf(cancel) && inviteKey(i) != inviteKey(cancel) {
			return true
		}
	}
	return false
}

// beginRequest counts a request as in progress. The caller must call serving.Done at the end of the request. ok is
// false if requests are no longer answered.
func (t *callTable) beginRequest() (ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isStopped {
		return false
	}
	t.serving.Add(1)
	return true
}

// close makes add fail from now on, and closes the given channel. It returns the calls that have not ended yet.
func (t *callTable) close(closing chan struct{}) (remaining []*Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isClosed {
		t.isClosed = true
		close(closing)
	}
	return slices.Collect(maps.Values(t.byTag))
}

// stop makes beginRequest return false, and blocks until the requests in progress are done.
func (t *callTable) stop() {
	t.mu.Lock()
	t.isStopped = true
	t.mu.Unlock()
	t.serving.Wait()
}

func (t *callTable) hasStopped() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isStopped
}
