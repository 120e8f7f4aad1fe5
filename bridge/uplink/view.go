package uplink

import (
	"time"

	"voxgate/bridge/gemini/wire"
)

const (
	// pictureTime is how often a picture is sent at most: Gemini looks at one a second
	// (https://ai.google.dev/gemini-api/docs/live-api/capabilities).
	pictureTime = time.Second

	// inlineAge is how old a picture may be that goes with a typed turn. A track gives one every second; one that a client
	// sent is what the person talks about.
	inlineAge = 10 * time.Second

	// largeInline is the size in bytes above which a picture goes with one typed turn only: the model has it then, and a
	// line of text would cost megabytes again. A camera's or a screen's has some 20 KB.
	largeInline = 1 << 20

	// maxInline bounds, in bytes, the pictures that unanswered typed turns hold. A turn whose picture would exceed it goes
	// without, but a single picture is always kept; the limit of a message, 8 MB of picture, bounds that.
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

// show takes a picture. One that shows the same as the one before waits until the person speaks.
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
