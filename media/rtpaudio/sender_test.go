package rtpaudio_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/pion/rtp"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/media/g711"
	"voxgate/media/opus"
	"voxgate/media/rtpaudio"
)

// sent is a Writer that stores the packets of a Sender.
type sent struct{ packets []rtp.Packet }

func (s *sent) WriteRTP(p *rtp.Packet) error {
	s.packets = append(s.packets, *p.Clone())
	return nil
}

func (s *sent) payloads() (all [][]byte) {
	for _, p := range s.packets {
		all = append(all, p.Payload)
	}
	return all
}

// output returns a Sender, its packets, and a function that sends the next d of a speech.
func output(t testing.TB) (*rtpaudio.Sender, *sent, func(d time.Duration)) {
	t.Helper()
	s := &sent{}
	out, err := rtpaudio.NewSender(s, opus.Codec{})
	if err != nil {
		t.Fatal(err)
	}
	voice := mediatest.SynthesizeSpeech(4*time.Second, outRate)
	at := time.Duration(0)
	return out, s, func(d time.Duration) {
		for end := at + d; at < end; at += media.FrameDuration {
			i := int(at/media.FrameDuration) % 200
			if err := out.WriteFrame(media.Frame{PCM: voice[i*480:][:480], PTS: at, Start: at == 0}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestREDLayout parses the packets in the layout of RFC 2198, section 3.
func TestREDLayout(t *testing.T) {
	out, s, say := output(t)
	say(40 * time.Millisecond)
	out.SetPayloadTypes(111, 63)
	say(100 * time.Millisecond)
	for i, p := range s.packets[:2] {
		if p.PayloadType != 0 || len(p.Payload) == 0 {
			t.Errorf("packet %d before the negotiation has type %d", i, p.PayloadType)
		}
	}
	var primary [][]byte
	for i, p := range s.packets[2:] {
		if p.PayloadType != 63 {
			t.Fatalf("packet %d has type %d", i, p.PayloadType)
		}
		b := p.Payload
		type block struct{ offset, length int }
		var copies []block
		for b[0]&0x80 != 0 {
			h := binary.BigEndian.Uint32(b)
			if pt := h >> 24 & 0x7f; pt != 111 {
				t.Fatalf("packet %d: a copy of type %d", i, pt)
			}
			copies = append(copies, block{int(h >> 10 & 0x3fff), int(h & 0x3ff)})
			b = b[4:]
		}
		if b[0] != 111 {
			t.Fatalf("packet %d: the primary block has type %d", i, b[0])
		}
		b = b[1:]
		if want := min(i, 2); len(copies) != want {
			t.Fatalf("packet %d has %d copies, want %d", i, len(copies), want)
		}
		for j, c := range copies {
			back := len(copies) - j
			if c.offset != 960*back {
				t.Errorf("packet %d: copy %d is %d earlier", i, j, c.offset)
			}
			if !bytes.Equal(b[:c.length], primary[i-back]) {
				t.Errorf("packet %d: copy %d is not what was sent", i, j)
			}
			b = b[c.length:]
		}
		primary = append(primary, b)
	}
}

// A copy is left out if its offset does not fit in the header. Older copies are left out, too.
func TestREDOmitsOldPackets(t *testing.T) {
	s := &sent{}
	out, err := rtpaudio.NewSender(s, opus.Codec{})
	if err != nil {
		t.Fatal(err)
	}
	out.SetPayloadTypes(111, 63)
	voice := mediatest.SynthesizeSpeech(time.Second, outRate)
	for i, at := range []time.Duration{0, 20, 360, 380, 1000} { // in ms; the maximum offset, 2^14 at 48 kHz, is 341 ms
		f := media.Frame{PCM: voice[480*i:][:480], PTS: at * time.Millisecond}
		if err := out.WriteFrame(f); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []int{0, 1, 1, 1, 0} {
		n := 0
		for b := s.packets[i].Payload; b[0]&0x80 != 0; b = b[4:] {
			n++
		}
		if n != want {
			t.Errorf("packet %d has %d copies, want %d", i, n, want)
		}
	}
}

// TestLossChangesTheEncoder reports losses for some time: FEC is used only then, and the changes cause no clicks.
func TestLossChangesTheEncoder(t *testing.T) {
	out, s, say := output(t)
	robust := func() bool { // SILK and mediatest.Hybrid have the configurations below 16: RFC 6716, section 3.1
		last := s.packets[len(s.packets)-1]
		return last.Payload[0]>>3 < 16
	}
	say(time.Second)
	if robust() {
		t.Fatal("it begins robust")
	}
	out.ReportLoss(1, 20)
	say(200 * time.Millisecond)
	if robust() {
		t.Error("one loss of 20 packets made it robust")
	}
	out.ReportLoss(1, 30)
	say(time.Second)
	if !robust() {
		t.Error("4 % loss did not make it robust")
	}
	copies := 0
	for _, p := range s.packets[len(s.packets)-50:] {
		if (opus.Codec{}).RedundancyDuration(p.Payload) > 0 {
			copies++
		}
	}
	if copies < 25 {
		t.Errorf("%d of 50 packets have a copy of the frame before", copies)
	}
	for range 2 {
		out.ReportLoss(0, 50)
	}
	out.ReportLoss(1, 50) // 2 %: between healthyShare and lossyShare
	for range 2 {
		out.ReportLoss(0, 50)
	}
	say(200 * time.Millisecond)
	if !robust() {
		t.Error("it went back too soon")
	}
	out.ReportLoss(0, 50)
	say(time.Second)
	if robust() {
		t.Error("it did not go back")
	}
	heard := mediatest.Decode(t, s.payloads(), outRate, "")
	said := mediatest.SynthesizeSpeech(4*time.Second, outRate)
	if got, most := steepest(heard), 1.3*steepest(said); got > most {
		t.Errorf("a step of %.0f, where speech has no more than %.0f", got, most)
	}
}

// steepest returns the largest difference between a sample and the next but one.
func steepest(pcm []int16) float64 {
	most := 0.0
	for i := 2; i < len(pcm); i++ {
		most = max(most, math.Abs(float64(pcm[i])-float64(pcm[i-2])))
	}
	return most
}

// TestRTPTimestamps checks that the timestamps follow the PTS, also where they wrap around.
func TestRTPTimestamps(t *testing.T) {
	w := &sent{}
	out, err := rtpaudio.NewSender(w, opus.Codec{})
	must(t, err)
	for _, hours := range []time.Duration{0, 24, 25, 54, 1000} {
		for _, after := range []time.Duration{0, 20 * ms} {
			must(t, out.WriteFrame(media.Frame{PCM: make([]int16, 480), PTS: hours*time.Hour + after}))
			want := uint32(uint64(hours)*3600*48000) + uint32(after/ms*48)
			if got := w.packets[len(w.packets)-1].Timestamp - w.packets[0].Timestamp; got != want {
				t.Errorf("after %d h and %v the timestamp has advanced by %d, want %d", hours, after, got, want)
			}
		}
	}
}

// TestSender checks that the decoded packets equal the audio that was written.
func TestSender(t *testing.T) {
	w := &sent{}
	out, err := rtpaudio.NewSender(w, opus.Codec{})
	must(t, err)
	pcm := mediatest.Tone(time.Second, outRate, 700, 9000)
	for i := range 50 {
		must(t, out.WriteFrame(media.Frame{PCM: pcm[i*480:][:480], PTS: time.Duration(i) * 20 * ms, Start: i == 0}))
	}
	if err := out.WriteFrame(media.Frame{PCM: pcm[:100]}); err == nil {
		t.Error("a short frame is taken")
	}
	got := mediatest.Decode(t, w.payloads(), 16000, opus.Pion)[1600:]
	if level := mediatest.ToneLevel(got, 16000, 700); level < 0.99 {
		t.Errorf("the tone is %.3f of what was sent", level)
	}
	if rms := media.RMS(got); math.Abs(rms-9000/math.Sqrt2) > 300 {
		t.Errorf("the level is %.0f", rms)
	}
}

func BenchmarkSender(b *testing.B) {
	for _, c := range []struct {
		name  string
		codec media.Codec
		red   uint8
		lost  int
	}{{"Opus", opus.Codec{}, 0, 0}, {"Opus RED", opus.Codec{}, 63, 0}, {"Opus lossy", opus.Codec{}, 0, 10}, {
		"Opus RED lossy",
		opus.Codec{},
		63, 10,
	}, {"PCMU", g711.MuLaw, 0, 0}} {
		b.Run(c.name, func(b *testing.B) {
			out, err := rtpaudio.NewSender(discard{}, c.codec)
			if err != nil {
				b.Fatal(err)
			}
			out.SetPayloadTypes(111, c.red)
			out.ReportLoss(c.lost, 100)
			voice := mediatest.SynthesizeSpeech(4*time.Second, outRate)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := out.WriteFrame(media.Frame{PCM: voice[i%200*480:][:480], PTS: time.Duration(i) * media.FrameDuration}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
