package media_test

import (
	"fmt"
	"testing"
	"time"

	libopus "gopkg.in/hraban/opus.v2"

	"voxgate/media"
)

func decodeAll(t *testing.T, packets [][]byte, rate int, choice media.DecoderChoice) []int16 {
	t.Helper()
	dec, err := media.NewOpusDecoder(rate, choice)
	if err != nil {
		t.Fatal(err)
	}
	var out []int16
	buf := make([]int16, samples(120*ms, rate))
	for i, p := range packets {
		n, err := dec.Decode(p, buf)
		if err != nil {
			t.Fatalf("packet %d (% x): %v", i, p[:min(len(p), 4)], err)
		}
		out = append(out, buf[:n]...)
	}
	return out
}

// TestDecodersAgree has each decoder check the other.
func TestDecodersAgree(t *testing.T) {
	pcm := speech(4*time.Second, 48000)
	var cases []codec
	for _, frame := range []time.Duration{2500 * time.Microsecond, 5 * ms, 10 * ms, 20 * ms, 40 * ms, 60 * ms} {
		c := celt
		c.name = fmt.Sprint("CELT ", frame)
		c.frame = frame
		cases = append(cases, c)
	}
	for _, frame := range []time.Duration{10 * ms, 20 * ms, 40 * ms, 60 * ms} {
		for _, c := range []codec{silk, hybrid} {
			c.name = fmt.Sprint(c.name, " ", frame)
			c.frame = frame
			cases = append(cases, c)
		}
	}
	fec, narrow, stereo, stereoCELT := hybrid, silk, hybrid, celt
	fec.name, fec.fec = "hybrid FEC", true
	narrow.name, narrow.band, narrow.bitrate = "SILK narrow", libopus.Narrowband, 10000
	stereo.name, stereo.channels, stereo.bitrate = "hybrid stereo", 2, 48000
	stereoCELT.name, stereoCELT.channels = "CELT stereo", 2
	cases = append(cases, fec, narrow, stereo, stereoCELT)
	for _, c := range cases {
		packets := c.encode(t, pcm)
		for _, rate := range []int{8000, 16000, 24000, 48000} {
			t.Run(fmt.Sprintf("%s at %d", c.name, rate), func(t *testing.T) {
				want := decodeAll(t, packets, rate, media.LibOpus)
				got := decodeAll(t, packets, rate, media.PionOpus)
				if len(want) != len(got) {
					t.Fatalf("%d samples, libopus %d", len(got), len(want))
				}
				least := 45.0
				switch {
				case c.channels == 2:
					least = 25 // the two downmix differently
				case c.frame == 2500*time.Microsecond:
					least = 85
				case packets[len(packets)/2][0]&0x80 != 0:
					least = 90
				}
				db := snr(want, got)
				t.Logf("%.1f dB", db)
				if db < least {
					t.Errorf("pion differs from libopus: %.1f dB, want %.0f", db, least)
				}
			})
		}
	}
}

func TestDecodersAgreeOnDTX(t *testing.T) {
	c := silk
	c.dtx = true
	pcm := speech(8*time.Second, 48000)
	clear(pcm[2*48000 : 4*48000])
	clear(pcm[5*48000 : 7*48000])
	packets := c.encode(t, pcm)
	short := 0
	for _, p := range packets {
		if len(p) <= 2 {
			short++
		}
	}
	if short < 50 {
		t.Fatalf("the encoder sent %d DTX packets", short)
	}
	db := snr(decodeAll(t, packets, 16000, media.LibOpus), decodeAll(t, packets, 16000, media.PionOpus))
	t.Logf("%.1f dB", db)
	if db < 25 {
		t.Errorf("pion differs from libopus: %.1f dB, want 25", db)
	}
}

func TestDecoderRejects(t *testing.T) {
	buf := make([]int16, samples(120*ms, 16000))
	for _, choice := range []media.DecoderChoice{media.LibOpus, media.PionOpus} {
		dec, err := media.NewOpusDecoder(16000, choice)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dec.Decode(nil, buf); err == nil {
			t.Errorf("%s took an empty packet", choice)
		}
		if n, err := dec.Decode([]byte{0x08}, buf); err != nil || n != 320 {
			t.Errorf("%s: TOC alone: %d samples, %v", choice, n, err)
		}
		if _, err := media.NewOpusDecoder(44100, choice); err == nil {
			t.Errorf("%s decodes to 44100 Hz", choice)
		}
	}
	if _, err := media.ParseDecoderChoice("speex"); err == nil {
		t.Error("speex is a decoder choice")
	}
}

// TestConcealLength checks that no more is made up than was asked for, though the buffer could hold more.
func TestConcealLength(t *testing.T) {
	packets := hybrid.encode(t, speech(time.Second, 48000))
	for _, choice := range []media.DecoderChoice{media.LibOpus, media.PionOpus} {
		dec, err := media.NewOpusDecoder(16000, choice)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]int16, 1920)
		for _, p := range packets[:40] {
			if _, err := dec.Decode(p, buf); err != nil {
				t.Fatal(err)
			}
		}
		last := buf[319]
		for i := range buf {
			buf[i] = 12345
		}
		if err := dec.Conceal(nil, buf[:320]); err != nil {
			t.Fatal(err)
		}
		if buf[320] != 12345 {
			t.Errorf("%s wrote beyond the slice", choice)
		}
		if step := maxStep(append([]int16{last}, buf[:320]...)); step > 4000 {
			t.Errorf("%s: concealment has a step of %d", choice, step)
		}
	}
}

func TestEncoder(t *testing.T) {
	enc, err := media.NewOpusEncoder(24000)
	if err != nil {
		t.Fatal(err)
	}
	var packets [][]byte
	pcm := tone(time.Second, 24000, 1000, 8000)
	size := 0
	for i := 0; i < len(pcm); i += 480 {
		buf := make([]byte, 1275)
		n, err := enc.Encode(pcm[i:i+480], buf)
		if err != nil {
			t.Fatal(err)
		}
		size += n
		packets = append(packets, buf[:n])
	}
	if size < 2000 || size > 9000 {
		t.Errorf("%d bytes for a second at 48 kb/s", size)
	}
	got := decodeAll(t, packets, 16000, media.LibOpus)[1600:]
	if level := media.ToneLevel(got, 16000, 1000); level < 0.99 {
		t.Errorf("the tone is %.3f of what was decoded", level)
	}
}
