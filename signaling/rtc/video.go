package rtc

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"

	"voxgate/media/picture"
)

const (
	// keyInterval is the time between two requests for key frames. The model does not need pictures more often.
	keyInterval = time.Second

	// videoBits is the highest bit rate of a client's video, in bits per second. One key frame per second of a 720p
	// camera has 30 KB (240 kbit). The rest is for the frames in between.
	videoBits = 500_000
)

// Cameras tracks the video tracks on all peers of a client. Only the newest track is decoded. The zero Cameras is ready
// to use.
type Cameras struct {
	mu      sync.Mutex
	newest  *camera // nil if there is none
	stopped bool
}

// camera is a video track that is being decoded.
type camera struct {
	session Session
	cancel  context.CancelFunc
	done    chan struct{}
}

// decodePictures decodes pictures of a track for the peer's session until the track ends. A newer track, on any peer, replaces
// it.
func (c *Cameras) decodePictures(ctx context.Context, p *Peer, track *webrtc.TrackRemote) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	current := &camera{session: p.session, cancel: cancel, done: make(chan struct{})}
	defer close(current.done)
	c.mu.Lock()
	old, stopped := c.newest, c.stopped
	if !stopped {
		c.newest = current
	}
	c.mu.Unlock()
	if stopped {
		return
	}
	if old != nil {
		old.cancel()
		<-old.done
	}
	viewer := picture.NewExtractor(&p.api.viewing, func(jpeg []byte, changed bool) {
		if ctx.Err() == nil {
			p.session.SetFrame("image/jpeg", jpeg, changed)
		}
	})
	err := p.readVideo(ctx, track, viewer)
	c.clearPicture(current)
	stats := viewer.Stats()
	p.log.Info("video track ended", "pictures", stats.Shown, "changed", stats.Changed,
		"incomplete", stats.Incomplete, "broken", stats.Broken, "err", err)
}

// clearPicture clears a camera's picture, unless another camera has replaced it. After Stop it clears nothing, because
// the picture may already belong to the next caller.
func (c *Cameras) clearPicture(oldCamera *camera) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.newest == oldCamera {
		c.newest = nil
		if !c.stopped {
			oldCamera.session.ClearFrame()
		}
	}
}

// Stop ends the decoding and clears the last picture. Before calling it, mute the peers to end their tracks. Stop
// blocks until pictures in progress are decoded: 0.1 s each for 4K screens, some milliseconds for smaller ones.
func (c *Cameras) Stop() {
	c.mu.Lock()
	c.stopped = true
	last := c.newest
	c.mu.Unlock()
	if last != nil {
		<-last.done
		last.session.ClearFrame()
	}
}

// readVideo reads a track until the track ends or ctx is done. It requests key frames and missing packets only while
// packets arrive, because a muted track sends none.
func (p *Peer) readVideo(ctx context.Context, track *webrtc.TrackRemote, viewer *picture.Extractor) error {
	defer context.AfterFunc(ctx, func() { track.SetReadDeadline(time.Unix(1, 0)) })()
	hasNACK := slices.Contains(track.Codec().RTCPFeedback, webrtc.RTCPFeedback{Type: webrtc.TypeRTCPFBNACK})
	var lastRequest time.Time
	var packet rtp.Packet
	buf := make([]byte, 1500)
	for {
		n, _, err := track.Read(buf)
		if err != nil {
			return err
		}
		if packet.Unmarshal(buf[:n]) != nil {
			continue
		}
		now := time.Now()
		if missing := viewer.AddPacket(&packet, now); hasNACK && len(missing) > 0 {
			p.sendNACK(uint32(track.SSRC()), missing)
		}
		if now.Sub(lastRequest) < keyInterval {
			continue
		}
		lastRequest = now
		if err := p.pc.WriteRTCP([]rtcp.Packet{&rtcp.PictureLossIndication{MediaSSRC: uint32(track.SSRC())}}); err != nil {
			return err
		}
	}
}
