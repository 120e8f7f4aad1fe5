package rtc

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"

	"voxgate/media"
	"voxgate/media/rtpaudio"
)

// mimeTypeRED is the type of RED, Opus with copies of earlier packets (RFC 2198). Pion has no constant for it.
const mimeTypeRED = "audio/red"

// voice is the track of the model's voice. Unlike Pion's own tracks, it has two payload types. Only one goroutine may
// write to it.
type voice struct {
	*rtpaudio.Sender
	mimeType    string // MIME type of the codec
	clockRate   int    // in Hz
	plain, red  uint8  // payload types, see setPayloadTypes
	path        atomic.Pointer[path]
	header      rtp.Header
	onRoundTrip func(time.Duration)   // called with round trip times from the peer's reports
	onLoss      func(lost, total int) // called with losses from the peer's reports

	// The goroutine that reads RTCP owns these fields.
	reports rtpaudio.Reports
	quality Quality
	tcc     bool // the peer sends transport-cc, ten times as often as reports
}

// path is the connection that a voice is bound to.
type path struct {
	ssrc uint32
	to   webrtc.TrackLocalWriter
}

func newVoice(mimeType string, codec media.Codec, onRoundTrip func(time.Duration), onLoss func(lost, total int)) (*voice, error) {
	v := &voice{mimeType: mimeType, clockRate: codec.ClockRate(), onRoundTrip: onRoundTrip, onLoss: onLoss}
	var err error
	if v.Sender, err = rtpaudio.NewSender(v, codec); err != nil {
		return nil, fmt.Errorf("voice encoder: %w", err)
	}
	return v, nil
}

// WriteRTP implements [rtpaudio.Writer]. Before Bind, it drops the packet.
func (v *voice) WriteRTP(p *rtp.Packet) error {
	to := v.path.Load()
	if to == nil {
		return nil
	}
	v.header.Version, v.header.Marker, v.header.PayloadType = p.Version, p.Marker, p.PayloadType
	v.header.SequenceNumber, v.header.Timestamp, v.header.SSRC = p.SequenceNumber, p.Timestamp, to.ssrc
	_, err := to.to.WriteRTP(&v.header, p.Payload)
	return err
}

// Bind implements [webrtc.TrackLocal]. It stores the SSRC and the writer of the connection, and returns the negotiated
// format.
func (v *voice) Bind(c webrtc.TrackLocalContext) (webrtc.RTPCodecParameters, error) {
	find := func(payloadType uint8) (p webrtc.RTPCodecParameters, ok bool) {
		i := slices.IndexFunc(c.CodecParameters(), func(p webrtc.RTPCodecParameters) bool { return uint8(p.PayloadType) == payloadType })
		if i < 0 {
			return p, false
		}
		return c.CodecParameters()[i], true
	}
	plain, ok := find(v.plain)
	if !ok {
		return plain, webrtc.ErrUnsupportedCodec
	}
	v.path.Store(&path{ssrc: uint32(c.SSRC()), to: c.WriteStream()})
	if red, ok := find(v.red); ok && v.red != 0 {
		return red, nil
	}
	return plain, nil
}

// setPayloadTypes sets the payload types of the newest offer: plain for the codec alone, and red for Opus with RED. red
// is 0 if RED is not used.
func (v *voice) setPayloadTypes(plain, red uint8) {
	v.plain, v.red = plain, red
	v.SetPayloadTypes(plain, red)
}

// Unbind implements [webrtc.TrackLocal].
func (v *voice) Unbind(webrtc.TrackLocalContext) error {
	v.path.Store(nil)
	return nil
}

// ID implements [webrtc.TrackLocal].
func (v *voice) ID() string { return "voice" }

// RID implements [webrtc.TrackLocal].
func (v *voice) RID() string { return "" }

// StreamID implements [webrtc.TrackLocal].
func (v *voice) StreamID() string { return "voxgate" }

// Kind implements [webrtc.TrackLocal].
func (v *voice) Kind() webrtc.RTPCodecType { return webrtc.RTPCodecTypeAudio }

// onRTCP handles an RTCP datagram of the peer.
func (v *voice) onRTCP(packets []rtcp.Packet, now time.Time) {
	to := v.path.Load()
	if to == nil {
		return
	}
	for _, p := range packets {
		switch p := p.(type) {
		case *rtcp.ReceiverReport:
			v.onReports(p.Reports, to.ssrc, now)
		case *rtcp.SenderReport:
			v.onReports(p.Reports, to.ssrc, now)
		case *rtcp.TransportLayerCC:
			v.tcc = true
			of := int(p.PacketStatusCount)
			v.ReportLoss(of-min(len(p.RecvDeltas), of), of)
		}
	}
}

// onReports handles the peer's reports about our packets (RFC 3550, section 6.4.1).
func (v *voice) onReports(reports []rtcp.ReceptionReport, ssrc uint32, now time.Time) {
	i := slices.IndexFunc(reports, func(r rtcp.ReceptionReport) bool { return r.SSRC == ssrc })
	if i < 0 {
		return
	}
	r := reports[i]
	if rtt, ok := roundTripTime(r.LastSenderReport, r.Delay, now); ok {
		v.onRoundTrip(rtt)
	}
	lostPackets, totalPackets := v.reports.AddReport(r)
	if totalPackets == 0 {
		return
	}
	if !v.tcc {
		v.ReportLoss(lostPackets, totalPackets)
	}
	v.onLoss(lostPackets, totalPackets)
	v.quality.AddReport(lostPackets, totalPackets, r.Jitter, v.clockRate)
}

// roundTripTime returns how long it took from our report to the peer's report about it, minus the delay at the peer
// (RFC 3550, section 6.4.1). last and delay are in 1/65536 s of NTP time, and wrap around. ok is false if the peer's
// report answers none of ours, or if the time is implausible.
func roundTripTime(last, delay uint32, now time.Time) (rtt time.Duration, ok bool) {
	if last == 0 {
		return 0, false
	}
	took := ntpMiddle(now) - last - delay
	const most = 10 << 16 // more than 10 s means that a clock was changed, or that the report is forged
	if took > most {
		return 0, false
	}
	return time.Duration(took) * time.Second / (1 << 16), true
}

// ntpMiddle returns the middle 32 bits of an NTP timestamp: 16 bits of seconds since 1900, and 16 bits of fraction.
func ntpMiddle(t time.Time) uint32 {
	const since1900 = 2_208_988_800 // Unix epoch, in seconds
	seconds, part := uint64(t.Unix())+since1900, uint64(t.Nanosecond())<<16/uint64(time.Second)
	return uint32(seconds<<16 | part)
}
