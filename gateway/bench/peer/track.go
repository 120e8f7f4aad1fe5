package peer

import (
	"encoding/binary"
	"strings"
	"sync/atomic"

	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
)

// mimeTypeRED is Opus with copies of earlier packets (RFC 2198).
const mimeTypeRED = "audio/red"

// voiceTrack is a microphone as a browser's: it sends Opus, with a copy of the packet before if that was negotiated. One
// goroutine writes.
type voiceTrack struct {
	bound atomic.Pointer[binding]

	last   []byte // the packet before
	lastAt uint32
	buf    []byte
}

// binding is what was negotiated.
type binding struct {
	ssrc      uint32
	opus, red uint8 // payload types; red 0: none
	to        webrtc.TrackLocalWriter
}

// Bind takes the payload types that were negotiated.
func (t *voiceTrack) Bind(c webrtc.TrackLocalContext) (webrtc.RTPCodecParameters, error) {
	b := &binding{ssrc: uint32(c.SSRC()), to: c.WriteStream()}
	var chosen webrtc.RTPCodecParameters
	for _, p := range c.CodecParameters() {
		switch {
		case strings.EqualFold(p.MimeType, webrtc.MimeTypeOpus) && b.opus == 0:
			b.opus, chosen = uint8(p.PayloadType), p
		case strings.EqualFold(p.MimeType, mimeTypeRED) && b.red == 0:
			b.red = uint8(p.PayloadType)
		}
	}
	if b.opus == 0 {
		return chosen, webrtc.ErrUnsupportedCodec
	}
	t.bound.Store(b)
	return chosen, nil
}

// Unbind ends it.
func (t *voiceTrack) Unbind(webrtc.TrackLocalContext) error {
	t.bound.Store(nil)
	return nil
}

// ID, RID, StreamID and Kind describe the track.
func (t *voiceTrack) ID() string                { return "mic" }
func (t *voiceTrack) RID() string               { return "" }
func (t *voiceTrack) StreamID() string          { return "bench" }
func (t *voiceTrack) Kind() webrtc.RTPCodecType { return webrtc.RTPCodecTypeAudio }

// negotiated tells whether copies are sent.
func (t *voiceTrack) negotiated() (red bool) {
	b := t.bound.Load()
	return b != nil && b.red != 0
}

// WriteRTP sends a packet of Opus.
func (t *voiceTrack) WriteRTP(p *rtp.Packet) error {
	b := t.bound.Load()
	if b == nil {
		return nil
	}
	h, payload := p.Header, p.Payload
	h.PayloadType, h.SSRC = b.opus, b.ssrc
	if b.red != 0 {
		h.PayloadType, payload = b.red, t.pack(b.opus, h.Timestamp, payload)
	}
	_, err := b.to.WriteRTP(&h, payload)
	return err
}

// pack puts the packet before ahead of a payload. Its header says that more follows, its type, how much earlier it was (14
// bits) and how long it is (10): RFC 2198, section 3.
func (t *voiceTrack) pack(opus uint8, at uint32, payload []byte) []byte {
	t.buf = t.buf[:0]
	if len(t.last) > 0 {
		t.buf = binary.BigEndian.AppendUint32(t.buf, 1<<31|uint32(opus)<<24|(at-t.lastAt)&0x3fff<<10|uint32(len(t.last)))
	}
	t.buf = append(t.buf, opus)
	t.buf = append(t.buf, t.last...)
	t.buf = append(t.buf, payload...)
	t.last, t.lastAt = append(t.last[:0], payload...), at
	return t.buf
}
