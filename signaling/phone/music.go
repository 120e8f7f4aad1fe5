package phone

import (
	"fmt"
	"time"

	"voxgate/media"
	"voxgate/media/vad"
)

// musicKept is how much of the newest sound is kept while there is music: longer than the 2 s that it takes to know that it is over.
const musicKept = 3 * time.Second

// withoutMusic is a sink that hears silence in the place of music that lasts.
type withoutMusic struct {
	media.Sink
	music   vad.Music
	playing bool
	kept    []int16 // the newest sound, while there is music
	silence []int16
}

// musicPass has the model hear music, however long it lasts.
const musicPass = "pass"

// CheckMusic checks a file's field of that name.
func CheckMusic(music string) error {
	if music != "" && music != musicPass {
		return fmt.Errorf("music: %q must be %q or left out", music, musicPass)
	}
	return nil
}

// WithoutMusic returns a sink that hears silence in the place of music once it has lasted for 8 s: somebody has put the call on hold
// without signalling it. When the music is over, the last three seconds come at once, so that no word is lost. With "pass" it returns sink.
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
