package bench

import (
	"bytes"
	"context"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"voxgate/media"
)

// TestQuickFaults holds conversations with a few faults, as a user does. It checks that each was met and gone through, not
// how fast.
func TestQuickFaults(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "gateway")
	if out, err := exec.Command("go", "build", "-o", binary, "voxgate/gateway").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, binary, "bench", "-faults", "-quick")
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

func TestParseFaults(t *testing.T) {
	for args, trials := range map[string]int{"-faults": 3, "-faults -trials 5": 5, "-faults -quick": 1, "": 200} {
		if o, err := parse(strings.Fields(args), io.Discard); err != nil || o.trials != trials {
			t.Errorf("%q: %d trials, %v; want %d", args, o.trials, err, trials)
		}
	}
}

// What the microphone says goes through the codec and is recognized by the ear, sentence by sentence.
func TestSentencesAreRecognized(t *testing.T) {
	encoder, err := media.NewOpusEncoder(micRate)
	if err != nil {
		t.Fatal(err)
	}
	decoder, err := media.NewOpusDecoder(earRate, "")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	var heard []sound
	pcm, buf, out := make([]int16, samples(frame)), make([]byte, 1500), make([]int16, earRate*120/1000)
	for i, sentence := 0, 0; sentence < sentences; sentence++ {
		for at, more := 0, true; more; at, i = at+1, i+1 {
			more = speakFrame(pcm, sentence, at)
			n, err := encoder.Encode(pcm, buf)
			if err != nil {
				t.Fatal(err)
			}
			if n, err = decoder.Decode(buf[:n], out); err != nil {
				t.Fatal(err)
			}
			heard = append(heard, sound{start.Add(time.Duration(i) * frame), recognize(out[:n])})
		}
	}
	for sentence := range sentences {
		a := find(heard, sentence)
		begins := time.Duration(sentence) * sentenceLength.Truncate(frame)
		if d := a.began.Sub(start) - begins; d.Abs() > 3*frame {
			t.Errorf("sentence %d is %v off", sentence, d)
		}
		if !a.last || a.twice || a.frames < 4*12 || a.silence > 160*time.Millisecond {
			t.Errorf("sentence %d: %+v", sentence, a)
		}
	}
}

func TestFind(t *testing.T) {
	start := time.Now()
	sounds := func(what ...int) (all []sound) { // a frame each; quiet ones do come
		for i, w := range what {
			all = append(all, sound{start.Add(time.Duration(i) * frame), w})
		}
		return all
	}
	burst := func(n, length int) []int { return slices.Repeat([]int{n}, length) }
	for name, test := range map[string]struct {
		heard []int
		want  answer
	}{
		"nothing":          {burst(quiet, 9), answer{}},
		"another sentence": {burst(0, 15), answer{}},
		"a single frame":   {slices.Concat(burst(4, 2), burst(words, 3)), answer{}},
		"with its lead": {
			slices.Concat(burst(softTone, 5), burst(quiet, 4), burst(4, 10), burst(quiet, 5), burst(5, 10)),
			answer{began: start.Add(5 * frame), over: start.Add(33 * frame), frames: 20, silence: 6 * frame},
		},
		"twice": {
			slices.Concat(burst(4, 10), burst(5, 10), burst(4, 10), burst(7, 5)),
			answer{began: start, over: start.Add(34 * frame), frames: 35, silence: frame, twice: true, last: true},
		},
	} {
		if got := find(sounds(test.heard...), 1); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestNoticed(t *testing.T) {
	late := func(d time.Duration) notice { return notice{rankLate, "the answer comes %s later", d} }
	page := notice{rankPage, "“Wait” on the page", 0}
	for want, seen := range map[string][]outcome{
		"nothing":                      {{}, {}},
		"the answer comes 2.0 s later": {{notices: []notice{late(2 * time.Second)}}},
		"the answer comes 3.0 s later; “Wait” on the page (in 2 of 3)": {
			{notices: []notice{page, late(5 * time.Second)}}, {notices: []notice{late(time.Second)}}, {notices: []notice{late(3 * time.Second), page}},
		},
	} {
		if got := noticed(seen); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestWire(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	w, err := newWire("http://" + echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	say := func() (time.Duration, error) {
		began := time.Now()
		c, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			return 0, err
		}
		defer c.Close()
		if _, err := c.Write([]byte("x")); err != nil {
			return 0, err
		}
		_, err = io.ReadFull(c, make([]byte, 1))
		return time.Since(began), err
	}
	if _, err := say(); err != nil {
		t.Fatal(err)
	}
	w.swallow(300 * time.Millisecond)
	if took, err := say(); err != nil || took < 290*time.Millisecond {
		t.Errorf("it took %v, %v", took, err)
	}
	const down = 200 * time.Millisecond
	cut := time.Now()
	w.cut(down)
	if _, err := say(); err == nil {
		t.Error("there is a way where it was cut")
	}
	for {
		if _, err := say(); err == nil {
			break
		}
		time.Sleep(poll)
	}
	if took := time.Since(cut); took < down || took > down+10*time.Second {
		t.Errorf("the way is back after %v", took)
	}
}
