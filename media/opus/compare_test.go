package opus_test

import (
	"math/rand/v2"
	"testing"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/media/opus"
)

// The figures decide which decoder is the default. This command prints them: `go test ./media/opus -run Loss -bench Decoder -v`.

// streams returns packets of a conversation as four kinds of senders encode it. These are a browser by default, a browser after
// reports of loss, a telephone gateway, and this gateway itself.
func streams(t testing.TB) map[string][][]byte {
	pcm := mediatest.Conversation()
	pcm = pcm[:len(pcm)/960/2*960]
	fec, narrow := mediatest.Hybrid, mediatest.SILK
	fec.FEC = true
	return map[string][][]byte{
		"hybrid": mediatest.Hybrid.Encode(
			t,
			pcm,
		), "hybrid FEC": fec.Encode(t, pcm), "SILK": narrow.Encode(t, pcm), "CELT": mediatest.CELT.Encode(t, pcm),
	}
}

var choices = []opus.DecoderChoice{opus.LibOpus, opus.Pion}

// TestDecodersUnderLoss loses about one of twenty packets of real speech, which only the decoder can repair. It measures the SNR
// against the same stream without loss.
func TestDecodersUnderLoss(t *testing.T) {
	for name, packets := range streams(t) {
		got := map[opus.DecoderChoice]float64{}
		for _, choice := range choices {
			codec := opus.Codec{Decoder: choice}
			dec, err := codec.NewDecoder(16000)
			if err != nil {
				t.Fatal(err)
			}
			whole := mediatest.Decode(t, packets, 16000, choice)
			rng := rand.New(rand.NewPCG(1, 1))
			var heard []int16
			lost := false
			buf := make([]int16, media.Samples(media.MaxPacketDuration, 16000))
			for i, p := range packets {
				if i > 0 && i+1 < len(packets) && !lost && rng.IntN(19) == 0 {
					lost = true
					continue
				}
				if lost {
					next := p
					if codec.RedundancyDuration(p) == 0 {
						next = nil
					}
					if err := dec.Conceal(next, buf[:320]); err != nil {
						t.Fatal(err)
					}
					heard = append(heard, buf[:320]...)
					lost = false
				}
				n, err := dec.Decode(p, buf)
				if err != nil {
					t.Fatal(err)
				}
				heard = append(heard, buf[:n]...)
			}
			got[choice] = mediatest.SNR(whole[:min(len(whole), len(heard))], heard)
		}
		t.Logf("5 %% loss of %s: libopus %.1f dB, pion %.1f dB from the stream without loss", name, got[opus.LibOpus], got[opus.Pion])
		more := map[string]float64{"hybrid FEC": 10, "CELT": 0}[name]
		if name == "hybrid" || name == "SILK" {
			more = 1.5
		}
		if got[opus.LibOpus] < got[opus.Pion]+more {
			t.Errorf("%s: libopus is not %.1f dB better than pion: look at the default again", name, more)
		}
	}
}

// BenchmarkDecoder decodes one packet of 20 ms of real speech to 16 kHz in each operation.
func BenchmarkDecoder(b *testing.B) {
	for name, packets := range streams(b) {
		for _, choice := range choices {
			b.Run(name+" "+string(choice), func(b *testing.B) {
				dec, err := opus.NewDecoder(16000, choice)
				if err != nil {
					b.Fatal(err)
				}
				buf := make([]int16, media.Samples(media.MaxPacketDuration, 16000))
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if _, err := dec.Decode(packets[i%len(packets)], buf); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
