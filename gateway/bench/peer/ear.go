package peer

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"

	"voxgate/media/opus"
	"voxgate/media/rtpaudio"
)

// ear has a caller's first track, and repairs what a browser would. It can be closed before there is a track.
type ear struct {
	receiver *rtpaudio.Receiver
	begun    atomic.Bool
	ended    chan struct{}
}

func newEar(pc *webrtc.PeerConnection, o Options) *ear {
	r := rtpaudio.ReceiverOptions{Codec: opus.Codec{}, Types: []uint8{opusType}, RED: []uint8{redType}, RTT: func() time.Duration { return o.RTT }}
	if o.Offers.nack {
		r.NACK = func(ssrc uint32, missing []uint16) {
			pc.WriteRTCP([]rtcp.Packet{&rtcp.TransportLayerNack{MediaSSRC: ssrc, Nacks: rtcp.NackPairsFromSequenceNumbers(missing)}})
		}
	}
	return &ear{receiver: rtpaudio.NewReceiver(o.Ear, r), ended: make(chan struct{})}
}

// listen hears a track until the connection is closed.
func (e *ear) listen(track *webrtc.TrackRemote) {
	if e.begun.CompareAndSwap(false, true) {
		defer close(e.ended)
		e.receiver.Run(context.Background(), trackReader{track})
	}
}

// close waits until the ear hears no more. The connection is closed.
func (e *ear) close() {
	if !e.begun.CompareAndSwap(false, true) {
		<-e.ended
	}
}

// trackReader makes a track an rtpaudio.Reader.
type trackReader struct{ *webrtc.TrackRemote }

func (r trackReader) Read(b []byte) (int, error) {
	n, _, err := r.TrackRemote.Read(b)
	return n, err
}
