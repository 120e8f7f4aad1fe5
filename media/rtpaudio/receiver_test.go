package rtpaudio_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pion/rtp"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/media/opus"
	"voxgate/media/rtpaudio"
)

// TestReceiverCleanPath checks that packets in order are decoded at once and unchanged, also where their numbers wrap around.
func TestReceiverCleanPath(t *testing.T) {
	for _, c := range []struct {
		name  string
		seq   uint16
		ts    uint32
		frame time.Duration
	}{
		{"from 0", 0, 0, 20 * ms},
		{"from 65534", 65534, 1<<32 - 960, 20 * ms},
		{"from 65535", 65535, 1<<32 - 1, 20 * ms},
		{"timestamp sign", 32767, 1<<31 - 5*960, 20 * ms},
		{"2.5 ms", 65500, 0, 2500 * time.Microsecond},
		{"10 ms", 7, 0, 10 * ms},
		{"60 ms", 7, 0, 60 * ms},
	} {
		for _, choice := range []opus.DecoderChoice{opus.LibOpus, opus.Pion} {
			if choice == opus.Pion && c.name != "from 0" {
				continue
			}
			t.Run(c.name+" "+string(choice), func(t *testing.T) {
				cod := mediatest.Hybrid
				if c.frame < 10*ms {
					cod = mediatest.CELT
				}
				cod.Frame = c.frame
				packets := cod.Encode(t, mediatest.SynthesizeSpeech(1200*ms, 48000))
				arrivals := stream(packets, c.seq, c.ts)
				for i := range arrivals {
					arrivals[i].at = time.Duration(i) * c.frame
					arrivals[i].pkt.Timestamp = c.ts + uint32(i*media.Samples(c.frame, 48000))
				}
				want := mediatest.Decode(t, packets, 16000, choice)
				synctest.Test(t, func(t *testing.T) {
					sink, stats := receive(t, arrivals, 1200*ms, choice)
					if !slices.Equal(sink.pcm, want) {
						t.Errorf("wrote %d samples other than the %d decoded", len(sink.pcm), len(want))
					}
					for i, w := range sink.writes {
						if w.at != arrivals[i].at {
							t.Fatalf("packet of %v was written at %v", arrivals[i].at, w.at)
						}
					}
					if stats != (rtpaudio.ReceiverStats{Packets: uint64(len(packets))}) {
						t.Errorf("stats %+v", stats)
					}
				})
			})
		}
	}
}

// TestReceiverOrder checks streams in odd orders whose sound is complete in the end, and the counters.
func TestReceiverOrder(t *testing.T) {
	packets := mediatest.Hybrid.Encode(t, mediatest.SynthesizeSpeech(1000*ms, 48000))
	whole := mediatest.Decode(t, packets, 16000, "")
	pad := func(seq uint16, ts uint32, at time.Duration) arrival {
		return arrival{at: at, pkt: rtp.Packet{Header: rtp.Header{
			Version: 2, PayloadType: 111, SequenceNumber: seq, Timestamp: ts, SSRC: 7, Padding: true, PaddingSize: 200,
		}}}
	}
	for _, c := range []struct {
		name string
		edit func(a []arrival) []arrival
		want rtpaudio.ReceiverStats
	}{
		{"two swapped", func(a []arrival) []arrival {
			a[10].at = a[11].at + 5*ms
			return a
		}, rtpaudio.ReceiverStats{Packets: 50, Reordered: 1}},
		{"one overtaken by three", func(a []arrival) []arrival {
			a[10].at = a[12].at + 15*ms
			return a
		}, rtpaudio.ReceiverStats{Packets: 50, Reordered: 1}},
		{"three reversed", func(a []arrival) []arrival {
			a[10].at, a[12].at = a[12].at, a[10].at
			return a
		}, rtpaudio.ReceiverStats{Packets: 50, Reordered: 2}},
		{"each twice", func(a []arrival) []arrival {
			return append(a, a...)
		}, rtpaudio.ReceiverStats{Packets: 100, Duplicate: 50}},
		{"duplicate while waiting", func(a []arrival) []arrival {
			a[10].at = a[12].at + 5*ms
			twice := a[11]
			return append(a, twice)
		}, rtpaudio.ReceiverStats{Packets: 51, Duplicate: 1, Reordered: 1}},
		{"Chrome's padding at the start", func(a []arrival) []arrival {
			for i := range a {
				a[i].pkt.SequenceNumber += 20
				a[i].at += 30 * ms
			}
			for i := range 20 {
				a = append(a, pad(a[0].pkt.SequenceNumber-20+uint16(i), a[0].pkt.Timestamp, time.Duration(i)*ms))
			}
			return a
		}, rtpaudio.ReceiverStats{Packets: 70, Padding: 20}},
		{"padding in the middle", func(a []arrival) []arrival {
			for i := 10; i < 50; i++ {
				a[i].pkt.SequenceNumber += 6
			}
			for i := range 6 {
				a = append(a, pad(a[9].pkt.SequenceNumber+1+uint16(i), a[9].pkt.Timestamp, a[9].at+time.Duration(i)*ms))
			}
			return a
		}, rtpaudio.ReceiverStats{Packets: 56, Padding: 6}},
		{"lost padding", func(a []arrival) []arrival {
			for i := 48; i < 50; i++ {
				a[i].pkt.SequenceNumber += 6
			}
			return a
		}, rtpaudio.ReceiverStats{Packets: 50, Lost: 6}},
		{"telephone events", func(a []arrival) []arrival {
			for i := 10; i < 50; i++ {
				a[i].pkt.SequenceNumber++
			}
			e := pad(a[9].pkt.SequenceNumber+1, a[9].pkt.Timestamp, a[9].at+ms)
			e.pkt.PayloadType = 126
			return append(a, e)
		}, rtpaudio.ReceiverStats{Packets: 51, OtherPayload: 1}},
		{"garbage", func(a []arrival) []arrival {
			foreign := a[3]
			foreign.pkt.PayloadType, foreign.pkt.SSRC = 0, 99
			return append(a, foreign, arrival{at: ms, raw: []byte{1, 2}}, arrival{at: 3 * ms, raw: make([]byte, 100)},
				arrival{at: 3 * ms, raw: []byte{0xbf, 111, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0}})
		}, rtpaudio.ReceiverStats{Packets: 50, Malformed: 3, OtherPayload: 1}},
	} {
		for _, seq := range []uint16{1000, 0, 65534, 65500} {
			t.Run(c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sink, stats := receive(t, c.edit(stream(packets, seq, 1<<32-4800)), 1100*ms, "")
					stats.Silence = 0 // silence after the stream does not count here
					stats.Jitter = 0  // tested by TestReceiverJitter
					if stats != c.want {
						t.Errorf("stats\n%+v, want\n%+v", stats, c.want)
					}
					if len(sink.pcm) < len(whole) || !slices.Equal(sink.pcm[:len(whole)], whole) {
						t.Error("the sound is not that of the stream in order")
					}
				})
			})
		}
	}
}

// TestReceiverLoss checks the audio in place of a lost packet, the time until it counts as lost, and the counter of late packets.
func TestReceiverLoss(t *testing.T) {
	packets := mediatest.Hybrid.Encode(t, mediatest.SynthesizeSpeech(1000*ms, 48000))
	for _, c := range []struct {
		name      string
		lost      []int
		late      time.Duration // delay with which the first lost packet still arrives; 0 means never
		concealed time.Duration
		silence   time.Duration
		stats     rtpaudio.ReceiverStats
	}{
		{"one", []int{20}, 0, 20 * ms, 0, rtpaudio.ReceiverStats{Packets: 49, Lost: 1}},
		{"one, too late", []int{20}, 485 * ms, 20 * ms, 0, rtpaudio.ReceiverStats{Packets: 50, Lost: 1, Late: 1}},
		{"three", []int{20, 21, 22}, 0, 60 * ms, 0, rtpaudio.ReceiverStats{Packets: 47, Lost: 3}},
		{"two apart", []int{20, 22}, 0, 40 * ms, 0, rtpaudio.ReceiverStats{Packets: 48, Lost: 2}},
		{"five", []int{20, 21, 22, 23, 24}, 0, 0, 100 * ms, rtpaudio.ReceiverStats{Packets: 45, Lost: 5}},
	} {
		for _, choice := range []opus.DecoderChoice{opus.LibOpus, opus.Pion} {
			t.Run(c.name+" "+string(choice), func(t *testing.T) {
				var arrivals []arrival
				for i, a := range stream(packets, 65520, 0) {
					if slices.Contains(c.lost, i) {
						if i != c.lost[0] || c.late == 0 {
							continue
						}
						a.at = c.late
					}
					arrivals = append(arrivals, a)
				}
				synctest.Test(t, func(t *testing.T) {
					sink, stats := receive(t, arrivals, 1000*ms, choice)
					if stats.Concealed != c.concealed || stats.Silence != c.silence {
						t.Errorf("concealed %v and %v of silence, want %v and %v", stats.Concealed, stats.Silence, c.concealed, c.silence)
					}
					stats.Concealed, stats.Silence = 0, 0
					if stats != c.stats {
						t.Errorf("stats\n%+v, want\n%+v", stats, c.stats)
					}
					if got := sink.before(time.Second); got != time.Second {
						t.Errorf("wrote %v in a second", got)
					}
					if c.name == "one" && sink.before(479*ms) != 400*ms {
						t.Errorf("waited less than 60 ms for the missing packet")
					}
					if c.name == "one" && sink.before(480*ms) != 500*ms {
						t.Errorf("waited more than 60 ms for the missing packet")
					}
				})
			})
		}
	}
}

// TestReceiverFEC compares the audio in place of lost packets with the lost audio.
func TestReceiverFEC(t *testing.T) {
	pcm := mediatest.SynthesizeSpeech(8*time.Second, 48000)
	inside := func(fec bool) (float64, rtpaudio.ReceiverStats) {
		c := mediatest.Hybrid
		c.FEC = fec
		packets := c.Encode(t, pcm)
		whole := mediatest.Decode(t, packets, 16000, "")
		var arrivals []arrival
		for i, a := range stream(packets, 0, 0) {
			if i%10 != 5 {
				arrivals = append(arrivals, a)
			}
		}
		var want, got []int16
		var stats rtpaudio.ReceiverStats
		synctest.Test(t, func(t *testing.T) {
			var sink *recorder
			sink, stats = receive(t, arrivals, 8*time.Second, "")
			for i := 5; i < len(packets)-10; i += 10 {
				want = append(want, whole[i*320:][:320]...)
				got = append(got, sink.pcm[i*320:][:320]...)
			}
		})
		return mediatest.SNR(want, got), stats
	}
	with, stats := inside(true)
	without, _ := inside(false)
	t.Logf("inside lost frames: %.1f dB with FEC, %.1f dB without", with, without)
	if with < without+5 {
		t.Error("FEC is not used")
	}
	if stats.Recovered < 30 || stats.Lost < stats.Recovered {
		t.Errorf("%d recovered of %d lost", stats.Recovered, stats.Lost)
	}
}

// TestReceiverPauses checks that the sink stays on the wall clock, whatever audio the sender leaves out.
func TestReceiverPauses(t *testing.T) {
	packets := mediatest.Hybrid.Encode(t, mediatest.SynthesizeSpeech(4000*ms, 48000))
	shift := func(a []arrival, from int, by time.Duration, seq, ts bool) {
		for i := from; i < len(a); i++ {
			a[i].at += by
			if seq {
				a[i].pkt.SequenceNumber += uint16(by / (20 * ms))
			}
			if ts {
				a[i].pkt.Timestamp += uint32(media.Samples(by, 48000))
			}
		}
	}
	for _, c := range []struct {
		name string
		edit func(a []arrival)
	}{
		{"DTX of 400 ms", func(a []arrival) { shift(a, 50, 400*ms, false, true) }},
		{"DTX of 10 s", func(a []arrival) { shift(a, 50, 10*time.Second, false, true) }},
		{"DTX every 100 ms", func(a []arrival) {
			for i := 5; i < len(a); i += 5 {
				shift(a, i, 100*ms, false, true)
			}
		}},
		{"DTX of no whole frames", func(a []arrival) { shift(a, 50, 415*ms, false, true) }},
		{"blackout of 2 s", func(a []arrival) { shift(a, 50, 2*time.Second, true, true) }},
		{"blackout of 200 ms", func(a []arrival) { shift(a, 50, 200*ms, true, true) }},
		{"mute without timestamps", func(a []arrival) { shift(a, 50, 3*time.Second, false, false) }},
		{"timestamp jumps by 10 s", func(a []arrival) {
			for i := 50; i < len(a); i++ {
				a[i].pkt.Timestamp += 480000
			}
		}},
		{"timestamp jumps back", func(a []arrival) {
			for i := 50; i < len(a); i++ {
				a[i].pkt.Timestamp -= 480000
			}
		}},
		{"new SSRC", func(a []arrival) {
			for i := 50; i < len(a); i++ {
				a[i].pkt.SSRC, a[i].pkt.SequenceNumber, a[i].pkt.Timestamp = 8, uint16(i), uint32(i)*960+5
			}
		}},
		{"sequence jumps", func(a []arrival) {
			for i := 50; i < len(a); i++ {
				a[i].pkt.SequenceNumber += 20000
			}
		}},
		{"jitter", func(a []arrival) {
			rng := rand.New(rand.NewPCG(3, 4))
			for i := 1; i < len(a); i++ {
				a[i].at = max(a[i-1].at, a[i].at+time.Duration(rng.IntN(60))*ms)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			arrivals := stream(packets, 65500, 0)
			c.edit(arrivals)
			total := arrivals[len(arrivals)-1].at + 3*time.Second
			synctest.Test(t, func(t *testing.T) {
				sink, stats := receive(t, arrivals, total, "")
				for at := 100 * ms; at < total; at += 10 * ms {
					if d := sink.before(at) - at; d < -165*ms || d > 60*ms { // -100 ms, and 60 ms more for a gap
						t.Fatalf("at %v the sink is %v ahead", at, d)
					}
				}
				if stats.Late+stats.Duplicate+stats.Malformed+uint64(stats.Skipped) != 0 {
					t.Errorf("stats %+v", stats)
				}
				t.Logf("lost %d, concealed %v, silence %v, resets %d", stats.Lost, stats.Concealed, stats.Silence, stats.Resets)
			})
		})
	}
}

// TestReceiverDelayedSpeech checks that speech that the network delays by 2 s is written completely, and then the silence that
// ends a turn. After a pause, the sink is on the wall clock again.
func TestReceiverDelayedSpeech(t *testing.T) {
	for _, dtx := range []bool{true, false} {
		pcm := mediatest.SynthesizeSpeech(12*time.Second, 48000)
		clear(pcm[4*48000:])
		packets := mediatest.CELT.Encode(t, pcm)
		whole := mediatest.Decode(t, packets[:200], 16000, "")
		arrivals := stream(packets, 65500, 0)
		if dtx {
			arrivals = arrivals[:200]
		}
		for i := 50; i < 150; i++ {
			arrivals[i].at = max(arrivals[i].at, 2990*ms)
		}
		synctest.Test(t, func(t *testing.T) {
			sink, stats := receive(t, arrivals, 12*time.Second, "")
			t.Logf("dtx %v: %+v", dtx, stats)
			inserted := media.Samples(1920*ms, 16000)
			got := append(slices.Clone(sink.pcm[:16000]), sink.pcm[16000+inserted:]...)
			if !slices.Equal(got[:len(whole)], whole) {
				t.Error("a word was lost")
			}
			if after := sink.before(5200*ms) - sink.before(4*time.Second); after < 800*ms {
				t.Errorf("dtx %v: %v of silence in the 1.2 s after the last word", dtx, after)
			}
			if d := sink.before(12*time.Second) - 12*time.Second; d < -100*ms || d > 60*ms {
				t.Errorf("dtx %v: the sink is %v ahead after a pause", dtx, d)
			}
		})
	}
}

func TestReceiverNothingBeforeTheFirstPacket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := rtp.Packet{Header: rtp.Header{Version: 2, PayloadType: 111, SequenceNumber: 9, SSRC: 7}, Payload: []byte{0xff}}
		sink, stats := receive(t, []arrival{{at: time.Second, pkt: broken}}, 10*time.Second, "")
		if len(sink.writes) != 0 || stats.Malformed != 1 {
			t.Errorf("%d writes, %+v", len(sink.writes), stats)
		}
	})
}

// failing is a source whose reads all fail.
type failing struct {
	err   error
	reads int
}

func (f *failing) Read([]byte) (int, error)        { f.reads++; return 0, f.err }
func (f *failing) SetReadDeadline(time.Time) error { return nil }

func TestReceiverEnds(t *testing.T) {
	cause, broken := errors.New("hung up"), errors.New("broken")
	sink := &recorder{rate: 16000}
	for _, c := range []struct {
		name  string
		err   error
		want  error
		reads int
	}{
		{"EOF", io.EOF, nil, 1},
		{"closed", net.ErrClosed, nil, 1},
		{"closed pipe", io.ErrClosedPipe, nil, 1},
		{"broken", broken, broken, 50},
	} {
		src := &failing{err: c.err}
		receiver := rtpaudio.NewReceiver(sink, rtpaudio.ReceiverOptions{Codec: opus.Codec{}, PayloadTypes: []uint8{111}})
		if err := receiver.Run(t.Context(), src); !errors.Is(err, c.want) || src.reads != c.reads {
			t.Errorf("%s: Run returned %v after %d reads", c.name, err, src.reads)
		}
	}
	if err := rtpaudio.NewReceiver(&recorder{rate: 44100}, rtpaudio.ReceiverOptions{Codec: opus.Codec{}}).Run(t.Context(),
		&failing{err: io.EOF}); err == nil {
		t.Error("Opus at 44100 Hz")
	}
	packet, _ := stream(mediatest.CELT.Encode(t, mediatest.SynthesizeSpeech(20*ms, 48000)), 0, 0)[0].pkt.Marshal()
	for _, silent := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(context.Background())
			near, far := net.Pipe()
			defer near.Close()
			done := make(chan error, 1)
			go func() {
				done <- rtpaudio.NewReceiver(sink, rtpaudio.ReceiverOptions{Codec: opus.Codec{}, PayloadTypes: []uint8{111}}).Run(ctx, near)
			}()
			if !silent {
				if _, err := far.Write(packet); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
			before := time.Now()
			cancel(cause)
			if err := <-done; !errors.Is(err, cause) || time.Since(before) > 0 {
				t.Errorf("Run returned %v after %v", err, time.Since(before))
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		go func() { _, _ = far.Write(packet) }()
		err := rtpaudio.NewReceiver(
			&recorder{rate: 16000, fail: broken}, rtpaudio.ReceiverOptions{Codec: opus.Codec{}, PayloadTypes: []uint8{111}},
		).
			Run(t.Context(), near)
		if !errors.Is(err, broken) {
			t.Errorf("Run returned %v when the sink failed", err)
		}
	})
}

// TestReceiverAfterProcessStall checks that packets which waited while this process was stalled are decoded before
// silence is inserted.
func TestReceiverAfterProcessStall(t *testing.T) {
	packets := mediatest.CELT.Encode(t, mediatest.SynthesizeSpeech(time.Second, 48000))
	arrivals := stream(packets, 0, 0)
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		src := newNetwork(path{idle}, time.Second+oneWay)
		src.stall = 21
		sink := &recorder{rate: 16000, start: begin}
		rx := rtpaudio.NewReceiver(sink, rtpaudio.ReceiverOptions{Codec: opus.Codec{}, PayloadTypes: []uint8{111}})
		for _, a := range arrivals {
			raw, err := a.pkt.Marshal()
			must(t, err)
			src.send(raw, begin.Add(a.at))
		}
		if err := rx.Run(t.Context(), src); err != nil {
			t.Fatal(err)
		}
		if got := rx.Stats().Silence; got != 0 {
			t.Errorf("%v of silence", got)
		}
	})
}

// FuzzReceiver passes arbitrary datagrams to a receiver, at arbitrary times. Length bytes in the data separate the datagrams,
// and a length of 0 lets the deadline pass.
func FuzzReceiver(f *testing.F) {
	var seed, red, holes []byte
	packets := mediatest.Hybrid.Encode(f, mediatest.SynthesizeSpeech(300*ms, 48000))
	for i, a := range stream(packets, 65533, 1<<32-1000) {
		raw, err := a.pkt.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		seed = append(append(seed, byte(len(raw))), raw...)
		a.pkt.PayloadType, a.pkt.Payload = typeRED, redPayload(packets, i, 1)
		if raw, err = a.pkt.Marshal(); err != nil {
			f.Fatal(err)
		}
		if len(raw) < 256 {
			red = append(append(red, byte(len(raw))), raw...)
		}
		if i%3 != 1 && len(raw) < 256 {
			holes = append(append(holes, 0, byte(len(raw))), raw...)
		}
	}
	f.Add(seed)
	f.Add(red)
	f.Add(holes)
	f.Add([]byte{12, 0x80, typeOpus, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7})
	f.Add([]byte{18, 0x80, typeRED, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0x80 | typeOpus, 15, 0, 1, typeOpus, 8, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, choice := range []opus.DecoderChoice{opus.LibOpus, opus.Pion} {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				rx := rtpaudio.NewReceiver(&recorder{rate: 16000}, rtpaudio.ReceiverOptions{
					Codec: opus.Codec{Decoder: choice}, PayloadTypes: []uint8{typeOpus}, REDTypes: []uint8{typeRED},
					SendNACK: func(_ uint32, missing []uint16) {
						if asked += len(missing); len(missing) == 0 || len(missing) > 63 {
							t.Errorf("asked for %d packets", len(missing))
						}
					},
					RTT: func() time.Duration { return time.Duration(len(data)%200) * ms },
				})
				if err := rx.Run(context.Background(), &fuzzed{data: data}); err != nil {
					t.Errorf("Run: %v", err)
				}
				if s := rx.Stats(); s.Requested != uint64(asked) || s.Copied > 9*s.Packets || s.Late+s.Duplicate+s.Reordered+s.Padding > 2*s.Packets {
					t.Errorf("stats %+v", s)
				}
			})
		}
	})
}

// fuzzed is the source of FuzzReceiver. It must be read in a synctest bubble.
type fuzzed struct {
	data     []byte
	deadline time.Time
}

func (f *fuzzed) SetReadDeadline(t time.Time) error { f.deadline = t; return nil }

func (f *fuzzed) Read(b []byte) (int, error) {
	if len(f.data) == 0 {
		return 0, io.EOF
	}
	n := min(int(f.data[0]), len(f.data)-1)
	copy(b, f.data[1:1+n])
	f.data = f.data[1+n:]
	if n == 0 {
		if f.deadline.IsZero() {
			time.Sleep(ms)
			return 0, os.ErrDeadlineExceeded
		}
		time.Sleep(time.Until(f.deadline))
		return 0, os.ErrDeadlineExceeded
	}
	time.Sleep(time.Duration(b[n-1]) * 200 * time.Microsecond)
	return n, nil
}

// TestReceiverJitter checks that jitter is the difference between the delays of consecutive packets: a constant delay is not
// jitter.
func TestReceiverJitter(t *testing.T) {
	packets := mediatest.Hybrid.Encode(t, mediatest.SynthesizeSpeech(1000*ms, 48000))
	for late, want := range map[time.Duration]time.Duration{0: 0, 8 * ms: 8 * ms} {
		synctest.Test(t, func(t *testing.T) {
			arrivals := stream(packets, 7, 7)
			for i := range arrivals {
				arrivals[i].at += 30 * ms
				if i%2 == 1 {
					arrivals[i].at += late
				}
			}
			_, stats := receive(t, arrivals, 1100*ms, "")
			if (stats.Jitter - want).Abs() > ms/2 {
				t.Errorf("every second packet %v late: jitter %v", late, stats.Jitter)
			}
		})
	}
}
