package fault

import (
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"voxgate/gateway/bench/speech"
	"voxgate/media/opus"
)

// What the microphone says goes through the codec and is recognized by the ear, sentence by sentence.
func TestSentencesAreRecognized(t *testing.T) {
	encoder, err := opus.NewEncoder(speech.MicRate)
	if err != nil {
		t.Fatal(err)
	}
	decoder, err := opus.NewDecoder(speech.EarRate, "")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	var heard []sound
	pcm, buf, out := make([]int16, speech.FrameSamples(speech.MicRate)), make([]byte, 1500), make([]int16, speech.EarRate*120/1000)
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
