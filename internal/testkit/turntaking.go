package testkit

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
)

// TurnSettings are the settings of an agent that CheckTurnTaking needs.
const TurnSettings = `{"by":"gateway","patience":"patient"}`

// ShortestJudged is the length of the shortest pauses and words whose effect the tests of turn taking check.
const ShortestJudged = 240 * time.Millisecond

// turnLog records the events about turns.
type turnLog struct {
	mu     sync.Mutex
	events []string
}

func (l *turnLog) record(e bridge.Event) {
	word := ""
	switch b := e.Body.(type) {
	case bridge.UserSpeaking:
		word = map[bool]string{true: "speaks", false: "quiet"}[b.Speaking]
	case bridge.InterruptionPending:
		word = map[bool]string{true: "held", false: "resumed"}[b.Pending]
	case bridge.Interrupted:
		word = "interrupted by " + string(b.By)
	case bridge.Speaking:
		word = "answer"
	case bridge.TurnComplete:
		word = "complete"
	default:
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, word)
}

func (l *turnLog) equals(want []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Equal(l.events, want)
}

// CheckTurnTaking talks to the emulator in a conversation in which the gateway decides about turns. play must play
// audio in real time, and return at its end. If a check fails while the machine is too busy, CheckTurnTaking skips the
// test.
func CheckTurnTaking(t *testing.T, s *bridge.Session, rate int, play func(pcm []int16)) {
	t.Helper()
	machine := mediatest.MeasureLateness(t)
	log := &turnLog{}
	stop, err := s.Watch(log.record)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var want []string
	await := func(events ...string) {
		t.Helper()
		want = append(want, events...)
		if !PollUntil(Patience, func() bool { return log.equals(want) }) {
			if !machine.CanJudge(t, ShortestJudged) {
				t.SkipNow()
			}
			log.mu.Lock()
			defer log.mu.Unlock()
			t.Fatalf("got: %s\nwant: %s", strings.Join(log.events, ", "), strings.Join(want, ", "))
		}
	}
	quiet := func(d time.Duration) []int16 { return MakeSilence(d, rate) }
	voice := func(d time.Duration) []int16 { return mediatest.RealVoice(t, d, rate) }
	question, err := media.Resample(mediatest.Conversation()[:6*48000], 48000, rate)
	if err != nil {
		t.Fatal(err)
	}
	play(slices.Concat(quiet(500*time.Millisecond), mediatest.Cough(300*time.Millisecond, rate), quiet(time.Second)))
	play(slices.Concat(voice(900*time.Millisecond), quiet(240*time.Millisecond), voice(900*time.Millisecond), quiet(300*time.Millisecond)))
	await("speaks", "quiet", "answer", "complete")
	for _, row := range []struct {
		length time.Duration
		events []string
	}{
		{450 * time.Millisecond, []string{"held", "resumed", "complete"}},
		{1300 * time.Millisecond, []string{"held", "speaks", "interrupted by voice", "quiet", "answer"}},
	} {
		play(question) // the emulator repeats it
		await("speaks", "quiet", "answer")
		play(slices.Concat(quiet(500*time.Millisecond), voice(row.length), quiet(300*time.Millisecond)))
		await(row.events...)
	}
}
