package phone

import (
	"fmt"
	"time"

	"voxgate/media"
	"voxgate/media/vad"
)

// musicKept is how much of the newest audio is kept during music: more than the 2 s after which the end of the music is detected.
const musicKept = 3 * time.Second

// withoutMusic is a sink that replaces lasting music with silence.
type withoutMusic struct {
	media.Sink
	music   vad.Music
	playing bool
	kept    []int16 // the newest audio, during music
	silence []int16
}

// musicPass is the value of "music" that forwards music to the model, however long it lasts.
const musicPass = "pass"

// CheckMusic validates the field "music" of a configuration file.
func CheckMusic(music string) error {
	if music != "" && music != musicPass {
		return fmt.Errorf("music: %q must be %q or left out", music, musicPass)
	}
	return nil
}

// WithoutMusic wraps sink so that it receives silence instead of music that has lasted for 8 s: the call was put on hold without
// signalling. When the music has ended, sink receives the last three seconds at once, so that no word is lost. If music is "pass", it
// returns sink itself.
func WithoutMusic(sink media.Sink, music string) media.Sink {
	if music == musicPass {
		return sink
	}
	return &withoutMusic{Sink: sink}
}

// WritePCM implements [media.Sink].
func (w *withoutMusic) WritePCM(pcm []int16) error {
	was := w.playing
	w.playing = w.music.ProcessAudio(pcm, w.Rate())
	if !w.playing && !was {
		return w.Sink.WritePCM(pcm)
	}
	w.kept = append(w.kept, pcm...)
	if more := len(w.kept) - media.Samples(musicKept, w.Rate()); more > 0 {
		w.kept = w.kept[:copy(w.kept, w.kept[more:])]
	}
	if !w.playing {
		err := w.Sink.WritePCM(w.kept)
		w.kept, w.silence = nil, nil
		return err
	}
	if len(w.silence) < len(pcm) {
		w.silence = make([]int16, len(pcm))
	}
	return w.Sink.WritePCM(w.silence[:len(pcm)])
}
