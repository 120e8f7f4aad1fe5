// Package picture makes still pictures for the model out of a video track: one a second at most, small enough for it.
//
// The model looks at a picture a second, so only key frames are decoded, and the sender is asked for one a second.
// golang.org/x/image/vp8 decodes no others.
package picture

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"sync"
	"time"

	"github.com/pion/rtp"
	"golang.org/x/image/vp8"
)

const (
	// MaxSide is the longer side of a picture, in pixels: what Google recommends for the Live API (768x768). A larger
	// one is scaled down there, and the tokens it costs are the same.
	MaxSide = 768

	// quality of the JPEG. Measured: 75 gives 11 KB for a tidy room, 23 KB for a noisy one and 12 KB for a slide, 90 gives
	// 15, 53 and 16 KB, and the text of the slide (12 pixels high) can be read at both.
	quality = 75

	// interval is the time between two pictures: the Live API takes one a second. slack lets one be a little early, or a
	// sender whose clock trembles around the second would have every other picture refused; over time it is still one a
	// second.
	interval = time.Second
	slack    = 250 * time.Millisecond

	// Bounds for what a stranger can make us keep and compute. 4096x2304 holds a 4K screen; decoding it takes 14 MB and a tenth of a second.
	// The key frame of a screen of that size has 400 KB when the sender has bandwidth to spare.
	maxSide   = 4096 // pixels
	maxPixels = maxSide * 2304
	maxBytes  = 1 << 20
	// maxPackets bounds what keeping tiny ones costs; maxBytes fill 900.
	maxPackets = 2048

	// minSide is where a picture begins: some senders fill a pause with 2x2 pixels.
	minSide = 16
)

// Stats count the key frames that were looked at.
type Stats struct {
	Shown      uint64 // became pictures
	Changed    uint64 // of these, show something new
	Incomplete uint64 // lost a packet
	Broken     uint64 // could not be decoded, or are too large
}

// Viewer turns the RTP packets of a VP8 track into pictures. It is used by one goroutine at a time.
type Viewer struct {
	turn  sync.Locker
	show  func(jpeg []byte, changed bool)
	frame frame
	next  time.Time // when the next picture is due
	sent  glance    // of the newest picture that was worth sending
	stats Stats
}

// NewViewer returns a viewer that calls show, from Packet, with each picture, which show may keep. changed is false if it
// shows what the newest changed one did. turn is held while a picture is made, which takes some milliseconds: viewers that
// share one occupy one core together, and leave the others to the sound. Measured: 6 ms at 768x432, 16 ms at 720p and
// 1080p, 0.1 s at 4K.
func NewViewer(turn sync.Locker, show func(jpeg []byte, changed bool)) *Viewer {
	return &Viewer{turn: turn, show: show}
}

// Stats returns the counters.
func (v *Viewer) Stats() Stats { return v.stats }

// Packet takes a packet that came at the given time. It does not keep p. It returns the sequence numbers of packets that a key frame lacks,
// as far as p shows them, to be asked for again: each a few times. Without an answer the frame is lost, which at 5 % loss is every other
// one.
func (v *Viewer) Packet(p *rtp.Packet, now time.Time) (missing []uint16) {
	due := !now.Add(slack).Before(v.next)
	lost := v.frame.add(p, due)
	missing = v.frame.missing(p)
	if lost {
		v.stats.Incomplete++
	}
	data := v.frame.whole()
	if data == nil {
		return missing
	}
	v.frame.drop()
	if v.next.Before(now) {
		v.next = now
	}
	v.next = v.next.Add(interval) // for a broken one, too: it has cost as much
	picture, g, err := v.picture(data)
	if err != nil {
		v.stats.Broken++
		return missing
	}
	changed := g.differs(v.sent)
	if changed {
		v.sent = g
		v.stats.Changed++
	}
	v.stats.Shown++
	v.show(picture, changed)
	return missing
}

// picture makes a picture of a key frame.
func (v *Viewer) picture(data []byte) ([]byte, glance, error) {
	v.turn.Lock()
	defer v.turn.Unlock()
	img, err := decode(data)
	if err != nil {
		return nil, glance{}, err
	}
	small := shrink(img)
	var out bytes.Buffer
	if err := jpeg.Encode(&out, small, &jpeg.Options{Quality: quality}); err != nil {
		return nil, glance{}, fmt.Errorf("jpeg: %w", err)
	}
	return out.Bytes(), look(small), nil
}

// decode decodes a key frame.
func decode(data []byte) (*image.YCbCr, error) {
	width, height, ok := keySize(data)
	if !ok {
		return nil, errors.New("not a VP8 key frame")
	}
	if min(width, height) < minSide || max(width, height) > maxSide || width*height > maxPixels {
		return nil, fmt.Errorf("%dx%d is not served", width, height)
	}
	d := vp8.NewDecoder() // one that has seen another size returns pictures of the larger one
	d.Init(bytes.NewReader(data), len(data))
	if _, err := d.DecodeFrameHeader(); err != nil {
		return nil, fmt.Errorf("frame header: %w", err)
	}
	img, err := d.DecodeFrame()
	if err != nil {
		return nil, fmt.Errorf("frame: %w", err)
	}
	return img, nil
}
