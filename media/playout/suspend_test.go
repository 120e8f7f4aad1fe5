package playout_test

import (
	"testing"
	"time"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/media/playout"
)

// fade is the length of a fade-in or fade-out, in samples.
var fade = media.Samples(media.FadeDuration, outRate)

// words returns one second of sound like a voice, with a dip of 20 ms in every 160 ms. All samples are positive.
func words() (pcm []int16) {
	for i := range media.Samples(time.Second, outRate) / media.Samples(20*ms, outRate) {
		level := int16(8000)
		if i%8 == 7 {
			level = 40
		}
		pcm = append(pcm, constant(20*ms, level)...)
	}
	return pcm
}

// TestSuspendAndContinue checks that Suspend stops the voice at a dip within 200 ms. After Continue the rest of the voice follows
// once, without a click. Marks wait with the sound.
func TestSuspendAndContinue(t *testing.T) {
	for _, lead := range []time.Duration{0, 200 * ms} {
		for _, at := range []time.Duration{3 * ms, 95 * ms, 137 * ms, 450 * ms} {
			play(t, lead, func(t *testing.T, p *playout.Pacer, s *speaker) {
				p.AttachOutput(s)
				voice := words()
				must(t, p.WritePCM(voice[:len(voice)/2]))
				marked := make(chan bool, 1)
				must(t, p.WritePCM(voice[len(voice)/2:]))
				p.AddMark(func(heard bool) { marked <- heard })
				time.Sleep(at)
				p.Suspend(playout.DipSearch)
				p.Suspend(playout.DipSearch) // has no further effect
				time.Sleep(2 * time.Second)
				before := soundLength(s)
				if most := media.Samples(at+200*ms+lead+20*ms, outRate) + fade; before > most {
					t.Errorf("suspended after %v: %d samples were sent, at most %d may be", at, before, most)
				}
				if len(marked) > 0 {
					t.Error("a mark was passed")
				}
				if end := s.pcm()[:before]; lead == 0 && loudest(end[before-480:]) > 40 {
					t.Errorf("suspended after %v: it did not stop at the dip", at)
				}
				p.Resume()
				time.Sleep(2 * time.Second)
				if got := soundLength(s); got < len(voice)-fade || got > len(voice)+2*fade {
					t.Errorf("suspended after %v: %d of %d samples came", at, got, len(voice))
				}
				if len(marked) != 1 || !<-marked {
					t.Error("the mark was not passed")
				}
				if step := mediatest.MaxStep(s.pcm()); lead == 0 && step > 8000 {
					t.Errorf("a click of %d", step)
				}
				if n := p.Stats().Underruns; n > 0 {
					t.Errorf("%d underruns", n)
				}
			})
		}
	}
}

// TestSuspendAtOnce checks that Suspend without a search stops before the next frame and without a click.
func TestSuspendAtOnce(t *testing.T) {
	play(t, 0, func(t *testing.T, p *playout.Pacer, s *speaker) {
		p.AttachOutput(s)
		must(t, p.WritePCM(constant(time.Second, 8000)))
		const at = 95 * ms
		time.Sleep(at)
		p.Suspend(0)
		time.Sleep(time.Second)
		if heard, most := soundLength(s), media.Samples(at+20*ms, outRate)+fade; heard > most {
			t.Errorf("%d samples were sent, at most %d may be", heard, most)
		}
		p.Resume()
		time.Sleep(2 * time.Second)
		if heard := soundLength(s); heard < media.Samples(time.Second, outRate)-2*fade {
			t.Errorf("%d samples came in all", heard)
		}
		if step := mediatest.MaxStep(s.pcm()[media.Samples(at, outRate):]); step > 1000 {
			t.Errorf("a click of %d", step)
		}
	})
}

// TestFlushEndsSuspension checks that a flush ends a suspension, so that the next answer is played.
func TestFlushEndsSuspension(t *testing.T) {
	play(t, 0, func(t *testing.T, p *playout.Pacer, s *speaker) {
		p.AttachOutput(s)
		must(t, p.WritePCM(words()))
		time.Sleep(100 * ms)
		p.Suspend(playout.DipSearch)
		time.Sleep(time.Second)
		if cut := p.Flush(); cut.Unplayed < 700*ms || cut.FadeDelay > 0 {
			t.Errorf("%+v", cut)
		}
		heard := soundLength(s)
		must(t, p.WritePCM(constant(100*ms, 5000)))
		time.Sleep(time.Second)
		if n := soundLength(s) - heard; n > media.Samples(100*ms, outRate)+fade || n < media.Samples(100*ms, outRate) {
			t.Errorf("%d samples of the next answer came", n)
		}
	})
}

func soundLength(s *speaker) (n int) {
	for _, v := range s.pcm() {
		if v > 0 {
			n++
		}
	}
	return n
}

func loudest(pcm []int16) (level int16) {
	for _, v := range pcm {
		level = max(level, v)
	}
	return level
}
