package uplink

import (
	"time"

	"voxgate/bridge/gemini/wire"
)

const (
	// pictureTime is the minimum interval between pictures: Gemini looks at one a second
	// (https://ai.google.dev/gemini-api/docs/live-api/capabilities).
	pictureTime = time.Second

	// inlineAge is the maximum age of a picture that is added to a typed turn. A video track delivers a picture every
	// second.
	inlineAge = 10 * time.Second

	// largeInline is the size, in bytes, above which a picture is added only to one typed turn. Repeating it with every
	// typed turn would cost megabytes. Pictures of a camera or a screen have some 20 KB.
	largeInline = 1 << 20

	// maxInline limits the total size, in bytes, of the pictures in unanswered typed turns. Further turns are sent
	// without a picture. A single picture always fits, because messages have at most 8 MB.
	maxInline = 8 << 20
)

// shownPicture holds the picture that the person shows. Uplink.mu guards it.
type shownPicture struct {
	newest     *wire.Blob
	receivedAt time.Time
	changed    bool      // the picture has changed since the last one sent
	isUnsent   bool      // newest was not sent yet
	sentAt     time.Time // when the last picture was sent
	sentInline bool      // newest went with a typed turn
}

// setPicture stores a picture. An unchanged picture is not sent until the person speaks.
func (s *shownPicture) setPicture(b wire.Blob, hasChanged bool) {
	s.newest, s.receivedAt, s.isUnsent, s.sentInline = &b, time.Now(), true, false
	s.changed = s.changed || hasChanged || s.sentAt.IsZero()
}

// takePicture returns the picture to send now. If there is none, ok is false. A positive wait is then the time until
// the next attempt. Unchanged pictures are sent only during speech, because they cost tokens.
func (s *shownPicture) takePicture(isSpeaking bool) (it Item, wait time.Duration, ok bool) {
	if !s.isUnsent || !s.changed && !isSpeaking {
		return Item{}, 0, false
	}
	now := time.Now()
	if early := pictureTime - now.Sub(s.sentAt); early > 0 {
		return Item{}, early, false
	}
	s.isUnsent, s.changed, s.sentAt = false, false, now
	return Item{Message: &wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{Video: s.newest}}}, 0, true
}
