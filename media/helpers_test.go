package media_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pion/rtp"
	"go.uber.org/goleak"
	libopus "gopkg.in/hraban/opus.v2"

	"voxgate/media"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

// speech returns something that codecs take for speech: voiced syllables with a gliding pitch and formants, hissing ones,
// and pauses with a little noise.
func speech(d time.Duration, rate int) []int16 {
	rng := rand.New(rand.NewPCG(1, 2))
	pcm := make([]int16, samples(d, rate))
	phase, f0, env, syllable := 0.0, 0.0, 0.0, 0
	var gains []float64 // of the harmonics
	for i := range pcm {
		if i%(rate/500) == 0 { // every 2 ms, for speed
			t := float64(i) / float64(rate)
			syllable = int(t * 4)
			env = math.Sin(math.Pi * (t*4 - float64(syllable)))
			f0 = 110 + 25*math.Sin(2*math.Pi*0.7*t)
			f1, f2 := 400+100*float64(syllable%3), 1200+300*float64(syllable%4)
			gains = gains[:0]
			for f := f0; f < min(3000, float64(rate)/2); f += f0 {
				gains = append(gains, math.Exp(-math.Pow((f-f1)/200, 2))+0.5*math.Exp(-math.Pow((f-f2)/300, 2))+0.02)
			}
		}
		v := 0.0
		switch syllable % 7 {
		case 3: // hiss
			v = 1500 * env * rng.NormFloat64()
		case 6: // pause
		default:
			phase += f0 / float64(rate)
			// sin(kx) from sin((k-1)x) and sin((k-2)x)
			c, s0, s1 := 2*math.Cos(2*math.Pi*phase), 0.0, math.Sin(2*math.Pi*phase)
			for _, g := range gains {
				v += g * s1
				s0, s1 = s1, c*s1-s0
			}
			v *= 4000 * env
		}
		pcm[i] = int16(max(-32000, min(32000, v+15*rng.NormFloat64())))
	}
	return pcm
}

func tone(d time.Duration, rate int, hz, amplitude float64) []int16 {
	pcm := make([]int16, samples(d, rate))
	for i := range pcm {
		pcm[i] = int16(amplitude * math.Sin(2*math.Pi*hz*float64(i)/float64(rate)))
	}
	return pcm
}

func samples(d time.Duration, rate int) int { return int(int64(d) * int64(rate) / int64(time.Second)) }

// snr returns how far got is from want, in dB.
func snr(want, got []int16) float64 {
	var signal, noise float64
	for i, w := range want {
		signal += float64(w) * float64(w)
		d := float64(w) - float64(got[i])
		noise += d * d
	}
	return 10 * math.Log10((signal+1)/(noise+1e-3))
}

// maxStep returns the largest difference between neighbours.
func maxStep(pcm []int16) int {
	m := 0
	for i := 1; i < len(pcm); i++ {
		m = max(m, int(math.Abs(float64(pcm[i])-float64(pcm[i-1]))))
	}
	return m
}

// codec says how a test stream is encoded.
type codec struct {
	name     string
	app      libopus.Application
	bitrate  int
	band     libopus.Bandwidth
	frame    time.Duration
	fec, dtx bool
	channels int
}

var (
	celt   = codec{name: "CELT", app: libopus.AppRestrictedLowdelay, bitrate: 64000}
	silk   = codec{name: "SILK", app: libopus.AppVoIP, bitrate: 20000, band: libopus.Wideband}
	hybrid = codec{name: "hybrid", app: libopus.AppVoIP, bitrate: 32000, band: libopus.Fullband}
)

// encode returns the packets of pcm at 48 kHz.
func (c codec) encode(t testing.TB, pcm []int16) [][]byte {
	t.Helper()
	channels := max(1, c.channels)
	enc, err := libopus.NewEncoder(48000, channels, c.app)
	errs := []error{err, enc.SetBitrate(c.bitrate), enc.SetComplexity(5), enc.SetDTX(c.dtx), enc.SetInBandFEC(c.fec)}
	if c.fec {
		errs = append(errs, enc.SetPacketLossPerc(20))
	}
	if c.band != 0 {
		errs = append(errs, enc.SetMaxBandwidth(c.band))
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
	if c.frame == 0 {
		c.frame = 20 * ms
	}
	var packets [][]byte
	for frame := range slices.Chunk(pcm, channels*samples(c.frame, 48000)) {
		buf := make([]byte, 4000)
		if len(frame) < channels*samples(c.frame, 48000) {
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

// receive plays the arrivals to a receiver, lets total pass, and returns what it wrote. It must run in a bubble.
func receive(t *testing.T, arrivals []arrival, total time.Duration, choice media.DecoderChoice) (*recorder, media.ReceiverStats) {
	t.Helper()
	sink := &recorder{rate: 16000, start: time.Now()}
	rx := media.NewReceiver(sink, []uint8{111}, choice)
	near, far := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- rx.Run(context.Background(), near) }()
	slices.SortStableFunc(arrivals, func(a, b arrival) int { return int(a.at - b.at) })
	for _, a := range arrivals {
		time.Sleep(time.Until(sink.start.Add(a.at)))
		raw := a.raw
		if raw == nil {
			var err error
			if raw, err = a.pkt.Marshal(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := far.Write(raw); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Until(sink.start.Add(total)))
	far.Close()
	if err := <-done; err != nil {
		t.Fatalf("Run: %v", err)
	}
	near.Close()
	return sink, rx.Stats()
}
