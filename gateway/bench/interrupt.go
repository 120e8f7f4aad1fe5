package bench

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/pion/rtp"

	"voxgate/gateway/bench/harness"
	"voxgate/gateway/bench/model"
	"voxgate/gateway/bench/peer"
	"voxgate/gateway/bench/speech"
	"voxgate/media/opus"
)

const (
	// An interruption comes somewhere in the 20 ms after the voice has been heard for so long, and is over before the next.
	voiceBefore  = 300 * time.Millisecond
	silenceAfter = 250 * time.Millisecond
	answerLength = time.Second // far more than is heard of it

	answerPitch = 440
	answerPeak  = 12000
)

// measureInterruption has the model interrupt its answers, and returns how long the voice goes on arriving after that.
func measureInterruption(ctx context.Context, trials int) ([]time.Duration, error) {
	m, gateway, err := model.Start(ctx, "")
	if err != nil {
		return nil, err
	}
	defer m.Close()
	defer gateway.Stop()
	e, err := newLastLoud()
	if err != nil {
		return nil, err
	}
	const name = "interrupted"
	p, err := peer.Call(ctx, gateway.URL, peer.Options{Hear: e.hear, Open: model.Opening(name)})
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, gateway.Log())
	}
	defer p.Close()
	l := <-m.Line(name)
	var took []time.Duration
	for i := range trials + warmUpTrials {
		after, err := interrupt(ctx, l, e, beepOffset(i))
		if err != nil {
			return nil, fmt.Errorf("trial %d: %w", i, err)
		}
		if i >= warmUpTrials {
			took = append(took, after)
		}
	}
	return took, p.Err()
}

// interrupt has the model begin an answer and interrupt it, and returns how long after that the last of the voice came.
func interrupt(ctx context.Context, l *model.Line, e *lastLoud, offset time.Duration) (time.Duration, error) {
	begun := time.Now()
	if err := l.Say(answerTone()); err != nil {
		return 0, err
	}
	if err := harness.Sleep(ctx, time.Until(begun.Add(voiceBefore+offset))); err != nil {
		return 0, err
	}
	at := time.Now()
	if err := l.Interrupt(); err != nil {
		return 0, err
	}
	if err := harness.Sleep(ctx, silenceAfter); err != nil {
		return 0, err
	}
	last := e.last()
	switch {
	case last.Before(begun):
		return 0, fmt.Errorf("the answer was not heard")
	case time.Since(last) < silenceAfter/4:
		return 0, fmt.Errorf("the voice goes on")
	}
	return max(0, last.Sub(at)), nil
}

// answerTone is an answer that is loud all the time.
var answerTone = sync.OnceValue(func() []int16 {
	pcm := make([]int16, speech.EarRate*int(answerLength/time.Second))
	for i := range pcm {
		pcm[i] = int16(answerPeak * math.Sin(2*math.Pi*answerPitch*float64(i)/speech.EarRate))
	}
	return pcm
})

// lastLoud keeps when the last packet came in which something is heard.
type lastLoud struct {
	decoder opus.Decoder
	pcm     []int16

	mu sync.Mutex
	at time.Time
}

func newLastLoud() (*lastLoud, error) {
	decoder, err := opus.NewDecoder(speech.EarRate, "")
	return &lastLoud{decoder: decoder, pcm: make([]int16, speech.EarRate*120/1000)}, err
}

func (e *lastLoud) hear(arrived time.Time, p *rtp.Packet) {
	if len(p.Payload) == 0 {
		return
	}
	if n, err := e.decoder.Decode(p.Payload, e.pcm); err == nil && speech.Loud(e.pcm[:n]) {
		e.mu.Lock()
		e.at = arrived
		e.mu.Unlock()
	}
}

func (e *lastLoud) last() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at
}
