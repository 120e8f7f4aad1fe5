package rtc

import (
	"testing"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"

	"voxgate/media"
	"voxgate/media/opus"
)

// ear receives the packets of a voice.
type ear struct{ last byte }

func (e *ear) WriteRTP(_ *rtp.Header, payload []byte) (int, error) {
	e.last = payload[0]
	return len(payload), nil
}

func (e *ear) Write(b []byte) (int, error) { return len(b), nil }

// The cumulative number of lost packets has 24 bits and a sign (RFC 3550, section 6.4.1). It is negative if the
// network, or an answer to NACK, duplicates packets. That is not a loss. A change of the stream that the peer counts is
// not a loss either.
func TestNoFalseLoss(t *testing.T) {
	type report struct{ last, lost uint32 }
	for _, c := range []struct {
		name    string
		reports []report
		robust  bool
	}{
		{"a duplicate", []report{{1000, 0}, {1100, 0xffffff}}, false},
		{"fewer duplicates than before", []report{{1000, 0xfffff0}, {1100, 0xfffff1}}, false},
		{"a loss", []report{{1000, 0}, {1100, 10}}, true},
		{"a loss after duplicates", []report{{1000, 0xffffff}, {1100, 10}}, true},
		{"another stream", []report{{1000, 0}, {1 << 30, 1 << 22}}, false},
		{"backwards", []report{{1000, 0}, {900, 50}}, false},
		{"all, and more", []report{{1000, 0}, {1100, 0x7fffff}}, true},
	} {
		v, err := newVoice(webrtc.MimeTypeOpus, opus.Codec{}, func(time.Duration) {}, func(int, int) {})
		if err != nil {
			t.Fatal(err)
		}
		e := &ear{}
		v.path.Store(&path{ssrc: 7, to: e})
		for _, r := range c.reports {
			raw, err := rtcp.Marshal([]rtcp.Packet{&rtcp.ReceiverReport{Reports: []rtcp.ReceptionReport{{
				SSRC: 7, LastSequenceNumber: r.last, TotalLost: r.lost,
			}}}})
			if err != nil {
				t.Fatal(err)
			}
			packets, err := rtcp.Unmarshal(raw)
			if err != nil {
				t.Fatal(err)
			}
			v.onRTCP(packets, time.Now())
		}
		pcm := make([]int16, 480)
		for i := range pcm {
			pcm[i] = int16(i * 50 % 8000)
		}
		for range 10 {
			if err := v.WriteFrame(media.Frame{PCM: pcm}); err != nil {
				t.Fatal(err)
			}
		}
		if robust := e.last>>3 < 16; robust != c.robust { // SILK or hybrid: RFC 6716, section 3.1
			t.Errorf("%s: the voice goes on with FEC: %v", c.name, robust)
		}
	}
}
