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

	"voxgate/media"
	"voxgate/media/mediatest"
)

const (
	beepLength  = 50 * time.Millisecond
	replyLength = 150 * time.Millisecond
	replyGap    = 100 * time.Millisecond // silence before a packet that begins a reply

	// warmUp is the number of first trials that are not counted, because code and caches are cold.
	warmUp = 2
	// answered is the minimum share of replies for a valid figure.
	answered = 0.99
)

// tempo holds the durations of the phases of a trial.
type tempo struct {
	// A trial is silence, except for its last 100 ms, and a beep that begins somewhere in the next packet. The reply, 150 ms and some
	// silence, ends before the next beep.
	trial time.Duration
	// An interruption begins within 20 ms after voiceBefore of the voice. silenceAfter follows it.
	voiceBefore, silenceAfter time.Duration
}

// anyTempo is for subjects with replies within a second.
var anyTempo = tempo{1500 * time.Millisecond, 1500 * time.Millisecond, 1500 * time.Millisecond}

func (t tempo) quiet() time.Duration { return t.trial - 100*time.Millisecond }

// latency holds the measurements from beeps to replies, and of interruptions.
type latency struct {
	mouthToEar []time.Duration // from the beep's first sample to the reply's first packet
	late       []time.Duration // delays of the sender itself, which are not included
	cut        []time.Duration // from the model's "interrupted" to the last packet of its voice
}

// offset returns the start of a trial's beep in its packet. Steps of the golden ratio spread any number of trials evenly.
func offset(trial int) time.Duration {
	_, part := math.Modf(float64(trial) * (math.Sqrt(5) - 1) / 2)
	return time.Duration(part * float64(frame))
}

// beeps returns the starts of n beeps, from the start of the first frame, and the frames at a rate in Hz. A packet is sent at the end of
// its frame.
func (p tempo) beeps(n, rate int) (spoken []time.Duration, frames [][]int16) {
	each := int(p.trial / frame)
	for i := range n {
		t := time.Duration(i)*p.trial + p.quiet() + offset(i)
		for j := i * each; j < (i+1)*each; j++ {
			pcm := make([]int16, media.Samples(frame, rate))
			first := media.Samples(t, rate) - j*len(pcm) // index of the beep's first sample in this frame
			for k := range pcm {
				pcm[k] = int16(rand.IntN(61) - 30) // a quiet room
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

// encoded returns the packets of frames at micRate.
func encoded(frames [][]int16) (packets [][]byte) {
	encoder := newMicrophone()
	for _, pcm := range frames {
		packets = append(packets, slices.Clone(encoder.encode(pcm)))
	}
	return packets
}

// beepForBeep makes the model reply at once to the first loud 20 ms after a pause.
func (m *model) beepForBeep() {
	reply := saying(mediatest.Tone(replyLength, voiceRate, 440, 12000), "beep")
	m.listen(func(s *session, pcm []int16) {
		if now := time.Now(); loud(pcm) {
			if now.Sub(s.lastLoud) > replyGap {
				s.send(reply, generated, turnOver)
			}
			s.lastLoud = now
		}
	})
}

// measureLatency sends beeps and waits for the replies of the model. Then the model interrupts its own answers, unless the subject has no
// model.
func measureLatency(ctx context.Context, o options, stage *stage, p tempo) (latency, error) {
	stage.model.beepForBeep()
	hears := &loudness{listener: newListener(voiceRate)}
	c, err := stage.call(ctx, callOptions{hear: hears.hear})
	if err != nil {
		return latency{}, err
	}
	defer c.close()
	trials, frames := p.beeps(o.trials+warmUp, micRate)
	packets := encoded(frames)
	var sent []time.Time
	late := pace(ctx, frame, 1, len(packets), func(_, i int) {
		sent = append(sent, time.Now())
		c.speak(packets[i])
	})
	if err := sleep(ctx, replyLength); err != nil {
		return latency{}, err
	}
	l, missed := p.match(trials[warmUp:], sent, hears.begins())
	l.late = late
	if len(l.mouthToEar) == 0 || stage.cannot["barge"] != "" {
		return l, errors.Join(missed, c.err())
	}
	s, err := stage.session(ctx, c)
	if err != nil {
		return l, errors.Join(missed, err)
	}
	l.cut, err = p.interrupt(ctx, s, hears, o.interruptions())
	return l, errors.Join(missed, err, c.err())
}

// interruptions returns the number of interruptions.
func (o options) interruptions() int { return max(2, o.trials/5) }

// match finds the reply of each trial: the first that begins between its beep and the next one.
func (p tempo) match(trials []time.Duration, sent, replies []time.Time) (latency, error) {
	var l latency
	for _, t := range trials {
		in := int(t / frame)
		spoken := sent[in].Add(t - time.Duration(in+1)*frame)
		i := slices.IndexFunc(replies, func(at time.Time) bool { return at.After(spoken) && at.Before(spoken.Add(p.trial-frame)) })
		if i >= 0 {
			l.mouthToEar = append(l.mouthToEar, replies[i].Sub(spoken))
		}
	}
	if n := len(l.mouthToEar); n == 0 || float64(n) < answered*float64(len(trials)) {
		return l, fmt.Errorf("%d of %d beeps were answered", n, len(trials))
	}
	return l, nil
}

// interrupt makes the model interrupt its answers, and returns how long the voice still arrives after that. An answer that does not arrive,
// or does not end, has no figure; failed describes the last of these.
func (p tempo) interrupt(ctx context.Context, s *session, hears *loudness, trials int) (took []time.Duration, failed error) {
	answer := saying(mediatest.Tone(4*p.voiceBefore, voiceRate, 440, 12000), "") // far more than is played
	for i := range trials + warmUp {
		begun := time.Now()
		if err := s.send(answer); err != nil {
			return took, err
		}
		sleep(ctx, time.Until(begun.Add(p.voiceBefore+offset(i))))
		at := time.Now()
		if err := s.send(interrupted, turnOver); err != nil {
			return took, err
		}
		if err := sleep(ctx, p.silenceAfter); err != nil {
			return took, err
		}
		switch last := hears.last(); {
		case last.Before(begun):
			failed = fmt.Errorf("answer %d was not heard", i)
		case time.Since(last) < p.silenceAfter/4:
			failed = fmt.Errorf("the voice of answer %d goes on", i)
		case i >= warmUp:
			took = append(took, max(0, last.Sub(at)))
		}
	}
	return took, failed
}

// loudness records when loud audio arrives.
type loudness struct {
	*listener
	mu     sync.Mutex
	begun  []time.Time // starts after a gap of replyGap
	newest time.Time
	came   chan time.Time // if not nil, receives new values of begun, unless it is full
}

func (l *loudness) hear(at time.Time, p *rtp.Packet) {
	if loud(l.decode(p.Payload)) {
		l.note(at)
	}
}

// note records loud audio.
func (l *loudness) note(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.Sub(l.newest) > replyGap {
		l.begun = append(l.begun, at)
		select {
		case l.came <- at:
		default:
		}
	}
	l.newest = at
}

func (l *loudness) begins() []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.begun)
}

func (l *loudness) last() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest
}
