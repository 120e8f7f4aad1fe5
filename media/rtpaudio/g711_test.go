package rtpaudio_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pion/rtp"

	"voxgate/media"
	"voxgate/media/g711"
	"voxgate/media/mediatest"
	"voxgate/media/rtpaudio"
)

// phoneStream is a voice at 8 kHz as the telephone network sends it.
func phoneStream(pcm []int16, frame time.Duration) (packets []rtp.Packet) {
	for i, part := range slices.Collect(slices.Chunk(pcm, media.Samples(frame, 8000))) {
		packets = append(packets, rtp.Packet{
			Header:  rtp.Header{Version: 2, PayloadType: 0, SequenceNumber: uint16(65530 + i), Timestamp: 1<<32 - 1000 + uint32(i*len(pcm[:media.Samples(frame, 8000)])), SSRC: 7},
			Payload: g711.MuLaw.AppendBytes(nil, part),
		})
	}
	return packets
}

// play hands packets to a receiver of G.711 at their times, and lets total pass. It must run in a bubble.
func play(t *testing.T, total time.Duration, packets []rtp.Packet, at func(i int) time.Duration, event func(rtpaudio.Event)) (*recorder, rtpaudio.ReceiverStats) {
	t.Helper()
	sink := &recorder{rate: 8000, start: time.Now()}
	rx := rtpaudio.NewReceiver(sink, rtpaudio.ReceiverOptions{Codec: g711.MuLaw, Types: []uint8{0}, Event: event, Events: []uint8{101}})
	near, far := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- rx.Run(context.Background(), near) }()
	order := make([]int, len(packets))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(at(a) - at(b)) })
	for _, i := range order {
		if at(i) < 0 {
			continue // lost
		}
		time.Sleep(time.Until(sink.start.Add(at(i))))
		raw, err := packets[i].Marshal()
		must(t, err)
		_, err = far.Write(raw)
		must(t, err)
	}
	time.Sleep(time.Until(sink.start.Add(total)))
	far.Close()
	must(t, <-done)
	near.Close()
	return sink, rx.Stats()
}

// TestReceiverG711: what comes in order is written at once as it is, at any frame length; what is lost is concealed, and what is
// late is put in its place.
func TestReceiverG711(t *testing.T) {
	pcm := mediatest.Speech(1200*ms, 8000)
	whole := g711.MuLaw.Append(nil, g711.MuLaw.AppendBytes(nil, pcm))
	for _, frame := range []time.Duration{10 * ms, 20 * ms, 30 * ms, 60 * ms} {
		packets := phoneStream(pcm, frame)
		sent := func(i int) time.Duration { return time.Duration(i) * frame }
		for _, c := range []struct {
			name string
			at   func(i int) time.Duration
			want rtpaudio.ReceiverStats
		}{
			{"clean", sent, rtpaudio.ReceiverStats{}},
			{"one overtaken", func(i int) time.Duration {
				if i == 9 {
					return sent(10) + ms
				}
				return sent(i)
			}, rtpaudio.ReceiverStats{Reordered: 1}},
			{"one lost", func(i int) time.Duration {
				if i == 9 {
					return -1
				}
				return sent(i)
			}, rtpaudio.ReceiverStats{Lost: 1, Concealed: frame}},
		} {
			t.Run(fmt.Sprint(frame, " ", c.name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sink, stats := play(t, 1200*ms, packets, c.at, nil)
					c.want.Packets = uint64(len(packets)) - c.want.Lost
					if stats != c.want {
						t.Errorf("stats\n%+v, want\n%+v", stats, c.want)
					}
					if len(sink.pcm) != len(whole) {
						t.Fatalf("%d samples, want %d", len(sink.pcm), len(whole))
					}
					gap := len(whole) // where what was sent is not what is heard: the loss, and 5 ms in which the next packet takes over
					if c.want.Lost > 0 {
						gap = media.Samples(sent(9), 8000)
					}
					after := min(len(whole), gap+media.Samples(frame+5*ms, 8000))
					if !slices.Equal(sink.pcm[:gap], whole[:gap]) || !slices.Equal(sink.pcm[after:], whole[after:]) {
						t.Error("the sound is not that of the stream")
					}
					if c.name == "clean" && sink.writes[5].at != sent(5) {
						t.Errorf("the packet of %v was written at %v", sent(5), sink.writes[5].at)
					}
				})
			})
		}
	}
}

// TestReceiverEvents presses keys (RFC 4733): their packets are handed over in order and once, even if the network mixes them up,
// before the first sound and in the middle of it, and the sound does not notice.
func TestReceiverEvents(t *testing.T) {
	pcm := mediatest.Speech(1000*ms, 8000)
	whole := g711.MuLaw.Append(nil, g711.MuLaw.AppendBytes(nil, pcm))
	voice := phoneStream(pcm, 20*ms)
	var packets []rtp.Packet
	var at []time.Duration
	sequence := uint16(65500)
	add := func(p rtp.Packet, when time.Duration) {
		p.SequenceNumber = sequence
		sequence++
		packets, at = append(packets, p), append(at, when)
	}
	key := func(digit byte, when time.Duration, ts uint32) {
		for i := range 5 {
			payload := []byte{digit, 10, byte(i), 0} // event, volume, duration
			add(rtp.Packet{Header: rtp.Header{Version: 2, PayloadType: 101, Timestamp: ts, SSRC: 7, Marker: i == 0}, Payload: payload}, when+time.Duration(i)*ms)
		}
	}
	key(5, 0, 40)
	for i, p := range voice {
		when := time.Duration(i+1) * 20 * ms
		add(p, when)
		if i == 20 {
			key(9, when+ms, p.Timestamp)
		}
	}
	for _, c := range []struct {
		name string
		edit func(at []time.Duration)
		want int // packets that are handed over
	}{
		{"in order", func([]time.Duration) {}, 10},
		{"mixed up", func(at []time.Duration) { at[27], at[29] = at[29], at[27] }, 10},
		{"overtaken by sound", func(at []time.Duration) { at[30] = at[31] + ms }, 10},
		{"one lost", func(at []time.Duration) { at[28] = -1 }, 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				at := slices.Clone(at)
				c.edit(at)
				twice := append(slices.Clone(packets), packets...)
				var got []string
				sink, stats := play(t, 1040*ms, twice, func(i int) time.Duration { return at[i%len(at)] }, func(e rtpaudio.Event) {
					if e.PayloadType != 101 || e.Marker != (e.Payload[2] == 0) {
						t.Errorf("%+v", e)
					}
					got = append(got, fmt.Sprint(e.Payload[0], e.Payload[2]))
				})
				if len(got) != c.want || !slices.IsSorted(got) {
					t.Errorf("%d events, want %d: %v", len(got), c.want, got)
				}
				from := slices.Index(sink.pcm, whole[0])
				if from < 0 || len(sink.pcm)-from < len(whole) || !slices.Equal(sink.pcm[from:from+len(whole)], whole) {
					t.Errorf("the sound is not that of the stream: %d samples, %+v", len(sink.pcm), stats)
				}
				if stats.Concealed+stats.Skipped+stats.Stretched != 0 {
					t.Errorf("the clock has noticed: %+v", stats)
				}
			})
		})
	}
}
