package rtc

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/interceptor"
	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
	"golang.org/x/time/rate"
)

const (
	// nackPackets is how many sent packets can be sent again: 64 of 20 ms are 1.3 s, longer than a receiver waits.
	nackPackets = 64

	// resendPause is how long a packet that was sent again is not sent once more. One datagram may name it hundreds of times;
	// a peer that has really lost it twice asks again after a round trip.
	resendPause = 10 * time.Millisecond

	// resendRate is how many packets are sent again in a second, and resendBurst how many at once. The voice has 50 packets a
	// second, so one that loses every second packet, and of the answers, too, asks for 50; and the burst is all there is. A
	// peer that asks for anything gets three times the voice, and not 4,074 packets for one datagram of 1 KB, as from pion's
	// responder.
	resendRate  = 100
	resendBurst = nackPackets
)

// resender keeps the newest packets of the voice of one peer and sends again what the peer asks for (RFC 4585, section
// 6.2.1), if it said that it would. It stands behind all that changes a packet, since what is sent again must be the same
// to the last bit: AES-GCM with the same nonce for a header that differs, as by a new number for transport-cc, would give
// the key of its authentication away (RFC 7714, section 8.1).
type resender struct {
	interceptor.NoOp
	kept atomic.Pointer[kept] // nil as long as the peer does not ask again
}

// resenders is the [interceptor.Factory] of resenders.
type resenders struct{}

// NewInterceptor implements [interceptor.Factory].
func (resenders) NewInterceptor(string) (interceptor.Interceptor, error) { return &resender{}, nil }

// BindLocalStream implements [interceptor.Interceptor]. A peer has one voice.
func (r *resender) BindLocalStream(info *interceptor.StreamInfo, to interceptor.RTPWriter) interceptor.RTPWriter {
	if !slices.Contains(info.RTCPFeedback, interceptor.RTCPFeedback{Type: webrtc.TypeRTCPFBNACK}) {
		return to
	}
	k := &kept{ssrc: info.SSRC, to: to, limit: rate.NewLimiter(resendRate, resendBurst)}
	r.kept.Store(k)
	return interceptor.RTPWriterFunc(func(h *rtp.Header, payload []byte, a interceptor.Attributes) (int, error) {
		k.keep(h, payload)
		return to.Write(h, payload, a)
	})
}

// UnbindLocalStream implements [interceptor.Interceptor].
func (r *resender) UnbindLocalStream(info *interceptor.StreamInfo) {
	if k := r.kept.Load(); k != nil && k.ssrc == info.SSRC {
		r.kept.CompareAndSwap(k, nil)
	}
}

// BindRTCPReader implements [interceptor.Interceptor]. What cannot be read is left to the others.
func (r *resender) BindRTCPReader(from interceptor.RTCPReader) interceptor.RTCPReader {
	return interceptor.RTCPReaderFunc(func(b []byte, a interceptor.Attributes) (int, interceptor.Attributes, error) {
		n, a, err := from.Read(b, a)
		k := r.kept.Load()
		if err != nil || k == nil {
			return n, a, err
		}
		if a == nil {
			a = interceptor.Attributes{}
		}
		packets, bad := a.GetRTCPPackets(b[:n]) // read once for all interceptors
		if bad != nil {
			return n, a, nil
		}
		for _, p := range packets {
			if nack, ok := p.(*rtcp.TransportLayerNack); ok && nack.MediaSSRC == k.ssrc {
				k.resend(nack.Nacks, time.Now())
			}
		}
		return n, a, nil
	})
}

// kept is the packets of a stream that can be sent again.
type kept struct {
	ssrc uint32
	to   interceptor.RTPWriter

	mu    sync.Mutex // held while something is copied, not while it is sent: the playout's clock waits for it
	slots [nackPackets]slot

	answering sync.Mutex // guards the rest, and is held while packets are sent
	limit     *rate.Limiter
	out       slot
}

// slot is a packet, in memory that is used again.
type slot struct {
	header     rtp.Header
	extensions []rtp.Extension
	payload    []byte
	resent     time.Time // when it was sent again
}

func (s *slot) set(h *rtp.Header, payload []byte) {
	s.extensions = append(s.extensions[:0], h.Extensions...) // the writer uses the list again, and what is in it not
	s.payload = append(s.payload[:0], payload...)
	s.header = *h
	s.header.Extensions = s.extensions
}

// keep keeps a copy of a packet that is about to be sent.
func (k *kept) keep(h *rtp.Header, payload []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &k.slots[h.SequenceNumber%nackPackets]
	s.set(h, payload)
	s.resent = time.Time{}
}

// resend sends packets again. What fails is asked for once more, or concealed.
func (k *kept) resend(nacks []rtcp.NackPair, now time.Time) {
	k.answering.Lock()
	defer k.answering.Unlock()
	for i := range nacks {
		nacks[i].Range(func(sequence uint16) bool {
			if k.find(sequence, now) {
				_, _ = k.to.Write(&k.out.header, k.out.payload, interceptor.Attributes{})
			}
			return true
		})
	}
}

// find copies a packet to out, if it is there and may be sent now. Needs answering.
func (k *kept) find(sequence uint16, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &k.slots[sequence%nackPackets]
	if s.header.SequenceNumber != sequence || s.header.Version == 0 || now.Sub(s.resent) < resendPause || !k.limit.AllowN(now, 1) {
		return false
	}
	s.resent = now
	k.out.set(&s.header, s.payload)
	return true
}
