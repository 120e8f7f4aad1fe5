package transcript

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"voxgate/bridge/gemini/wire"
)

// After any random changes, the played text is a beginning of the whole text, it grows with the played voice, and the count
// of runes is correct.
func TestTranscript(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 7))
		l := &Transcript{}
		said := map[int]string{}
		voice := map[int]time.Duration{}
		heard := map[int]string{}
		cut := map[int]bool{}
		turn := 1
		for step := range 300 {
			switch rng.IntN(9) {
			case 0, 1, 2:
				from := voice[turn]
				if rng.IntN(3) > 0 {
					voice[turn] += time.Duration(rng.IntN(1000)) * time.Millisecond
				}
				text := ""
				if rng.IntN(4) > 0 {
					text = fmt.Sprintf(" wört%d 言葉%d", step, step)
				}
				if cut[turn] {
					voice[turn] = from
					continue // a session adds nothing to an interrupted turn
				}
				l.AddAnswer(turn, text, from, voice[turn])
				said[turn] += text
			case 3, 4:
				l.SetPlayed(turn, time.Duration(rng.Float64()*float64(voice[turn])))
			case 5:
				if rng.IntN(3) == 0 {
					l.MarkInterrupted(turn, time.Duration(rng.Float64()*float64(voice[turn]))-time.Duration(rng.IntN(2)))
					cut[turn] = true
				}
			case 6:
				l.AddTypedText(turn, fmt.Sprint("typed ", step))
			case 7:
				if rng.IntN(4) == 0 {
					l.SetPlayed(turn, voice[turn])
					l.MarkComplete(turn)
					if !cut[turn] {
						heard[turn] = said[turn]
					}
					turn++
				}
			case 8:
				if rng.IntN(10) == 0 {
					l.RemoveTranscription(turn)
				}
			}
			runes := 0
			for i := range l.entries {
				e := &l.entries[i]
				runes += e.countRunes()
				if e.Role != Assistant {
					continue
				}
				text := e.playedText()
				if !strings.HasPrefix(said[e.turn], text) {
					t.Fatalf("seed %d: heard %q of %q", seed, text, said[e.turn])
				}
				if !strings.HasPrefix(text, heard[e.turn]) {
					t.Fatalf("seed %d, step %d: heard %q before, and now %q", seed, step, heard[e.turn], text)
				}
				if cut[e.turn] {
					heard[e.turn] = "" // until the next piece comes, the end of the last piece is only an estimate
				}
			}
			if runes != l.runeCount {
				t.Fatalf("seed %d: %d runes, counted %d", seed, runes, l.runeCount)
			}
		}
	}
}

// Scripts without spaces are divided into words, too.
func TestWordsWithoutSpaces(t *testing.T) {
	l := &Transcript{}
	text := "昔々あるところにおじいさんとおばあさんが住んでいました"
	l.AddAnswer(1, text, 0, 4*time.Second)
	if got := l.MarkInterrupted(1, 3900*time.Millisecond); got.Content == "" {
		t.Errorf("3.9 s of 4 s were heard, and nothing is kept of %s", text)
	}
	if got := l.Entries(); len(got) == 0 {
		t.Error("the conversation has no answer at all")
	}
}

// If one entry is longer than the limit, the model gets its end. Of several entries, it gets the newest that fit.
func TestLimitOfHistory(t *testing.T) {
	for name, test := range map[string]struct {
		said []string
		want string
	}{
		"all":               {[]string{"one", "two"}, `one|two`},
		"the newest":        {[]string{"123456789012345678", "two"}, `two`},
		"one long entry":    {[]string{"12345678901234567890end"}, `… 45678901234567890end`},
		"letters are whole": {[]string{"ääääääääääääääää"}, `… ääääääääää`},
	} {
		l := &Transcript{}
		for i, text := range test.said {
			l.AddTypedText(2*i+1, text)
			l.AddAnswer(2*i+1, "", 0, 0)
		}
		var got []string
		for _, c := range l.HistoryBefore(100, 20) {
			parts, err := wire.ParseParts(c.Parts)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, strings.Split(parts.Text(), "\n")...)
		}
		if strings.Join(got, "|") != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
