package rtpaudio_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pion/rtp"
	"voxgate/media/opus/libopus"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/media/opus"
	"voxgate/media/rtpaudio"
)

// drifting is a sender whose clock is too fast, by ppm. It sends all of its audio, which contains the noise of a room.
type drifting struct {
	packets  [][]byte
	frame    time.Duration
	ppm      int
	jitter   time.Duration // mean jitter; the maximum is six times as large
	length   time.Duration
	rng      *rand.Rand
	start    time.Time
	deadline time.Time
	next     time.Time // arrival of the next packet
	i        int
}

func (d *drifting) SetReadDeadline(t time.Time) error { d.deadline = t; return nil }

func (d *drifting) Read(b []byte) (int, error) {
	if d.next.IsZero() {
		sent := time.Duration(d.i) * d.frame
		d.next = d.start.Add(sent - sent*time.Duration(d.ppm)/1000000 + time.Duration(min(d.rng.ExpFloat64(), 6)*float64(d.jitter)))
		if time.Since(d.start) > d.length {
			return 0, io.EOF
		}
	}
	if !d.deadline.IsZero() && d.deadline.Before(d.next) {
		time.Sleep(time.Until(d.deadline))
		return 0, os.ErrDeadlineExceeded
	}
	time.Sleep(time.Until(d.next))
	p := rtp.Packet{
		Header: rtp.Header{
			Version:        2,
			PayloadType:    typeOpus,
			SequenceNumber: uint16(d.i),
			Timestamp:      uint32(d.i * media.Samples(d.frame, 48000)),
			SSRC:           7,
		},
		Payload: d.packets[d.i%len(d.packets)],
	}
	d.i, d.next = d.i+1, time.Time{}
	return p.MarshalTo(b)
}

// follower is a sink that compares the duration of its audio with the wall clock.
type follower struct {
	start     time.Time
	written   time.Duration
	low, high time.Duration
}

func (*follower) Rate() int { return 8000 }

func (f *follower) WritePCM(pcm []int16) error {
	f.written += time.Duration(len(pcm)) * time.Second / 8000
	ahead := f.written - time.Since(f.start)
	if f.low == 0 {
		f.low, f.high = ahead, ahead
	}
	f.low, f.high = min(f.low, ahead), max(f.high, ahead)
	return nil
}

// TestReceiverDrift checks that the clocks of sender and gateway may differ by 200 ppm, which adds up to 240 and 480 ms. The
// sink stays on the wall clock. Only pauses are shortened or stretched, never words.
func TestReceiverDrift(t *testing.T) {
	pcm := mediatest.SynthesizeSpeech(23*time.Second, 48000)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range pcm {
		if i > 20*48000 {
			pcm[i] = 0
		}
		pcm[i] += int16(120 * rng.NormFloat64()) // louder than quietLevel
	}
	narrow := mediatest.SILK // needs little CPU time to decode
	narrow.Band, narrow.Bitrate = libopus.Narrowband, 10000
	for _, c := range []struct {
		frame, length, jitter time.Duration
	}{
		{60 * ms, 40 * time.Minute, 0},
		{20 * ms, 20 * time.Minute, 10 * ms},
	} {
		narrow.Frame = c.frame
		packets := narrow.Encode(t, pcm)
		for _, ppm := range []int{-200, 200} {
			t.Run(fmt.Sprintf("%d ppm %v %v", ppm, c.frame, c.jitter), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					src := &drifting{
						packets: packets,
						frame:   c.frame,
						ppm:     ppm,
						jitter:  c.jitter,
						length:  c.length,
						rng:     rand.New(rand.NewPCG(2, 2)),
						start:   time.Now(),
					}
					sink := &follower{start: src.start}
					rx := rtpaudio.NewReceiver(sink, rtpaudio.ReceiverOptions{Codec: opus.Codec{}, PayloadTypes: []uint8{typeOpus}})
					if err := rx.Run(context.Background(), src); err != nil {
						t.Fatal(err)
					}
					stats := rx.Stats()
					t.Logf("between %v and %v ahead, %+v", sink.low, sink.high, stats)
					if sink.high-sink.low > 40*ms+6*c.jitter {
						t.Errorf("the sink was between %v and %v ahead of the wall clock", sink.low, sink.high)
					}
					if stats.Silence+stats.Concealed != 0 {
						t.Errorf("%v of silence and %v made up in what was sent whole", stats.Silence, stats.Concealed)
					}
				})
			})
		}
	}
}
