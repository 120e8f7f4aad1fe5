// Package picture extracts still pictures for the model from a video track: at most one a second, scaled down.
//
// The model looks at one picture a second, so the sender is asked for one key frame a second. Only key frames are
// decoded, because golang.org/x/image/vp8 cannot decode other frames.
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
	// MaxSide is the longer side of a picture, in pixels: Google's recommendation (768x768). Google scales larger
	// pictures down, at the same cost in tokens.
	MaxSide = 768

	// quality is the JPEG quality, 1 to 100. At 75, a tidy room takes 11 KB (15 KB at quality 90), a noisy room 23 KB
	// (53 KB), and a slide 12 KB (16 KB). Text of 12 pixels is legible at both qualities.
	quality = 75

	// interval is the time between two pictures: the Live API accepts one a second.
	interval = time.Second
	// slack limits how much too early a picture may arrive and still be used. Without it, clock jitter would drop every
	// other picture.
	slack = 250 * time.Millisecond

	// Limits on memory and CPU for an untrusted sender. A 4K screen fits into 4096x2304. Decoding such a picture takes
	// 14 MB and a tenth of a second, and its key frame has up to 400 KB.
	maxSide   = 4096 // pixels
	maxPixels = maxSide * 2304
	maxBytes  = 1 << 20
	// maxPackets limits the packets of a key frame, because many tiny packets cost much CPU time. With packets of the
	// usual size, a frame of maxBytes has 900.
	maxPackets = 2048

	// minSide is the smallest side of a picture, in pixels. Some senders fill a pause with 2x2 pixels.
	minSide = 16
)

// Stats counts key frames.
type Stats struct {
	Shown      uint64 // key frames that became pictures
	Changed    uint64 // pictures with visible changes
	Incomplete uint64 // a packet was lost
	Broken     uint64 // could not be decoded, or too large
}

// Extractor turns the RTP packets of a VP8 track into pictures. It must not be used concurrently.
type Extractor struct {
	decodeLock  sync.Locker
	show        func(jpeg []byte, changed bool)
	frame       keyFrame
	nextDue     time.Time // when the next picture is due
	lastChanged thumbnail // the newest picture with visible changes
	stats       Stats
}

// NewExtractor returns an extractor. Its AddPacket calls show with each picture, and show may keep the bytes. changed
// is false if the picture looks like the last picture for which changed was true.
//
// decodeLock is held while a picture is decoded. Extractors that share the lock decode one at a time, which leaves the
// other cores to the audio. Measured: 6 ms at 768x432, 16 ms at 720p and 1080p, 0.1 s at 4K.
func NewExtractor(decodeLock sync.Locker, show func(jpeg []byte, changed bool)) *Extractor {
	return &Extractor{decodeLock: decodeLock, show: show}
}

// Stats returns the counters.
func (e *Extractor) Stats() Stats { return e.stats }

// AddPacket adds a packet that arrived at the time now. It does not keep p. It returns the sequence numbers of a key
// frame's missing packets, to be requested again. It returns each number up to three times. Without retransmission, 5 %
// packet loss destroys every other key frame.
func (e *Extractor) AddPacket(p *rtp.Packet, now time.Time) (missing []uint16) {
	isDue := !now.Add(slack).Before(e.nextDue)
	hasGap := e.frame.addPacket(p, isDue)
	missing = e.frame.takeMissingPackets(p)
	if hasGap {
		e.stats.Incomplete++
	}
	data := e.frame.assembleIfComplete()
	if data == nil {
		return missing
	}
	e.frame.reset()
	if e.nextDue.Before(now) {
		e.nextDue = now
	}
	e.nextDue = e.nextDue.Add(interval) // also after a picture that cannot be decoded, because trying costs as much
	picture, g, err := e.encodePicture(data)
	if err != nil {
		e.stats.Broken++
		return missing
	}
	changed := g.differsFrom(e.lastChanged)
	if changed {
		e.lastChanged = g
		e.stats.Changed++
	}
	e.stats.Shown++
	e.show(picture, changed)
	return missing
}

// encodePicture decodes a key frame and encodes it as JPEG.
func (e *Extractor) encodePicture(data []byte) (picture []byte, t thumbnail, err error) {
	e.decodeLock.Lock()
	defer e.decodeLock.Unlock()
	img, err := decodeKeyFrame(data)
	if err != nil {
		return nil, thumbnail{}, err
	}
	small := scaleDown(img)
	var out bytes.Buffer
	if err := jpeg.Encode(&out, small, &jpeg.Options{Quality: quality}); err != nil {
		return nil, thumbnail{}, fmt.Errorf("jpeg: %w", err)
	}
	return out.Bytes(), newThumbnail(small), nil
}

func decodeKeyFrame(data []byte) (*image.YCbCr, error) {
	width, height, ok := parseKeyFrameSize(data)
	if !ok {
		return nil, errors.New("not a VP8 key frame")
	}
	if min(width, height) < minSide || max(width, height) > maxSide || width*height > maxPixels {
		return nil, fmt.Errorf("%dx%d is not served", width, height)
	}
	d := vp8.NewDecoder() // not reused, because a used decoder returns pictures of the largest size it has seen
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
