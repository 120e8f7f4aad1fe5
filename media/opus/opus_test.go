package opus_test

import (
	"fmt"
	"testing"
	"time"

	"voxgate/media/opus/libopus"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/media/opus"
)

const ms = time.Millisecond

// TestDecodersAgree compares the outputs of the two decoders.
func TestDecodersAgree(t *testing.T) {
	pcm := mediatest.SynthesizeSpeech(4*time.Second, 48000)
	var cases []mediatest.Codec
	for _, frame := range []time.Duration{2500 * time.Microsecond, 5 * ms, 10 * ms, 20 * ms, 40 * ms, 60 * ms} {
		c := mediatest.CELT
		c.Name = fmt.Sprint("CELT ", frame)
		c.Frame = frame
		cases = append(cases, c)
	}
	for _, frame := range []time.Duration{10 * ms, 20 * ms, 40 * ms, 60 * ms} {
		for _, c := range []mediatest.Codec{mediatest.SILK, mediatest.Hybrid} {
			c.Name = fmt.Sprint(c.Name, " ", frame)
			c.Frame = frame
			cases = append(cases, c)
		}
	}
	fec, narrow, stereo, stereoCELT := mediatest.Hybrid, mediatest.SILK, mediatest.Hybrid, mediatest.CELT
	fec.Name, fec.FEC = "hybrid FEC", true
	narrow.Name, narrow.Band, narrow.Bitrate = "SILK narrow", libopus.Narrowband, 10000
	stereo.Name, stereo.Channels, stereo.Bitrate = "hybrid stereo", 2, 48000
	stereoCELT.Name, stereoCELT.Channels = "CELT stereo", 2
	cases = append(cases, fec, narrow, stereo, stereoCELT)
	for _, c := range cases {
		packets := c.Encode(t, pcm)
		rates := []int{16000}
		if c.Frame == 20*ms {
			rates = []int{8000, 16000, 24000, 48000}
		}
		for _, rate := range rates {
			t.Run(fmt.Sprintf("%s at %d", c.Name, rate), func(t *testing.T) {
				want := mediatest.Decode(t, packets, rate, opus.LibOpus)
				got := mediatest.Decode(t, packets, rate, opus.Pion)
				if len(want) != len(got) {
					t.Fatalf("%d samples, libopus %d", len(got), len(want))
				}
				least := 45.0
				switch {
				case c.Channels == 2:
					least = 25 // the two decoders mix stereo down differently
				case c.Frame == 2500*time.Microsecond:
					least = 85
				case packets[len(packets)/2][0]&0x80 != 0:
					least = 90
				}
				db := mediatest.SNR(want, got)
				t.Logf("%.1f dB", db)
				if db < least {
					t.Errorf("pion differs from libopus: %.1f dB, want %.0f", db, least)
				}
			})
		}
	}
}

func TestDecodersAgreeOnDTX(t *testing.T) {
	c := mediatest.SILK
	c.DTX = true
	pcm := mediatest.SynthesizeSpeech(8*time.Second, 48000)
	clear(pcm[2*48000 : 4*48000])
	clear(pcm[5*48000 : 7*48000])
	packets := c.Encode(t, pcm)
	short := 0
	for _, p := range packets {
		if len(p) <= 2 {
			short++
		}
	}
	if short < 50 {
		t.Fatalf("the encoder sent %d DTX packets", short)
	}
	db := mediatest.SNR(mediatest.Decode(t, packets, 16000, opus.LibOpus), mediatest.Decode(t, packets, 16000, opus.Pion))
	t.Logf("%.1f dB", db)
	if db < 25 {
		t.Errorf("pion differs from libopus: %.1f dB, want 25", db)
	}
}

func TestDecoderRejects(t *testing.T) {
	buf := make([]int16, media.Samples(120*ms, 16000))
	for _, choice := range []opus.DecoderChoice{opus.LibOpus, opus.Pion} {
		dec, err := opus.NewDecoder(16000, choice)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dec.Decode(nil, buf); err == nil {
			t.Errorf("%s took an empty packet", choice)
		}
		if n, err := dec.Decode([]byte{0x08}, buf); err != nil || n != 320 {
			t.Errorf("%s: TOC alone: %d samples, %v", choice, n, err)
		}
		if _, err := opus.NewDecoder(44100, choice); err == nil {
			t.Errorf("%s decodes to 44100 Hz", choice)
		}
	}
	if _, err := opus.ParseDecoderChoice("speex"); err == nil {
		t.Error("speex is a decoder choice")
	}
}

// TestConcealLength checks that concealment writes only the requested samples, although the buffer has room for more.
func TestConcealLength(t *testing.T) {
	packets := mediatest.Hybrid.Encode(t, mediatest.SynthesizeSpeech(time.Second, 48000))
	for _, choice := range []opus.DecoderChoice{opus.LibOpus, opus.Pion} {
		dec, err := opus.NewDecoder(16000, choice)
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
		if step := mediatest.MaxStep(append([]int16{last}, buf[:320]...)); step > 4000 {
			t.Errorf("%s: concealment has a step of %d", choice, step)
		}
	}
}
