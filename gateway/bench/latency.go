package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pion/rtp"

	"voxgate/gateway/bench/harness"
	"voxgate/gateway/bench/peer"
	"voxgate/gateway/bench/speech"
	"voxgate/media"
	"voxgate/media/opus"
)

const frame = media.FrameDuration

const (
	// A trial is 400 ms of quiet and a beep that begins somewhere in the 20 ms after. The reply, 150 ms and its trail of
	// silence, is over long before the next beep.
	quietFrames = 20
	trialFrames = 25
	trialLength = trialFrames * frame
	beepLength  = 50 * time.Millisecond

	// warmUpTrials are not counted: code and data are touched for the first time.
	warmUpTrials = 2

	// replyGap is the quiet before a packet that is the onset of a reply.
	replyGap = 100 * time.Millisecond
)

// latency is what was measured of the way from a beep to its answer.
type latency struct {
	mouthToEar []time.Duration // from the beep's first sample to the reply's first packet
	inside     []time.Duration // from the packet that brings the beep to the reply's first packet
	late       []time.Duration // the senders's own lateness, which is in none of both
}

// trial is one beep.
type trial struct {
	spoken time.Time // when the beep's first sample came out of the mouth
	sent   time.Time // when the first packet was sent in which it can be heard
}

// measureLatency beeps and waits for the answers.
func measureLatency(ctx context.Context, o options) (latency, error) {
	s, err := startGateway(ctx, "beep", "") // answers the first loud 20 ms at once
	if err != nil {
		return latency{}, err
	}
	defer s.stop()
	e, err := newEar()
	if err != nil {
		return latency{}, err
	}
	p, err := s.call(ctx, peer.Options{Hear: e.hear})
	if err != nil {
		return latency{}, fmt.Errorf("%w\n%s", err, s.Log())
	}
	defer p.Close()
	m, err := newMicrophone()
	if err != nil {
		return latency{}, err
	}
	trials := make([]trial, o.trials+warmUpTrials)
	late := harness.Pace(ctx, frame, 1, (len(trials)+1)*trialFrames, func(_, i int) {
		if err != nil {
			return
		}
		sent := time.Now()
		p.Send(m.packet)
		m.note(trials, sent)
		err = m.prepare(i + 1)
	})
	switch {
	case ctx.Err() != nil:
		return latency{}, context.Cause(ctx)
	case err != nil:
		return latency{}, err
	case p.Err() != nil:
		return latency{}, p.Err()
	}
	l, err := match(trials[warmUpTrials:], e.onsets(), o.answered)
	l.late = late
	return l, err
}

// microphone makes the packets of the trials, one ahead.
type microphone struct {
	encoder *opus.Encoder
	decoder opus.Decoder // tells what can be heard in a packet
	buf     [1500]byte
	pcm     []int16 // of the packet
	heard   []int16

	packet []byte        // to be sent next
	trial  int           // it belongs to
	onset  time.Duration // of the beep in the packet; negative: it does not begin in it
	loud   bool
}

func newMicrophone() (*microphone, error) {
	encoder, err := opus.NewEncoder(speech.MicRate)
	if err != nil {
		return nil, err
	}
	decoder, err := opus.NewDecoder(speech.MicRate, "")
	if err != nil {
		return nil, err
	}
	m := &microphone{encoder: encoder, decoder: decoder, pcm: make([]int16, speech.FrameSamples(speech.MicRate)), heard: make([]int16, samples(120*time.Millisecond))}
	return m, m.prepare(0)
}

// samples is the length of a sound at the microphone.
func samples(d time.Duration) int { return int(d * speech.MicRate / time.Second) }

// beepOffset is where in its frame the beep of a trial begins. Steps of the golden ratio spread any number of trials evenly.
func beepOffset(trial int) time.Duration {
	_, part := math.Modf(float64(trial) * (math.Sqrt(5) - 1) / 2)
	return time.Duration(part * float64(frame))
}

// prepare makes the packet of frame i.
func (m *microphone) prepare(i int) error {
	m.trial = i / trialFrames
	begin := quietFrames*frame + beepOffset(m.trial)
	at := time.Duration(i%trialFrames) * frame
	first := samples(begin) - samples(at) // the beep's first sample, as counted in this frame
	m.onset = -1
	if first >= 0 && first < len(m.pcm) {
		m.onset = time.Duration(first) * time.Second / speech.MicRate
	}
	for j := range m.pcm {
		m.pcm[j] = int16(rand.IntN(61) - 30) // a quiet room
		if k := j - first; k >= 0 && k < samples(beepLength) {
			m.pcm[j] = int16(16000 * math.Cos(2*math.Pi*440*float64(k)/speech.MicRate))
		}
	}
	n, err := m.encoder.Encode(m.pcm, m.buf[:])
	if err != nil {
		return err
	}
	m.packet = m.buf[:n]
	if n, err = m.decoder.Decode(m.packet, m.heard); err != nil {
		return err
	}
	m.loud = speech.Loud(m.heard[:n])
	return nil
}

// note keeps what the packet that was sent at a time means for its trial.
func (m *microphone) note(trials []trial, sent time.Time) {
	if m.trial >= len(trials) {
		return
	}
	t := &trials[m.trial]
	if m.onset >= 0 {
		t.spoken = sent.Add(m.onset - frame) // a packet is sent when its last sample was spoken
	}
	if m.loud && t.sent.IsZero() {
		t.sent = sent
	}
}

// ear finds the replies in what comes.
type ear struct {
	decoder opus.Decoder
	pcm     []int16
	last    time.Time // a loud packet came

	mu    sync.Mutex
	begun []time.Time
}

func newEar() (*ear, error) {
	decoder, err := opus.NewDecoder(speech.EarRate, "")
	return &ear{decoder: decoder, pcm: make([]int16, speech.EarRate*120/1000)}, err
}

func (e *ear) hear(arrived time.Time, p *rtp.Packet) {
	if len(p.Payload) == 0 {
		return
	}
	n, err := e.decoder.Decode(p.Payload, e.pcm)
	if err != nil || !speech.Loud(e.pcm[:n]) {
		return
	}
	if arrived.Sub(e.last) > replyGap {
		e.mu.Lock()
		e.begun = append(e.begun, arrived)
		e.mu.Unlock()
	}
	e.last = arrived
}

// onsets are the times at which the first packets of the replies came.
func (e *ear) onsets() []time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.begun)
}

// match finds each trial's reply: the first that begins between its beep and the next one.
func match(trials []trial, onsets []time.Time, answered float64) (latency, error) {
	var l latency
	for _, t := range trials {
		i := slices.IndexFunc(onsets, func(at time.Time) bool { return at.After(t.spoken) && at.Before(t.spoken.Add(trialLength-frame)) })
		if i < 0 || t.sent.IsZero() {
			continue
		}
		l.mouthToEar = append(l.mouthToEar, onsets[i].Sub(t.spoken))
		l.inside = append(l.inside, onsets[i].Sub(t.sent))
	}
	if n := len(l.mouthToEar); n == 0 || float64(n) < answered*float64(len(trials)) {
		return l, fmt.Errorf("%d of %d beeps were answered", n, len(trials))
	}
	return l, nil
}
