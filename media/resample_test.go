package media_test

import (
	"math"
	"testing"
	"time"

	"github.com/zaf/resample"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
)

// stream resamples pcm in pieces of 20 ms, and returns the output samples.
func stream(r *media.Resampler, pcm []int16, from int) (out []int16) {
	for frame := from / 50; len(pcm) > 0; {
		n := min(frame, len(pcm))
		out = append(out, r.Resample(pcm[:n])...)
		pcm = pcm[n:]
	}
	return out
}

// TestResamplerBands sends tones through a resampler and measures the output. A tone below 0.4 of the lower rate passes. A tone
// above 0.6 of the lower rate does not pass, and leaves no mirror image.
func TestResamplerBands(t *testing.T) {
	for _, c := range []struct{ from, to int }{
		{24000, 8000},
		{48000, 16000},
		{24000, 16000},
		{8000, 24000},
		{16000, 24000},
		{16000, 48000},
		{44100, 24000},
	} {
		lower := float64(min(c.from, c.to))
		for f := 0.01 * lower; f < float64(c.from)/2; f += 0.005 * lower {
			r := media.NewResampler(c.from, c.to)
			in := mediatest.Tone(200*time.Millisecond, c.from, f, 30000)
			out := stream(r, in, c.from)[c.to/50:]
			gain := 20 * math.Log10((media.RMS(out)+1e-9)/(30000/math.Sqrt2))
			switch share := f / lower; {
			case share <= 0.4 && math.Abs(gain) > 0.1, share <= 0.425 && math.Abs(gain) > 1:
				t.Errorf("%d to %d Hz: %.0f Hz comes out at %.2f dB", c.from, c.to, f, gain)
			case share >= 0.6 && gain > -78:
				t.Errorf("%d to %d Hz: %.0f Hz comes out at %.1f dB", c.from, c.to, f, gain)
			}
			// The output must consist of the tone alone. Any image of the tone lies above half the lower rate.
			if share := f / lower; share <= 0.4 {
				want := mediatest.Tone(time.Second, c.to, f, 30000)[c.to/50:][:len(out)]
				if db := mediatest.SNR(want, out); db < 38 {
					t.Errorf("%d to %d Hz: %.0f Hz comes out with %.1f dB of SNR", c.from, c.to, f, db)
				}
			}
		}
	}
}

// TestResamplerDelay checks that a click keeps its place, and that the resampler holds back half a filter length of sound.
func TestResamplerDelay(t *testing.T) {
	for _, c := range []struct {
		from, to int
		most     time.Duration
	}{{24000, 8000, 2300 * time.Microsecond}, {48000, 16000, 1200 * time.Microsecond}, {16000, 24000, 1200 * time.Microsecond}} {
		click := make([]int16, c.from/10)
		click[c.from/20] = 30000
		r := media.NewResampler(c.from, c.to)
		out := stream(r, click, c.from)
		held := media.Duration(int(r.BufferedSamples()), c.to)
		if held > c.most || held == 0 || len(out)+int(r.BufferedSamples()) != c.to/10 {
			t.Errorf("%d to %d Hz holds %v back, %d samples came", c.from, c.to, held, len(out))
		}
		out = append(out, r.Flush()...)
		if len(out) != c.to/10 || loudest(out) != c.to/20 {
			t.Errorf("%d to %d Hz: %d samples, the click at %d, want %d", c.from, c.to, len(out), loudest(out), c.to/20)
		}
		r.RestartWithSilence()
		for rest := click; len(rest) > 0; rest = rest[c.from/50:] {
			if n := len(r.Resample(rest[:c.from/50])); n != c.to/50 {
				t.Errorf("%d to %d Hz, delayed: %d samples of 20 ms, want %d", c.from, c.to, n, c.to/50)
			}
		}
		r.RestartWithSilence()
		late := media.Duration(loudest(stream(r, click, c.from))-c.to/20, c.to)
		t.Logf("%d to %d Hz: %v held back, %v late when delayed", c.from, c.to, held, late)
		if late < held-100*time.Microsecond || late > c.most {
			t.Errorf("%d to %d Hz, delayed: the click is %v late", c.from, c.to, late)
		}
	}
}

func loudest(pcm []int16) (at int) {
	for i, s := range pcm {
		if max(s, -s) > max(pcm[at], -pcm[at]) {
			at = i
		}
	}
	return at
}

// TestLibsoxrDelay measures the delay of a click in libsoxr, with writes of 20 ms. This delay is the reason why libsoxr does not
// resample the calls.
func TestLibsoxrDelay(t *testing.T) {
	for name, quality := range map[string]int{"Quick": resample.Quick, "Low": resample.LowQ, "High": resample.HighQ} {
		var out []int16
		got := writer(func(b []byte) { out = media.AppendSamples(out, b) })
		r, err := resample.New(got, 24000, 8000, 1, resample.I16, quality)
		if err != nil {
			t.Fatal(err)
		}
		click := make([]int16, 24000)
		for i := range 480 {
			click[12000+i] = 20000
		}
		var after time.Duration // length of the input when the click comes out
		for i := 0; i < len(click) && (len(out) == 0 || out[loudest(out)] < 10000); i += 480 {
			if _, err := r.Write(media.AppendBytes(nil, click[i:i+480])); err != nil {
				t.Fatal(err)
			}
			after = media.Duration(i+480-12000, 24000)
		}
		r.Close()
		t.Logf("%s: the click is there after %v, where the Resampler has it after 20ms", name, after)
		if name == "High" && after < 40*time.Millisecond {
			t.Error("libsoxr has become fast enough: use it for streams, too")
		}
	}
}

type writer func(b []byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }
