package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pion/rtp"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
)

const (
	beepLength  = 50 * time.Millisecond
	replyLength = 150 * time.Millisecond
	replyGap    = 100 * time.Millisecond // silence before a packet that begins a reply

	// warmUp is the number of trials at the start that are not counted, because code and caches are still cold.
	warmUp = 2
	// minAnswered is the minimum share of replies for a valid figure.
	minAnswered = 0.99
)

// trialTiming holds the durations of the phases of a trial.
type trialTiming struct {
	// trial is the duration of a trial. A trial is silent until its last 100 ms, and its beep begins in the first packet
	// of these 100 ms. The reply (150 ms) arrives in the silence of the next trial, and ends before its beep.
	trial time.Duration
	// voiceBefore is the time from the start of an answer until the model interrupts it. In each trial, a delay of up
	// to 20 ms is added.
	voiceBefore  time.Duration
	silenceAfter time.Duration // silence after the interruption
}

// slowTrialTiming is for subjects that take up to a second to reply.
var slowTrialTiming = trialTiming{1500 * time.Millisecond, 1500 * time.Millisecond, 1500 * time.Millisecond}

func (tt trialTiming) silenceBefore() time.Duration { return tt.trial - 100*time.Millisecond }

// latency holds the times from beeps to replies, and from interruptions to the end of the voice.
type latency struct {
	mouthToEar []time.Duration // from the beep's first sample to the reply's first packet
	delays     []time.Duration // delays of the sender itself, which are not included
	cut        []time.Duration // from the model's "interrupted" to the last packet of its voice
}

// beepOffset returns the position of a trial's beep within its packet. Multiples of the golden ratio spread the
// positions evenly, however many trials there are.
func beepOffset(trial int) time.Duration {
	_, part := math.Modf(float64(trial) * (math.Sqrt(5) - 1) / 2)
	return time.Duration(part * float64(frame))
}

// makeBeeps returns the frames of n trials at a rate in Hz, and the times at which the beeps start, counted from the
// start of the first frame. A packet is sent at the end of its frame.
func (tt trialTiming) makeBeeps(n, rate int) (spoken []time.Duration, frames [][]int16) {
	each := int(tt.trial / frame)
	for i := range n {
		t := time.Duration(i)*tt.trial + tt.silenceBefore() + beepOffset(i)
		for j := i * each; j < (i+1)*each; j++ {
			pcm := make([]int16, media.Samples(frame, rate))
			first := media.Samples(t, rate) - j*len(pcm) // index of the beep's first sample in this frame
			for k := range pcm {
				pcm[k] = int16(rand.IntN(61) - 30) // noise of a quiet room
				if at := k - first; at >= 0 && at < media.Samples(beepLength, rate) {
					pcm[k] = int16(16000 * math.Cos(2*math.Pi*440*float64(at)/float64(rate)))
				}
			}
			frames = append(frames, pcm)
		}
		spoken = append(spoken, t)
	}
	return spoken, frames
}

// encodeFrames returns the packets of frames at micRate.
func encodeFrames(frames [][]int16) (packets [][]byte) {
	encoder := newLowDelayTalker()
	for _, pcm := range frames {
		packets = append(packets, slices.Clone(encoder.encodeFrame(pcm)))
	}
	return packets
}

// answerBeeps makes the model reply at once to the first loud 20 ms after a pause.
func (m *model) answerBeeps() {
	reply := voiceMessage(mediatest.Tone(replyLength, voiceRate, 440, 12000), "beep")
	m.setListener(func(s *session, pcm []int16) {
		if now := time.Now(); isLoud(pcm) {
			if now.Sub(s.lastLoud) > replyGap {
				s.sendToSubject(reply, generationCompleteMessage, turnCompleteMessage)
			}
			s.lastLoud = now
		}
	})
}

// measureLatency sends beeps and measures the replies of the model. Then it makes the model interrupt its own answers
// and measures that, unless the subject has no model.
func measureLatency(ctx context.Context, o options, stage *stage, p trialTiming) (latency, error) {
	stage.model.answerBeeps()
	voice := &loudness{listener: newListener(voiceRate)}
	c, err := stage.placeCall(ctx, callOptions{hear: voice.hearPacket})
	if err != nil {
		return latency{}, err
	}
	defer c.close()
	trials, frames := p.makeBeeps(o.trials+warmUp, micRate)
	packets := encodeFrames(frames)
	var sent []time.Time
	delays := paceFrames(ctx, frame, 1, len(packets), func(_, i int) {
		sent = append(sent, time.Now())
		c.sendPacket(packets[i])
	})
	if err := sleep(ctx, replyLength); err != nil {
		return latency{}, err
	}
	l, missed := p.matchReplies(trials[warmUp:], sent, voice.startTimes())
	l.delays = delays
	if len(l.mouthToEar) == 0 || stage.cannot["barge"] != "" {
		return l, errors.Join(missed, c.err())
	}
	s, err := stage.awaitSession(ctx, c)
	if err != nil {
		return l, errors.Join(missed, err)
	}
	l.cut, err = p.measureInterruptions(ctx, s, voice, o.interruptionCount())
	return l, errors.Join(missed, err, c.err())
}

// interruptionCount returns the number of interruptions.
func (o options) interruptionCount() int { return max(2, o.trials/5) }

// matchReplies finds the reply of each trial. It is the first reply that begins after the trial's beep and before the
// next beep.
func (tt trialTiming) matchReplies(trials []time.Duration, sent, replies []time.Time) (latency, error) {
	var l latency
	for _, t := range trials {
		in := int(t / frame)
		spoken := sent[in].Add(t - time.Duration(in+1)*frame)
		i := slices.IndexFunc(replies, func(at time.Time) bool { return at.After(spoken) && at.Before(spoken.Add(tt.trial-frame)) })
		if i >= 0 {
			l.mouthToEar = append(l.mouthToEar, replies[i].Sub(spoken))
		}
	}
	if n := len(l.mouthToEar); n == 0 || float64(n) < minAnswered*float64(len(trials)) {
		return l, fmt.Errorf("%d of %d beeps were answered", n, len(trials))
	}
	return l, nil
}

// measureInterruptions makes the model interrupt its answers. It returns how long the voice still arrived after each
// interruption. lastErr describes the last answer for which this could not be measured.
func (tt trialTiming) measureInterruptions(
	ctx context.Context, s *session, voice *loudness, trials int,
) (took []time.Duration, lastErr error) {
	answer := voiceMessage(mediatest.Tone(4*tt.voiceBefore, voiceRate, 440, 12000), "") // far longer than the part that is played
	for i := range trials + warmUp {
		start := time.Now()
		if err := s.sendToSubject(answer); err != nil {
			return took, err
		}
		sleep(ctx, time.Until(start.Add(tt.voiceBefore+beepOffset(i))))
		at := time.Now()
		if err := s.sendToSubject(interruptedMessage, turnCompleteMessage); err != nil {
			return took, err
		}
		if err := sleep(ctx, tt.silenceAfter); err != nil {
			return took, err
		}
		switch last := voice.newestTime(); {
		case last.Before(start):
			lastErr = fmt.Errorf("the caller did not hear answer %d", i)
		case time.Since(last) < tt.silenceAfter/4:
			lastErr = fmt.Errorf("the voice of answer %d continues after its interruption", i)
		case i >= warmUp:
			took = append(took, max(0, last.Sub(at)))
		}
	}
	return took, lastErr
}

// loudness records when loud audio arrives.
type loudness struct {
	*listener
	mu      sync.Mutex
	starts  []time.Time // starts after a gap of replyGap
	newest  time.Time
	started chan time.Time // if not nil, receives new values of starts, unless it is full
}

func (l *loudness) hearPacket(at time.Time, p *rtp.Packet) {
	if isLoud(l.decodePacket(p.Payload)) {
		l.recordLoud(at)
	}
}

// recordLoud records loud audio.
func (l *loudness) recordLoud(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.Sub(l.newest) > replyGap {
		l.starts = append(l.starts, at)
		select {
		case l.started <- at:
		default:
		}
	}
	l.newest = at
}

func (l *loudness) startTimes() []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.starts)
}

func (l *loudness) newestTime() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest
}
