package speech

import (
	"math/rand/v2"
	"testing"
	"time"

	"voxgate/gateway/bench/harness"
	"voxgate/media/opus"
)

// passes is how often the speech is said.
const passes = 3

// lossy passes the speech through a codec and loses a share of its packets, which the decoder repairs from the next packet
// if it may, or makes up.
func lossy(t *testing.T, s *Speech, encoder *opus.Encoder, share float64, fec bool, start time.Time) []Piece {
	t.Helper()
	decoder, err := opus.NewDecoder(ModelRate, "")
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 1))
	packet, missing := make([]byte, 1500), 0
	var heard []Piece
	for i := range passes * s.Frames() {
		n, err := encoder.Encode(s.MicFrame(i), packet)
		if err != nil {
			t.Fatal(err)
		}
		if random.Float64() < share {
			missing++
			continue
		}
		at := start.Add(time.Duration(i) * frame)
		for ; missing > 0; missing-- {
			var next []byte
			if fec && missing == 1 {
				next = packet[:n]
			}
			pcm := make([]int16, FrameSamples(ModelRate))
			if err := decoder.Conceal(next, pcm); err != nil {
				t.Fatal(err)
			}
			heard = append(heard, Piece{at, pcm})
		}
		pcm := make([]int16, ModelRate*120/1000)
		if n, err = decoder.Decode(packet[:n], pcm); err != nil {
			t.Fatal(err)
		}
		heard = append(heard, Piece{at, pcm[:n]})
	}
	return heard
}

// What was said is found, whichever encoder it went through; most of what a decoder makes up is not taken for it.
func TestJudge(t *testing.T) {
	s, err := Recite()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		encoder     func() (*opus.Encoder, error)
		lost        float64
		fec         bool
		least, most float64
	}{
		"clean, low delay":     {func() (*opus.Encoder, error) { return opus.NewEncoder(MicRate) }, 0, false, 0.999, 1},
		"clean, as a browser":  {NewTalker, 0, false, 0.99, 1},
		"lost, made up":        {func() (*opus.Encoder, error) { return opus.NewEncoder(MicRate) }, 0.2, false, 0.75, 0.88},
		"lost, made up by FEC": {NewTalker, 0.2, true, 0.92, 0.97},
	} {
		encoder, err := test.encoder()
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var recitals []Recital
		for i := range passes {
			recitals = append(recitals, Recital{start.Add(time.Duration(i*s.Frames()) * frame), 0, s.Frames()})
		}
		const delay = 130 * time.Millisecond
		heard := lossy(t, s, encoder, test.lost, test.fec, start.Add(delay))
		present, late := 0, []time.Duration(nil)
		all := Judge(s, recitals, heard)
		for _, v := range all {
			if v.Present {
				present++
				late = append(late, v.Delay)
			}
		}
		if share := float64(present) / float64(len(all)); share < test.least || share > test.most {
			t.Errorf("%s: a share of %.4f, want %v to %v", name, share, test.least, test.most)
		}
		if got := harness.Quantile(late, 0.5); got < delay || got > delay+frame {
			t.Errorf("%s: a delay of %v, want %v, or a frame more", name, got, delay)
		}
	}
}
