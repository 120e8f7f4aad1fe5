package record

import (
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"
)

type nowhere struct{ io.Writer }

func (nowhere) Close() error { return nil }

// BenchmarkRecording records a second of both sides an operation, without the goroutine and its queue.
func BenchmarkRecording(b *testing.B) {
	for _, from := range []int{16000, 48000} {
		b.Run(fmt.Sprint(from), func(b *testing.B) {
			r := &Recording{began: time.Now(), line: &timeline{}, out: nowhere{}}
			if err := r.open(io.Discard); err != nil {
				b.Fatal(err)
			}
			said, answered := make([]int16, from/50), make([]int16, frameSamples)
			for _, pcm := range [][]int16{said, answered} { // as hard to encode as anything
				for i := range pcm {
					pcm[i] = int16(3000 * rand.NormFloat64())
				}
			}
			b.ReportAllocs()
			at := r.began
			one, two := &piece{person, said, from, at}, &piece{model, answered, rate, at}
			for b.Loop() {
				for range 50 {
					one.at, two.at = at, at
					r.take(one)
					r.take(two)
					at = at.Add(20 * time.Millisecond)
				}
				r.write(samplesBetween(r.began, at) - hold)
			}
			if r.err != nil {
				b.Fatal(r.err)
			}
		})
	}
}
