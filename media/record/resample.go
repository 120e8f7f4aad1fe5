package record

import (
	"math"
	"sync"
)

const (
	// halfTaps is half the length of the filter, in samples of the slower of both rates. With Kaiser's window for 80 dB it
	// passes all up to 0.86 of the lower Nyquist frequency, and nothing from 1.14 of it on: 16 kHz audio keeps 6.9 kHz.
	halfTaps = 18
	beta     = 7.857 // 80 dB: 0.1102*(80-8.7)

	// maxPhases is how many places between two samples have a filter of their own. The usual rates have 320 and fewer
	// (11,025 Hz); with an odd one the place is rounded, which is 56 dB exact at 4 kHz.
	maxPhases = 640

	// fine is how many places between two samples the curve has that the filters are made of; between those it is a straight
	// line, which is 115 dB exact.
	fine = 512
)

// curve is the windowed sinc, from its middle to its end.
var curve = sync.OnceValue(func() *[halfTaps*fine + 2]float32 {
	var c [halfTaps*fine + 2]float32
	for i := range c {
		x := float64(i) / fine
		c[i] = float32(sinc(x) * kaiser(x/halfTaps))
	}
	return &c
})

// resampler changes the rate of a stream: a windowed sinc, linear in phase. It delays nothing, but holds back what it
// cannot know yet: half a filter, 1 to 2 ms.
type resampler struct {
	from, to int // the ratio, in lowest terms
	width    int // half the filter, in input samples
	scale    float64
	filters  [][]float32 // by phase; nil until it is used: a client may change its rate with every message
	in       []float32   // what is still needed; the first is sample `first` of the input
	first    int
	whole    int // the place of the next output sample: whole + part/to input samples
	part     int
	out      []int16
}

func newResampler(from, to int) *resampler {
	n := gcd(from, to)
	r := &resampler{from: from / n, to: to / n}
	r.scale = min(1, float64(to)/float64(from))
	r.width = int(math.Ceil(halfTaps / r.scale))
	r.filters = make([][]float32, min(r.to, maxPhases)+1)
	r.reset()
	return r
}

// filter is that of a phase.
func (r *resampler) filter(phase int) []float32 {
	if f := r.filters[phase]; f != nil {
		return f
	}
	f, curve := make([]float32, 2*r.width), curve()
	for i := range f { // the sample at whole-width+1+i
		x := math.Abs(float64(phase)/float64(len(r.filters)-1)+float64(r.width-1-i)) * r.scale * fine
		if n := int(x); n < len(curve)-1 {
			f[i] = float32(r.scale) * (curve[n] + (curve[n+1]-curve[n])*float32(x-float64(n)))
		}
	}
	r.filters[phase] = f
	return f
}

func (r *resampler) reset() {
	r.in, r.first, r.whole, r.part = append(r.in[:0], make([]float32, r.width)...), -r.width, 0, 0
}

// resample takes input and returns the output that is complete by now, good until the next call.
func (r *resampler) resample(pcm []int16) []int16 {
	for _, x := range pcm {
		r.in = append(r.in, float32(x))
	}
	r.out = r.out[:0]
	for r.whole+r.width < r.first+len(r.in) {
		filter := r.filter(((len(r.filters)-1)*r.part + r.to/2) / r.to)
		var sum float32
		for i, x := range r.in[r.whole-r.width+1-r.first:][:len(filter)] {
			sum += x * filter[i]
		}
		r.out = append(r.out, int16(min(max(math.Round(float64(sum)), math.MinInt16), math.MaxInt16)))
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

// held returns how many samples of output are held back.
func (r *resampler) held() int64 {
	return (int64(r.first+len(r.in)-r.whole)*int64(r.to) - int64(r.part)) / int64(r.from)
}

// flush returns what is held back, and begins anew.
func (r *resampler) flush() []int16 {
	out := r.resample(make([]int16, r.width))
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

// kaiser is the window at x, from the middle, 0, to an end, 1 or -1.
func kaiser(x float64) float64 {
	if x*x >= 1 {
		return 0
	}
	return bessel(beta*math.Sqrt(1-x*x)) / bessel(beta)
}

// bessel is the modified Bessel function of the first kind and order 0.
func bessel(x float64) float64 {
	sum, term := 1.0, 1.0
	for k := 1.0; term > 1e-12*sum; k++ {
		term *= x / 2 / k * x / 2 / k
		sum += term
	}
	return sum
}
