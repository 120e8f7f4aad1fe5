package voice_test

import (
	"slices"
	"testing"
	"time"

	voice "voxgate/examples/mobile"
	"voxgate/internal/testkit"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
)

func TestMain(m *testing.M) { testkit.RunTests(m) }

// listener passes on what the test waits for.
type listener struct {
	audio, person, model, ended chan string
}

func (l *listener) OnAudio(pcm []byte)  { send(l.audio, "audio") }
func (l *listener) OnInterrupted()      {}
func (l *listener) OnState(_, _ string) {}
func (l *listener) OnEnd(reason string) { send(l.ended, "ended "+reason) }
func (l *listener) OnText(s string, by bool) {
	if by {
		send(l.person, s)
	} else {
		send(l.model, s)
	}
}

func send(to chan string, what string) {
	select {
	case to <- what:
	default:
	}
}

func TestSpeechIsAnsweredUntilClose(t *testing.T) {
	t.Parallel()
	next := func() chan string { return make(chan string, 1) }
	l := &listener{next(), next(), next(), next()}
	c, err := voice.Dial(testkit.StartGateway(t).URL, "", l)
	if err != nil {
		t.Fatal(err)
	}
	speech := append(mediatest.SynthesizeSpeech(time.Second, voice.MicrophoneRate), make([]int16, 2*voice.MicrophoneRate)...)
	for pcm := range slices.Chunk(speech, 1600) {
		if err := c.SendAudio(media.AppendBytes(nil, pcm)); err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range []chan string{l.person, l.model, l.audio} {
		awaitValue(t, what)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if got := awaitValue(t, l.ended); got != "ended " {
		t.Errorf("%q", got)
	}
}

func awaitValue(t *testing.T, from chan string) string {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(testkit.Patience):
		t.Fatal("nothing came")
		return ""
	}
}
