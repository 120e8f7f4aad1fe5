package bench

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"voxgate/media"
)

// TestQuick runs the whole benchmark for a few seconds, as a user does. It checks that all was measured, not how fast it was.
func TestQuick(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	binary := filepath.Join(t.TempDir(), "gateway")
	if out, err := exec.Command("go", "build", "-o", binary, "voxgate/gateway").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, binary, "bench", "-quick")
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	text := stdout.String()
	for _, want := range []string{
		"`gateway bench -quick` on ", runtime.Version()[2:], "| latency, beep to reply", "| of which after", "4 beeps answered",
		"| CPU per minute of a call, 2 calls |", "| the same of a bare Pion echo server, 2 calls |", "| memory per call, 2 calls |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "| CPU") && strings.Contains(line, " 0.00 s ") {
			t.Errorf("nothing was measured: %s", line)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"-trials", "7", "-sessions", "50, 3", "-window", "2s"}, &bytes.Buffer{})
	if err != nil || o.trials != 7 || !slices.Equal(o.sessions, []int{3, 50}) || o.window != 2*time.Second {
		t.Errorf("%+v, %v", o, err)
	}
	for _, args := range [][]string{{"-sessions", "0"}, {"-sessions", ""}, {"-trials", "0"}, {"-window", "1ms"}, {"more"}} {
		if _, err := parse(args, &bytes.Buffer{}); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
}

func TestLoggedURL(t *testing.T) {
	for line, want := range map[string]string{
		`time=2026-01-02T03:04:05Z level=INFO msg=listening url=http://localhost:3001/`:                "http://localhost:3001",
		`time=2026-01-02T03:04:05Z level=INFO msg="emulator listening" url="http://127.0.0.1:1" use=X`: "http://127.0.0.1:1",
		`time=2026-01-02T03:04:05Z level=INFO msg="no url"`:                                            "",
	} {
		if got := loggedURL(line); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func TestInherited(t *testing.T) {
	got := inherited([]string{"PATH=/bin", "VOXGATE_ADDR=:1", "GEMINI_API_KEY=x", "GOOGLE_API_KEY=x", "HOME=/"})
	if want := []string{"PATH=/bin", "HOME=/"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestQuantile(t *testing.T) {
	values := []time.Duration{5, 1, 4, 2, 3}
	for q, want := range map[float64]time.Duration{0: 1, 0.2: 1, 0.5: 3, 0.95: 5, 1: 5} {
		if got := quantile(values, q); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
}

func TestBeepsAreSpreadOverTheFrame(t *testing.T) {
	const n, parts = 200, 10
	var count [parts]int
	for i := range n {
		count[int(beepOffset(i)*parts/frame)]++
	}
	for i, c := range count {
		if c < n/parts-2 || c > n/parts+2 {
			t.Errorf("%d of %d beeps begin in part %d of %d", c, n, i, parts)
		}
	}
}

func TestMicrophoneKnowsWhenTheBeepBegins(t *testing.T) {
	m, err := newMicrophone()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	trials := make([]trial, 20)
	for i := range len(trials) * trialFrames {
		m.note(trials, start.Add(time.Duration(i+1)*frame)) // a frame is sent when it is over
		if err := m.prepare(i + 1); err != nil {
			t.Fatal(err)
		}
	}
	for i, got := range trials {
		want := start.Add(time.Duration(i)*trialLength + quietFrames*frame + beepOffset(i))
		if d := got.spoken.Sub(want); d.Abs() > 50*time.Microsecond {
			t.Errorf("the beep of trial %d is %v off", i, d)
		}
		if wait := got.sent.Sub(got.spoken); wait < 0 || wait > frame+5*time.Millisecond {
			t.Errorf("the beep of trial %d is heard in a packet %v later", i, wait)
		}
	}
}

func TestMatch(t *testing.T) {
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	trials := []trial{
		{spoken: at(0), sent: at(10 * time.Millisecond)},
		{spoken: at(trialLength), sent: at(trialLength + 5*time.Millisecond)},
		{spoken: at(2 * trialLength), sent: at(2*trialLength + 5*time.Millisecond)},
	}
	onsets := []time.Time{at(12 * time.Millisecond), at(2*trialLength + 7*time.Millisecond)}
	l, err := match(trials, onsets, 0.6)
	if err != nil {
		t.Fatal(err)
	}
	if want := []time.Duration{12 * time.Millisecond, 7 * time.Millisecond}; !slices.Equal(l.mouthToEar, want) {
		t.Errorf("latencies %v, want %v", l.mouthToEar, want)
	}
	if want := []time.Duration{2 * time.Millisecond, 2 * time.Millisecond}; !slices.Equal(l.inside, want) {
		t.Errorf("of which %v, want %v", l.inside, want)
	}
	if _, err := match(trials, onsets, 0.99); err == nil {
		t.Error("a lost reply is not noticed")
	}
}

// The emulator takes more for speech and falls silent; the gateway takes less for silence, which is cheaper.
func TestRoomNoiseIsNeitherSpeechNorSilence(t *testing.T) {
	room, err := roomNoise()
	if err != nil {
		t.Fatal(err)
	}
	decoder, err := media.NewOpusDecoder(16000, "")
	if err != nil {
		t.Fatal(err)
	}
	pcm := make([]int16, 16000*120/1000)
	for i := range 3 * roomFrames {
		n, err := decoder.Decode(room[i%roomFrames], pcm)
		if err != nil {
			t.Fatal(err)
		}
		// Where the packets begin anew the codec takes a few frames to come back.
		if level := media.RMS(pcm[:n]); level >= 100 || level < 64 && i%roomFrames >= 3 {
			t.Errorf("frame %d has a level of %.0f", i, level)
		}
	}
}
