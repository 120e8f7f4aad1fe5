package main

import (
	"bytes"
	"fmt"
	"go/format"
	"math"
	"os"
	"slices"
	"time"

	"voxgate/media/prosody"
	"voxgate/media/smartturn"
	"voxgate/media/vad"
)

const count = prosody.FeatureCount

// example is a pause for the training, with the correct answer.
type example struct {
	features    [count]float32
	kind, voice string
	target      float64 // 1: the person has finished
	network     float64 // log odds by the network
}

const askAt = 200 * time.Millisecond

// detectPauses returns the positions at which the uplink's detector finds that a pause has lasted 200 ms.
func detectPauses(it item) (positions []int) {
	d := &vad.Detector{Onset: 60 * time.Millisecond, Hangover: time.Hour}
	isAsked := false
	for i := 0; i+frame <= len(it.pcm); i += frame {
		isSpeaking := d.ProcessFrame(it.pcm[i:i+frame], rate)
		switch quiet := d.SilenceDuration(); {
		case quiet == 0:
			isAsked = false
		case isSpeaking && quiet >= askAt && !isAsked:
			isAsked = true
			positions = append(positions, i+frame)
		}
	}
	return positions
}

// buildExamples returns the pauses in items that last 200 ms or more, as the detector finds them. It skips pauses
// between sentences, because they are neither pauses within a sentence nor ends of turns. judge may be nil.
func buildExamples(items []item, judge *smartturn.Judge) (examples []example, err error) {
	for _, it := range items {
		if it.kind == "pause" || it.kind == "natural" {
			continue
		}
		for _, at := range detectPauses(it) {
			pcm := it.pcm[max(0, at-4*rate):at]
			e := example{features: prosody.Features(pcm), kind: it.kind, voice: it.voice}
			isEnd := it.kind == "ends" && at > it.end
			if isEnd {
				e.target = 1
			}
			if isEnd || it.isInPause(at) {
				if judge != nil {
					_, p, err := judge.Predict(pcm)
					if err != nil {
						return nil, err
					}
					e.network = logit(p)
				}
				examples = append(examples, e)
			}
			if at > it.end {
				break
			}
		}
	}
	return examples, nil
}

// The turn machine compares the probability of an end with two thresholds. If the probability is above quickest, it
// reports the end at once. If it is above likely, it waits for the second length of silence.
const quickest, likely = 0.8, 0.3

// The shares of the ends in the training half that must exceed a threshold.
//
// quickShare was chosen with models of prosody that were trained without the voice in question. With normal patience, an end
// is then reported in 18 % of the unfinished prompts, and an answer begins in 2 %. With 0.45 these are 23 and 7 %, and ends
// are reported 60 ms earlier in the mean.
const (
	prosodyShare = 0.5 // share that must exceed quickest, by prosody alone
	quickShare   = 0.3 // share that must exceed quickest, with the network
	likelyShare  = 0.6 // share that must exceed likely, with the network
)

// standardize scales each feature to the mean 0 and the standard deviation 1. It returns the mean and the deviation of the
// unscaled features.
func standardize(examples []example) (mean, deviation [count]float64) {
	n := float64(len(examples))
	for _, e := range examples {
		for i, x := range e.features {
			mean[i] += float64(x) / n
		}
	}
	for _, e := range examples {
		for i, x := range e.features {
			deviation[i] += (float64(x) - mean[i]) * (float64(x) - mean[i]) / n
		}
	}
	for i := range deviation {
		deviation[i] = math.Sqrt(deviation[i]) + 1e-6
	}
	for k := range examples {
		for i, x := range examples[k].features {
			examples[k].features[i] = float32((float64(x) - mean[i]) / deviation[i])
		}
	}
	return mean, deviation
}

// fitLogistic returns the coefficients of a logistic regression, by gradient descent. All ends together have the same
// weight as all other pauses together.
func fitLogistic(examples []example) (w [count]float64, bias float64) {
	share := map[string]float64{}
	for _, e := range examples {
		share[e.kind]++
	}
	for kind, n := range share {
		share[kind] = 0.25 / n
		if kind == "ends" {
			share[kind] = 0.5 / n
		}
	}
	for range 3000 {
		var slope [count]float64
		biasSlope := 0.0
		for _, e := range examples {
			miss := (e.target - 1/(1+math.Exp(-bias-dotProduct(w, e)))) * share[e.kind]
			biasSlope += miss
			for i, x := range e.features {
				slope[i] += miss * float64(x)
			}
		}
		bias += biasSlope * 0.5
		for i := range w {
			w[i] += (slope[i] - 0.003*w[i]) * 0.5 // weight decay
		}
	}
	return w, bias
}

func dotProduct(w [count]float64, e example) (sum float64) {
	for i, x := range e.features {
		sum += w[i] * float64(x)
	}
	return sum
}

// train fits the models, and writes their coefficients to the files of two packages. Without a judge it does not change
// judgeFile.
func train(items []item, judge *smartturn.Judge, prosodyFile, judgeFile string) error {
	examples, err := buildExamples(items, judge)
	if err != nil {
		return err
	}
	mean, deviation := standardize(examples)
	w, rawBias := fitLogistic(examples)
	var sums []float64
	for _, e := range examples {
		if e.target == 1 {
			sums = append(sums, dotProduct(w, e))
		}
	}
	slices.Sort(sums)
	bias := logit(quickest) - quantile(sums, 1-prosodyShare)
	shift := bias - rawBias
	var out bytes.Buffer
	header := fmt.Sprintf("// Code generated by \"lab turns train\" from %d ends and %d pauses. DO NOT EDIT.\n\n",
		len(sums), len(examples)-len(sums))
	out.WriteString(header)
	for i := range w {
		w[i] /= deviation[i]
		bias -= w[i] * mean[i]
	}
	fmt.Fprintf(&out, "package prosody\n\nconst bias = %.5g\n\nvar weights = [FeatureCount]float32{\n", bias)
	for _, x := range w {
		fmt.Fprintf(&out, "%.5g,\n", x)
	}
	out.WriteString("}\n")
	if err := writeSource(prosodyFile, out.Bytes()); err != nil || judge == nil {
		return err
	}
	weight, bothBias := fitCombination(examples, shift)
	out.Reset()
	out.WriteString(header)
	fmt.Fprintf(&out, "package smartturn\n\nconst weight, bias = %.4g, %.4g\n", weight, bothBias)
	return writeSource(judgeFile, out.Bytes())
}

func writeSource(file string, source []byte) error {
	source, err := format.Source(source)
	if err != nil {
		return err
	}
	return os.WriteFile(file, source, 0o644)
}

// fitCombination returns the weight of the log odds of prosody and of the network, and the bias. It returns only one
// weight, because prosody and the network get the same. A fit to the training half would give the network 0.43 of the
// weight of prosody.
//
// That fit is not used, because it is hardly better even in the training half: with both weightings, the areas under
// the curve are 0.88 (mid-phrase) and 0.74 (after unfinished prompts). Also, the training half has no spontaneous
// speech, which prosody cannot judge.
//
// The bias comes from models of prosody that were trained without the voice in question: other models would look better
// than they are. shift is added to the log odds of these models.
func fitCombination(examples []example, shift float64) (weight, bias float64) {
	var sums []float64
	for _, voice := range distinctVoices(examples) {
		others := slices.DeleteFunc(slices.Clone(examples), func(e example) bool { return e.voice == voice })
		w, b := fitLogistic(others)
		for _, e := range examples {
			if e.voice == voice && e.target == 1 {
				sums = append(sums, b+dotProduct(w, e)+shift+e.network)
			}
		}
	}
	slices.Sort(sums)
	high, middle := quantile(sums, 1-quickShare), quantile(sums, 1-likelyShare)
	weight = (logit(quickest) - logit(likely)) / (high - middle)
	return weight, logit(quickest) - weight*high
}

func distinctVoices(examples []example) (voices []string) {
	for _, e := range examples {
		if !slices.Contains(voices, e.voice) {
			voices = append(voices, e.voice)
		}
	}
	return voices
}

func quantile(sorted []float64, share float64) float64 {
	return sorted[int(share*float64(len(sorted)))]
}

// logit returns the logarithm of the odds.
func logit(p float64) float64 {
	p = min(max(p, 1e-6), 1-1e-6)
	return math.Log(p / (1 - p))
}
