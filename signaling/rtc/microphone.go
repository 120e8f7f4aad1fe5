package rtc

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"

	"voxgate/media/rtpaudio"
)

// uplinkRate is the highest sample rate to which a microphone is decoded, in Hz. It is the Live API's own rate. G.711
// is decoded to 8 kHz, which the Live API accepts as well.
const uplinkRate = 16000

// quietMicrophone is the time without packets of the newest track after which an older track is used again. It exceeds
// the 400 ms between two packets of Opus DTX.
const quietMicrophone = time.Second

// microphone is a track being received.
type microphone struct {
	number     int32        // number of the track; newer tracks have higher numbers
	lastPacket atomic.Int64 // arrival of the newest packet: Unix time in ns
	cancel     context.CancelFunc
	done       chan struct{}
	receiver   *rtpaudio.Receiver
}

// receiveTrack feeds a track to the session until the track ends. A newer track replaces this one. Once the newer track
// has been quiet for quietMicrophone, this track is used again, because telephone exchanges return to the first SSRC
// after music on hold.
func (p *Peer) receiveTrack(ctx context.Context, number int32, track *webrtc.TrackRemote, from *webrtc.RTPReceiver) {
	if p.codec == nil { // Pion has assigned the track to a section that was not negotiated, so nothing can decode it
		p.log.Warn("track without a codec dropped", "track", number, "type", track.Codec().MimeType)
		return
	}
	go p.runGuarded("rtcp", func() { readRTCP(from.Read, nil) }) // interceptors see the client's sender reports only if they are read
	p.feedSession(ctx, number, track, from)
	for p.discardUntilActive(ctx, number, track) {
		p.feedSession(ctx, number, track, from)
	}
}

// discardUntilActive discards a track's packets while a newer track is the microphone and is not quiet. isActive is
// false if the track or ctx ends first.
func (p *Peer) discardUntilActive(ctx context.Context, number int32, track *webrtc.TrackRemote) (isActive bool) {
	track.SetReadDeadline(time.Time{})
	defer context.AfterFunc(ctx, func() { track.SetReadDeadline(time.Unix(1, 0)) })()
	buf := make([]byte, 1500)
	for {
		if n, _, err := track.Read(buf); err != nil && n == 0 { // with n > 0 the error means only that the payload type is unknown
			return false
		}
		m := p.microphone.Load()
		if m == nil || m.number < number || time.Since(time.Unix(0, m.lastPacket.Load())) > quietMicrophone {
			return ctx.Err() == nil
		}
	}
}

// feedSession feeds a track to the session until it ends or another one takes over.
func (p *Peer) feedSession(ctx context.Context, number int32, track *webrtc.TrackRemote, from *webrtc.RTPReceiver) {
	sink, err := p.session.Mic(p.codec.BestDecodeRate(uplinkRate))
	if err != nil {
		p.log.Error("microphone", "err", err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &microphone{number: number, cancel: cancel, done: make(chan struct{})}
	m.lastPacket.Store(time.Now().UnixNano())
	m.receiver = rtpaudio.NewReceiver(sink, p.receiverOptions(from))
	defer close(m.done)
	if old := p.microphone.Swap(m); old != nil {
		old.cancel()
		<-old.done
	}
	err = m.receiver.Run(ctx, trackReader{track, &m.lastPacket})
	stats := m.receiver.Stats()
	p.log.Info("microphone ended", "track", number, "packets", stats.Packets, "lost", stats.Lost, "late", stats.Late,
		"concealed", stats.Concealed, "jitter", stats.Jitter, "err", err)
	p.api.ReportQuality(Quality{
		Up: true, Packets: stats.Packets, LostPackets: stats.Lost, LatePackets: stats.Late, Concealed: stats.Concealed, Jitter: stats.Jitter,
	})
}

// receiverOptions returns the options of a receiver for the negotiated payload types and feedback.
func (p *Peer) receiverOptions(from *webrtc.RTPReceiver) rtpaudio.ReceiverOptions {
	o := rtpaudio.ReceiverOptions{
		Codec: p.codec, RTT: func() time.Duration { return p.roundTrip(from.Transport()) },
		OnLoss: func(lost, of int) { p.session.RecordLoss(true, lost, of) },
	}
	for _, c := range from.GetParameters().Codecs {
		switch {
		case strings.EqualFold(c.MimeType, p.chosen.mimeType):
			o.PayloadTypes = append(o.PayloadTypes, uint8(c.PayloadType))
		case strings.EqualFold(c.MimeType, mimeTypeRED):
			o.REDTypes = append(o.REDTypes, uint8(c.PayloadType))
		}
		if slices.ContainsFunc(c.RTCPFeedback, func(f webrtc.RTCPFeedback) bool { return f.Type == webrtc.TypeRTCPFBNACK && f.Parameter == "" }) {
			o.SendNACK = p.sendNACK
		}
	}
	return o
}

// roundTrip returns the round trip time from the client's RTCP reports or, while there are no reports yet, from the ICE
// checks.
func (p *Peer) roundTrip(t *webrtc.DTLSTransport) time.Duration {
	if rtt := time.Duration(p.rtt.Load()); rtt > 0 {
		return rtt
	}
	path, _ := t.ICETransport().GetSelectedCandidatePairStats()
	return time.Duration(path.CurrentRoundTripTime * float64(time.Second))
}

// sendNACK sends a NACK for missing packets. It ignores errors, because missing packets can be concealed.
func (p *Peer) sendNACK(ssrc uint32, missing []uint16) {
	_ = p.pc.WriteRTCP([]rtcp.Packet{&rtcp.TransportLayerNack{MediaSSRC: ssrc, Nacks: rtcp.NackPairsFromSequenceNumbers(missing)}})
}

// trackReader is the [rtpaudio.Reader] of a track. It records when packets arrive.
type trackReader struct {
	track       *webrtc.TrackRemote
	lastArrival *atomic.Int64
}

func (r trackReader) Read(b []byte) (int, error) {
	n, _, err := r.track.Read(b)
	if err == nil {
		r.lastArrival.Store(time.Now().UnixNano())
	}
	return n, err
}

func (r trackReader) SetReadDeadline(t time.Time) error { return r.track.SetReadDeadline(t) }
