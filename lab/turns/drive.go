package main

import (
	"math"
	"runtime"
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
	// judgeLatency is the time that the end-of-turn network needs for an answer.
	judgeLatency = 40 * time.Millisecond
	// answerLatency is the time from the end of a turn to the answer's first sound, in runs with answers.
	answerLatency = 500 * time.Millisecond
	// firstVerdicts is the minimum number of frames (0.5 s) that a run of the second detector covers. It saves time,
	// because each run begins again at the first frame.
	firstVerdicts = 16
	playLevel     = -30 // level of the answer in dBov; constant, so that no sound looks like its echo
)

// event is an action of the turn machine, at a position in the audio.
type event struct {
	turns.Action
	at int // position in samples
}

// verdict holds three probabilities that the audio before a pause ends a turn: according to prosody, according to the
// network, and according to both together.
type verdict struct{ prosody, both, network float64 }

// recording is audio with the results of detectors and judges, each computed once. It belongs to one goroutine at a time.
type recording struct {
	judge    *smartturn.Judge // nil: only prosody judges
	pcm      []int16
	verdicts map[int]verdict
	frames   []frameVerdict
	speech   map[int][]turns.SpeechProbability // results of the second detector, by the position at which it was started
}

// frameVerdict holds the verdict of the first detector on 20 ms.
type frameVerdict struct {
	isVoice bool
	level   float64
}

func newRecording(judge *smartturn.Judge, pcm []int16) *recording {
	return &recording{judge: judge, pcm: pcm, verdicts: map[int]verdict{}, speech: map[int][]turns.SpeechProbability{}}
}

// judgeAt asks prosody and the network about the audio before a position.
func (r *recording) judgeAt(at int) verdict {
	if v, isKnown := r.verdicts[at]; isKnown {
		return v
	}
	pcm := r.pcm[max(0, at-4*rate):at]
	v := verdict{prosody: float64(prosody.Predict(pcm))}
	if r.judge != nil {
		var err error
		if v.both, v.network, err = r.judge.Predict(pcm); err != nil {
			panic(err) // the model worked when it was loaded
		}
	}
	r.verdicts[at] = v
	return v
}

// detectVoice runs the first detector over the recording.
func (r *recording) detectVoice() []frameVerdict {
	if r.frames == nil {
		d := vad.Detector{Hangover: time.Nanosecond} // as in bridge/uplink
		for at := 0; at+frame <= len(r.pcm); at += frame {
			part := r.pcm[at : at+frame]
			d.ProcessFrame(part, rate)
			r.frames = append(r.frames, frameVerdict{d.SilenceDuration() == 0, decibels(media.RMS(part))})
		}
	}
	return r.frames
}

// speechAt returns the result of a second detector at the sample position `at`. The detector was started at the position `from`.
func (r *recording) speechAt(from, at int) turns.SpeechProbability {
	n := (at - from) / silero.FrameLength
	if n == 0 {
		return turns.Unknown
	}
	if len(r.speech[from]) < n {
		d := silero.NewDetector()
		var answers []turns.SpeechProbability
		for k := range max(2*n, firstVerdicts) { // again from the beginning, because its state is not kept
			if end := from + (k+1)*silero.FrameLength; end <= len(r.pcm) {
				answers = append(answers, turns.SpeechProbability(d.SpeechProbability(r.pcm[end-silero.FrameLength:end])))
			}
		}
		r.speech[from] = answers
	}
	return r.speech[from][n-1]
}

// conversation simulates a conversation in which the person is a recording. It drives the turn machine as bridge/uplink
// does.
type conversation struct {
	recording  *recording
	hasJudge   bool // whether the network is asked
	hasAnswers bool // whether each turn is answered after answerLatency

	machine    *turns.Machine
	isEarOn    bool
	earFrom    int           // where the second detector began
	answerAt   time.Duration // when the next answer begins, or 0
	isSounding bool
	isHeld     bool  // an answer is held back
	answers    []int // positions where answers began
	events     []event

	pause     uint32
	verdictAt time.Duration // when the network's verdict comes, or 0
	finished  float64
}

func newConversation(s turns.Settings, r *recording, hasJudge bool) *conversation {
	s.By = turns.ByGateway
	return &conversation{recording: r, hasJudge: hasJudge, machine: turns.New(s)}
}

// play runs the turn machine over the recording and returns its actions.
func (c *conversation) play() []event {
	for i, v := range c.recording.detectVoice() {
		at := (i + 1) * frame
		now := media.Duration(at, rate)
		if c.answerAt > 0 && now >= c.answerAt && !c.isHeld {
			c.isSounding, c.answerAt = true, 0
			c.answers = append(c.answers, at)
		}
		if c.verdictAt > 0 && now >= c.verdictAt {
			c.machine.RecordVerdict(c.pause, c.finished, true)
			c.verdictAt = 0
		}
		f := turns.Frame{At: now, Voice: v.isVoice, Level: v.level, Sounding: c.isSounding, PlayLevel: playLevel}
		if c.isEarOn {
			f.Ear = c.recording.speechAt(c.earFrom, at)
		}
		for _, a := range c.machine.ProcessFrame(f) {
			c.events = append(c.events, event{a, at})
			c.applyAction(a, at, now)
		}
	}
	return c.events
}

func (c *conversation) applyAction(a turns.Action, at int, now time.Duration) {
	switch a.Kind {
	case turns.AskEar:
		c.isEarOn, c.earFrom = true, max(0, at-media.Samples(a.Back, rate))
	case turns.ReleaseEar:
		c.isEarOn = false
	case turns.AskJudge:
		v := c.recording.judgeAt(at)
		c.machine.RecordVerdict(a.Pause, v.prosody, !c.hasJudge)
		if c.hasJudge {
			c.pause, c.finished, c.verdictAt = a.Pause, v.both, now+judgeLatency
		}
	case turns.End:
		if c.hasAnswers {
			c.answerAt = now + answerLatency
		}
	case turns.Hold:
		c.isHeld = true
	case turns.GoOn:
		c.isHeld = false
	case turns.Retract, turns.Cut:
		c.answerAt, c.isSounding, c.isHeld = 0, false, false
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
