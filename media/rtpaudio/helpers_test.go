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

// arrival is a datagram with its time of arrival.
type arrival struct {
	at  time.Duration
	pkt rtp.Packet
	raw []byte // bytes of the datagram, in place of pkt
}

// stream returns the packets as arrivals, one every 20 ms, numbered from seq and ts on.
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

// recorder is a sink that stores its audio, with the times at which it was written.
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

// before returns the duration of the audio that was written until the time at.
func (r *recorder) before(at time.Duration) time.Duration {
	n := 0
	for _, w := range r.writes {
		if w.at <= at {
			n += w.n
		}
	}
	return time.Duration(n) * time.Second / time.Duration(r.rate)
}

// receive passes the arrivals to a receiver of Opus, and returns its audio and its counters after the time total. It must run
// in a synctest bubble.
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

// receiveBy is receive for any codec.
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
