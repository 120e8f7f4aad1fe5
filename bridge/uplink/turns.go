package uplink

import (
	"math"
	"slices"
	"time"

	"voxgate/bridge/turns"
	"voxgate/media"
	"voxgate/media/silero"
	"voxgate/media/vad"
)

const (
	// TickTime is the interval at which the owner calls Tick.
	TickTime = 100 * time.Millisecond

	// maxAudioGap is the longest gap in the audio that counts as jitter. A longer gap counts as quiet, which ends a
	// turn.
	maxAudioGap = 300 * time.Millisecond

	// maxTurnActions limits the actions that wait until the owner takes them. Further actions are dropped, because an
	// owner that is so late has stopped.
	maxTurnActions = 256
)

// turnTaker marks the person's speech for the model if the gateway decides about turns. It keeps audio until it is
// clear whether the audio belongs to a turn. Uplink.mu guards it.
type turnTaker struct {
	machine  *turns.Machine
	playback func() (isSounding bool, level float64)
	vad      vad.Detector
	ear      secondDetector

	at      time.Duration // end of the last frame, on the machine's clock
	frameAt time.Time     // when that frame came
	frame   []int16       // samples of the next frame, at rate
	rate    int
	isMuted bool        // the microphone was paused, and no audio has come since
	recent  []keptAudio // the last turns.MaxBack of audio, oldest first
}

// keptAudio is a chunk of audio. end is its end on the clock of the turn-taking machine.
type keptAudio struct {
	item Item
	end  time.Duration
}

func newTurnTaker(s turns.Settings, playback func() (isSounding bool, level float64)) *turnTaker {
	t := &turnTaker{machine: turns.New(s), playback: playback, frameAt: time.Now()}
	// The turn-taking machine bridges gaps itself, so the detector needs almost no hangover. With none at all, the
	// detector would take each frame for the first frame of a voice, and an "s" for noise.
	t.vad.Hangover = time.Nanosecond
	return t
}

// keepAudio keeps a chunk of audio, and drops audio that is too old for the beginning of a turn.
func (t *turnTaker) keepAudio(it Item) {
	end := t.at + media.Duration(len(t.frame), it.Rate) + it.duration()
	t.recent = append(t.recent, keptAudio{it, end})
	old := 0
	for old < len(t.recent) && t.recent[old].end <= end-turns.MaxBack {
		t.recent[old] = keptAudio{}
		old++
	}
	t.recent = t.recent[old:]
}

// itemsSince returns the kept chunks that end after the time lookBack before the last frame's end.
func (t *turnTaker) itemsSince(lookBack time.Duration) (items []Item) {
	for _, kept := range t.recent {
		if kept.end > t.at-lookBack {
			items = append(items, kept.item)
		}
	}
	return items
}

// recentPCM returns the kept audio from lookBack before the last frame's end up to that end, resampled to rate (Hz).
func (t *turnTaker) recentPCM(lookBack time.Duration, rate int) (pcm []int16) {
	var converter *media.Resampler
	from := 0
	for _, kept := range t.recent {
		it := kept.item
		length := len(it.PCM)
		// early is the number of the chunk's samples before t.at-lookBack, and late the number after t.at.
		early := media.Samples(max(0, t.at-lookBack-(kept.end-it.duration())), it.Rate)
		late := media.Samples(max(0, kept.end-t.at), it.Rate)
		if early+late >= length {
			continue
		}
		samples := it.PCM[early : length-late]
		if it.Rate == rate {
			pcm = append(pcm, samples...)
			continue
		}
		if it.Rate != from {
			converter, from = media.NewResampler(it.Rate, rate), it.Rate
			converter.RestartWithSilence()
		}
		pcm = append(pcm, converter.Resample(samples)...)
	}
	return pcm
}

// processAudio passes the frames of a chunk to the turn-taking machine. If isMuted is true, they do not count as voice.
// handle gets the machine's actions, except those for the second detector.
func (t *turnTaker) processAudio(pcm []int16, rate int, isMuted bool, handle func(turns.Action)) {
	t.isMuted = false
	if rate != t.rate {
		t.rate, t.frame = rate, t.frame[:0]
	}
	size := media.Samples(turns.FrameLength, rate)
	for len(pcm) > 0 {
		n := min(len(pcm), size-len(t.frame))
		t.frame, pcm = append(t.frame, pcm[:n]...), pcm[n:]
		if len(t.frame) < size {
			return
		}
		t.processFrame(t.frame, rate, isMuted, handle)
		t.frame = t.frame[:0]
	}
}

func (t *turnTaker) processFrame(pcm []int16, rate int, isMuted bool, handle func(turns.Action)) {
	t.at += turns.FrameLength
	t.frameAt = time.Now()
	t.vad.ProcessFrame(pcm, rate)
	t.ear.processAudio(pcm, rate)
	isSounding, level := t.playback()
	t.feedMachine(turns.Frame{
		At: t.at, Voice: t.vad.SilenceDuration() == 0, Ear: t.ear.answer, Level: decibels(media.RMS(pcm)), Muted: isMuted,
		Sounding: isSounding, PlayLevel: level,
	}, rate, handle)
}

// processAudioGap passes a quiet frame to the turn-taking machine if no audio comes. If the client has paused the
// microphone (hasPaused), an open turn ends at once. handle gets the machine's actions, as in processAudio.
func (t *turnTaker) processAudioGap(hasPaused bool, handle func(turns.Action)) {
	missing := time.Since(t.frameAt)
	t.isMuted = t.isMuted || hasPaused
	switch {
	case hasPaused:
		missing = max(missing, MicPause) // longer than the quiet that ends a turn with a muted microphone, so the turn ends at once
	case !t.isMuted && missing < maxAudioGap:
		return
	}
	t.at += missing
	t.frameAt = time.Now()
	t.frame = t.frame[:0]
	isSounding, level := t.playback()
	t.feedMachine(turns.Frame{
		At: t.at, Level: decibels(0), Muted: t.isMuted, Sounding: isSounding, PlayLevel: level,
	}, silero.Rate, handle)
}

func (t *turnTaker) feedMachine(f turns.Frame, rate int, handle func(turns.Action)) {
	for _, a := range t.machine.ProcessFrame(f) {
		switch a.Kind {
		case turns.AskEar:
			t.ear.start(t.recentPCM(a.Back, silero.Rate), rate)
		case turns.ReleaseEar:
			t.ear.stop()
		default:
			handle(a)
		}
	}
}

// decibels converts the root mean square of 16-bit samples to a level in dBov.
func decibels(rms float64) float64 { return 20 * math.Log10(max(rms, 1)/32768) }

// secondDetector runs the Silero voice detector while the turn-taking machine asks for it.
type secondDetector struct {
	detector  *silero.Detector // nil before its first use
	isOn      bool
	answer    turns.SpeechProbability
	rate      int // rate of the audio that converter gets
	converter *media.Resampler
	pending   []int16 // samples of the next frame, at silero.Rate
}

// start starts the detector. before is the audio before the voice, at silero.Rate. rate is the rate of the audio that
// follows, in Hz.
func (d *secondDetector) start(before []int16, rate int) {
	if d.detector == nil {
		d.detector = silero.NewDetector()
	}
	d.detector.Reset()
	d.isOn, d.answer, d.pending = true, turns.Unknown, d.pending[:0]
	if d.rate != rate {
		d.rate, d.converter = rate, nil
		if rate != silero.Rate {
			d.converter = media.NewResampler(rate, silero.Rate)
		}
	}
	if d.converter != nil {
		d.converter.RestartWithSilence()
	}
	d.detect(before)
}

func (d *secondDetector) stop() { d.isOn, d.answer = false, turns.Unknown }

func (d *secondDetector) processAudio(pcm []int16, rate int) {
	if !d.isOn || rate != d.rate {
		return
	}
	if d.converter != nil {
		pcm = d.converter.Resample(pcm)
	}
	d.detect(pcm)
}

func (d *secondDetector) detect(pcm []int16) {
	d.pending = append(d.pending, pcm...)
	for len(d.pending) >= silero.FrameLength {
		d.answer = turns.SpeechProbability(d.detector.SpeechProbability(d.pending[:silero.FrameLength]))
		d.pending = slices.Delete(d.pending, 0, silero.FrameLength)
	}
}

// The following methods of Uplink are called with mu held.

// processTurnAudio handles a chunk of audio if the gateway decides about turns.
func (u *Uplink) processTurnAudio(it Item) {
	u.activity.lastAudioAt = time.Now()
	u.turnTaker.keepAudio(it)
	if u.activity.speaking {
		it.speechNumber = u.activity.speeches
		u.queueLiveAudio(it)
	}
	u.turnTaker.processAudio(it.PCM, it.Rate, u.gated, u.handleTurnAction)
}

// handleTurnAction carries out the part of an action that changes the queue. The owner carries out the rest.
func (u *Uplink) handleTurnAction(a turns.Action) {
	switch a.Kind {
	case turns.Start, turns.Retract:
		u.activity.nextSpeech = append([]Item{}, u.turnTaker.itemsSince(a.Back)...)
		u.queueMark(MarkStart)
		u.activity.speechFrom = max(0, u.activity.received-a.Back)
		u.paced = true
	case turns.End:
		u.queueMark(MarkEnd)
		u.activity.lastLoudAt = u.activity.endedAt.Add(-a.Back)
	}
	if a.Kind != turns.Start && len(u.turnActions) < maxTurnActions {
		u.turnActions = append(u.turnActions, a)
		notify(u.SpeechChanged)
	}
}

// configureTurns changes, starts or stops the turn-taking machine. If it starts or stops the machine, it ends a turn in
// progress.
func (u *Uplink) configureTurns(s turns.Settings) {
	switch isOn := s.By == turns.ByGateway; {
	case !isOn && u.turnTaker == nil:
	case isOn && u.turnTaker != nil:
		u.turnTaker.machine.SetSettings(s)
	default:
		if u.activity.manual && u.activity.speaking {
			u.queueMark(MarkEnd)
		}
		if u.resetTurns(); isOn {
			u.turnTaker = newTurnTaker(s, u.playback)
		} else {
			u.turnTaker = nil
		}
	}
}

// resetTurns discards the turn in progress, and releases the playout. Its caller must mark the end of the turn for the
// model.
func (u *Uplink) resetTurns() {
	if t := u.turnTaker; t != nil {
		for _, a := range t.machine.Reset() {
			u.handleTurnAction(a)
		}
		t.ear.stop()
		t.recent = nil
	}
}

// Tick tells the turn-taking machine, if there is one, that time has passed without audio. callAgain means that Tick
// must be called again after TickTime.
func (u *Uplink) Tick() (callAgain bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	t := u.turnTaker
	if t == nil || u.paused {
		return false
	}
	t.processAudioGap(false, u.handleTurnAction)
	return !t.machine.IsResting()
}

// TakeTurnActions removes and returns the actions that the owner must carry out, in order. They do not include Start
// and the actions for the second detector. For End and Retract, the uplink has already queued the marks.
func (u *Uplink) TakeTurnActions() (actions []turns.Action) {
	u.mu.Lock()
	defer u.mu.Unlock()
	actions, u.turnActions = u.turnActions, nil
	return actions
}

// RecentAudio returns the newest audio of the person, resampled to a rate in Hz. length is its maximum length. It
// returns nothing unless the gateway decides about turns.
func (u *Uplink) RecentAudio(length time.Duration, rate int) []int16 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.turnTaker == nil {
		return nil
	}
	return u.turnTaker.recentPCM(length, rate)
}

// RecordVerdict records the judge's answer about a pause: see [turns.Machine.RecordVerdict].
func (u *Uplink) RecordVerdict(pause uint32, finished float64, isFinal bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.turnTaker != nil {
		u.turnTaker.machine.RecordVerdict(pause, finished, isFinal)
	}
}
