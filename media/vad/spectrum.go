package vad

import (
	"math"
	"math/bits"
)

const (
	analysedRate = 8000 // Hz. Higher rates are reduced to 8 to 16 kHz, because a voice has its power below 4 kHz
	fftSize      = 256  // samples: 30 ms at 8 kHz, 20 ms at 12 kHz
	bins         = fftSize / 2
	bands        = 13
	lowBands     = 3 // below 450 Hz
)

// bandEdges are the limits of the bands, in Hz. The bands are as wide as the critical bands of the ear. The lowest
// begins above mains hum. At sample rates below 8 kHz the highest bands are empty.
var bandEdges = [bands + 1]float64{150, 250, 350, 450, 570, 700, 850, 1050, 1300, 1600, 2000, 2500, 3100, 3800}

// fftTables holds the factors of a complex FFT of 128 points, and the factors that turn its result into that of a real
// FFT of 256 points.
var fftTables = func() (t struct {
	cos, sin [bins]float32
	reverse  [bins]uint8
},
) {
	for i := range bins {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / fftSize)
		t.cos[i], t.sin[i] = float32(cos), float32(sin)
		t.reverse[i] = bits.Reverse8(uint8(i)) >> 1
	}
	return t
}()

// spectrum computes the power of a frame in each band.
type spectrum struct {
	rate, size int // frame format for which window and edges were computed
	window     []float32
	scale      float32
	edges      [bands + 1]int
	re, im     [bins]float32
	power      [bands]float32
}

// analyze returns the mean power in each band, scaled so that white noise has the square of its RMS in every band. It
// also returns the spectral flatness: the geometric mean of the power divided by the arithmetic mean. Flatness is 0 for
// a tone, 0.56 for noise, 1 for a click.
func (s *spectrum) analyze(frame []int16, rate int, dcOffset float32, floor *[bands]float32) (power *[bands]float32, flatness float32) {
	step := max(1, rate/analysedRate)
	if rate != s.rate || len(frame)/step != s.size {
		s.setRate(rate, len(frame)/step, step)
	}
	s.loadFrame(frame, step, dcOffset)
	s.runFFT()
	var sum, logs float32
	product, n := float32(1), 0
	for b := range bands {
		var p float32
		// The flatness is computed from the power divided by the noise floor, so that noise of any colour has a flat
		// spectrum.
		over := s.scale / floor[b]
		for k := s.edges[b]; k < s.edges[b+1]; k++ {
			x := s.binPower(k)*over + 1e-9
			p += x
			if product *= x; product > 1e20 || product < 1e-20 {
				logs += float32(math.Log(float64(product)))
				product = 1
			}
		}
		sum += p
		width := s.edges[b+1] - s.edges[b]
		n += width
		s.power[b] = p * floor[b] / float32(max(1, width))
	}
	logs += float32(math.Log(float64(product)))
	return &s.power, float32(math.Exp(float64(logs/float32(n)))) / (sum / float32(n))
}

func (s *spectrum) setRate(rate, size, step int) {
	s.rate, s.size = rate, size
	n := min(size, fftSize)
	s.window = s.window[:0]
	var sum float64
	for i := range n {
		w := 0.5 - 0.5*math.Cos(2*math.Pi*(float64(i)+0.5)/float64(n))
		s.window = append(s.window, float32(w))
		sum += w * w
	}
	s.scale = float32(1 / sum)
	for i, hz := range bandEdges {
		s.edges[i] = min(bins, int(math.Round(hz*fftSize*float64(step)/float64(rate))))
	}
}

// loadFrame loads a frame for the FFT: it averages every step samples, subtracts dcOffset and applies the window. A DC
// offset would leak into the lowest bands.
func (s *spectrum) loadFrame(frame []int16, step int, dcOffset float32) {
	clear(s.re[:])
	clear(s.im[:])
	for i, w := range s.window {
		sum := 0
		for _, x := range frame[i*step : (i+1)*step] {
			sum += int(x)
		}
		x := w * (float32(sum)/float32(step) - dcOffset)
		// Even samples are the real parts, odd samples the imaginary parts.
		if at := fftTables.reverse[i/2]; i%2 == 0 {
			s.re[at] = x
		} else {
			s.im[at] = x
		}
	}
}

// runFFT runs a radix-2 FFT, decimated in time, on the samples loaded in bit-reversed order.
func (s *spectrum) runFFT() {
	for half := 1; half < bins; half *= 2 {
		step := bins / half // step in the table, which divides the circle into 256 parts
		for k := range half {
			c, d := fftTables.cos[k*step], fftTables.sin[k*step]
			for i := k; i < bins; i += 2 * half {
				j := i + half
				re, im := s.re[j]*c+s.im[j]*d, s.im[j]*c-s.re[j]*d
				s.re[j], s.im[j] = s.re[i]-re, s.im[i]-im
				s.re[i], s.im[i] = s.re[i]+re, s.im[i]+im
			}
		}
	}
}

// binPower returns the power of bin k of the real FFT, 0 < k < 128.
func (s *spectrum) binPower(k int) float32 {
	j := bins - k
	evenRe, evenIm := (s.re[k]+s.re[j])/2, (s.im[k]-s.im[j])/2
	oddRe, oddIm := (s.im[k]+s.im[j])/2, (s.re[j]-s.re[k])/2
	c, d := fftTables.cos[k], fftTables.sin[k]
	re := evenRe + oddRe*c + oddIm*d
	im := evenIm + oddIm*c - oddRe*d
	return re*re + im*im
}
