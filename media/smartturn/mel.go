package smartturn

import (
	"math"
	"sync"
)

const (
	samples      = 2 * Rate // samples in the input
	wholeSamples = 8 * Rate // samples that the network was made for: silence, and the input at the end

	melBands = 80
	hop      = Rate / 100
	fftSize  = 400
	bins     = fftSize/2 + 1
)

// analysis computes the input of the network: the logarithmic mel spectrogram of Whisper. It belongs to one goroutine.
type analysis struct {
	padded [fftSize/2 + samples + fftSize/2]float64 // the input, with the silence before it and a mirrored end
	power  [2][bins]float64
	stages [2][fftSize]complex128
	levels [melBands * melFrames]float64 // logarithms, by band and frame
	mel    [melBands * melFrames]float32
}

// melTables holds the window, the factors of the Fourier transform, and the mel filters. The filter of a band begins at
// its first bin that is not 0.
var melTables = sync.OnceValue(func() *tables {
	t := new(tables)
	for i := range fftSize {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / fftSize)
		t.window[i] = 0.5 - 0.5*cos
		t.factors[i] = complex(cos, -sin)
	}
	var edges [melBands + 2]float64 // in Hz
	for i := range edges {
		edges[i] = melToHertz(hertzToMel(Rate/2) * float64(i) / (melBands + 1))
	}
	for band := range t.filters {
		low, middle, high := edges[band], edges[band+1], edges[band+2]
		for bin := range bins {
			hertz := float64(bin) * Rate / fftSize
			weight := min((hertz-low)/(middle-low), (high-hertz)/(high-middle))
			if weight <= 0 {
				continue
			}
			f := &t.filters[band]
			if len(f.weights) == 0 {
				f.first = bin
			}
			f.weights = append(f.weights, weight*2/(high-low))
		}
	}
	return t
})

type tables struct {
	window  [fftSize]float64
	factors [fftSize]complex128
	filters [melBands]struct {
		first   int
		weights []float64
	}
}

// hertzToMel and melToHertz use the scale of Slaney's Auditory Toolbox: linear up to 1 kHz, then logarithmic.
func hertzToMel(hertz float64) float64 {
	if hertz < 1000 {
		return hertz * 3 / 200
	}
	return 15 + math.Log(hertz/1000)*27/math.Log(6.4)
}

func melToHertz(mel float64) float64 {
	if mel < 15 {
		return mel * 200 / 3
	}
	return 1000 * math.Exp((mel-15)*math.Log(6.4)/27)
}

// melSpectrogram returns the input of the network for the last 2 s of pcm. The slice is valid until the next call.
func (a *analysis) melSpectrogram(pcm []int16) []float32 {
	a.loadNormalized(pcm[max(0, len(pcm)-samples):])
	t := melTables()
	loudest := math.Inf(-1)
	for frame := 0; frame < melFrames; frame += 2 {
		a.computePowerSpectra(t, a.padded[frame*hop:], a.padded[(frame+1)*hop:])
		for band := range t.filters {
			f := &t.filters[band]
			for i := range a.power {
				var sum float64
				for k, p := range a.power[i][f.first:][:len(f.weights)] {
					sum += p * f.weights[k]
				}
				level := math.Log10(max(1e-10, sum))
				loudest = max(loudest, level)
				a.levels[band*melFrames+frame+i] = level
			}
		}
	}
	for i, level := range a.levels {
		a.mel[i] = float32((max(level, loudest-8) + 4) / 4)
	}
	return a.mel[:]
}

// loadNormalized scales the input, together with the silence before it, to mean 0 and variance 1. It rounds in the same
// way as Pipecat, because the network's input is quantized.
func (a *analysis) loadNormalized(pcm []int16) {
	var sum, squares float64
	for _, s := range pcm {
		sum += float64(s) / 32768
	}
	mean := float32(sum / wholeSamples)
	for _, s := range pcm {
		x := float64(float32(s)/32768 - mean)
		squares += x * x
	}
	squares += float64(mean) * float64(mean) * float64(wholeSamples-len(pcm))
	deviation := float32(math.Sqrt(float64(float32(squares/wholeSamples) + 1e-7)))
	end := len(a.padded) - fftSize/2
	start := end - len(pcm)
	for i := range a.padded[:start] {
		a.padded[i] = float64(-mean / deviation)
	}
	for i, s := range pcm {
		a.padded[start+i] = float64((float32(s)/32768 - mean) / deviation)
	}
	for i := range fftSize / 2 {
		a.padded[end+i] = a.padded[end-2-i]
	}
}

// computePowerSpectra computes the power spectra of two frames by one complex Fourier transform.
func (a *analysis) computePowerSpectra(t *tables, first, second []float64) {
	x, y := &a.stages[0], &a.stages[1]
	for i := range fftSize {
		x[i] = complex(first[i]*t.window[i], second[i]*t.window[i])
	}
	t.radix4Stage(y, x, 400, 1)
	t.radix4Stage(x, y, 100, 4)
	t.radix5Stage(y, x, 25, 16)
	t.radix5Stage(x, y, 5, 80)
	for bin := range bins {
		p, q := x[bin], x[(fftSize-bin)%fftSize]
		re1, im1 := real(p)+real(q), imag(p)-imag(q)
		re2, im2 := imag(p)+imag(q), real(p)-real(q)
		a.power[0][bin] = (re1*re1 + im1*im1) / 4
		a.power[1][bin] = (re2*re2 + im2*im2) / 4
	}
}

// radix4Stage is a stage of radix 4 of the Stockham FFT algorithm. It divides transforms of the given length, which are
// interleaved with the given stride.
func (t *tables) radix4Stage(out, in *[fftSize]complex128, length, stride int) {
	part := length / 4
	for p := range part {
		w1, w2, w3 := t.factors[p*stride], t.factors[2*p*stride], t.factors[3*p*stride]
		for q := range stride {
			from, to := q+stride*p, q+stride*4*p
			a, b, c, d := in[from], in[from+stride*part], in[from+stride*2*part], in[from+stride*3*part]
			sum, difference := a+c, a-c
			turn := complex(imag(b)-imag(d), real(d)-real(b)) // (b-d) times -i
			out[to] = sum + (b + d)
			out[to+stride] = (difference + turn) * w1
			out[to+2*stride] = (sum - (b + d)) * w2
			out[to+3*stride] = (difference - turn) * w3
		}
	}
}

// radix5Stage is a stage of radix 5.
func (t *tables) radix5Stage(out, in *[fftSize]complex128, length, stride int) {
	part := length / 5
	cos1, sin1 := real(t.factors[fftSize/5]), imag(t.factors[fftSize/5])
	cos2, sin2 := real(t.factors[2*fftSize/5]), imag(t.factors[2*fftSize/5])
	for p := range part {
		w1, w2, w3, w4 := t.factors[p*stride], t.factors[2*p*stride], t.factors[3*p*stride], t.factors[4*p*stride]
		for q := range stride {
			from, to := q+stride*p, q+stride*5*p
			a, b, c := in[from], in[from+stride*part], in[from+2*stride*part]
			d, e := in[from+3*stride*part], in[from+4*stride*part]
			sum1, sum2, gap1, gap2 := b+e, c+d, b-e, c-d
			even1 := a + complex(cos1*real(sum1)+cos2*real(sum2), cos1*imag(sum1)+cos2*imag(sum2))
			even2 := a + complex(cos2*real(sum1)+cos1*real(sum2), cos2*imag(sum1)+cos1*imag(sum2))
			odd1 := complex(-sin1*imag(gap1)-sin2*imag(gap2), sin1*real(gap1)+sin2*real(gap2)) // times i
			odd2 := complex(-sin2*imag(gap1)+sin1*imag(gap2), sin2*real(gap1)-sin1*real(gap2))
			out[to] = a + sum1 + sum2
			out[to+stride] = (even1 + odd1) * w1
			out[to+2*stride] = (even2 + odd2) * w2
			out[to+3*stride] = (even2 - odd2) * w3
			out[to+4*stride] = (even1 - odd1) * w4
		}
	}
}
