package uplink

import (
	"slices"
	"time"

	"voxgate/bridge/gemini/wire"
)

const (
	// pictureTime is how often a picture is sent at most: Gemini looks at one a second
	// (https://ai.google.dev/gemini-api/docs/live-api/capabilities).
	pictureTime = time.Second

	// inlineAge is how old a picture may be that goes with a typed turn. A track gives one every second; one that a client
	// sent is what it was talking of.
	inlineAge = 10 * time.Second

	// largeInline is the size in bytes above which a picture goes with one typed turn only: the model has it then, and a line
	// of text would cost megabytes again. A camera's or a screen's has some 20 KB.
	largeInline = 1 << 20

	// maxInline bounds the pictures in bytes that typed turns hold which are not answered. A turn whose picture is one too
	// many goes without; one picture of any size is not. The client's own limit is that of a message, 8 MB of picture.
	maxInline = 8 << 20
)

// view is what the person shows. Guarded by Uplink.mu.
type view struct {
	newest  *wire.Blob
	came    time.Time
	changed bool      // since the one that was sent
	unsent  bool      // the newest was not
	sent    time.Time // when the last one was
	inline  bool      // the newest went with a typed turn
}

// show takes a picture. One that shows what the one before did waits for the person to speak.
func (v *view) show(b wire.Blob, changed bool) {
	v.newest, v.came, v.unsent, v.inline = &b, time.Now(), true, false
	v.changed = v.changed || changed || v.sent.IsZero()
}

// take takes the picture that is to be sent now, or says when it may be: pictures cost tokens.
func (v *view) take(speaking bool) (it Item, wait time.Duration, ok bool) {
	if !v.unsent || !v.changed && !speaking {
		return Item{}, 0, false
	}
	now := time.Now()
	if early := pictureTime - now.Sub(v.sent); early > 0 {
		return Item{}, early, false
	}
	v.unsent, v.changed, v.sent = false, false, now
	return Item{Message: &wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{Video: v.newest}}}, 0, true
}

// Picture gives the model something to look at: the newest wins, and one a second is sent. One that is not changed is sent
// only while the person speaks.
func (u *Uplink) Picture(b wire.Blob, changed bool) {
	u.mu.Lock()
	if !u.paused {
		u.view.show(b, changed)
	}
	u.mu.Unlock()
	signal(u.Ready)
}

// Blind forgets the picture: there is nothing to look at any more.
func (u *Uplink) Blind() {
	u.mu.Lock()
	u.view.newest, u.view.unsent = nil, false
	u.mu.Unlock()
}

// Seen takes the picture that the person shows now to go with a typed turn, which cannot wait until the model looks; nil if
// there is none, or it may not.
func (u *Uplink) Seen() *wire.Blob {
	u.mu.Lock()
	defer u.mu.Unlock()
	v := &u.view
	if v.newest == nil || time.Since(v.came) > inlineAge || v.inline && len(v.newest.Data) > largeInline || !u.room(v.newest) {
		return nil
	}
	v.inline = true
	return v.newest
}

// room tells whether a picture may be kept with the turns that wait or have no answer. Needs mu.
func (u *Uplink) room(next *wire.Blob) bool {
	held := []*wire.Blob{next}
	size := len(next.Data)
	for _, list := range [][]Item{u.urgent, u.queue[u.head:], u.sent.items, u.sent.settled} {
		for _, it := range list {
			if it.Turn != nil && it.Turn.Picture != nil && !slices.Contains(held, it.Turn.Picture) {
				held = append(held, it.Turn.Picture)
				size += len(it.Turn.Picture.Data)
			}
		}
	}
	return len(held) == 1 || size <= maxInline
}
