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

// maxFinished is how many finished turns are kept while they wait to be heard.
const maxFinished = 8

// voice is what the caller hears, or is about to: the playout, and the turns whose sound waits in it.
type voice struct {
	*playout.Pacer
	finished  []utterance           // will grow no more, and may still be heard; the loop's
	cutBy     atomic.Pointer[Cause] // why the voice was last dropped, for the marks in it
	played    chan struct{}         // has a token when the voice may have been played to its end
	roundTrip atomic.Int64          // to the caller and back, in ns; 0: not known

	mu       sync.Mutex
	cutting  bool   // the voice is being dropped
	deferred []Body // what waited behind the dropped voice
}

// utterance is how much voice a turn has.
type utterance struct {
	turn   int // 0: a sound of the gateway's, which is no turn's
	length time.Duration
	over   *atomic.Bool // the caller knows that it is complete; nil: it grows, or is a sound of the gateway's
}

// isOver reports whether the caller has learned of the end of the turn.
func (u utterance) isOver() bool { return u.over != nil && u.over.Load() }

// whenHeard calls f when all that is queued now was heard, if it ever is.
func (v *voice) whenHeard(f func()) {
	v.AddMark(func(heard bool) {
		if heard {
			f()
		}
	})
}

// notifyInOrder sends an event in order with the model's voice, also to a client that reads the voice slowly.
func (v *voice) notifyInOrder(to *audience, b Body) {
	v.CallInOrder(func(given bool) {
		if given || !v.deferEvent(b) {
			to.notify(b)
		}
	})
}

// deferEvent keeps an event for after the interruption that drops the voice before it, and reports whether there is one.
func (v *voice) deferEvent(b Body) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cutting {
		v.deferred = append(v.deferred, b)
	}
	return v.cutting
}

// dropVoice drops all waiting voice, and returns the events that waited behind it.
func (v *voice) dropVoice() (cut playout.FlushResult, behind []Body) {
	v.setCutting(true)
	cut = v.Flush()
	return cut, v.setCutting(false)
}

func (v *voice) setCutting(on bool) (behind []Body) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cutting, behind, v.deferred = on, v.deferred, nil
	return behind
}

// finish notes that an utterance is in the playout and will grow no more.
func (v *voice) finish(u utterance) {
	if v.finished = append(v.finished, u); len(v.finished) > maxFinished {
		v.finished = slices.Delete(v.finished, 0, 1)
	}
}

// playing is the turn that is being played, of those that are finished and the one that grows; 0: none.
func (v *voice) playing(growing utterance) (turn int) {
	left := v.QueuedDuration()
	if left == 0 {
		return 0
	}
	for _, u := range slices.Backward(append(slices.Clone(v.finished), growing)) {
		if u.length > 0 {
			turn = u.turn
		}
		if left -= u.length; left <= 0 {
			break
		}
	}
	return turn
}

// sound plays a sound of the gateway's own.
func (v *voice) sound(pcm []int16) error {
	const frame = wire.OutputRate * int(media.FrameDuration/time.Millisecond) / 1000
	if part := len(pcm) % frame; part > 0 { // or the answer would begin in its last frame
		pcm = append(pcm, make([]int16, frame-part)...)
	}
	if err := v.WritePCM(pcm); err != nil {
		return err
	}
	v.finish(utterance{length: lengthOf(pcm)})
	return nil
}

// lengthOf is how long some voice takes.
func lengthOf(pcm []int16) time.Duration { return media.Duration(len(pcm), wire.OutputRate) }

// cause returns what cut off a turn whose mark is called, or the argument otherwise if the turn was heard. Any goroutine may call it.
func (v *voice) cause(heard bool, otherwise Cause) Cause {
	if heard {
		return otherwise
	}
	if by := v.cutBy.Load(); by != nil {
		return *by
	}
	return ByClient // nobody was there to hear it
}

func (v *voice) signalPlayed() {
	select {
	case v.played <- struct{}{}:
	default: // the loop will look anyway
	}
}

// oneMoment is "One moment, please.", 16-bit little-endian mono at the rate of the model's voice. It was made with
// espeak-ng, since it is needed when the model cannot speak.
//
//go:embed one-moment.pcm
var oneMoment []byte

// sayAgain is "Gemini did not answer. Please say it again.", made likewise.
//
//go:embed say-again.pcm
var sayAgain []byte

// tone is a soft tone of a quarter second, faded in and out, 30 dB below full scale.
func tone() []int16 {
	pcm := make([]int16, wire.OutputRate/4)
	for i := range pcm {
		fade := math.Sin(math.Pi * float64(i) / float64(len(pcm)))
		pcm[i] = int16(1000 * fade * math.Sin(2*math.Pi*440*float64(i)/wire.OutputRate))
	}
	return pcm
}
