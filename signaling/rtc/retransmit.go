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
	// nackPackets is the number of sent packets that are kept for retransmission. 64 packets of 20 ms are 1.3 s, which
	// is longer than a receiver waits for a packet.
	nackPackets = 64

	// resendPause is the shortest time between two retransmissions of the same packet. One datagram may request a
	// packet hundreds of times. An honest peer waits for a round trip before it repeats a request.
	resendPause = 10 * time.Millisecond

	// resendRate limits the retransmitted packets per second. The voice has 50 packets per second. A peer that loses
	// every second packet, including retransmissions, requests 50 per second. Pion's own responder would send 4,074
	// packets for one datagram of 1 KB.
	resendRate = 100
	// resendBurst allows all kept packets to be sent at once.
	resendBurst = nackPackets
)

// resender keeps the newest packets of a peer's voice, and retransmits those that the peer requests (RFC 4585, section
// 6.2.1).
//
// It comes after all interceptors that change a packet, because a retransmission must be identical to the original. If
// its header differed, AES-GCM would use the same nonce for different data, which reveals the authentication key (RFC
// 7714, section 8.1).
type resender struct {
	interceptor.NoOp
	history atomic.Pointer[sentPackets] // nil if the peer has not negotiated retransmission
}

// resenders is the [interceptor.Factory] that creates resenders.
type resenders struct{}

// NewInterceptor implements [interceptor.Factory].
func (resenders) NewInterceptor(string) (interceptor.Interceptor, error) { return &resender{}, nil }

// BindLocalStream implements [interceptor.Interceptor]. A peer has only one local stream, the voice.
func (r *resender) BindLocalStream(info *interceptor.StreamInfo, to interceptor.RTPWriter) interceptor.RTPWriter {
	if !slices.Contains(info.RTCPFeedback, interceptor.RTCPFeedback{Type: webrtc.TypeRTCPFBNACK}) {
		return to
	}
	k := &sentPackets{ssrc: info.SSRC, to: to, limit: rate.NewLimiter(resendRate, resendBurst)}
	r.history.Store(k)
	return interceptor.RTPWriterFunc(func(h *rtp.Header, payload []byte, a interceptor.Attributes) (int, error) {
		k.storePacket(h, payload)
		return to.Write(h, payload, a)
	})
}

// UnbindLocalStream implements [interceptor.Interceptor].
func (r *resender) UnbindLocalStream(info *interceptor.StreamInfo) {
	if k := r.history.Load(); k != nil && k.ssrc == info.SSRC {
		r.history.CompareAndSwap(k, nil)
	}
}

// BindRTCPReader implements [interceptor.Interceptor]. It ignores packets that it cannot read, which other interceptors
// handle.
func (r *resender) BindRTCPReader(from interceptor.RTCPReader) interceptor.RTCPReader {
	return interceptor.RTCPReaderFunc(func(b []byte, a interceptor.Attributes) (int, interceptor.Attributes, error) {
		n, a, err := from.Read(b, a)
		k := r.history.Load()
		if err != nil || k == nil {
			return n, a, err
		}
		if a == nil {
			a = interceptor.Attributes{}
		}
		packets, bad := a.GetRTCPPackets(b[:n]) // parsed once for all interceptors
		if bad != nil {
			return n, a, nil
		}
		for _, p := range packets {
			if nack, ok := p.(*rtcp.TransportLayerNack); ok && nack.MediaSSRC == k.ssrc {
				k.resendPackets(nack.Nacks, time.Now())
			}
		}
		return n, a, nil
	})
}

// sentPackets holds the packets of a stream that can be retransmitted.
type sentPackets struct {
	ssrc uint32
	to   interceptor.RTPWriter

	mu    sync.Mutex // guards slots; held only while a packet is copied, never while it is sent, because the playout clock waits for it
	slots [nackPackets]slot

	answering sync.Mutex // guards limit and out; held while packets are sent again
	limit     *rate.Limiter
	out       slot
}

// slot holds one of the kept packets. Its memory is reused for a later packet.
type slot struct {
	header     rtp.Header
	extensions []rtp.Extension
	payload    []byte
	resent     time.Time // time of the last retransmission
}

func (s *slot) store(h *rtp.Header, payload []byte) {
	s.extensions = append(s.extensions[:0], h.Extensions...) // the writer reuses the list, but not the payloads in it
	s.payload = append(s.payload[:0], payload...)
	s.header = *h
	s.header.Extensions = s.extensions
}

// storePacket stores a copy of a packet that is about to be sent.
func (sp *sentPackets) storePacket(h *rtp.Header, payload []byte) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	s := &sp.slots[h.SequenceNumber%nackPackets]
	s.store(h, payload)
	s.resent = time.Time{}
}

// resendPackets retransmits packets. It ignores errors, because the peer requests the packet again or conceals the
// loss.
func (sp *sentPackets) resendPackets(nacks []rtcp.NackPair, now time.Time) {
	sp.answering.Lock()
	defer sp.answering.Unlock()
	for i := range nacks {
		nacks[i].Range(func(sequence uint16) bool {
			if sp.prepareResend(sequence, now) {
				_, _ = sp.to.Write(&sp.out.header, sp.out.payload, interceptor.Attributes{})
			}
			return true
		})
	}
}

// prepareResend copies the packet with a sequence number to sp.out. ok is false if the packet is not stored, was resent
// too recently, or would exceed the rate limit. The caller must hold sp.answering.
func (sp *sentPackets) prepareResend(sequence uint16, now time.Time) (ok bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	s := &sp.slots[sequence%nackPackets]
	if s.header.SequenceNumber != sequence || s.header.Version == 0 || now.Sub(s.resent) < resendPause || !sp.limit.AllowN(now, 1) {
		return false
	}
	s.resent = now
	sp.out.store(&s.header, s.payload)
	return true
}
