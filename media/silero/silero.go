// Package silero runs the voice activity detector of the Silero Team (https://github.com/snakers4/silero-vad, version
// 6.2, MIT licence): a small neural network that tells speech from other sounds, such as coughs, music and typing. It
// reacts more slowly than package vad and needs more CPU time, but it is less often wrong.
package silero

import (
	_ "embed"
	"encoding/binary"
	"math"
	"sync"
)

const (
	// Rate is the sample rate of the input in Hz.
	Rate = 16000

	// FrameLength is the length of a frame in samples: 32 ms.
	FrameLength = 512

	contextLength = 64  // the last samples of the previous frame, which the network gets before a frame
	window        = 256 // samples in one Fourier transform
	hop           = window / 2
	bins          = window/2 + 1
	steps         = 4 // Fourier transforms per frame
	hidden        = 128
)

// weightData holds the weights of the network; weights.py writes the file.
//
//go:embed weights.bin
var weightData []byte

// network holds the weights. Matrices are stored by rows: one row for each output.
type network struct {
	basis                                       []float32 // matrix of the Fourier transform: real rows, then imaginary rows
	layers                                      [4]layer
	inputWeights, stateWeights                  []float32 // weights of the LSTM, in the order of its gates: input, forget, cell, output
	inputBias, stateBias, outWeights, outBiases []float32
}

// layer is a convolution of three taps, padded by one step on both sides, followed by a rectifier (ReLU).
type layer struct {
	inputs, outputs, stride int
	taps                    [3][]float32 // weights of each tap: a row of inputs for each output
	bias                    []float32
}

var loadNetwork = sync.OnceValue(func() *network {
	data := weightData
	take := func(n int) []float32 {
		values := make([]float32, n)
		for i := range values {
			values[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
		data = data[4*n:]
		return values
	}
	n := &network{basis: take(2 * bins * window)}
	inputs := bins
	for i, l := range []layer{{outputs: 128, stride: 1}, {outputs: 64, stride: 2}, {outputs: 64, stride: 2}, {outputs: 128, stride: 1}} {
		weights := take(l.outputs * inputs * 3) // in the file, ordered by output, input, tap
		l.inputs, l.bias = (inputs+3)&^3, take(l.outputs)
		for tap := range l.taps {
			l.taps[tap] = make([]float32, l.outputs*l.inputs)
			for o := range l.outputs {
				for in := range inputs {
					l.taps[tap][o*l.inputs+in] = weights[(o*inputs+in)*3+tap]
				}
			}
		}
		n.layers[i], inputs = l, l.outputs
	}
	n.inputWeights, n.stateWeights = take(4*hidden*hidden), take(4*hidden*hidden)
	n.inputBias, n.stateBias = take(4*hidden), take(4*hidden)
	n.outWeights, n.outBiases = take(hidden), take(1)
	return n
})

// Detector detects speech in one stream of audio. It must not be used concurrently.
type Detector struct {
	network *network
	input   [contextLength + FrameLength + contextLength]float32 // the last part mirrors the end of the frame

	output, cell [hidden]float32 // state of the LSTM

	// Buffers of one call of SpeechProbability: a row of features for each step, and the gates of the LSTM.
	spectrum, conv [steps * (bins + 3)]float32
	gates          [4 * hidden]float32
}

// NewDetector returns a detector at the beginning of a stream.
func NewDetector() *Detector { return &Detector{network: loadNetwork()} }

// Reset begins another stream.
func (d *Detector) Reset() { *d = Detector{network: d.network} }

// SpeechProbability returns the probability, 0 to 1, that the next frame of the stream has speech. frame has
// [FrameLength] samples. A call takes about 0.5 ms and does not allocate.
func (d *Detector) SpeechProbability(frame []int16) float32 {
	copy(d.input[:contextLength], d.input[FrameLength:])
	in := d.input[contextLength:]
	for i, s := range frame[:FrameLength] {
		in[i] = float32(s) / 32768
	}
	for i := range contextLength {
		in[FrameLength+i] = in[FrameLength-2-i]
	}
	d.computeSpectrum()
	features, next, length := d.spectrum[:], d.conv[:], steps
	for i := range d.network.layers {
		length = d.network.layers[i].convolve(next, features, length)
		features, next = next, features
	}
	return d.runLSTM(features[:hidden])
}

// computeSpectrum writes the magnitudes of the short-time Fourier transform to d.spectrum.
func (d *Detector) computeSpectrum() {
	width := d.network.layers[0].inputs
	for step := range steps {
		part, row := d.input[step*hop:][:window], d.spectrum[step*width:][:width]
		for bin := range bins {
			re, im := dot(d.network.basis[bin*window:][:window], part), dot(d.network.basis[(bins+bin)*window:][:window], part)
			row[bin] = float32(math.Sqrt(float64(re)*float64(re) + float64(im)*float64(im)))
		}
		clear(row[bins:])
	}
}

// convolve writes the output of the layer for a number of input rows, and returns the number of output rows.
func (l *layer) convolve(out, in []float32, rows int) int {
	short := (rows-1)/l.stride + 1
	for step := range short {
		at := step * l.stride
		row := out[step*l.outputs:][:l.outputs]
		copy(row, l.bias)
		for tap, weights := range l.taps {
			if from := at + tap - 1; from >= 0 && from < rows {
				features := in[from*l.inputs:][:l.inputs]
				for o := range row {
					row[o] += dot(weights[o*l.inputs:][:l.inputs], features)
				}
			}
		}
		for o := range row {
			row[o] = max(row[o], 0)
		}
	}
	return short
}

// runLSTM runs the LSTM and its output layer.
func (d *Detector) runLSTM(in []float32) (probability float32) {
	n := d.network
	for g := range d.gates {
		d.gates[g] = n.inputBias[g] + n.stateBias[g] + dot(n.inputWeights[g*hidden:][:hidden], in) +
			dot(n.stateWeights[g*hidden:][:hidden], d.output[:])
	}
	sum := n.outBiases[0]
	for i := range hidden {
		keep, forget, out := sigmoid(d.gates[i]), sigmoid(d.gates[hidden+i]), sigmoid(d.gates[3*hidden+i])
		d.cell[i] = forget*d.cell[i] + keep*tanh(d.gates[2*hidden+i])
		d.output[i] = out * tanh(d.cell[i])
		sum += n.outWeights[i] * max(d.output[i], 0)
	}
	return sigmoid(sum)
}

func sigmoid(x float32) float32 { return float32(1 / (1 + math.Exp(-float64(x)))) }
func tanh(x float32) float32    { return float32(math.Tanh(float64(x))) }

// dot returns the scalar product of two vectors of equal length, a multiple of 4. It keeps four sums, so that the processor can overlap
// the additions.
func dot(a, b []float32) float32 {
	var s0, s1, s2, s3 float32
	for len(a) >= 4 && len(b) >= 4 {
		s0 += a[0] * b[0]
		s1 += a[1] * b[1]
		s2 += a[2] * b[2]
		s3 += a[3] * b[3]
		a, b = a[4:], b[4:]
	}
	return s0 + s1 + s2 + s3
}
