package media

import (
	"bytes"
	"fmt"
	"math"
	"sync"

	"github.com/zaf/resample"
)

// Resample returns a whole clip of mono PCM at another rate. It uses libsoxr, which takes half the CPU time of a
// [Resampler]. Its stop band begins at 0.53 times the lower of the two rates.
func Resample(pcm []int16, fromRate, toRate int) ([]int16, error) {
	if fromRate <= 0 || toRate <= 0 {
		return nil, fmt.Errorf("resample from %d to %d Hz: rates must be positive", fromRate, toRate)
	}
	if fromRate == toRate || len(pcm) == 0 {
		return append([]int16(nil), pcm...), nil
	}
	var out bytes.Buffer
	r, err := resample.New(&out, float64(fromRate), float64(toRate), 1, resample.I16, resample.HighQ)
	if err != nil {
		return nil, fmt.Errorf("resample from %d to %d Hz: %w", fromRate, toRate, err)
	}
	// libsoxr silently loses input unless each write is a whole number of samples at both rates, as one second is for
	// any rates. The last second is padded.
	second := make([]byte, 0, 2*fromRate)
	for rest := pcm; len(rest) > 0 && err == nil; {
		n := min(len(rest), fromRate)
		second = AppendBytes(second[:0], rest[:n])
		clear(second[len(second):cap(second)])
		_, err = r.Write(second[:2*fromRate])
		rest = rest[n:]
	}
	if cerr := r.Close(); err == nil { // flushes libsoxr's buffer and frees its memory
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("resample from %d to %d Hz: %w", fromRate, toRate, err)
	}
	resampled := make([]int16, (len(pcm)*toRate+fromRate/2)/fromRate)
	copy(resampled, AppendSamples(nil, out.Bytes()))
	return resampled, nil
}

const (
	halfTaps = 18    // half the length of the filter, in samples of the slower of both rates
	beta     = 7.857 // shape of its Kaiser window (for 80 dB: 0.1102*(80-8.7))

	// maxPhases is the maximum number of positions between two samples that have a filter of their own. The usual rates
	// need 320 or fewer (11,025 Hz). For other rates a position is rounded to the nearest of these, which is accurate
	// to 56 dB at 4 kHz.
	maxPhases = 640

	// curveSteps is the number of points per sample in sincCurve. Values between two points are interpolated linearly,
	// which is accurate to 115 dB.
	curveSteps = 512
)

// sincCurve returns the windowed sinc, from its middle to its right end. The filters are made from it.
var sincCurve = sync.OnceValue(func() *[halfTaps*curveSteps + 2]float32 {
	var c [halfTaps*curveSteps + 2]float32
	for i := range c {
		x := float64(i) / curveSteps
		c[i] = float32(sinc(x) * kaiserWindow(x/halfTaps))
	}
	return &c
})

// Resampler changes the rate of a stream of mono PCM, chunk by chunk, with a windowed sinc of linear phase. It must not
// be used concurrently. It allocates nothing once its buffers have grown.
//
// If f is the lower of the two rates, everything up to 0.4 f passes within 0.1 dB, and everything up to 0.425 f within
// 1 dB. From 0.6 f on everything is attenuated by at least 78 dB (TestResamplerBands). The delay is 18 samples of the
// lower rate.
//
// For example, 24 to 8 kHz keeps the telephone band up to 3.4 kHz, and removes what is above 4.8 kHz. Sound in between
// is attenuated and aliased to 3.2 to 4 kHz. The delay is 2.25 ms.
//
// libsoxr works in blocks, so it does not suit a stream. From 24 to 8 kHz its High quality delays by 73 ms, Low by 40
// ms. Quick has no filter (TestLibsoxrDelay).
type Resampler struct {
	from, to int // the ratio, in lowest terms
	width    int // half the filter, in input samples
	scale    float64
	filters  [][]float32 // by phase; nil until used, because a client may change its rate with every message
	in       []float32   // input still needed; in[0] is sample `first` of the stream
	first    int
	whole    int // position of the next output sample: whole + part/to input samples
	part     int
	out      []int16
}

// NewResampler returns a resampler between two rates in Hz, both positive.
func NewResampler(fromRate, toRate int) *Resampler {
	n := gcd(fromRate, toRate)
	r := &Resampler{from: fromRate / n, to: toRate / n}
	r.scale = min(1, float64(toRate)/float64(fromRate))
	r.width = int(math.Ceil(halfTaps / r.scale))
	r.filters = make([][]float32, min(r.to, maxPhases)+1)
	r.reset()
	return r
}

// filterAt returns the filter of a phase.
func (r *Resampler) filterAt(phase int) []float32 {
	if f := r.filters[phase]; f != nil {
		return f
	}
	f, curve := make([]float32, 2*r.width), sincCurve()
	for i := range f { // f[i] is the weight of input sample whole-width+1+i
		x := math.Abs(float64(phase)/float64(len(r.filters)-1)+float64(r.width-1-i)) * r.scale * curveSteps
		if n := int(x); n < len(curve)-1 {
			f[i] = float32(r.scale) * (curve[n] + (curve[n+1]-curve[n])*float32(x-float64(n)))
		}
	}
	r.filters[phase] = f
	return f
}

func (r *Resampler) reset() {
	r.in, r.first, r.whole, r.part = append(r.in[:0], make([]float32, r.width)...), -r.width, 0, 0
}

// Resample adds input and returns the output that is complete by now. The output is valid until the next call.
func (r *Resampler) Resample(pcm []int16) []int16 {
	for _, x := range pcm {
		r.in = append(r.in, float32(x))
	}
	r.out = r.out[:0]
	for r.whole+r.width < r.first+len(r.in) {
		filter := r.filterAt(((len(r.filters)-1)*r.part + r.to/2) / r.to)
		sum := dotProduct(r.in[r.whole-r.width+1-r.first:], filter)
		r.out = append(r.out, int16(min(max(math.RoundToEven(float64(sum)), math.MinInt16), math.MaxInt16)))
		r.part += r.from
		r.whole += r.part / r.to
		r.part %= r.to
	}
	if old := r.whole - r.width + 1 - r.first; old > 0 {
		r.in = r.in[:copy(r.in, r.in[min(old, len(r.in)):])]
		r.first += old
	}
	return r.out
}

// dotProduct returns the dot product of b and the first len(b) samples of a. Four independent sums take a third of the
// time of one.
func dotProduct(a, b []float32) float32 {
	a = a[:len(b)]
	var one, two, three, four float32
	i := 0
	for ; i <= len(b)-4; i += 4 {
		x, y := a[i:i+4:i+4], b[i:i+4:i+4]
		one += x[0] * y[0]
		two += x[1] * y[1]
		three += x[2] * y[2]
		four += x[3] * y[3]
	}
	for ; i < len(b); i++ {
		one += a[i] * b[i]
	}
	return one + two + (three + four)
}

// RestartWithSilence starts a new stream and feeds it as much silence as the filter delays. Then each input frame
// yields a whole output frame.
func (r *Resampler) RestartWithSilence() {
	r.in = append(r.in[:0], make([]float32, 2*r.width)...)
	r.first, r.whole, r.part = -2*r.width, -r.width, 0
}

// BufferedSamples returns how many output samples are still to come for the input so far.
func (r *Resampler) BufferedSamples() int64 {
	return (int64(r.first+len(r.in)-r.whole)*int64(r.to) - int64(r.part)) / int64(r.from)
}

// Flush returns the buffered samples and resets the stream.
func (r *Resampler) Flush() []int16 {
	out := r.Resample(make([]int16, r.width))
	r.reset()
	return out
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	return math.Sin(math.Pi*x) / (math.Pi * x)
}

// kaiserWindow returns the window at x: 0 is its middle, 1 and -1 its ends.
func kaiserWindow(x float64) float64 {
	if x*x >= 1 {
		return 0
	}
	return besselI0(beta*math.Sqrt(1-x*x)) / besselI0(beta)
}

// besselI0 returns the modified Bessel function of the first kind and order 0.
func besselI0(x float64) float64 {
	sum, term := 1.0, 1.0
	for k := 1.0; term > 1e-12*sum; k++ {
		term *= x / 2 / k * x / 2 / k
		sum += term
	}
	return sum
}
