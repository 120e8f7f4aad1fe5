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
	replyGap    = 100 * time.Millisecond // of quiet before a packet that begins a reply

	// warmUp is how many trials are not counted: code and data are touched for the first time.
	warmUp = 2
	// answered is the least share of replies that must come for a figure to count.
	answered = 0.99
)

// tempo says how long the parts of a trial take.
type tempo struct {
	// A trial is quiet, all but 100 ms of it, and a beep that begins somewhere in the packet after. The reply, 150 ms and its trail of
	// silence, is over before the next beep.
	trial time.Duration
	// An interruption comes somewhere in the 20 ms after the voice has been heard for so long, and is over before the next.
	voiceBefore, silenceAfter time.Duration
}

// anyTempo is for subjects that need a second.
var anyTempo = tempo{1500 * time.Millisecond, 1500 * time.Millisecond, 1500 * time.Millisecond}

func (t tempo) quiet() time.Duration { return t.trial - 100*time.Millisecond }

// latency is what was measured of the way from a beep to its answer.
type latency struct {
	mouthToEar []time.Duration // from the beep's first sample to the reply's first packet
	late       []time.Duration // of the sender itself, which is not in it
	cut        []time.Duration // from the model's "interrupted" to the last of its voice
}

// offset is where in its packet a trial begins. Steps of the golden ratio spread any number of trials evenly.
func offset(trial int) time.Duration {
	_, part := math.Modf(float64(trial) * (math.Sqrt(5) - 1) / 2)
	return time.Duration(part * float64(frame))
}

// beeps returns when each of n beeps begins, counted from the begin of the first frame of all, and the frames, at a rate. A packet is sent
// when its frame is over.
func (p tempo) beeps(n, rate int) (spoken []time.Duration, frames [][]int16) {
	each := int(p.trial / frame)
	for i := range n {
		t := time.Duration(i)*p.trial + p.quiet() + offset(i)
		for j := i * each; j < (i+1)*each; j++ {
			pcm := make([]int16, media.Samples(frame, rate))
			first := media.Samples(t, rate) - j*len(pcm) // the beep's first sample, as counted in this frame
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

// beepForBeep has the model answer the first loud 20 ms at once.
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

// measureLatency beeps and waits for the answers of a model that answers beep for beep. Then the model interrupts answers of its own, if
// there is a model.
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

// interruptions is how many there are.
func (o options) interruptions() int { return max(2, o.trials/5) }

// match finds each trial's reply: the first that begins between its beep and the next one.
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

// interrupt has the model interrupt its answers, and returns how long the voice goes on arriving after that. An answer that is not heard,
// or does not end, has no figure; the error is of the last of those.
func (p tempo) interrupt(ctx context.Context, s *session, hears *loudness, trials int) (took []time.Duration, failed error) {
	answer := saying(mediatest.Tone(4*p.voiceBefore, voiceRate, 440, 12000), "") // far more than is heard of it
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

// loudness keeps when something is heard in packets.
type loudness struct {
	*listener
	mu     sync.Mutex
	begun  []time.Time // after a gap
	newest time.Time
	came   chan time.Time // if there is one, it gets what fits of begun
}

func (l *loudness) hear(at time.Time, p *rtp.Packet) {
	if loud(l.decode(p.Payload)) {
		l.note(at)
	}
}

// note notes that something is heard.
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
