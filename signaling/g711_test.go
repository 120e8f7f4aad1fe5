package signaling_test

import (
	"testing"
	"time"

	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"

	"voxgate/media"
	"voxgate/media/g711"
)

// A phone that speaks G.711 alone holds a conversation: the model hears its 8 kHz, and it hears the model.
func TestPhoneWithoutOpus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mimeType    string
		payloadType webrtc.PayloadType
		codec       g711.Codec
	}{{webrtc.MimeTypePCMU, 0, g711.MuLaw}, {webrtc.MimeTypePCMA, 8, g711.ALaw}} {
		t.Run(c.mimeType, func(t *testing.T) {
			t.Parallel()
			capability := webrtc.RTPCodecCapability{MimeType: c.mimeType, ClockRate: 8000}
			p := newPhone(t, connect(t, newGateway(t), `{}`), phoneOptions{noAudio: true})
			mic, err := webrtc.NewTrackLocalStaticRTP(capability, "mic", "phone")
			if err != nil {
				t.Fatal(err)
			}
			both, err := p.pc.AddTransceiverFromTrack(mic, webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionSendrecv})
			if err != nil {
				t.Fatal(err)
			}
			if err := both.SetCodecPreferences([]webrtc.RTPCodecParameters{{RTPCodecCapability: capability, PayloadType: c.payloadType}}); err != nil {
				t.Fatal(err)
			}
			p.pc.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
				for {
					packet, _, err := track.ReadRTP()
					if err != nil {
						return
					}
					p.mu.Lock()
					p.ear = c.codec.Append(p.ear, packet.Payload)
					p.mu.Unlock()
				}
			})
			p.offer(false)
			p.connected()
			frame := time.NewTicker(media.FrameDuration)
			defer frame.Stop()
			said := sentence(440, time.Second, 8000)
			for i := 0; len(loud(p.heard())) < 8000*8/10; i++ {
				if i == 1000 {
					t.Fatalf("after 20 s: %d samples of a voice", len(loud(p.heard())))
				}
				pcm := make([]int16, 160)
				said = said[copy(pcm, said):]
				packet := rtp.Packet{
					Header:  rtp.Header{Version: 2, SequenceNumber: uint16(i), Timestamp: uint32(160 * i)},
					Payload: c.codec.AppendBytes(nil, pcm),
				}
				if err := mic.WriteRTP(&packet); err != nil {
					t.Fatal(err)
				}
				<-frame.C
			}
			if level := toneShare(loud(p.heard()), 3*440); level < 0.5 { // it counts 24 kHz
				t.Errorf("share of 440 Hz is %.2f", level)
			}
		})
	}
}
