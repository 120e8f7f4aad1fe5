package main

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"voxgate/bridge/turns"
	"voxgate/media"
	"voxgate/media/prosody"
	"voxgate/media/silero"
	"voxgate/media/smartturn"
	"voxgate/media/vad"
)

const (
	// judgeLatency is the time in which the network answers.
	judgeLatency = 40 * time.Millisecond
	// answerLatency is the time from the end of a turn to the answer's first sound, where a run has answers.
	answerLatency = 500 * time.Millisecond
	playLevel     = -30 // of the answer, in dBov: steady, so that nothing looks like its echo
)

// event is an action of the machine, at a position in the audio.
type event struct {
	turns.Action
	at int // in samples
}

// verdict is the judgement about the audio before a pause.
type verdict struct{ prosody, both, network float64 }

// judgement asks prosody and the network about the pauses of an item, each once.
type judgement struct {
	judge *smartturn.Judge // or nil
	pcm   []int16
	at    map[int]verdict
}

func (j *judgement) ask(at int) verdict {
	if v, isKnown := j.at[at]; isKnown {
		return v
	}
	pcm := j.pcm[max(0, at-4*rate):at]
	v := verdict{prosody: float64(prosody.Predict(pcm))}
	if j.judge != nil {
		var err error
		if v.both, v.network, err = j.judge.Predict(pcm); err != nil {
			panic(err) // the model worked when it was loaded
		}
	}
	j.at[at] = v
	return v
}

// conversation is a conversation whose person is a recording. It does what bridge/uplink does with the machine.
type conversation struct {
	judgement  *judgement
	hasJudge   bool // whether the network is asked
	hasAnswers bool // whether each turn is answered after answerLatency

	machine    *turns.Machine
	vad        vad.Detector
	ear        *silero.Detector
	isEarOn    bool
	verdict    turns.Ear
	pending    []int16
	answerAt   time.Duration // when the next answer begins, or 0
	isSounding bool
	answers    []int // positions where answers began
	events     []event

	pause     uint32
	verdictAt time.Duration // when the network's verdict comes, or 0
	finished  float64
}

func newConversation(s turns.Settings, j *judgement, hasJudge bool) *conversation {
	s.By = turns.ByGateway
	return &conversation{
		judgement: j, hasJudge: hasJudge, machine: turns.New(s), vad: vad.Detector{Hangover: time.Nanosecond}, ear: silero.NewDetector(),
	}
}

// play runs the machine over the recording and returns its actions.
func (c *conversation) play() []event {
	pcm := c.judgement.pcm
	for at := frame; at <= len(pcm); at += frame {
		now := media.Duration(at, rate)
		part := pcm[at-frame : at]
		c.vad.ProcessFrame(part, rate)
		c.listen(part)
		if c.answerAt > 0 && now >= c.answerAt {
			c.isSounding, c.answerAt = true, 0
			c.answers = append(c.answers, at)
		}
		if c.verdictAt > 0 && now >= c.verdictAt {
			c.machine.RecordVerdict(c.pause, c.finished, true)
			c.verdictAt = 0
		}
		f := turns.Frame{
			At: now, Voice: c.vad.SilenceDuration() == 0, Ear: c.verdict, Level: decibels(media.RMS(part)),
			Sounding: c.isSounding, PlayLevel: playLevel,
		}
		for _, a := range c.machine.ProcessFrame(f) {
			c.events = append(c.events, event{a, at})
			c.handle(a, at, now)
		}
	}
	return c.events
}

func (c *conversation) handle(a turns.Action, at int, now time.Duration) {
	switch a.Kind {
	case turns.AskEar:
		c.ear.Reset()
		c.isEarOn, c.verdict, c.pending = true, turns.Unknown, c.pending[:0]
		c.listen(c.judgement.pcm[max(0, at-media.Samples(a.Back, rate)):at])
	case turns.ReleaseEar:
		c.isEarOn, c.verdict = false, turns.Unknown
	case turns.AskJudge:
		v := c.judgement.ask(at)
		c.machine.RecordVerdict(a.Pause, v.prosody, !c.hasJudge)
		if c.hasJudge {
			c.pause, c.finished, c.verdictAt = a.Pause, v.both, now+judgeLatency
		}
	case turns.End:
		if c.hasAnswers {
			c.answerAt = now + answerLatency
		}
	case turns.Retract, turns.Cut:
		c.answerAt, c.isSounding = 0, false
	}
}

// listen gives audio to the second detector.
func (c *conversation) listen(pcm []int16) {
	if !c.isEarOn {
		return
	}
	c.pending = append(c.pending, pcm...)
	for len(c.pending) >= silero.FrameLength {
		c.verdict = turns.OtherSound
		if c.ear.Probability(c.pending[:silero.FrameLength]) >= 0.5 {
			c.verdict = turns.Speech
		}
		c.pending = slices.Delete(c.pending, 0, silero.FrameLength)
	}
}

func decibels(rms float64) float64 { return 20 * math.Log10(max(rms, 1)/32768) }

// forEach calls f for all items, several at once.
func forEach(items []item, f func(i int, it item)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range next {
				f(i, items[i])
			}
		})
	}
	for i := range items {
		next <- i
	}
	close(next)
	workers.Wait()
}
