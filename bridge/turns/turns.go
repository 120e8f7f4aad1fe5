// Package turns decides whose turn it is in a conversation: when the person has begun and finished, and whether a sound
// over the model's answer interrupts it. It is used where the gateway marks activity for the model (`turns.by` is
// "gateway").
//
// A [Machine] is a pure function of frames of 20 ms and their times. It has no clock, goroutine, lock or audio, and
// does not allocate per frame. One goroutine, the owner of the microphone's audio, calls it and passes on its actions:
//
//   - The uplink passes one [Frame] for each 20 ms of the microphone. It contains the result of media/vad (loud is
//     SilenceDuration() == 0), the level, and the latest result of media/silero, which runs from AskEar to ReleaseEar.
//     Without audio (DTX, or a client that sends nothing) the uplink passes quiet frames, so that a turn ends. It must
//     keep the last [MaxBack] of audio.
//   - The playout reports whether an answer is being played, and how loud it is.
//   - Start, End and Retract go to the uplink like the client's own marks. Start is MarkStart with the audio of
//     Action.Back, in place of a fixed pre-roll. No audio is sent outside of an activity, because Google then closes
//     with 1007.
//   - Duck and Unduck are Pacer.Duck(DuckDecibels) and Pacer.Duck(0). Hold and GoOn stop the playout and continue it. A
//     call on hold stops the playout independently, so the playout continues when both holds have ended. A Hold that is
//     AtOnce does not wait for a quiet moment. Cut and Retract are Pacer.Flush; both end Hold.
//   - AskJudge asks prosody and, if there is one, the end-of-turn model about the audio so far. [Machine.RecordVerdict]
//     receives the answers.
//   - A new connection to the model gets the open activity again, from its beginning: the uplink replays the mark and
//     the audio.
//
// States: Quiet → (200 ms of voice with the second detector's agreement) Talking → (200 ms of quiet) Pause → (patience)
// Waiting → Sounding → Quiet. Voice in Waiting leads back to Talking. In Sounding the answer is ducked, then held, then
// cut.
package turns

import "time"

// FrameLength is the length of a frame.
const FrameLength = 20 * time.Millisecond

// DuckDecibels is the attenuation of an answer while it is ducked.
const DuckDecibels = 12

// MaxBack is the maximum of Action.Back.
const MaxBack = 10 * time.Second

// These durations of voice and quiet were tuned with recordings of people: see lab/turns. Only earLeadIn, earTimeout,
// startAgreement and judgeDeadline were not tuned.
const (
	leadIn      = 300 * time.Millisecond // length of the audio that is sent from before a voice, because words begin softly
	onsetTime   = 60 * time.Millisecond  // length of consecutive loud frames that are more than a click
	bridgeTime  = 120 * time.Millisecond // longest gap within a burst: a plosive, or a mistake of the detector
	startTime   = 200 * time.Millisecond // length of voice that begins a turn
	retractTime = 100 * time.Millisecond // length of voice that retracts the end of a turn
	pauseTime   = 200 * time.Millisecond // length of quiet after which the judge is asked
	holdTime    = 250 * time.Millisecond // length of speech that holds an answer
	earlyTime   = time.Second            // an answer that sounds for less may have begun while the person only paused
	earlyHold   = 300 * time.Millisecond // voice after which a hold within earlyTime ends, unless the second detector has found speech
	secondTime  = 2 * time.Second        // time within which a second burst cuts an answer off
	goOnTime    = 400 * time.Millisecond // length of quiet after which a held answer continues
	maxHold     = 1500 * time.Millisecond

	// cutTime is the length of a voice that cuts an answer off. In the training half of the recordings, no word of up
	// to 0.9 s cuts an answer off, and 95 % of interruptions cut it off within 1.00 s. With 0.7 s, 23 % of these words
	// would cut it off.
	cutTime = 880 * time.Millisecond
	// loudCutTime replaces cutTime if the newest frame is speech at or above the person's usual level.
	loudCutTime = 820 * time.Millisecond
	// cutSpeech is the minimum length of speech in a voice that cuts an answer off.
	cutSpeech = 280 * time.Millisecond
	// fadeRange limits, in dB, how far the newest frame may be below the person's usual level for a cut. A voice that
	// fades is ending.
	fadeRange = 15.0
	// cutCertainty is the mean probability of speech over certainFrames that a cut requires. In the training half, it
	// prevents a cut by 5 of 10 long and loud bursts, mostly gasps and screams. It delays 1 % of interruptions.
	cutCertainty = 0.68
	// loudCutCertainty replaces cutCertainty for a cut after loudCutTime.
	loudCutCertainty = 0.88
	certainFrames    = 16
	// continueTime is the length of speech in a second burst that cuts an answer off while the answer is still held
	// because of the first burst. The two bursts are one sentence with a gap in it.
	continueTime = 60 * time.Millisecond

	// levelRange limits, in dB, how far a frame of the person's speech may be below the person's usual level. A quieter
	// frame counts as another person's speech.
	levelRange = 12.0
	// peakRange limits, in dB, how far the loudest frame of speech may be below Machine.loudLevel, the mean level of
	// the person's louder frames. In the training half, 98 % of interruptions exceed the resulting threshold by 3 dB. A
	// crowd that is 10 dB quieter than the person stays below it.
	peakRange = 2.0

	// earTime limits how long the second detector runs at the beginning of a voice when no answer is playing.
	earTime = 400 * time.Millisecond
	// earPeriod is the interval at which the second detector is restarted while it finds no speech. Speech may follow a
	// noise without a gap.
	earPeriod = time.Second
	// earLeadIn is the length of the audio from before the voice that the second detector gets first: three of its
	// frames of 32 ms.
	earLeadIn = 96 * time.Millisecond
	// earTimeout limits the wait for the second detector's first verdict. After that, the first detector decides alone.
	earTimeout = 200 * time.Millisecond
	// startAgreement is the minimum length of the speech that the second detector must find in a burst before a turn
	// begins. It is less than startTime, because the detector needs up to 100 ms to react.
	startAgreement = 100 * time.Millisecond

	// judgeDeadline limits the wait for the judge's verdict on a pause.
	judgeDeadline = 250 * time.Millisecond

	// maxAwaited limits how long the answer to a turn is awaited. A voice that comes later begins a new turn instead of
	// retracting the end of the old one.
	maxAwaited = 5 * time.Second
	// patientTime is the time within which a second retraction makes the machine more patient. After the same time
	// without a retraction, the machine uses the patience of its settings again.
	patientTime = time.Minute

	// The person's usual level is known after minLevelFrames of voice (0.5 s), and is averaged over levelFrames (4 s).
	minLevelFrames, levelFrames = 25, 200
	// maxOnset limits how long before the second detector's agreement a turn may have begun.
	maxOnset = 2 * time.Second
)

// SpeechProbability is the second detector's probability that a frame is speech, or Unknown.
type SpeechProbability float64

// Unknown means that the second detector was not asked or has not answered.
const Unknown SpeechProbability = -1

// speechThreshold is the minimum probability that counts as speech. It is the default of Silero's authors.
const speechThreshold SpeechProbability = 0.5

// Frame describes 20 ms of a conversation.
type Frame struct {
	At        time.Duration     // the frame's end, on any clock that never goes back. Time that frames leave out counts as quiet.
	Voice     bool              // whether the first detector calls this frame loud, without onset and hangover
	Ear       SpeechProbability // the second detector's latest answer; Unknown from AskEar to the first answer
	Level     float64           // level of the microphone in dBov
	Muted     bool              // the microphone is muted or the call on hold: Voice does not count, and a turn ends soon
	Sounding  bool              // an answer is played: from its first sound to its last, also while Hold stops it
	PlayLevel float64           // level of what is played in dBov
}

// Kind is the kind of an action.
type Kind uint8

// Kinds of actions.
const (
	Start      Kind = iota + 1 // send activityStart, then the audio of the last Back and all that follows
	End                        // send activityEnd
	Retract                    // do as for Start, and drop the answer, which has not been played
	AskEar                     // run the second detector on the audio of the last Back and all that follows
	ReleaseEar                 // stop the second detector
	AskJudge                   // ask once whether the turn is finished; RecordVerdict gets the answer, with this Pause
	Duck                       // lower the answer by DuckDecibels
	Unduck                     // restore the volume of the answer
	Hold                       // stop the playout, at the next dip or AtOnce; the model is told nothing
	GoOn                       // continue the playout where it stopped, with a fade-in
	Cut                        // drop the rest of the answer; a Start follows
)

// Action tells the owner of the [Machine] what to do.
type Action struct {
	Kind Kind
	// Back depends on Kind. For Start, Retract and AskEar, it is the time from the beginning of the audio to the
	// frame's end. For End, it is the length of the quiet since the last voice.
	Back   time.Duration
	Pause  uint32 // for AskJudge: number of the pause
	AtOnce bool   // for Hold: the answer must be silent in the next frame
}

// State is a state of the machine.
type State uint8

// States of a machine.
const (
	Quiet    State = iota // neither side has the turn
	Talking               // the person speaks: an activity is open
	Pause                 // the person is quiet: the activity is still open
	Waiting               // the model was told of the end; no answer sounds yet
	Sounding              // an answer sounds
	Holding               // an answer sounds, and was stopped by speech
)

// burst is a stretch of voice in which no gap is longer than bridgeTime.
type burst struct {
	onset, voicedTo time.Duration
	speechFrom      time.Duration // start of the latest stretch that both detectors and the level call speech
	speechTo        time.Duration // end of that stretch
	run             time.Duration // length of the newest loud frames without a gap
	peak            float64       // loudest level from speechFrom to speechTo
	earSpeech       time.Duration // length of the frames that the second detector called speech
	isAlive         bool
	isVoice         bool                             // the burst is more than a click
	ears            [certainFrames]SpeechProbability // the second detector's latest answers
	earCount        int                              // number of its answers so far
	hasSpeech       bool                             // speechFrom is valid
	hasHeld         bool                             // this burst has held an answer once
	wasEarly        bool                             // this burst has held an answer that had only begun
}

// hasSecondVerdict reports whether the second detector has answered.
func (b *burst) hasSecondVerdict() bool { return b.earCount > 0 }

func (b *burst) addSecondVerdict(e SpeechProbability) {
	b.ears[b.earCount%certainFrames] = e
	b.earCount++
}

// recentSpeechProbability returns the mean of the second detector's latest probabilities of speech, or 1 if it has not
// answered.
func (b *burst) recentSpeechProbability() SpeechProbability {
	n := min(b.earCount, certainFrames)
	if n == 0 {
		return 1
	}
	sum := SpeechProbability(0)
	for _, e := range b.ears[:n] {
		sum += e
	}
	return sum / SpeechProbability(n)
}

// Machine decides whose turn it is in one conversation. It must not be used concurrently.
type Machine struct {
	settings                Settings
	state                   State
	at                      time.Duration
	burst                   burst
	echo                    Echo
	lastVoice, lastSounding time.Duration
	actions                 [8]Action
	count                   int

	isOpen           bool
	openFrom, openTo time.Duration // start of the newest activity's audio, and end of the last activity that was closed
	voiceTo          time.Duration // end of the latest voice in the newest activity
	pause            uint32
	pauseAskedAt     time.Duration
	finished         float64 // newest verdict for the pause: probability that the turn is finished
	hasVerdict       bool
	isFinal, isEarOn bool
	isDucked, isHeld bool
	heldAt           time.Duration
	heldFrom, heldTo time.Duration // start and end of the last burst that held the answer
	heldSpeech       time.Duration // length of the speech in that burst
	hasHeldBurst     bool
	answers          int           // number of answers that have begun to sound
	soundingFrom     time.Duration // when the last answer began to sound
	shieldedFrom     time.Duration // onset of speech over a shielded answer
	isShielded       bool          // speech over a shielded answer has occurred
	lastRetraction   time.Duration
	hasRetracted     bool
	isMorePatient    bool
	level            float64 // usual level of the person
	loudLevel        float64 // mean of the person's levels above the usual level
	levelCount       int
	loudCount        int
	hasBegun         bool // a frame was processed
	hasSounded       bool
}

// New returns a machine in state Quiet.
func New(s Settings) *Machine { return &Machine{settings: s.withDefaults()} }

// SetSettings changes the settings from the next frame on.
func (m *Machine) SetSettings(s Settings) { m.settings = s.withDefaults() }

// State returns the state after the last frame.
func (m *Machine) State() State { return m.state }

// IsResting reports whether nothing is in progress. If so, the owner may leave out frames until there is audio again.
func (m *Machine) IsResting() bool {
	return m.state == Quiet && !m.burst.isAlive && !m.isEarOn && !m.isHeld && !m.isDucked
}

// Reset returns to the state Quiet, and returns the actions to carry out. What the machine has learnt about the person
// is kept.
func (m *Machine) Reset() []Action {
	m.count = 0
	m.releasePlayout()
	m.state, m.isOpen, m.openTo = Quiet, false, m.at
	m.burst, m.isEarOn, m.hasHeldBurst, m.isShielded = burst{}, false, false, false
	return m.actions[:m.count]
}

// RecordVerdict records the answer to AskJudge for a pause: the probability that the turn is finished. A later verdict
// replaces an earlier one, unless the earlier one had isFinal. Verdicts about other pauses are ignored.
func (m *Machine) RecordVerdict(pause uint32, finished float64, isFinal bool) {
	if m.state == Pause && pause == m.pause && !m.isFinal {
		m.finished, m.hasVerdict, m.isFinal = finished, true, isFinal
	}
}

// ProcessFrame processes the next frame and returns the actions to carry out, in order. The slice is valid until the
// next call.
func (m *Machine) ProcessFrame(f Frame) []Action {
	m.count = 0
	if !m.hasBegun {
		m.hasBegun, m.openTo = true, f.At-FrameLength
	}
	m.at = f.At
	if f.Sounding {
		m.lastSounding, m.hasSounded = f.At, true
	}
	mayBeEcho := f.Voice && m.hasSounded && f.At-m.lastSounding <= time.Duration(maxDelayFrames)*FrameLength
	isEcho := m.echo.AddFrame(f.PlayLevel, f.Level, f.Sounding, mayBeEcho)
	m.trackBurst(f, f.Voice && !f.Muted && !isEcho)
	m.updateAnswerState(f)
	switch m.state {
	case Quiet:
		m.stepQuiet()
	case Talking, Pause:
		m.stepOpen(f)
	case Waiting:
		m.stepWaiting(f)
	case Sounding, Holding:
		m.stepSounding(f)
	}
	m.updateSecondDetector()
	return m.actions[:m.count]
}

func (m *Machine) addAction(a Action) {
	m.actions[m.count] = a
	m.count++
}

// trackBurst adds a frame to the current burst. A loud frame after the end of that burst begins a new one.
func (m *Machine) trackBurst(f Frame, isLoud bool) {
	b, from := &m.burst, f.At-FrameLength
	if !isLoud {
		b.run = 0
	} else {
		if !b.isAlive || from-b.voicedTo > bridgeTime {
			*b = burst{onset: from, voicedTo: from, isAlive: true}
		}
		if from > b.voicedTo { // true if frames were left out
			b.run = 0
		}
		b.voicedTo, b.run = f.At, b.run+FrameLength
		b.isVoice = b.isVoice || b.run >= onsetTime
		if b.isVoice {
			m.lastVoice = f.At
		}
	}
	b.isAlive = b.isAlive && !f.Muted && f.At-b.voicedTo <= bridgeTime
	if !b.isAlive {
		return
	}
	ear := f.Ear
	if !m.isEarOn {
		ear = Unknown
	}
	if ear != Unknown {
		b.addSecondVerdict(ear)
		if ear >= speechThreshold {
			b.earSpeech += FrameLength
		}
	}
	isSpeech := ear >= speechThreshold || !b.hasSecondVerdict() && f.At-b.onset >= earTimeout
	if isLoud && isSpeech && (m.levelCount < minLevelFrames || f.Level >= m.level-levelRange) {
		if !b.hasSpeech || from-b.speechTo > bridgeTime {
			b.speechFrom, b.hasSpeech, b.peak = from, true, f.Level
			if !b.hasSecondVerdict() {
				b.speechFrom = b.onset
			}
		}
		b.speechTo, b.peak = f.At, max(b.peak, f.Level)
	}
}

// voiceLength returns the length of the current burst. It returns 0 if the burst has ended, or is only a click.
func (m *Machine) voiceLength() time.Duration {
	if b := &m.burst; b.isAlive && b.isVoice {
		return b.voicedTo - b.onset
	}
	return 0
}

// speechLength returns the length of the current sound that both detectors call speech and that is loud enough to be
// the person. When that speech has ended, it returns 0.
func (m *Machine) speechLength() time.Duration {
	b := &m.burst
	isLoudEnough := m.levelCount < minLevelFrames || b.peak >= m.loudLevel-peakRange
	if m.voiceLength() > 0 && b.hasSpeech && m.at-b.speechTo <= bridgeTime && isLoudEnough {
		return b.speechTo - b.speechFrom
	}
	return 0
}

// secondDetectorAgrees reports whether the second detector has found at least minSpeech of speech in the burst. If the
// detector does not answer within earTimeout, this counts as agreement.
func (m *Machine) secondDetectorAgrees(minSpeech time.Duration) bool {
	b := &m.burst
	if !b.hasSecondVerdict() {
		return m.at-b.onset >= earTimeout
	}
	return b.earSpeech >= minSpeech
}

// quietLength returns the time since the last voice. Clicks do not count as voice.
func (m *Machine) quietLength() time.Duration { return m.at - m.lastVoice }

// updateAnswerState changes the state when an answer begins or ceases to sound.
func (m *Machine) updateAnswerState(f Frame) {
	switch {
	case f.Sounding && (m.state == Quiet || m.state == Waiting) && !m.isHeld:
		m.state = Sounding
		m.answers, m.soundingFrom = m.answers+1, f.At
		m.hasHeldBurst, m.isShielded = false, false
		m.releasePlayout()
	case !f.Sounding && (m.state == Sounding || m.state == Holding):
		m.state = Quiet
		m.releasePlayout()
		if m.isShielded {
			m.voiceTo = max(m.burst.voicedTo, m.shieldedFrom)
			m.openActivity(Start, m.shieldedFrom)
		}
	}
}

// releasePlayout ends the hold of the answer and restores its volume, if necessary.
func (m *Machine) releasePlayout() {
	if m.isHeld {
		m.isHeld = false
		m.addAction(Action{Kind: GoOn})
	}
	m.unduckAnswer()
}

func (m *Machine) unduckAnswer() {
	if m.isDucked {
		m.isDucked = false
		m.addAction(Action{Kind: Unduck})
	}
}

// openActivity begins an activity with the audio since onset and the lead-in before it. It leaves out audio that the
// model already has.
func (m *Machine) openActivity(kind Kind, onset time.Duration) {
	m.openFrom = max(onset-leadIn, m.openTo, m.at-MaxBack)
	m.isOpen, m.state = true, Talking
	m.addAction(Action{Kind: kind, Back: m.at - m.openFrom})
}

func (m *Machine) stepQuiet() {
	if m.voiceLength() >= startTime && m.secondDetectorAgrees(startAgreement) {
		m.voiceTo = m.burst.voicedTo
		m.openActivity(Start, max(m.burst.onset, m.at-maxOnset))
	}
}

// stepOpen handles a frame while an activity is open. It follows the voice, asks the judge once in each pause, and ends
// the activity.
func (m *Machine) stepOpen(f Frame) {
	if m.voiceLength() > 0 {
		m.voiceTo = max(m.voiceTo, m.burst.voicedTo)
		if m.burst.run > 0 {
			m.learnLevel(f.Level)
		}
	}
	quiet := m.at - m.voiceTo
	if quiet < pauseTime {
		m.state = Talking
		return
	}
	if m.state == Talking {
		m.state = Pause
		m.pause++
		m.pauseAskedAt, m.hasVerdict, m.isFinal = m.at, false, false
		if m.settings.Patience.fixed == 0 {
			m.addAction(Action{Kind: AskJudge, Pause: m.pause})
		}
	}
	// A new sound may turn out to be a voice within 60 ms, so the end waits for that.
	if isMaybeVoice := m.burst.isAlive && m.burst.run > 0; isMaybeVoice {
		return
	}
	if quiet >= m.requiredQuiet(f.Muted) {
		m.isOpen, m.openTo, m.state = false, m.at, Waiting
		m.addAction(Action{Kind: End, Back: quiet})
	}
}

// requiredQuiet returns the length of the quiet that ends the turn.
func (m *Machine) requiredQuiet(isMuted bool) time.Duration {
	if m.isMorePatient && m.at-m.lastRetraction > patientTime {
		m.isMorePatient = false
	}
	steps := m.settings.Patience.quietLengths(m.isMorePatient)
	switch {
	case isMuted: // no more speech can come
		return steps.first
	case m.settings.Patience.fixed > 0:
		return steps.first
	case !m.isFinal && m.at-m.pauseAskedAt < judgeDeadline: // until the verdict is known, wait as long as for an unfinished turn
		return steps.third
	case !m.hasVerdict:
		return steps.second
	}
	return steps.quietFor(m.finished)
}

// learnLevel updates the average level of the person's voice.
func (m *Machine) learnLevel(level float64) {
	m.levelCount = min(m.levelCount+1, levelFrames)
	m.level += (level - m.level) / float64(m.levelCount)
	if level >= m.level {
		m.loudCount = min(m.loudCount+1, levelFrames/2)
		m.loudLevel += (level - m.loudLevel) / float64(m.loudCount)
	}
}

// stepWaiting handles a frame while the model's answer is awaited. If the person goes on speaking before the answer
// sounds, it retracts the end of the turn.
func (m *Machine) stepWaiting(f Frame) {
	voice := m.voiceLength()
	switch {
	case voice >= retractTime && m.secondDetectorAgrees(FrameLength):
		m.retractEnd()
	// The answer is held so that it does not begin before the second detector has answered.
	case voice >= onsetTime && !m.isHeld && !m.burst.hasHeld:
		m.isHeld, m.burst.hasHeld, m.heldAt = true, true, m.at
		m.addAction(Action{Kind: Hold})
	case m.isHeld && (m.quietLength() >= pauseTime || f.Muted || m.at-m.heldAt >= maxHold):
		m.releasePlayout()
	case m.at-m.openTo >= maxAwaited && !m.isHeld:
		m.state = Quiet
	}
}

func (m *Machine) retractEnd() {
	m.isMorePatient = m.hasRetracted && m.at-m.lastRetraction <= patientTime
	m.lastRetraction, m.hasRetracted = m.at, true
	m.isHeld = false
	m.voiceTo = m.burst.voicedTo
	m.openActivity(Retract, max(m.burst.onset, m.at-maxOnset))
}

// stepSounding handles a frame while an answer is played. It ducks, holds and cuts the answer.
func (m *Machine) stepSounding(f Frame) {
	if m.settings.Shield == ShieldGreeting && m.answers == 1 {
		if m.voiceLength() >= startTime && m.secondDetectorAgrees(startAgreement) && !m.isShielded {
			m.isShielded, m.shieldedFrom = true, m.burst.onset
		}
		return
	}
	switch m.settings.Interrupt {
	case InterruptNever:
		return
	case InterruptAtOnce:
		if m.voiceLength() >= onsetTime {
			m.cutAnswer(m.burst.onset)
		}
		return
	}
	speech := m.speechLength()
	isSecond := m.hasHeldBurst && m.burst.onset > m.heldTo && m.burst.onset-m.heldTo <= secondTime
	if m.hasHeldBurst && m.burst.isAlive && !isSecond {
		m.heldTo, m.heldSpeech = max(m.heldTo, m.burst.voicedTo), max(m.heldSpeech, speech)
	}
	switch {
	case isSecond && (speech >= holdTime || speech >= continueTime && m.shouldCutHeldAnswer()):
		m.cutAnswer(m.heldFrom)
		return
	case speech >= cutSpeech && m.isLongEnoughToCut(f.Level):
		m.cutAnswer(m.burst.onset)
		return
	case speech >= holdTime && !m.burst.hasHeld:
		m.burst.hasHeld = true
		m.holdAnswer(false)
		m.hasHeldBurst, m.heldFrom, m.heldTo, m.heldSpeech = true, m.burst.onset, m.burst.voicedTo, speech
	case m.voiceLength() >= onsetTime && !m.burst.wasEarly && m.burst.onset-m.soundingFrom < earlyTime:
		m.burst.wasEarly = true
		m.holdAnswer(true)
	case m.voiceLength() >= onsetTime:
		m.duckAnswer()
	}
	switch {
	case f.Muted || m.quietLength() >= goOnTime:
		m.state = Sounding
		m.releasePlayout()
	case m.isHeld && (m.at-m.heldAt >= maxHold || m.isEarlyNoise()): // a noise: stay ducked
		m.isHeld, m.state = false, Sounding
		m.addAction(Action{Kind: GoOn})
	}
}

// shouldCutHeldAnswer reports whether the person has continued the sentence that holds the answer, after a pause, for
// long enough to cut the answer off.
func (m *Machine) shouldCutHeldAnswer() bool {
	return m.isHeld && m.heldSpeech >= cutSpeech && m.at-m.heldFrom >= cutTime
}

// isLongEnoughToCut reports whether a voice is long and certain enough to cut an answer off, and is not fading. level
// is the level of the newest frame.
func (m *Machine) isLongEnoughToCut(level float64) bool {
	b := &m.burst
	over := 0.0
	if m.levelCount >= minLevelFrames {
		over = level - m.level
	}
	switch {
	case b.run == 0, over < -fadeRange:
		return false
	case m.voiceLength() >= cutTime:
		return b.recentSpeechProbability() >= cutCertainty
	}
	return m.voiceLength() >= loudCutTime && b.speechTo == m.at && over >= 0 && b.recentSpeechProbability() >= loudCutCertainty
}

// isEarlyNoise reports whether a sound that has held an answer at the answer's beginning has lasted for earlyHold
// without being confirmed as speech.
func (m *Machine) isEarlyNoise() bool {
	return m.burst.wasEarly && m.voiceLength() >= earlyHold && !m.secondDetectorAgrees(FrameLength)
}

// holdAnswer ducks the answer and stops it, unless it is stopped already. If isImmediate is true, it stops at once,
// otherwise at the next quiet moment.
func (m *Machine) holdAnswer(isImmediate bool) {
	m.duckAnswer()
	if !m.isHeld {
		m.isHeld, m.heldAt, m.state = true, m.at, Holding
		m.addAction(Action{Kind: Hold, AtOnce: isImmediate})
	}
}

func (m *Machine) duckAnswer() {
	if !m.isDucked {
		m.isDucked = true
		m.addAction(Action{Kind: Duck})
	}
}

// cutAnswer ends the answer, and begins a turn that contains everything the person has said since the time from.
func (m *Machine) cutAnswer(from time.Duration) {
	m.addAction(Action{Kind: Cut})
	m.isHeld = false
	m.unduckAnswer()
	m.voiceTo = m.burst.voicedTo
	m.openActivity(Start, from)
}

// updateSecondDetector starts and stops the second detector. It runs while its verdict counts: during an answer, and at
// the beginning of a voice otherwise.
func (m *Machine) updateSecondDetector() {
	isWanted := false
	if m.burst.isAlive {
		switch m.state {
		case Quiet:
			isWanted = (m.at-FrameLength-m.burst.onset)%earPeriod < earTime
		case Waiting:
			isWanted = true
		case Sounding, Holding:
			isWanted = m.settings.Interrupt != InterruptAtOnce || m.settings.Shield == ShieldGreeting && m.answers == 1
		}
	}
	switch {
	case isWanted && !m.isEarOn:
		m.addAction(Action{Kind: AskEar, Back: FrameLength + earLeadIn})
	case !isWanted && m.isEarOn:
		m.addAction(Action{Kind: ReleaseEar})
	}
	m.isEarOn = isWanted
}
