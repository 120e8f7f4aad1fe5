package mediatest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"voxgate/media/opus/libopus"

	"voxgate/media"
	"voxgate/media/opus"
)

// Codec configures how libopus encodes a stream.
type Codec struct {
	Name     string
	App      libopus.Application
	Bitrate  int               // bits per second
	Band     libopus.Bandwidth // audio bandwidth (0: chosen by the encoder)
	Frame    time.Duration     // duration of a frame (0: 20 ms)
	FEC, DTX bool
	Channels int // number of channels (0: 1)
}

// One codec for each mode of Opus.
var (
	CELT   = Codec{Name: "CELT", App: libopus.LowDelay, Bitrate: 64000}
	SILK   = Codec{Name: "SILK", App: libopus.VoIP, Bitrate: 20000, Band: libopus.Wideband}
	Hybrid = Codec{Name: "hybrid", App: libopus.VoIP, Bitrate: 32000, Band: libopus.Fullband}
)

// Encode encodes pcm, at 48 kHz, and returns its packets.
func (c Codec) Encode(t testing.TB, pcm []int16) [][]byte {
	t.Helper()
	channels := max(1, c.Channels)
	enc, err := libopus.NewEncoder(48000, channels, c.App)
	errs := []error{err, enc.SetBitrate(c.Bitrate), enc.SetComplexity(5), enc.SetDTX(c.DTX), enc.SetInBandFEC(c.FEC)}
	if c.FEC {
		errs = append(errs, enc.SetPacketLoss(20))
	}
	if c.Band != 0 {
		errs = append(errs, enc.SetMaxBandwidth(c.Band))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if channels == 2 {
		stereo := make([]int16, 0, 2*len(pcm))
		for i, s := range pcm {
			stereo = append(stereo, s, pcm[max(0, i-4)]/2)
		}
		pcm = stereo
	}
	if c.Frame == 0 {
		c.Frame = media.FrameDuration
	}
	var packets [][]byte
	for frame := range slices.Chunk(pcm, channels*media.Samples(c.Frame, 48000)) {
		buf := make([]byte, 4000)
		if len(frame) < channels*media.Samples(c.Frame, 48000) {
			break
		}
		n, err := enc.Encode(frame, buf)
		if err != nil {
			t.Fatal(err)
		}
		packets = append(packets, buf[:n])
	}
	return packets
}

// Decode decodes consecutive packets.
func Decode(t testing.TB, packets [][]byte, rate int, choice opus.DecoderChoice) []int16 {
	t.Helper()
	dec, err := opus.NewDecoder(rate, choice)
	if err != nil {
		t.Fatal(err)
	}
	var out []int16
	buf := make([]int16, media.Samples(media.MaxPacketDuration, rate))
	for i, p := range packets {
		n, err := dec.Decode(p, buf)
		if err != nil {
			t.Fatalf("packet %d (% x): %v", i, p[:min(len(p), 4)], err)
		}
		out = append(out, buf[:n]...)
	}
	return out
}
