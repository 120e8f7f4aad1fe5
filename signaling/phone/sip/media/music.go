package media

import (
	"math"
	"time"

	"voxgate/media"
)

// VoiceRate is the sample rate of the model's voice, in Hz.
const VoiceRate = 24000

// PlaybackRate is the sample rate of music on hold and other played audio, in Hz. note is the duration of a note.
const (
	PlaybackRate = 16000
	note         = 600 * time.Millisecond
)

// notes are the pitches of the music on hold, in Hz: two soft notes that fade, and a pause.
var notes = [...]float64{523.25, 392, 0, 0}

// renderMusic renders the music on hold from a position on, in samples, and returns the next position.
func renderMusic(pcm []int16, position int) (nextPosition int) {
	length := media.Samples(note, PlaybackRate)
	for i := range pcm {
		at := position % length
		faded := math.Exp(-5*float64(at)/float64(length)) * min(1, float64(at)/80)
		pcm[i] = int16(2500 * faded * math.Sin(2*math.Pi*notes[position/length%len(notes)]*float64(at)/PlaybackRate))
		position++
	}
	return position
}
