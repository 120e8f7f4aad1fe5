package mediatest

import (
	"testing"
	"time"
)

func TestToneLevel(t *testing.T) {
	pcm := Tone(100*time.Millisecond, 16000, 1000, 10000)
	if got := ToneLevel(pcm, 16000, 1000); got < 0.999 {
		t.Errorf("the tone itself: %.4f", got)
	}
	if got := ToneLevel(pcm, 16000, 1500); got > 0.001 {
		t.Errorf("another tone: %.4f", got)
	}
	for _, silence := range [][]int16{nil, make([]int16, 100)} {
		if ToneLevel(silence, 16000, 1000) != 0 {
			t.Error("silence has a level")
		}
	}
}
