package signaling_test

import (
	"testing"
	"time"

	"voxgate/bridge/gemini/wire"
)

func TestPlainSocketSaysBackWhatItHears(t *testing.T) {
	t.Parallel()
	for _, rate := range []int{8000, 16000, 44100, 48000} {
		c := connect(t, newGateway(t), `{"model":"models/gemini-3.8-live"}`)
		c.say(sentence(440, time.Second, rate), rate)
		c.expect("ASSISTANT_SPEAKING")
		c.expect("AUDIO_CHUNK")
		c.expect("TURN_COMPLETE")
		voice := loud(c.heard(0))
		if got := time.Duration(len(voice)) * time.Second / wire.OutputRate; got < 900*time.Millisecond || got > 1200*time.Millisecond {
			t.Errorf("rate %d: heard %v of voice, want about 1s", rate, got)
		}
		if level := toneShare(voice, 440); level < 0.5 {
			t.Errorf("rate %d: share of 440 Hz is %.2f", rate, level)
		}
		if n := c.count("ASSISTANT_SPEAKING"); n != 1 {
			t.Errorf("%d times ASSISTANT_SPEAKING", n)
		}
	}
}
