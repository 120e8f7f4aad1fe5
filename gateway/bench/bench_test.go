package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"voxgate/media"
	"voxgate/media/opus"
)

var built struct {
	once sync.Once
	path string
	err  error
}

// builtGateway is the gateway, built once for all tests and without the race detector: what is measured is not its cost.
func builtGateway(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		var dir string
		if dir, built.err = os.MkdirTemp("", "voxgate-bench"); built.err != nil {
			return
		}
		built.path = filepath.Join(dir, "gateway")
		if out, err := exec.Command("go", "build", "-o", built.path, "voxgate/gateway").CombinedOutput(); err != nil {
			built.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.path != "" {
		os.RemoveAll(filepath.Dir(built.path))
	}
	os.Exit(code)
}

// TestQuick runs the whole benchmark for a few seconds, as a user does. It checks that all was measured, not how fast it was.
func TestQuick(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	profile := filepath.Join(t.TempDir(), "profile")
	c := exec.CommandContext(ctx, builtGateway(t), "bench", "-quick", "-profile", profile)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	text := stdout.String()
	for _, want := range []string{
		"`gateway bench -quick -profile " + profile + "` on ", runtime.Version()[2:], "| latency, beep to reply", "| of which after", "4 beeps answered", "| from the model's “interrupted” to",
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
	if written, err := os.Stat(profile); err != nil || written.Size() == 0 {
		t.Errorf("there is no profile: %v", err)
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestQuickCapacity(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, builtGateway(t), "bench", "-capacity", "-quick")
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	if text := stdout.String(); !strings.Contains(text, "\n| 2 | ") || strings.Contains(text, "| 2 | 0.0 ms ") || strings.Contains(text, "| 0.00 |") {
		t.Errorf("nothing was measured:\n%s", text)
	}
}

// TestQuickFaults holds conversations with a few faults, as a user does. It checks that each was met and gone through, not
// how fast.
func TestQuickFaults(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, builtGateway(t), "bench", "-faults", "-quick")
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	rows := map[string][]string{}
	for line := range strings.Lines(stdout.String()) {
		if cells := strings.Split(line, " | "); len(cells) == 3 {
			rows[strings.TrimPrefix(cells[0], "| ")] = cells[1:]
		}
	}
	for name, want := range map[string]struct {
		notices     string
		least, most time.Duration
	}{
		"TCP lost while the person speaks":             {"", 0, 2 * time.Second},
		"TCP lost in mid-frame while the model speaks": {"the answer breaks off after ", 0, 2 * time.Second},
		"Gemini refuses a message (1007)":              {"the conversation ends: “Gemini refused the conversation: Request contains an invalid argument.”", 0, 2 * time.Second},
		"Gemini out of reach for 3 s":                  {"“Reconnecting to Gemini…” on the page", 1500 * time.Millisecond, 10 * time.Second},
	} {
		row := rows[name]
		if row == nil {
			t.Errorf("no row %q", name)
			continue
		}
		if !strings.Contains(row[0], want.notices) {
			t.Errorf("%s: noticed %q, want %q", name, row[0], want.notices)
		}
		if d, ok := firstDuration(row[1]); !ok || d < want.least || d > want.most {
			t.Errorf("%s: recovery %q, want %v to %v", name, row[1], want.least, want.most)
		}
	}
	if t.Failed() {
		t.Logf("%s\n%s", stdout.String(), stderr.String())
	}
}

// firstDuration reads the first "1.23 s" or "4 ms" of a cell.
func firstDuration(cell string) (time.Duration, bool) {
	m := regexp.MustCompile(`([\d.]+) (m?s)\b`).FindStringSubmatch(cell)
	if m == nil {
		return 0, false
	}
	d, err := time.ParseDuration(m[1] + m[2])
	return d, err == nil
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"-trials", "7", "-sessions", "50, 3", "-window", "2s"}, &bytes.Buffer{})
	if err != nil || o.trials != 7 || !slices.Equal(o.sessions, []int{3, 50}) || o.window != 2*time.Second {
		t.Errorf("%+v, %v", o, err)
	}
	for args, sessions := range map[string][]int{"": {10, 50, 100}, "-capacity": {100, 200}, "-capacity -sessions 7": {7}, "-capacity -quick": {2}} {
		if o, err := parse(strings.Fields(args), &bytes.Buffer{}); err != nil || !slices.Equal(o.sessions, sessions) {
			t.Errorf("%q: %v calls, %v; want %v", args, o.sessions, err, sessions)
		}
	}
	for _, args := range [][]string{{"-sessions", "0"}, {"-sessions", ""}, {"-trials", "0"}, {"-window", "1ms"}, {"more"}} {
		if _, err := parse(args, &bytes.Buffer{}); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
}

func TestParseFaults(t *testing.T) {
	for args, trials := range map[string]int{"-faults": 3, "-faults -trials 5": 5, "-faults -quick": 1, "": 200} {
		if o, err := parse(strings.Fields(args), io.Discard); err != nil || o.trials != trials {
			t.Errorf("%q: %d trials, %v; want %d", args, o.trials, err, trials)
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
	decoder, err := opus.NewDecoder(16000, "")
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
