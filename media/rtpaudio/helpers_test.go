package rtpaudio_test

import (
	"sync"
	"testing"
	"time"

	"github.com/pion/rtp"
	"go.uber.org/goleak"

	"voxgate/media/opus"
	"voxgate/media/rtpaudio"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ms      = time.Millisecond
	outRate = 24000
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// arrival is a datagram and when it comes.
type arrival struct {
	at  time.Duration
	pkt rtp.Packet
	raw []byte // instead of pkt
}

// stream returns an arrival every 20 ms.
func stream(packets [][]byte, seq uint16, ts uint32) []arrival {
	var out []arrival
	for i, p := range packets {
		out = append(out, arrival{at: time.Duration(i) * 20 * ms, pkt: rtp.Packet{
			Header:  rtp.Header{Version: 2, PayloadType: 111, SequenceNumber: seq + uint16(i), Timestamp: ts + uint32(i)*960, SSRC: 7},
			Payload: p,
		}})
	}
	return out
}

// recorder is a sink that remembers what it got, and when.
type recorder struct {
	rate  int
	start time.Time
	fail  error

	mu     sync.Mutex
	pcm    []int16
	writes []write
}

type write struct {
	at time.Duration
	n  int
}

func (r *recorder) Rate() int { return r.rate }

func (r *recorder) WritePCM(pcm []int16) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pcm = append(r.pcm, pcm...)
	r.writes = append(r.writes, write{time.Since(r.start), len(pcm)})
	return r.fail
}

// before returns how much had been written until at.
func (r *recorder) before(at time.Duration) time.Duration {
	n := 0
	for _, w := range r.writes {
		if w.at <= at {
			n += w.n
		}
	}
	return time.Duration(n) * time.Second / time.Duration(r.rate)
}

// receive plays the arrivals to a receiver of Opus, lets total pass, and returns what it wrote. It must run in a bubble.
func receive(t *testing.T, arrivals []arrival, total time.Duration, choice opus.DecoderChoice) (*recorder, rtpaudio.ReceiverStats) {
	t.Helper()
	return receiveBy(
		t,
		arrivals,
		total,
		16000,
		rtpaudio.ReceiverOptions{Codec: opus.Codec{Decoder: choice}, PayloadTypes: []uint8{typeOpus}, REDTypes: []uint8{typeRED}},
	)
}

// receiveBy is receive by any codec.
func receiveBy(
	t *testing.T,
	arrivals []arrival,
	total time.Duration,
	rate int,
	o rtpaudio.ReceiverOptions,
) (*recorder, rtpaudio.ReceiverStats) {
	t.Helper()
	sink := &recorder{rate: rate, start: time.Now()}
	src := newNetwork(path{func(time.Duration) []time.Duration { return []time.Duration{0} }}, total)
	for _, a := range arrivals {
		raw := a.raw
		if raw == nil {
			var err error
			raw, err = a.pkt.Marshal()
			must(t, err)
		}
		src.send(raw, sink.start.Add(a.at))
	}
	rx := rtpaudio.NewReceiver(sink, o)
	must(t, rx.Run(t.Context(), src))
	return sink, rx.Stats()
}
