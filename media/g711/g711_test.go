package g711_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/media/g711"
)

const ms = time.Millisecond

var laws = map[string]g711.Codec{"PCMU": g711.MuLaw, "PCMA": g711.ALaw}

// TestMuLawAndALaw compares bytes with tables 1 and 2 of G.711. It also compares each byte with the encoding of its decoded value.
func TestMuLawAndALaw(t *testing.T) {
	for _, c := range []struct {
		codec  g711.Codec
		sample int16
		want   byte
		back   int16
	}{
		{g711.MuLaw, 0, 0xff, 0},
		{g711.MuLaw, -1, 0x7f, 0},
		{g711.MuLaw, 32767, 0x80, 32124},
		{g711.MuLaw, -32768, 0x00, -32124},
		{g711.MuLaw, 1000, 0xce, 988},
		{g711.MuLaw, -1000, 0x4e, -988},
		{g711.ALaw, 0, 0xd5, 8},
		{g711.ALaw, -1, 0x55, -8},
		{g711.ALaw, 32767, 0xaa, 32256},
		{g711.ALaw, -32768, 0x2a, -32256},
		{g711.ALaw, 1000, 0xfa, 1008},
		{g711.ALaw, -1000, 0x7a, -1008},
	} {
		b := c.codec.AppendEncoded(nil, []int16{c.sample})
		if back := c.codec.AppendDecoded(nil, b)[0]; b[0] != c.want || back != c.back {
			t.Errorf("%d becomes %#x and %d, want %#x and %d", c.sample, b[0], back, c.want, c.back)
		}
	}
	for name, codec := range laws {
		for b := range 256 {
			pcm := codec.AppendDecoded(nil, []byte{byte(b)})
			if got := codec.AppendDecoded(nil, codec.AppendEncoded(nil, pcm)); got[0] != pcm[0] {
				t.Errorf("%s: %#x stands for %d, which becomes %d", name, b, pcm[0], got[0])
			}
		}
		for s := math.MinInt16; s <= math.MaxInt16; s++ {
			got := codec.AppendDecoded(nil, codec.AppendEncoded(nil, []int16{int16(s)}))[0]
			if off := max(s, -s) - max(int(got), -int(got)); math.Abs(float64(off)) > max(8, (math.Abs(float64(s))+132)/32) {
				t.Fatalf("%s: %d becomes %d", name, s, got)
			}
		}
	}
}

// TestEncoder encodes tones at 24 kHz, the rate of the model's voice, to frames of 160 bytes. A tone must keep its frequency and
// level. A tone above the telephone band must not pass.
func TestEncoder(t *testing.T) {
	for name, codec := range laws {
		for hz, want := range map[float64]float64{300: 0, 1000: 0, 3000: 0, 3400: -1, 5000: -55, 9000: -55} {
			enc, err := codec.NewEncoder(24000)
			if err != nil {
				t.Fatal(err)
			}
			in := mediatest.Tone(400*ms, 24000, hz, 8000)
			var heard []int16
			buf := make([]byte, media.MaxPacketBytes)
			for i := 0; i < len(in); i += 480 {
				n, err := enc.Encode(in[i:i+480], buf)
				if err != nil || n != 160 || codec.PacketDuration(buf[:n]) != 20*ms {
					t.Fatalf("%d bytes, %v", n, err)
				}
				heard = codec.AppendDecoded(heard, buf[:n])
			}
			heard = heard[320:]
			gain := 20 * math.Log10(media.RMS(heard)/media.RMS(in))
			if share := mediatest.ToneLevel(heard, 8000, hz); want > -2 &&
				(math.Abs(gain-want) > 0.5 && hz < 3400 || gain < want-0.5 || share < 0.99) ||
				want < -50 && gain > want {
				t.Errorf("%s: a tone of %.0f Hz comes out at %.1f dB, %.3f of it that tone", name, hz, gain, share)
			}
		}
	}
	if _, err := g711.MuLaw.NewDecoder(16000); err == nil {
		t.Error("8 kHz are decoded to 16 kHz")
	}
	dec, err := g711.MuLaw.NewDecoder(8000)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 961} {
		if _, err := dec.Decode(make([]byte, size), make([]int16, 960)); err == nil {
			t.Errorf("a packet of %d bytes is decoded", size)
		}
	}
}

// TestConcealment loses one to three packets in a row out of every ten packets of real speech. It measures the concealment in
// their place.
func TestConcealment(t *testing.T) {
	speech, err := media.Resample(mediatest.Conversation(), 48000, 8000)
	if err != nil {
		t.Fatal(err)
	}
	for name, codec := range laws {
		for lost := 1; lost <= 3; lost++ {
			t.Run(fmt.Sprintf("%s %d", name, lost), func(t *testing.T) {
				dec, err := codec.NewDecoder(8000)
				if err != nil {
					t.Fatal(err)
				}
				var whole, heard []int16
				var snr, level []float64 // of the first lost frame of each gap, if it contains a voice
				frame := make([]int16, 960)
				for i := 0; i+160 <= len(speech); i += 160 {
					packet := codec.AppendEncoded(nil, speech[i:i+160])
					whole = codec.AppendDecoded(whole, packet)
					if i/160%10 < 10-lost {
						if n, err := dec.Decode(packet, frame); err != nil || n != 160 {
							t.Fatal(n, err)
						}
					} else if err := dec.Conceal(nil, frame[:160]); err != nil {
						t.Fatal(err)
					}
					heard = append(heard, frame[:160]...)
					if i/160%10 == 10-lost && media.RMS(whole[i:]) > 300 { // the first lost frame of a gap
						snr = append(snr, mediatest.SNR(whole[i:], frame))
						level = append(level, media.RMS(frame[:160])/media.RMS(whole[i:]))
					}
				}
				slices.Sort(snr)
				slices.Sort(level)
				middle := len(snr) / 2
				t.Logf(
					"of %d lost frames of voice: %.1f, %.1f and %.1f dB of SNR at the quartiles, "+
						"%.2f times as loud; the largest step is %d, %d in what was sent",
					len(snr),
					snr[middle/2],
					snr[middle],
					snr[middle+middle/2],
					level[middle],
					mediatest.MaxStep(heard),
					mediatest.MaxStep(whole),
				)
				if len(snr) < 50 || snr[middle] < 1.2 || level[middle] < 0.85 || level[middle] > 1.15 {
					t.Error("lost sound is not concealed")
				}
				if mediatest.MaxStep(heard) > mediatest.MaxStep(whole) {
					t.Error("it clicks")
				}
			})
		}
	}
}

// TestConcealmentFadesOut checks that concealment fades and ends after 60 ms, without a step. Before the first packet it must be
// silent.
func TestConcealmentFadesOut(t *testing.T) {
	dec, err := g711.ALaw.NewDecoder(8000)
	if err != nil {
		t.Fatal(err)
	}
	conceal := func() []int16 {
		pcm := make([]int16, 160)
		if err := dec.Conceal(nil, pcm); err != nil {
			t.Fatal(err)
		}
		return pcm
	}
	if media.RMS(conceal()) != 0 {
		t.Error("something is made up of nothing")
	}
	voice := g711.ALaw.AppendEncoded(nil, mediatest.Tone(100*ms, 8000, 200, 10000))
	if _, err := dec.Decode(voice, make([]int16, 960)); err != nil {
		t.Fatal(err)
	}
	heard := g711.ALaw.AppendDecoded(nil, voice)
	natural := mediatest.MaxStep(heard)
	for i, want := range []float64{0.97, 0.7, 0.3, 0} {
		made := conceal()
		heard = append(heard, made...)
		level := media.RMS(made) / (10000 / math.Sqrt2)
		if math.Abs(level-want) > 0.1 {
			t.Errorf("20 ms number %d: %.2f times as loud as the tone, want %.2f", i, level, want)
		}
	}
	if step := mediatest.MaxStep(heard); step > natural*11/10 {
		t.Errorf("a step of %d, where the tone has %d", step, natural)
	}
}

// TestTranscodeTable checks that a byte becomes a byte of the other law with a near value. The error may be twice that of the
// nearest value, because a value may lie between two others.
func TestTranscodeTable(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, laws := range [][2]g711.Codec{{g711.MuLaw, g711.ALaw}, {g711.ALaw, g711.MuLaw}} {
		bytes, candidates := laws[0].TranscodeTable(laws[1]), laws[1].AppendDecoded(nil, all)
		for b, sample := range laws[0].AppendDecoded(nil, all) {
			off := func(other int16) int { return max(int(other)-int(sample), int(sample)-int(other)) }
			least := math.MaxInt
			for _, other := range candidates {
				least = min(least, off(other))
			}
			if got := off(candidates[bytes[b]]); got > 2*least {
				t.Errorf("byte %d, a sample of %d: off by %d, the best byte by %d", b, sample, got, least)
			}
		}
	}
}
