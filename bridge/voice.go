package bridge

import (
	_ "embed"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/media"
	"voxgate/media/playout"
)

// maxFinished limits the finished turns whose voice waits to be played.
const maxFinished = 8

// voice holds the playout to the caller, and the turns whose voice is queued in the playout.
type voice struct {
	*playout.Pacer
	finishedTurns []utterance           // complete turns, perhaps not yet played; owned by the session's loop
	cutCause      atomic.Pointer[Cause] // why the voice was last dropped; read by the callbacks of marks in that voice
	playedSignal  chan struct{}         // has a token when the voice may have been played to its end
	roundTrip     atomic.Int64          // round-trip time to the caller, in ns; 0 means unknown
	isAnswering   atomic.Bool           // an answer has begun to sound, and more of it may come

	mu        sync.Mutex
	isCutting bool        // the voice is being dropped
	deferred  []EventBody // events that were queued behind the dropped voice
}

// utterance is the voice of a turn.
type utterance struct {
	turn        int // number of the turn; 0 means a sound of the gateway
	length      time.Duration
	endReported *atomic.Bool // the caller was informed of the end; nil for a turn that is not complete, or a sound of the gateway
}

// isEndReported reports whether the caller was told of the end of the turn.
func (u utterance) isEndReported() bool { return u.endReported != nil && u.endReported.Load() }

// playback reports whether voice sounds, and its level in dBov. While the playout waits for the rest of an answer, the
// answer still counts as sounding.
func (v *voice) playback() (isSounding bool, level float64) {
	isSounding, level = v.Playback()
	return isSounding || v.isAnswering.Load(), level
}

// whenPlayed calls f when all voice that is queued now has been played. If some of it is dropped, f is not called.
func (v *voice) whenPlayed(f func()) {
	v.AddMark(func(heard bool) {
		if heard {
			f()
		}
	})
}

// notifyInOrder sends an event after all earlier voice was sent, even if the client takes the voice slowly.
func (v *voice) notifyInOrder(to *subscribers, b EventBody) {
	v.CallInOrder(func(given bool) {
		if given || !v.deferEvent(b) {
			to.notify(b)
		}
	})
}

// deferEvent keeps an event back until the interruption in progress has been reported. isDeferred is false if no voice
// is being dropped.
func (v *voice) deferEvent(b EventBody) (isDeferred bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isCutting {
		v.deferred = append(v.deferred, b)
	}
	return v.isCutting
}

// dropVoice drops all queued voice, and returns the events that were queued behind it.
func (v *voice) dropVoice() (cut playout.FlushResult, behind []EventBody) {
	v.setCutting(true)
	cut = v.Flush()
	return cut, v.setCutting(false)
}

func (v *voice) setCutting(on bool) (deferred []EventBody) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.isCutting, deferred, v.deferred = on, v.deferred, nil
	return deferred
}

// addFinished records that all voice of an utterance is in the playout.
func (v *voice) addFinished(u utterance) {
	if v.finishedTurns = append(v.finishedTurns, u); len(v.finishedTurns) > maxFinished {
		v.finishedTurns = slices.Delete(v.finishedTurns, 0, 1)
	}
}

// playingTurn returns the number of the turn that is being played, or 0. growing is the turn for which more voice may
// come.
func (v *voice) playingTurn(growing utterance) (turn int) {
	queued := v.QueuedDuration()
	if queued == 0 {
		return 0
	}
	for _, u := range slices.Backward(append(slices.Clone(v.finishedTurns), growing)) {
		if u.length > 0 {
			turn = u.turn
		}
		if queued -= u.length; queued <= 0 {
			break
		}
	}
	return turn
}

// playSound plays a sound of the gateway.
func (v *voice) playSound(pcm []int16) error {
	const frame = wire.OutputRate * int(media.FrameDuration/time.Millisecond) / 1000
	if part := len(pcm) % frame; part > 0 { // fills the last frame, because otherwise the answer would begin within it
		pcm = append(pcm, make([]int16, frame-part)...)
	}
	if err := v.WritePCM(pcm); err != nil {
		return err
	}
	v.addFinished(utterance{length: voiceDuration(pcm)})
	return nil
}

// voiceDuration returns the duration of voice samples.
func voiceDuration(pcm []int16) time.Duration { return media.Duration(len(pcm), wire.OutputRate) }

// cutCauseOr returns the reason why the voice of a turn was dropped. If isHeard is true, nothing was dropped, so it
// returns the given reason (otherwise). It is safe for concurrent use.
func (v *voice) cutCauseOr(isHeard bool, otherwise Cause) Cause {
	if isHeard {
		return otherwise
	}
	if by := v.cutCause.Load(); by != nil {
		return *by
	}
	return ByClient // there was no caller to hear it
}

func (v *voice) signalPlayed() {
	select {
	case v.playedSignal <- struct{}{}:
	default: // a token is there already, so the loop will check anyway
	}
}

// oneMoment is "One moment, please.", 16-bit little-endian mono at VoiceRate. espeak-ng made it, for when the model
// cannot speak.
//
//go:embed one-moment.pcm
var oneMoment []byte

// sayAgain is "Gemini did not answer. Please say it again.", made in the same way.
//
//go:embed say-again.pcm
var sayAgain []byte

// waitingTone returns a soft tone of a quarter of a second, 30 dB below full scale, which fades in and out.
func waitingTone() []int16 {
	pcm := make([]int16, wire.OutputRate/4)
	for i := range pcm {
		fade := math.Sin(math.Pi * float64(i) / float64(len(pcm)))
		pcm[i] = int16(1000 * fade * math.Sin(2*math.Pi*440*float64(i)/wire.OutputRate))
	}
	return pcm
}
