package rtpaudio_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pion/rtp"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/media/g711"
	"voxgate/media/rtpaudio"
)

// phone returns the packets of a voice as the telephone network sends it, and the decoded voice, at 8 kHz.
func phone(d, frame time.Duration) (arrivals []arrival, whole []int16) {
	size := media.Samples(frame, 8000)
	for i, part := range slices.Collect(slices.Chunk(mediatest.SynthesizeSpeech(d, 8000), size)) {
		payload := g711.MuLaw.AppendEncoded(nil, part)
		whole = g711.MuLaw.AppendDecoded(whole, payload)
		arrivals = append(arrivals, arrival{at: time.Duration(i) * frame, pkt: rtp.Packet{
			Header:  rtp.Header{Version: 2, PayloadType: 0, SequenceNumber: uint16(65530 + i), Timestamp: 1<<32 - 1000 + uint32(i*size), SSRC: 7},
			Payload: payload,
		}})
	}
	return arrivals, whole
}

// TestReceiverG711: packets in order are written at once and unchanged, at any frame length. Lost packets are concealed, and
// late packets are put in their place.
func TestReceiverG711(t *testing.T) {
	for _, frame := range []time.Duration{10 * ms, 20 * ms, 30 * ms, 60 * ms} {
		for _, c := range []struct {
			name string
			edit func(a []arrival) []arrival
			want rtpaudio.ReceiverStats
		}{
			{"clean", func(a []arrival) []arrival { return a }, rtpaudio.ReceiverStats{}},
			{"one overtaken", func(a []arrival) []arrival {
				a[9].at = a[10].at + ms
				return a
			}, rtpaudio.ReceiverStats{Reordered: 1}},
			{"one lost", func(a []arrival) []arrival { return slices.Delete(a, 9, 10) }, rtpaudio.ReceiverStats{Lost: 1, Concealed: frame}},
		} {
			t.Run(fmt.Sprint(frame, " ", c.name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					arrivals, whole := phone(1200*ms, frame)
					arrivals = c.edit(arrivals)
					c.want.Packets = uint64(len(arrivals))
					sink, stats := receiveBy(t, arrivals, 1200*ms, 8000, rtpaudio.ReceiverOptions{Codec: g711.MuLaw, PayloadTypes: []uint8{0}})
					if stats != c.want {
						t.Errorf("stats\n%+v, want\n%+v", stats, c.want)
					}
					if len(sink.pcm) != len(whole) {
						t.Fatalf("%d samples, want %d", len(sink.pcm), len(whole))
					}
					gap, after := len(whole), len(whole) // part of the audio that is concealed
					if c.want.Lost > 0 {                 // the loss, and 5 ms of crossfade to the next packet
						gap = media.Samples(9*frame, 8000)
						after = gap + media.Samples(frame+5*ms, 8000)
					}
					if !slices.Equal(sink.pcm[:gap], whole[:gap]) || !slices.Equal(sink.pcm[after:], whole[after:]) {
						t.Error("the sound is not that of the stream")
					}
					if c.name == "clean" && sink.writes[5].at != 5*frame {
						t.Errorf("the packet of %v was written at %v", 5*frame, sink.writes[5].at)
					}
				})
			})
		}
	}
}

// TestReceiverEvents sends key presses (RFC 4733), before the first sound and within the sound. OnEvent gets each packet once
// and in order, even if the network reorders and duplicates them. The sound is not affected.
func TestReceiverEvents(t *testing.T) {
	voice, whole := phone(1000*ms, 20*ms)
	var sent []arrival
	add := func(a arrival) {
		a.pkt.SequenceNumber = uint16(65500 + len(sent))
		sent = append(sent, a)
	}
	key := func(digit byte, at time.Duration, ts uint32) {
		for i := range 5 {
			h := rtp.Header{Version: 2, PayloadType: 101, Timestamp: ts, SSRC: 7, Marker: i == 0}
			add(arrival{at: at + time.Duration(i)*ms, pkt: rtp.Packet{Header: h, Payload: []byte{digit, 10, byte(i), 0}}}) // event, volume, duration
		}
	}
	key(5, 0, 40)
	for i, a := range voice {
		a.at += 20 * ms
		add(a)
		if i == 20 {
			key(9, a.at+ms, a.pkt.Timestamp) // packets 26 to 30
		}
	}
	for _, c := range []struct {
		name string
		edit func(a []arrival) []arrival
		want int // number of packets that OnEvent gets
	}{
		{"in order", func(a []arrival) []arrival { return a }, 10},
		{"mixed up", func(a []arrival) []arrival { a[27].at, a[29].at = a[29].at, a[27].at; return a }, 10},
		{"overtaken by sound", func(a []arrival) []arrival { a[30].at = a[31].at + ms; return a }, 10},
		{"one lost", func(a []arrival) []arrival { return slices.Delete(a, 28, 29) }, 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				arrivals := c.edit(slices.Clone(sent))
				var got []string
				sink, stats := receiveBy(t, append(arrivals, arrivals...), 1040*ms, 8000, rtpaudio.ReceiverOptions{
					Codec: g711.MuLaw, PayloadTypes: []uint8{0}, EventTypes: []uint8{101}, OnEvent: func(e rtpaudio.Event) {
						if e.SSRC != 7 {
							t.Errorf("%+v", e)
						}
						got = append(got, fmt.Sprint(e.Payload[0], e.Payload[2]))
					},
				})
				if len(got) != c.want || !slices.IsSorted(got) {
					t.Errorf("%d events, want %d: %v", len(got), c.want, got)
				}
				if len(sink.pcm) < len(whole) || !slices.Equal(sink.pcm[:len(whole)], whole) || sink.writes[0].at != 20*ms {
					t.Errorf("the sound is not that of the stream: %d samples, %+v", len(sink.pcm), stats)
				}
				if stats.Concealed+stats.Skipped+stats.Stretched != 0 {
					t.Errorf("the clock has noticed: %+v", stats)
				}
			})
		})
	}
}

// TestReceiverComfortNoise: a pause announced by comfort noise (RFC 3389) becomes silence. It does not count as loss, and
// is not concealed.
func TestReceiverComfortNoise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent, whole := phone(1000*ms, 20*ms)
		const pause = 500 * ms
		noise := sent[25]
		noise.pkt.PayloadType, noise.pkt.Payload = 13, []byte{65}
		for i := 25; i < len(sent); i++ {
			sent[i].at += pause
			sent[i].pkt.SequenceNumber += 3
			sent[i].pkt.Timestamp += uint32(media.Samples(pause, 8000))
		}
		for i := range 3 { // repeated every 160 ms
			noise.at = 500*ms + time.Duration(i)*160*ms
			sent = append(sent, noise)
			noise.pkt.SequenceNumber++
		}
		sink, stats := receiveBy(t, sent, 1000*ms+pause, 8000, rtpaudio.ReceiverOptions{Codec: g711.MuLaw, PayloadTypes: []uint8{0}})
		if stats.Lost+stats.Late != 0 || stats.Concealed != 0 || stats.Silence != pause {
			t.Errorf("stats %+v", stats)
		}
		at := media.Samples(500*ms, 8000)
		if len(sink.pcm) != len(whole)+media.Samples(pause, 8000) || !slices.Equal(sink.pcm[:at], whole[:at]) {
			t.Errorf("%d samples", len(sink.pcm))
		}
	})
}
