package rtpaudio_test

import (
	"container/heap"
	"context"
	"io"
	"math"
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

const (
	typeOpus, typeRED = 111, 63
	// oneWay is the delay of an idle path.
	oneWay = 30 * ms
)

// sender describes the protection of a stream against losses.
type sender struct {
	name   string
	copies int  // number of earlier packets in each packet (RED)
	nack   bool // the sender answers NACKs
}

var (
	plain   = sender{name: "FEC"}
	red1    = sender{name: "RED 1", copies: 1}
	nack    = sender{name: "NACK", nack: true}
	redNACK = sender{name: "RED+NACK", copies: 1, nack: true}
	repairs = []sender{plain, red1, nack, redNACK}
)

// path decides about packets, and about requests. send returns the delays after which a packet sent at a time arrives: none if
// it is lost, several if it is duplicated.
type path struct {
	send func(at time.Duration) []time.Duration
}

func idle(time.Duration) []time.Duration { return []time.Duration{oneWay} }

// impaired returns a path with an impairment. Its random numbers are the same in each run.
func impaired(p mediatest.Impairment) path {
	network, start := mediatest.NewPath(2, 1), time.Now()
	p.Delay = oneWay
	p.Overtake = p.Overtake || p.Jitter == 0 // retransmissions are sent to the path later, but for an earlier time
	network.SetImpairment(p)
	return path{func(at time.Duration) []time.Duration {
		arrives, copies := network.Send(start.Add(at))
		return slices.Repeat([]time.Duration{arrives.Sub(start) - at}, copies)
	}}
}

// dark returns a path that loses, or delays, all packets sent during an outage of two seconds.
func dark(lost bool) path {
	return path{func(at time.Duration) []time.Duration {
		switch {
		case at < blackoutBegin || at >= blackoutEnd:
			return idle(at)
		case lost:
			return nil
		}
		return []time.Duration{blackoutEnd + oneWay - at}
	}}
}

const blackoutBegin, blackoutEnd = 8 * time.Second, 10 * time.Second

// datagram is a packet in flight, with its time of arrival.
type datagram struct {
	at  time.Time
	raw []byte
	n   int // keeps the order of packets that arrive at the same time
}

type inFlight []datagram

func (f inFlight) Len() int { return len(f) }
func (f inFlight) Less(i, j int) bool {
	return f[i].at.Before(f[j].at) || f[i].at.Equal(f[j].at) && f[i].n < f[j].n
}
func (f inFlight) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f *inFlight) Push(x any)   { *f = append(*f, x.(datagram)) }
func (f *inFlight) Pop() any {
	last := (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
	return last
}

// network is a source of packets that arrive over a path. Reading sleeps until the next arrival, in a synctest bubble.
type network struct {
	inFlight
	path     path
	start    time.Time
	end      time.Time
	sent     map[uint16][]byte // packets that can be retransmitted
	sends    int
	deadline time.Time
	stall    int // number of packets after which the process stalls for 300 ms
}

func newNetwork(p path, length time.Duration) *network {
	now := time.Now()
	return &network{path: p, start: now, end: now.Add(length), sent: map[uint16][]byte{}}
}

func (n *network) SetReadDeadline(t time.Time) error { n.deadline = t; return nil }

func (n *network) Read(b []byte) (int, error) {
	if n.stall--; n.stall == 0 {
		time.Sleep(300 * ms)
	}
	next := n.end
	if len(n.inFlight) > 0 && n.inFlight[0].at.Before(n.end) {
		next = n.inFlight[0].at
	}
	// A deadline that has passed takes precedence over waiting packets, as in Pion.
	if !n.deadline.IsZero() && (n.deadline.Before(next) || n.deadline.Before(time.Now())) {
		time.Sleep(time.Until(n.deadline))
		return 0, os.ErrDeadlineExceeded
	}
	time.Sleep(time.Until(next))
	if next.Equal(n.end) {
		return 0, io.EOF
	}
	return copy(b, heap.Pop(&n.inFlight).(datagram).raw), nil
}

// send sends a packet over the path at the time at.
func (n *network) send(raw []byte, at time.Time) {
	for _, d := range n.path.send(at.Sub(n.start)) {
		n.sends++
		heap.Push(&n.inFlight, datagram{at: at.Add(d), raw: raw, n: n.sends})
	}
}

// again handles a NACK: unless the request is lost, it sends the missing packets again.
func (n *network) again(_ uint32, missing []uint16) {
	if len(n.path.send(time.Since(n.start))) == 0 {
		return // the request is lost
	}
	for _, seq := range missing {
		if raw := n.sent[seq]; raw != nil {
			n.send(raw, time.Now().Add(oneWay))
		}
	}
}

// redPayload returns the payload of packet i with copies of the previous packets.
func redPayload(packets [][]byte, i, copies int) []byte {
	var out []byte
	for c := min(i, copies); c > 0; c-- {
		size := len(packets[i-c])
		out = append(out, 0x80|typeOpus, byte(c*960>>6), byte(c*960<<2|size>>8), byte(size))
	}
	out = append(out, typeOpus)
	for c := min(i, copies); c >= 0; c-- {
		out = append(out, packets[i-c]...)
	}
	return out
}

// transmit sends packets over a path, one every 20 ms, and returns the sink and the counters of the receiver.
func transmit(t *testing.T, packets [][]byte, s sender, p path) (sink *recorder, stats rtpaudio.ReceiverStats) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		net := newNetwork(p, time.Duration(len(packets))*20*ms+500*ms)
		sink = &recorder{rate: 16000, start: now}
		for i, payload := range packets {
			h := rtp.Header{Version: 2, PayloadType: typeOpus, SequenceNumber: 65000 + uint16(i), Timestamp: 1<<32 - 48000 + uint32(i)*960, SSRC: 7}
			if s.copies > 0 {
				h.PayloadType, payload = typeRED, redPayload(packets, i, s.copies)
			}
			raw, err := (&rtp.Packet{Header: h, Payload: payload}).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			net.sent[h.SequenceNumber] = raw
			net.send(raw, now.Add(time.Duration(i)*20*ms))
		}
		o := rtpaudio.ReceiverOptions{Codec: opus.Codec{}, PayloadTypes: []uint8{typeOpus}, REDTypes: []uint8{typeRED}}
		if s.nack {
			o.SendNACK, o.RTT = net.again, func() time.Duration { return 2 * oneWay }
		}
		rx := rtpaudio.NewReceiver(sink, o)
		if err := rx.Run(context.Background(), net); err != nil {
			t.Error(err)
		}
		stats = rx.Stats()
	})
	return sink, stats
}

// block is the result for 20 ms of sound.
type block struct {
	sent    time.Duration // time at which its packet was sent
	voiced  bool
	present bool
	delay   time.Duration // time from sent until the block was written to the sink
	shift   time.Duration // sound before the block in the sink, minus the sound before it at the sender
}

// loudBlock is the RMS of a block that is voiced: 15 dB below the level of speech, and 16 dB above the noise of the room.
const loudBlock = 280

// judge searches for each block of want, 20 ms at 16 kHz, in the audio of a sink. A block is present if it correlates by 0.8
// with the audio at the expected place after the previous block, or by 0.95 elsewhere. Its level must match within 6 dB.
// Concealed audio is rarely present by this rule.
func judge(want []int16, sink *recorder) []block {
	var (
		blocks  []block
		shift   int // shift of the last block that was found
		written []time.Duration
	)
	for _, w := range sink.writes {
		for range w.n {
			written = append(written, w.at)
		}
	}
	for i := 0; i+320 <= len(want); i += 320 {
		w := want[i : i+320]
		b := block{sent: time.Duration(i/320) * 20 * ms, voiced: media.RMS(w) >= loudBlock}
		if b.voiced {
			at, ok := find(w, sink.pcm, i+shift, 20, 0.8)
			if !ok {
				at, ok = find(w, sink.pcm, i, 2100*16, 0.95) // searched without the shift, because a wrong shift must not last
			}
			if b.present = ok; ok {
				shift = at - i
				b.delay = written[at+319] - b.sent
				b.shift = time.Duration(shift) * time.Second / 16000
			}
		}
		blocks = append(blocks, b)
	}
	return blocks
}

// find searches for w in pcm, at most `around` samples from the index at, with a correlation of at least `least`. It returns
// the index.
func find(w, pcm []int16, at, around int, least float64) (int, bool) {
	step := 1
	if around > 100 {
		step = 4
	}
	best, where := 0.0, 0
	for i := max(0, at-around); i <= min(at+around, len(pcm)-len(w)); i += step {
		if c := correlation(w, pcm[i:i+len(w)], step); c > best {
			best, where = c, i
		}
	}
	if step > 1 && best > 0.5 {
		return find(w, pcm, where, 6, least)
	}
	if best < least {
		return 0, false
	}
	level := media.RMS(pcm[where:where+len(w)]) / media.RMS(w)
	return where, level > 0.5 && level < 2
}

func correlation(a, b []int16, step int) float64 {
	var ab, aa, bb float64
	for i := 0; i < len(a); i += step {
		x, y := float64(a[i]), float64(b[i])
		ab += x * y
		aa += x * x
		bb += y * y
	}
	return ab / math.Sqrt(aa*bb+1)
}

// share returns the present share of the voiced blocks.
func share(blocks []block) float64 {
	voiced, present := 0, 0
	for _, b := range blocks {
		if b.voiced {
			voiced++
		}
		if b.present {
			present++
		}
	}
	return float64(present) / float64(voiced)
}
