package turns_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"voxgate/bridge/turns"
)

var kindNames = map[turns.Kind]string{
	turns.Start: "start", turns.End: "end", turns.Retract: "retract", turns.AskEar: "ear", turns.ReleaseEar: "no-ear", turns.AskJudge: "judge",
	turns.Duck: "duck", turns.Unduck: "unduck", turns.Hold: "hold", turns.GoOn: "go-on", turns.Cut: "cut",
}

// player feeds a machine with frames, and records its actions as "kind@time-back", in ms.
type player struct {
	*turns.Machine
	frame turns.Frame
	isEar bool
	deaf  bool // the second detector does not answer
	pause uint32
	log   []string
	ear   []string
}

// play runs a script of words. The numbers are milliseconds: s300 is speech, l300 less loud speech, f300 faint speech, c300
// the voices of a crowd, u300 speech of which the second detector is not certain, n300 noise, q300 quiet, and skip300 a gap
// without frames. +answer and +mute switch on, -answer and -mute switch off. j0.9 is the verdict of the judge, and p0.9 an
// earlier verdict of prosody.
func (p *player) play(t testing.TB, script string) {
	t.Helper()
	for word := range strings.FieldsSeq(script) {
		switch word {
		case "+answer", "-answer":
			p.frame.Sounding = word[0] == '+'
			continue
		case "+mute", "-mute":
			p.frame.Muted = word[0] == '+'
			continue
		case "deaf":
			p.deaf = true
			continue
		}
		kind := strings.TrimRight(word, "0123456789.")
		n, err := strconv.ParseFloat(word[len(kind):], 64)
		if err != nil {
			t.Fatal(word, err)
		}
		length := time.Duration(n) * time.Millisecond
		switch kind {
		case "j", "p":
			p.RecordVerdict(p.pause, n, kind == "j")
		case "skip":
			p.frame.At += length
		case "s", "l", "f", "c", "u", "n", "q":
			for range length / turns.FrameLength {
				p.add(kind)
			}
		default:
			t.Fatalf("unknown word %q", word)
		}
	}
}

func (p *player) add(kind string) {
	f := &p.frame
	f.At += turns.FrameLength
	f.Voice, f.Level, f.Ear, f.PlayLevel = kind != "q", -60, turns.Unknown, -60
	if f.Sounding {
		f.PlayLevel = -20
	}
	if f.Voice {
		f.Level = map[string]float64{"s": -26, "u": -26, "n": -26, "l": -30, "c": -34, "f": -45}[kind]
	}
	if p.isEar && !p.deaf {
		f.Ear = 0.05
		if strings.Contains("slfc", kind) {
			f.Ear = 0.95
		}
		if kind == "u" {
			f.Ear = 0.6
		}
	}
	for _, a := range p.ProcessFrame(*f) {
		name := kindNames[a.Kind]
		if a.AtOnce {
			name += "-at-once"
		}
		text := fmt.Sprintf("%s@%d", name, f.At.Milliseconds())
		if a.Back > 0 && a.Kind != turns.End {
			text += fmt.Sprintf("-%d", a.Back.Milliseconds())
		}
		switch a.Kind {
		case turns.AskJudge:
			p.pause = a.Pause
		case turns.AskEar, turns.ReleaseEar:
			p.isEar = a.Kind == turns.AskEar
			p.ear = append(p.ear, text)
			continue
		}
		p.log = append(p.log, text)
	}
}

func TestActions(t *testing.T) {
	said := "q1000 s1000 q200 j0.9 q100 " // a turn that ends at 2300 ms
	began := said + "q400 +answer q200 "
	answered := said + "q400 +answer q1500 "
	for name, c := range map[string]struct {
		settings     turns.Settings
		script, want string
		state        turns.State
	}{
		"a turn":                       {script: said, want: "start@1200-500 judge@2200 end@2300", state: turns.Waiting},
		"the beginning has less audio": {script: "q100 s1000", want: "start@300-300", state: turns.Talking},
		"half finished waits longer": {
			script: "q1000 s1000 q200 j0.5 q1000",
			want:   "start@1200-500 judge@2200 end@2640", state: turns.Waiting,
		},
		"unfinished waits longest": {
			script: "q1000 s1000 q200 j0.1 q2000",
			want:   "start@1200-500 judge@2200 end@3600", state: turns.Waiting,
		},
		"prosody waits for the judge": {
			script: "q1000 s1000 q200 p0.1 q200 j0.9 q200",
			want:   "start@1200-500 judge@2200 end@2420", state: turns.Waiting,
		},
		"a late judge decides nothing": {
			script: "q1000 s1000 q200 p0.9 q300",
			want:   "start@1200-500 judge@2200 end@2460", state: turns.Waiting,
		},
		"no verdict at all": {
			script: "q1000 s1000 q1000",
			want:   "start@1200-500 judge@2200 end@2640", state: turns.Waiting,
		},
		"quick": {
			settings: turns.Settings{Patience: turns.Quick}, script: "q1000 s1000 q200 j0.9 q100",
			want: "start@1200-500 judge@2200 end@2260", state: turns.Waiting,
		},
		"patient": {
			settings: turns.Settings{Patience: turns.Patient}, script: "q1000 s1000 q200 j0.9 q1000",
			want: "start@1200-500 judge@2200 end@3100", state: turns.Waiting,
		},
		"at most 1 s": {
			settings: turns.Settings{Patience: turns.PatienceAtMost(time.Second)}, script: "q1000 s1000 q200 j0 q1000",
			want: "start@1200-500 judge@2200 end@3000", state: turns.Waiting,
		},
		"a fixed silence asks no judge": {
			settings: turns.Settings{Patience: turns.PatienceFixedAt(500 * time.Millisecond)}, script: "q1000 s1000 q1000",
			want: "start@1200-500 end@2500", state: turns.Waiting,
		},
		"a pause": {
			script: "q1000 s1000 q200 j0.1 q600 s500 q200",
			want:   "start@1200-500 judge@2200 judge@3500", state: turns.Pause,
		},
		"an old verdict is void": {
			script: "q1000 s1000 q200 s100 j0.9 q300",
			want:   "start@1200-500 judge@2200 judge@2500", state: turns.Pause,
		},
		"a click does not prolong a turn": {
			script: "q1000 s1000 q200 j0.5 q200 n40 q300",
			want:   "start@1200-500 judge@2200 end@2640", state: turns.Waiting,
		},
		"a gap without frames is quiet": {
			script: "q1000 s1000 skip2000 q20 q300",
			want:   "start@1200-500 judge@4020 end@4020", state: turns.Waiting,
		},
		"a cough begins nothing": {script: "q1000 n300 q1000", state: turns.Quiet},
		"a click begins nothing": {script: "q1000 s40 q100 s40 q100 s40 q100", state: turns.Quiet},
		"speech after noise":     {script: "q1000 n3000 s500", want: "start@4120-2300", state: turns.Talking},
		"a deaf second detector": {script: "deaf q1000 n300", want: "start@1200-500", state: turns.Talking},

		"an end taken back": {
			script: said + "q400 s300 q100",
			want:   "start@1200-500 judge@2200 end@2300 hold@2760 retract@2800-400", state: turns.Talking,
		},
		"no audio is sent twice": {
			script: said + "s300", want: "start@1200-500 judge@2200 end@2300 hold@2360 retract@2400-100", state: turns.Talking,
		},
		"a cough holds an answer back": {
			script: said + "q400 n300 q400", want: "start@1200-500 judge@2200 end@2300 hold@2760 go-on@3200", state: turns.Waiting,
		},
		"noise does not hold it back for ever": {
			script: said + "q400 n3000", want: "start@1200-500 judge@2200 end@2300 hold@2760 go-on@4260", state: turns.Waiting,
		},
		"no answer comes": {
			script: said + "q6000 s300",
			want:   "start@1200-500 judge@2200 end@2300 start@8500-500", state: turns.Talking,
		},
		"a held answer does not begin": {
			script: said + "q400 n80 +answer n220 -answer q400",
			want:   "start@1200-500 judge@2200 end@2300 hold@2760 go-on@3200", state: turns.Waiting,
		},

		"an answer": {
			script: answered + "-answer q100",
			want:   "start@1200-500 judge@2200 end@2300", state: turns.Quiet,
		},
		"a click over it": {
			script: answered + "s40 q500",
			want:   "start@1200-500 judge@2200 end@2300", state: turns.Sounding,
		},
		"a cough ducks it": {
			script: answered + "n400 q500",
			want:   "start@1200-500 judge@2200 end@2300 duck@4260 unduck@5000", state: turns.Sounding,
		},
		"a faint voice too": {
			script: answered + "f1000 q500",
			want:   "start@1200-500 judge@2200 end@2300 duck@4260 unduck@5600", state: turns.Sounding,
		},
		"a hm holds it": {
			script: answered + "s400 q500",
			want:   "start@1200-500 judge@2200 end@2300 duck@4260 hold@4480 go-on@5000 unduck@5000", state: turns.Sounding,
		},
		"an interruption": {
			script: answered + "s900",
			want:   "start@1200-500 judge@2200 end@2300 duck@4260 hold@4480 cut@5020 unduck@5020 start@5020-1120", state: turns.Talking,
		},
		"an interruption of two words": {
			script: answered + "s500 q200 s200",
			want:   "start@1200-500 judge@2200 end@2300 duck@4260 hold@4480 cut@5080 unduck@5080 start@5080-1180", state: turns.Talking,
		},
		"an interruption after a noise": {
			script: answered + "n400 s500",
			want:   "start@1200-500 judge@2200 end@2300 duck@4260 hold@4860 cut@5020 unduck@5020 start@5020-1120", state: turns.Talking,
		},
		"a longer noise with a hm in it": {
			script: answered + "n300 s400 n1000 q500",
			want:   "start@1200-500 judge@2200 end@2300 duck@4260 hold@4760 go-on@6260 unduck@6300", state: turns.Sounding,
		},
		"a yes, sir": {
			script: answered + "s800 q500",
			want:   "start@1200-500 judge@2200 end@2300 duck@4260 hold@4480 go-on@5400 unduck@5400", state: turns.Sounding,
		},
		"a softer interruption": {
			script: answered + "s400 l500 q500",
			want:   "start@1200-500 judge@2200 end@2300 duck@4260 hold@4480 cut@5080 unduck@5080 start@5080-1180 judge@5300", state: turns.Pause,
		},
		"a yes, sir that fades": {
			script: answered + "s700 f400 q500",
			want:   "start@1200-500 judge@2200 end@2300 duck@4260 hold@4480 go-on@5700 unduck@5700", state: turns.Sounding,
		},
		"a scream": {
			script: answered + "u1000 q500",
			want:   "start@1200-500 judge@2200 end@2300 duck@4260 hold@4480 go-on@5600 unduck@5600", state: turns.Sounding,
		},
		"a crowd": {
			script: answered + "c2000 q500",
			want:   "start@1200-500 judge@2200 end@2300 duck@4260 unduck@6600", state: turns.Sounding,
		},
		"the turn goes on when the answer has begun": {
			script: began + "s400 q500",
			want:   "start@1200-500 judge@2200 end@2300 duck@2960 hold-at-once@2960 go-on@3700 unduck@3700", state: turns.Sounding,
		},
		"the turn goes on and interrupts the answer": {
			script: began + "s900",
			want:   "start@1200-500 judge@2200 end@2300 duck@2960 hold-at-once@2960 cut@3720 unduck@3720 start@3720-1120", state: turns.Talking,
		},
		"a cough when the answer has begun": {
			script: began + "n400 q500",
			want:   "start@1200-500 judge@2200 end@2300 duck@2960 hold-at-once@2960 go-on@3200 unduck@3700", state: turns.Sounding,
		},
		"a second burst": {
			script: answered + "s400 q1000 s300",
			want: "start@1200-500 judge@2200 end@2300 duck@4260 hold@4480 go-on@5000 unduck@5000 duck@5660 " +
				"cut@5880 unduck@5880 start@5880-1980", state: turns.Talking,
		},
		"a second burst in the hold": {
			script: answered + "s400 q200 s300",
			want:   "start@1200-500 judge@2200 end@2300 duck@4260 hold@4480 cut@5080 unduck@5080 start@5080-1180", state: turns.Talking,
		},
		"a second burst too late": {
			script: answered + "s400 q2200 s300",
			want:   "start@1200-500 judge@2200 end@2300 duck@4260 hold@4480 go-on@5000 unduck@5000 duck@6860 hold@7080", state: turns.Holding,
		},
		"noise after the hold": {
			script: answered + "s300 n3000",
			want:   "start@1200-500 judge@2200 end@2300 duck@4260 hold@4480 go-on@5980", state: turns.Sounding,
		},
		"the answer is dropped in the hold": {
			script: answered + "s300 -answer q100",
			want:   "start@1200-500 judge@2200 end@2300 duck@4260 hold@4480 go-on@4520 unduck@4520 start@4520-620", state: turns.Talking,
		},
		"the answer ends under a voice": {
			script: answered + "s100 -answer s200",
			want:   "start@1200-500 judge@2200 end@2300 duck@4260 unduck@4320 start@4400-500", state: turns.Talking,
		},
		"muted in mid-turn": {
			script: "q1000 s1000 +mute s1000",
			want:   "start@1200-500 judge@2200 end@2300", state: turns.Waiting,
		},
		"muted in the hold": {
			script: answered + "s300 +mute s100",
			want:   "start@1200-500 judge@2200 end@2300 duck@4260 hold@4480 go-on@4520 unduck@4520", state: turns.Sounding,
		},
		"muted before a retraction": {
			script: said + "q400 s80 +mute s500",
			want:   "start@1200-500 judge@2200 end@2300 hold@2760 go-on@2800", state: turns.Waiting,
		},
		"muted": {script: "+mute q1000 s1000", state: turns.Quiet},

		"at once": {
			settings: turns.Settings{Interrupt: turns.InterruptAtOnce}, script: answered + "n100",
			want: "start@1200-500 judge@2200 end@2300 cut@4260 start@4260-360", state: turns.Talking,
		},
		"never": {
			settings: turns.Settings{Interrupt: turns.InterruptNever}, script: answered + "s2000 q1000 -answer q500",
			want: "start@1200-500 judge@2200 end@2300", state: turns.Quiet,
		},
		"never, but still speaking": {
			settings: turns.Settings{Interrupt: turns.InterruptNever}, script: answered + "s1000 -answer s500",
			want: "start@1200-500 judge@2200 end@2300 start@5220-1320", state: turns.Talking,
		},
		"a shielded greeting": {
			settings: turns.Settings{Shield: turns.ShieldGreeting}, script: "q500 +answer q500 s1000 q2000 -answer q300",
			want: "start@4020-3320 judge@4020 end@4020", state: turns.Waiting,
		},
		"the answer after it": {
			settings: turns.Settings{Shield: turns.ShieldGreeting}, script: "q500 +answer q500 -answer q500 +answer q1500 s900",
			want: "duck@3060 hold@3280 cut@3820 unduck@3820 start@3820-1120", state: turns.Talking,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := player{Machine: turns.New(c.settings)}
			p.play(t, c.script)
			if got := strings.Join(p.log, " "); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
			if p.State() != c.state {
				t.Errorf("state %d, want %d", p.State(), c.state)
			}
		})
	}
}

// TestTwoRetractionsMakeMorePatient checks the length of the quiet that ends a turn: 300 ms, then 700 ms, then 300 ms.
func TestTwoRetractionsMakeMorePatient(t *testing.T) {
	p := player{Machine: turns.New(turns.Settings{})}
	endQuiet := func() time.Duration {
		t.Helper()
		p.play(t, "s1000 q200 j0.98")
		for quiet := 200 * time.Millisecond; quiet < 5*time.Second; quiet += turns.FrameLength {
			if p.State() == turns.Waiting {
				return quiet
			}
			p.add("q")
		}
		t.Fatal("no end")
		return 0
	}
	p.play(t, "q1000")
	for i, want := range []time.Duration{300, 300, 700, 700} {
		if got := endQuiet(); got != want*time.Millisecond {
			t.Errorf("turn %d ended after %v", i, got)
		}
		p.play(t, "q500")
	}
	p.play(t, "q6000 skip60000 q1000")
	if got := endQuiet(); got != 300*time.Millisecond {
		t.Errorf("after a minute without a retraction: %v", got)
	}
	p.play(t, "q500")
	if got := endQuiet(); got != 300*time.Millisecond {
		t.Errorf("after one retraction: %v", got)
	}
}

// TestSecondDetectorRunsWhereItIsAsked checks the times at which the second detector runs.
func TestSecondDetectorRunsWhereItIsAsked(t *testing.T) {
	for script, want := range map[string]string{
		"q1000 s40 q400":                           "ear@1020-116 no-ear@1180",
		"q1000 s1000 q200 s1000":                   "ear@1020-116 no-ear@1200",
		"q1000 n1500 q200":                         "ear@1020-116 no-ear@1420 ear@2020-116 no-ear@2420",
		"q1000 s1000 q1000 +answer q20 n1000 q200": "ear@1020-116 no-ear@1200 ear@3040-116 no-ear@4160",
		"q1000 s1000 q1000 n1000 q200":             "ear@1020-116 no-ear@1200 ear@3020-116 no-ear@4140",
		"q1000 s1000 q1000 +answer q20 s900 q20":   "ear@1020-116 no-ear@1200 ear@3040-116 no-ear@3840",
	} {
		p := player{Machine: turns.New(turns.Settings{})}
		p.play(t, script)
		if got := strings.Join(p.ear, " "); got != want {
			t.Errorf("%s:\n got %s\nwant %s", script, got, want)
		}
	}
}

func TestSettingsChange(t *testing.T) {
	p := player{Machine: turns.New(turns.Settings{Interrupt: turns.InterruptNever})}
	p.play(t, "q500 +answer q500 s1000")
	p.SetSettings(turns.Settings{})
	p.play(t, "s20")
	if got := strings.Join(p.log, " "); got != "cut@2020 start@2020-1320" {
		t.Error(got)
	}
}

// TestActionsFitTogether plays random frames. It checks that marks, holds and ducks alternate, and that audio is sent only once.
func TestActionsFitTogether(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	interrupts := []turns.Interrupt{turns.InterruptAtOnce, turns.InterruptSpeech, turns.InterruptNever}
	shields := []turns.Shield{turns.ShieldNone, turns.ShieldGreeting}
	counts := map[turns.Kind]int{}
	for range 100 {
		m := turns.New(turns.Settings{Interrupt: interrupts[rng.IntN(3)], Shield: shields[rng.IntN(2)]})
		var f turns.Frame
		var isOpen, isHeld, isDucked, isEar bool
		var endedAt time.Duration
		for range 3000 {
			switch rng.IntN(60) {
			case 0, 1, 2, 3:
				f.Voice = !f.Voice
			case 4:
				f.Sounding = !f.Sounding
			case 5:
				f.Ear = turns.SpeechProbability(rng.IntN(3))
			case 6:
				f.Muted = rng.IntN(4) == 0
			case 7:
				f.At += time.Duration(rng.IntN(2000)) * time.Millisecond
			}
			f.At += turns.FrameLength
			f.Level, f.PlayLevel = -20-30*rng.Float64(), -20-30*rng.Float64()
			for _, a := range m.ProcessFrame(f) {
				counts[a.Kind]++
				fits := true
				switch a.Kind {
				case turns.Start, turns.Retract:
					fits = !isOpen && a.Back > 0 && a.Back <= turns.MaxBack && f.At-a.Back >= endedAt
					isOpen = true
					isHeld = isHeld && a.Kind == turns.Start
				case turns.End:
					fits, isOpen, endedAt = isOpen, false, f.At
				case turns.AskJudge:
					fits = isOpen
					m.RecordVerdict(a.Pause, rng.Float64(), rng.IntN(2) == 0)
				case turns.Hold, turns.GoOn:
					fits, isHeld = isHeld == (a.Kind == turns.GoOn), a.Kind == turns.Hold
				case turns.Duck, turns.Unduck:
					fits, isDucked = isDucked == (a.Kind == turns.Unduck), a.Kind == turns.Duck
				case turns.AskEar, turns.ReleaseEar:
					fits, isEar = isEar == (a.Kind == turns.ReleaseEar), a.Kind == turns.AskEar
				case turns.Cut:
					fits, isHeld = !isOpen && f.Sounding, false
				}
				if !fits {
					t.Fatalf("%s in state %d does not fit", kindNames[a.Kind], m.State())
				}
			}
			if says := m.State() == turns.Talking || m.State() == turns.Pause; says != isOpen || isOpen && isHeld {
				t.Fatalf("open %v, want %v; held %v", says, isOpen, isHeld)
			}
		}
	}
	for kind, name := range kindNames {
		if counts[kind] == 0 {
			t.Errorf("no %s", name)
		}
	}
}

func TestFramesAllocateNothing(t *testing.T) {
	p := turns.New(turns.Settings{})
	f := turns.Frame{Ear: 0.95, Level: -26, PlayLevel: -20}
	i := 0
	if n := testing.AllocsPerRun(5000, func() {
		i++
		f.At += turns.FrameLength
		f.Voice, f.Sounding = i%150 < 80, i%400 > 200
		p.ProcessFrame(f)
	}); n > 0 {
		t.Errorf("%v allocations a frame", n)
	}
}

func BenchmarkFrame(b *testing.B) {
	for name, f := range map[string]turns.Frame{
		"quiet":             {Level: -60, PlayLevel: -60},
		"voice":             {Voice: true, Ear: 0.95, Level: -26, PlayLevel: -60},
		"voice over answer": {Voice: true, Ear: 0.05, Level: -26, PlayLevel: -20, Sounding: true},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			m := turns.New(turns.Settings{})
			for i := 0; b.Loop(); i++ {
				f.At += turns.FrameLength
				m.ProcessFrame(f)
			}
		})
	}
}
