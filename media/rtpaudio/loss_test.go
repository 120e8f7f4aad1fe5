package rtpaudio_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pion/rtp"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media/opus"
	"voxgate/media/rtpaudio"
)

// protected returns speech as a browser sends it after reports of loss: 32 kb/s with in-band FEC.
func protected(t testing.TB) [][]byte {
	c := mediatest.Hybrid
	c.FEC = true
	return c.Encode(t, mediatest.Conversation())
}

// TestReceiverImpaired measures the share of speech that reaches the sink over bad paths, and the added delay.
func TestReceiverImpaired(t *testing.T) {
	packets := protected(t)
	packets = packets[:len(packets)/2]
	want := mediatest.Decode(t, packets, 16000, "")
	for _, c := range []struct {
		name  string
		path  mediatest.Impairment
		least [4]float64    // minimum percentage of present voiced blocks, for each kind of repair
		most  time.Duration // maximum added delay in 95 % of the blocks
	}{
		{"clean", mediatest.Impairment{}, [4]float64{100, 100, 100, 100}, 0},
		{"5 % loss", mediatest.Impairment{Loss: 0.05}, [4]float64{98.5, 99.5, 99.5, 99.5}, 80 * ms},
		{"10 % loss", mediatest.Impairment{Loss: 0.10}, [4]float64{96.5, 98.5, 99.5, 99.5}, 140 * ms},
		// The resampler's dither differs in each process: 24 processes had 92.7 to 94.8 % with FEC alone.
		{"20 % loss", mediatest.Impairment{Loss: 0.20}, [4]float64{92, 98, 98.5, 99.5}, 200 * ms},
		{"7 % in bursts", mediatest.Impairment{Burst: mediatest.Burst{Loss: 0.07, Length: 4}}, [4]float64{95, 95.5, 99, 99}, 140 * ms},
		{"jitter 100 ms", mediatest.Impairment{Jitter: 100 * ms}, [4]float64{99.5, 99.5, 99.5, 99.5}, 100 * ms},
		{"shuffled 100 ms", mediatest.Impairment{Jitter: 100 * ms, Overtake: true}, [4]float64{99.5, 99.5, 99.5, 99.5}, 100 * ms},
		{"25 % overtake", mediatest.Impairment{Reorder: 0.25}, [4]float64{100, 100, 100, 100}, 50 * ms},
		{"5 % twice", mediatest.Impairment{Duplicate: 0.05}, [4]float64{100, 100, 100, 100}, 0},
	} {
		for i, s := range repairs {
			if c.least[0] == c.least[3] && s != plain && s != redNACK {
				continue // without losses, these repairs have no effect
			}
			sink, stats := transmit(t, packets, s, impaired(c.path))
			blocks := judge(want, sink)
			var delays []time.Duration
			for _, b := range blocks {
				if b.present {
					delays = append(delays, b.delay-oneWay)
				}
			}
			slices.Sort(delays)
			got, p95 := 100*share(blocks), delays[len(delays)*95/100]
			t.Logf(
				"%-15s %-8s %6.2f %% present, added delay p50 %5v p95 %5v max %5v; "+
					"lost %d, FEC %d, RED %d, asked %d, late %d, made up %v, silence %v, skipped %v",
				c.name,
				s.name,
				got,
				delays[len(delays)/2].Round(ms),
				p95.Round(ms),
				delays[len(delays)-1].Round(ms),
				stats.Lost,
				stats.Recovered,
				stats.Copied,
				stats.Requested,
				stats.Late,
				stats.Concealed,
				stats.Silence,
				stats.Skipped,
			)
			if got < c.least[i] {
				t.Errorf("want %.1f %%", c.least[i])
			}
			if p95 > c.most {
				t.Errorf("want p95 %v", c.most)
			}
		}
	}
}

// TestReceiverBlackout checks that speech continues at once after an outage of two seconds, in which packets are lost or
// delayed. There must be no clicks, and in the end the sink is on the wall clock again.
func TestReceiverBlackout(t *testing.T) {
	packets := protected(t)
	want := mediatest.Decode(t, packets, 16000, "")
	for _, lost := range []bool{true, false} {
		for _, s := range []sender{plain, redNACK} {
			t.Run(fmt.Sprintf("lost %v %s", lost, s.name), func(t *testing.T) {
				sink, stats := transmit(t, packets, s, dark(lost))
				back := time.Duration(0)
				for _, b := range judge(want, sink) {
					in := b.sent >= blackoutBegin && b.sent < blackoutEnd
					switch {
					case !b.voiced, in && lost:
						continue
					case !b.present:
						t.Errorf("the block of %v is missing", b.sent)
					case in:
						if at := b.sent + b.delay; at > blackoutEnd+oneWay+20*ms {
							t.Errorf("the block of %v was written at %v", b.sent, at)
						}
					case b.delay != oneWay:
						t.Errorf("the block of %v has a delay of %v", b.sent, b.delay)
					}
					if b.sent >= blackoutEnd && back == 0 {
						back = b.sent + b.delay - blackoutEnd
					}
				}
				t.Logf("back after %v, %+v", back, stats)
				if back > 300*ms {
					t.Errorf("speech is back %v after the blackout", back)
				}
				total := time.Duration(len(packets)) * 20 * ms
				if ahead := sink.before(total+oneWay) - total; ahead < -20*ms || ahead > 40*ms {
					t.Errorf("in the end the sink is %v ahead", ahead)
				}
				if step := mediatest.MaxStep(sink.pcm); step > mediatest.MaxStep(want) {
					t.Errorf("a step of %d, %d in what was sent", step, mediatest.MaxStep(want))
				}
			})
		}
	}
}

// TestReceiverRED checks streams whose lost packets are all restored from copies, and the counters.
func TestReceiverRED(t *testing.T) {
	packets := mediatest.Hybrid.Encode(t, mediatest.SynthesizeSpeech(1000*ms, 48000))
	whole := mediatest.Decode(t, packets, 16000, "")
	lose := func(a []arrival, lost ...int) []arrival {
		for n, i := range lost {
			a = slices.Delete(a, i-n, i-n+1)
		}
		return a
	}
	for _, c := range []struct {
		name   string
		copies int
		edit   func(a []arrival) []arrival
		want   rtpaudio.ReceiverStats
	}{
		{"nothing lost", 1, func(a []arrival) []arrival { return a }, rtpaudio.ReceiverStats{Packets: 50}},
		{"one lost", 1, func(a []arrival) []arrival { return lose(a, 20) }, rtpaudio.ReceiverStats{Packets: 49, Copied: 1}},
		{"two apart", 1, func(a []arrival) []arrival { return lose(a, 20, 22) }, rtpaudio.ReceiverStats{Packets: 48, Copied: 2}},
		{"two lost", 2, func(a []arrival) []arrival { return lose(a, 20, 21) }, rtpaudio.ReceiverStats{Packets: 48, Copied: 2}},
		{"three lost of nine", 9, func(a []arrival) []arrival { return lose(a, 20, 21, 22) }, rtpaudio.ReceiverStats{Packets: 47, Copied: 3}},
		{"only late", 1, func(a []arrival) []arrival {
			a[20].at += 50 * ms
			return a
		}, rtpaudio.ReceiverStats{Packets: 50, Copied: 1, Duplicate: 1}},
		{"late, and its copy came first", 2, func(a []arrival) []arrival {
			a[20].at += 25 * ms // contains copies of packets that have arrived
			return lose(a, 19)
		}, rtpaudio.ReceiverStats{Packets: 49, Copied: 2, Duplicate: 1}},
		{"each twice, one lost", 1, func(a []arrival) []arrival {
			a = lose(a, 20)
			return append(a, a...)
		}, rtpaudio.ReceiverStats{Packets: 98, Copied: 1, Duplicate: 49}},
		{"plain Opus between", 1, func(a []arrival) []arrival {
			for i := 10; i < 50; i += 3 {
				a[i].pkt.PayloadType, a[i].pkt.Payload = typeOpus, packets[i]
			}
			return lose(a, 20, 23)
		}, rtpaudio.ReceiverStats{Packets: 48, Copied: 2}},
		{"padding lost, too", 1, func(a []arrival) []arrival {
			for i := 21; i < 50; i++ {
				a[i].pkt.SequenceNumber += 3
			}
			return lose(a, 20)
		}, rtpaudio.ReceiverStats{Packets: 49, Copied: 1, Lost: 3}},
		{"padding lost only", 1, func(a []arrival) []arrival {
			for i := 21; i < 50; i++ {
				a[i].pkt.SequenceNumber += 2
			}
			return a
		}, rtpaudio.ReceiverStats{Packets: 50, Lost: 2}},
		{"padding as RED", 1, func(a []arrival) []arrival {
			for i := 21; i < 50; i++ {
				a[i].pkt.SequenceNumber++
			}
			p := a[20]
			p.pkt.SequenceNumber++
			p.pkt.Payload, p.pkt.Padding, p.pkt.PaddingSize = nil, true, 100
			return append(a, p)
		}, rtpaudio.ReceiverStats{Packets: 51, Padding: 1}},
		{"copies that are none", 1, func(a []arrival) []arrival {
			a[20].pkt.Payload = slices.Concat([]byte{
				0x80 | 13, 0x80, 0, 3, 0x80 | typeOpus, 15, 0, 0, 0x80 | typeOpus, 0, 0, 1, typeOpus, 1, 2, 3,
				4,
			}, packets[20])
			return a
		}, rtpaudio.ReceiverStats{Packets: 50}},
	} {
		for _, begin := range []struct {
			seq uint16
			ts  uint32
		}{{1000, 1<<32 - 960*20 - 1}, {0, 7}, {65520, 1<<32 - 960*21}, {65516, 7}} {
			t.Run(c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					arrivals := stream(packets, begin.seq, begin.ts)
					for i := range arrivals {
						arrivals[i].pkt.PayloadType, arrivals[i].pkt.Payload = typeRED, redPayload(packets, i, c.copies)
					}
					sink, stats := receive(t, c.edit(arrivals), 1040*ms, "")
					stats.Silence = 0 // silence after the stream does not count here
					if stats != c.want {
						t.Errorf("stats\n%+v, want\n%+v", stats, c.want)
					}
					if len(sink.pcm) < len(whole) || !slices.Equal(sink.pcm[:len(whole)], whole) {
						t.Error("the sound is not that of the stream in order")
					}
					if c.name == "one lost" && sink.before(419*ms) != 400*ms || c.name == "one lost" && sink.before(420*ms) != 440*ms {
						t.Error("the copy was not written when it came")
					}
				})
			})
		}
	}
}

// TestReceiverBadRED checks that a RED packet with wrong lengths only counts as lost, and that blocks of other payload types
// count as packets without sound.
func TestReceiverBadRED(t *testing.T) {
	packets := mediatest.Hybrid.Encode(t, mediatest.SynthesizeSpeech(1000*ms, 48000))
	for _, c := range []struct {
		name    string
		payload []byte
		want    rtpaudio.ReceiverStats
	}{
		{
			"lengths",
			[]byte{0x80 | typeOpus, 15, 3, 0xff, typeOpus, 1, 2, 3},
			rtpaudio.ReceiverStats{Packets: 49, Malformed: 1, Lost: 1, Concealed: 20 * ms},
		},
		{"another primary", []byte{13, 1, 2, 3}, rtpaudio.ReceiverStats{Packets: 50, OtherPayload: 1, Silence: 20 * ms}},
	} {
		synctest.Test(t, func(t *testing.T) {
			arrivals := stream(packets, 65530, 0)
			arrivals[20].pkt.PayloadType, arrivals[20].pkt.Payload = typeRED, c.payload
			sink, stats := receive(t, arrivals, 1000*ms, "")
			if stats != c.want {
				t.Errorf("%s: stats\n%+v, want\n%+v", c.name, stats, c.want)
			}
			if got := sink.before(time.Second); got != time.Second {
				t.Errorf("%s: %v were written in a second", c.name, got)
			}
		})
	}
}

// TestReceiverNACK checks which packets are requested, and when.
func TestReceiverNACK(t *testing.T) {
	packets := mediatest.Hybrid.Encode(t, mediatest.SynthesizeSpeech(2000*ms, 48000))
	type ask struct {
		at  time.Duration
		seq []uint16
	}
	for _, c := range []struct {
		name  string
		rtt   time.Duration
		late  []int // packets that arrive 50 ms late
		lost  []int
		want  []ask
		given time.Duration // time at which the sound after the first lost packet was written
	}{
		{"nothing", 60 * ms, nil, nil, nil, 0},
		{
			"never answered", 50 * ms, nil,
			[]int{20},
			[]ask{{420 * ms, []uint16{20}}, {480 * ms, []uint16{20}}, {540 * ms, []uint16{20}}},
			600 * ms,
		},
		{"far away", 150 * ms, nil, []int{20, 21}, []ask{{440 * ms, []uint16{20, 21}}}, 640 * ms},
		{"too far", 250 * ms, nil, []int{20}, nil, 480 * ms},
		{"unknown distance", 0, nil, []int{20}, []ask{{420 * ms, []uint16{20}}}, 480 * ms},
		{"two apart", 150 * ms, nil, []int{20, 22}, []ask{{420 * ms, []uint16{20}}, {460 * ms, []uint16{22}}}, 620 * ms},
		{"only late", 100 * ms, []int{10}, nil, []ask{{220 * ms, []uint16{10}}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []ask
				begin := time.Now()
				sink := &recorder{rate: 16000, start: begin}
				rx := rtpaudio.NewReceiver(sink, rtpaudio.ReceiverOptions{
					Codec: opus.Codec{}, PayloadTypes: []uint8{typeOpus},
					SendNACK: func(ssrc uint32, missing []uint16) {
						if ssrc != 7 {
							t.Errorf("SSRC %d", ssrc)
						}
						got = append(got, ask{time.Since(begin), slices.Clone(missing)})
					},
					RTT: func() time.Duration { return c.rtt },
				})
				net := newNetwork(path{func(at time.Duration) []time.Duration {
					switch i := int(at / (20 * ms)); {
					case slices.Contains(c.lost, i):
						return nil
					case slices.Contains(c.late, i):
						return []time.Duration{50 * ms}
					}
					return []time.Duration{0}
				}}, 2*time.Second)
				for i, payload := range packets {
					raw, err := (&rtp.Packet{Header: rtp.Header{
						Version: 2, PayloadType: typeOpus, SequenceNumber: uint16(i), Timestamp: uint32(i) * 960,
						SSRC: 7,
					}, Payload: payload}).Marshal()
					if err != nil {
						t.Fatal(err)
					}
					net.send(raw, begin.Add(time.Duration(i)*20*ms))
				}
				if err := rx.Run(t.Context(), net); err != nil {
					t.Fatal(err)
				}
				if fmt.Sprint(got) != fmt.Sprint(c.want) {
					t.Errorf("asked %v, want %v", got, c.want)
				}
				if c.given > 0 && (sink.before(c.given-ms) != 400*ms || sink.before(c.given) < 440*ms) {
					t.Errorf("%v and %v were written until %v", sink.before(c.given-ms), sink.before(c.given), c.given)
				}
			})
		})
	}
}

// TestReceiverSlack checks when silence begins after the last packet of a talkspurt: soon on a clean path, later while packets
// arrive late, and soon again five seconds after that.
func TestReceiverSlack(t *testing.T) {
	pcm := mediatest.SynthesizeSpeech(14*time.Second, 48000)
	clear(pcm[9*48000 : 12*48000]) // a pause in which the sink returns to the clock
	packets := mediatest.CELT.Encode(t, pcm)
	for _, c := range []struct {
		name        string
		length      time.Duration
		least, most time.Duration // bounds of the wait
	}{
		{"clean", 3 * time.Second, 80 * ms, 80 * ms},
		{"while it is bad", 8 * time.Second, 150 * ms, 240 * ms},
		{"five seconds later", 13 * time.Second, 80 * ms, 80 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			arrivals := stream(packets[:c.length/(20*ms)], 0, 0)
			p, shake := impaired(mediatest.Impairment{}), impaired(mediatest.Impairment{Jitter: 200 * ms})
			last := time.Duration(0) // arrival of the last packet
			for i := range arrivals {
				path := p
				if at := arrivals[i].at; at >= 4*time.Second && at < 8*time.Second-20*ms {
					path = shake
				}
				arrivals[i].at += path.send(arrivals[i].at)[0]
				last = max(last, arrivals[i].at)
			}
			synctest.Test(t, func(t *testing.T) {
				sink, stats := receive(t, arrivals, 15*time.Second, "")
				waited := time.Duration(0)
				for _, w := range sink.writes {
					if w.at > last {
						waited = w.at - last - 20*ms
						break
					}
				}
				t.Logf("silence began %v after it was due; %+v", waited, stats)
				if waited < c.least || waited > c.most {
					t.Errorf("want %v to %v", c.least, c.most)
				}
			})
		})
	}
}

// TestReceiverREDNewStream checks that copies in the first packet of a new stream are ignored, and those in later packets are
// used.
func TestReceiverREDNewStream(t *testing.T) {
	packets := mediatest.Hybrid.Encode(t, mediatest.SynthesizeSpeech(1000*ms, 48000))
	synctest.Test(t, func(t *testing.T) {
		arrivals := stream(packets, 65530, 0)
		for i := range arrivals {
			p := &arrivals[i].pkt
			p.PayloadType, p.Payload = typeRED, redPayload(packets, i, 2)
			if i >= 25 {
				p.SSRC, p.SequenceNumber, p.Timestamp = 8, 65535+uint16(i-25), uint32(i)*960+123456
			}
		}
		arrivals = slices.Delete(arrivals, 30, 32)
		sink, stats := receive(t, arrivals, 1000*ms, "")
		if want := (rtpaudio.ReceiverStats{Packets: 48, Copied: 2, Resets: 1}); stats != want {
			t.Errorf("stats\n%+v, want\n%+v", stats, want)
		}
		if got := sink.before(time.Second); got != time.Second {
			t.Errorf("%v were written in a second", got)
		}
	})
}
