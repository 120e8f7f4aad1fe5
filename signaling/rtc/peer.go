package rtc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/interceptor"
	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"

	"voxgate/media"
	"voxgate/media/opus"
)

const (
	// gatherWait is how long an answer waits for our own candidates. They are the addresses of a port that is open
	// already, so they are there within a millisecond, and a client that ignores trickled ones gets them, too. gatherAll is
	// how long it waits where none can be trickled.
	gatherWait = 100 * time.Millisecond
	gatherAll  = 5 * time.Second

	// maxTracks is how many tracks may come, and moreTracks how many more with each offer: after it a microphone comes as another
	// track, and so may a camera. Each new SSRC is a track, which costs 13 KB and two goroutines; 1000 were there in 4 s.
	maxTracks, moreTracks = 32, 2
)

// Session is the conversation that a peer carries. Its methods may be called by any goroutine and must not block.
type Session interface {
	// Mic returns where the client's sound goes, of rate in Hz.
	Mic(rate int) (media.Sink, error)
	// RoundTrip takes a round trip to the client, by its reports.
	RoundTrip(d time.Duration)
	// Loss takes how many packets were lost lately, and of how many: up, of the client's microphone, or down, of the model's voice.
	Loss(up bool, lost, of int)
	// SetFrame takes what the client's camera shows, and whether that is something new; ClearFrame: it shows nothing any more.
	SetFrame(mimeType string, data []byte, changed bool)
	ClearFrame()
}

// PeerOptions say whom a peer serves, and what it calls when something happens. The functions are called in goroutines of pion.
type PeerOptions struct {
	Session Session
	Cameras *Cameras // of all peers of this client
	Decoder opus.DecoderChoice
	Logger  *slog.Logger

	Connected func()
	Lost      func(why string) // a clause for people; "": the client has closed it

	// Candidate takes one of our candidates, and the index of its media section; "": there are no more. Nil: the client cannot
	// get them one by one, as after an HTTP request: its Answer waits until it has them all.
	Candidate func(line string, section *uint16)

	Channel string                            // the label of the data channel; only the first of that name is served; "": none
	Opened  func(*Channel)                    // the data channel
	Closed  func(*Channel)                    // the data channel, even if it had not opened
	Message func(message []byte, isText bool) // by the data channel
}

var (
	errOtherCodec  = errors.New("the codec of a connection stays")
	errNotGathered = errors.New("the candidates of this server are not known in time")
)

// Peer is a WebRTC connection to a client. Its methods are not for concurrent use.
type Peer struct {
	log      *slog.Logger
	pc       *webrtc.PeerConnection
	session  Session
	api      *API
	decoder  opus.DecoderChoice
	trickles bool // our candidates can be sent one by one

	tried  int         // candidates of the client, since the last restart of ICE
	offer  Offer       // the last one that was answered
	mid    string      // of the section that carries the transport
	chosen *codec      // of the first offer with audio, which all others must have; nil before that
	codec  media.Codec // the same
	output *voice      // nil until the first offer with voice

	// Of pion's goroutines, too.
	maxMessage atomic.Int64               // bytes
	microphone atomic.Pointer[microphone] // the newest, even if it has ended: pion ends it at each offer
	tracks     atomic.Int32               // that have come
	mayCome    atomic.Int32               // at most
	rtt        atomic.Int64               // the newest round trip; 0: none is known

	stop    context.CancelFunc
	mu      sync.Mutex
	closing bool // guards running: nothing is added once it is waited for
	running sync.WaitGroup
}

// NewPeer returns a peer that waits for its first offer.
func (a *API) NewPeer(o PeerOptions) (*Peer, error) {
	pc, err := a.api.NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		return nil, fmt.Errorf("new peer: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background()) // until Close
	p := &Peer{
		log: o.Logger, pc: pc, session: o.Session, api: a, decoder: o.Decoder, trickles: o.Candidate != nil, stop: stop,
	}
	pc.OnConnectionStateChange(func(s webrtc.PeerConnectionState) {
		p.log.Debug("peer", "state", s)
		switch s {
		case webrtc.PeerConnectionStateConnected:
			o.Connected()
		case webrtc.PeerConnectionStateFailed:
			o.Lost("The WebRTC connection failed")
		case webrtc.PeerConnectionStateClosed:
			o.Lost("")
		}
	})
	if p.trickles {
		pc.OnICECandidate(func(i *webrtc.ICECandidate) {
			if i == nil {
				o.Candidate("", nil)
				return
			}
			if init := i.ToJSON(); a.announces(init.Candidate) {
				o.Candidate(init.Candidate, init.SDPMLineIndex)
			}
		})
	}
	p.mayCome.Store(maxTracks)
	pc.OnTrack(func(t *webrtc.TrackRemote, from *webrtc.RTPReceiver) {
		number, most := p.tracks.Add(1), p.mayCome.Load()
		if number > most {
			o.Lost(fmt.Sprintf("More than %d sources (SSRC) have sent over one WebRTC connection", most))
			return
		}
		if t.Kind() == webrtc.RTPCodecTypeAudio {
			p.do(func() { p.receive(ctx, number, t, from) })
		} else {
			p.do(func() { o.Cameras.look(ctx, p, t) })
		}
	})
	var served atomic.Bool
	pc.OnDataChannel(func(dc *webrtc.DataChannel) {
		if o.Channel == "" || dc.Label() != o.Channel || !served.CompareAndSwap(false, true) {
			dc.Close() // each one that stays is a goroutine and 65 KB
			return
		}
		c := newChannel(dc, int(p.maxMessage.Load()))
		dc.OnOpen(func() { o.Opened(c) })
		dc.OnClose(func() { o.Closed(c) })
		dc.OnMessage(func(m webrtc.DataChannelMessage) { o.Message(m.Data, m.IsString) })
	})
	return p, nil
}

// Made reports whether an offer is of the client's side of this peer; before its first Answer none is.
func (p *Peer) Made(o Offer) bool { return p.offer.fingerprint == o.fingerprint }

// Restarts reports whether an offer restarts ICE, which cuts the path until the answer is there.
func (p *Peer) Restarts(o Offer) bool { return p.offer.ufrag != o.ufrag }

// Connecting reports whether the peer is on its way to be connected, at first or after a restart of ICE.
func (p *Peer) Connecting() bool {
	s := p.pc.ConnectionState()
	return s == webrtc.PeerConnectionStateNew || s == webrtc.PeerConnectionStateConnecting
}

// Voice is where the model's voice goes; nil: the last offer lets us send none.
func (p *Peer) Voice() media.Output {
	if !p.offer.voice {
		return nil
	}
	return p.output
}

// Microphone reports whether the client's microphone comes by this peer, and for how long nothing has come of it.
func (p *Peer) Microphone() (quiet time.Duration, ok bool) {
	m := p.microphone.Load()
	if m == nil || !p.offer.microphone {
		return 0, false
	}
	return time.Since(time.Unix(0, m.came.Load())), true
}

// WantsChannel reports whether the last offer has a section for data channels.
func (p *Peer) WantsChannel() bool { return p.offer.channel }

// Mid is that of the media section which carries the transport; "" before the first Answer.
func (p *Peer) Mid() string { return p.mid }

// do runs f and has Close wait for it: pion's own Close returns while a track's handler still runs.
func (p *Peer) do(f func()) {
	p.mu.Lock()
	ok := !p.closing
	if ok {
		p.running.Add(1)
	}
	p.mu.Unlock()
	if ok {
		defer p.running.Done()
		f()
	}
}

// Answer answers an offer, the first or a further one, within 0.1 s if candidates are trickled. An offer that cannot be used is
// refused with a [RefusedError]: among them one without the codec that the connection has begun with.
func (p *Peer) Answer(o Offer) (sdp string, err error) {
	bad := func(err error) (string, error) {
		return "", &RefusedError{Problem: "cannot be used: " + err.Error(), Err: err}
	}
	if o.codec != nil && p.chosen == nil {
		p.chosen, p.codec = o.codec, o.codec.new(p.decoder)
	}
	if o.codec != nil && p.chosen != o.codec {
		return bad(fmt.Errorf("%s would take the place of %s: %w", o.codec.name, p.chosen.name, errOtherCodec))
	}
	if o.voice && p.output == nil {
		if err := p.addVoice(); err != nil {
			return "", err
		}
	}
	p.mayCome.Add(moreTracks)
	offered, n := firstCandidates(withoutSSRC(o.sdp))
	if p.Restarts(o) {
		p.tried = 0
	}
	p.tried = max(p.tried, n) // a further offer repeats those of the first
	if err := p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: offered}); err != nil {
		return bad(err)
	}
	for _, t := range p.pc.GetTransceivers() {
		if t.Kind() == webrtc.RTPCodecTypeAudio {
			if err := prefer(t, o); err != nil {
				return bad(err)
			}
		}
	}
	if p.output != nil {
		p.output.allowRED(o.red)
	}
	a, err := p.pc.CreateAnswer(nil)
	if err != nil {
		return bad(err)
	}
	p.maxMessage.Store(int64(o.maxMessage)) // a channel may open as soon as there is an answer
	gathered := webrtc.GatheringCompletePromise(p.pc)
	if err := p.pc.SetLocalDescription(a); err != nil {
		return bad(err)
	}
	wait := gatherWait
	if !p.trickles {
		wait = gatherAll
	}
	select {
	case <-gathered:
	case <-time.After(wait):
		if !p.trickles {
			return "", errNotGathered
		}
	}
	local := p.api.filtered(p.pc.LocalDescription().SDP)
	p.offer, p.mid = o, firstMid(local)
	p.offer.sdp = "" // 8 KiB and more
	return wireAnswer(local, o.sdp), nil
}

// maxBadRTCP is how many datagrams of RTCP in a row may be unreadable before no more are read.
const maxBadRTCP = 50

// addVoice adds the track that carries the model's voice.
func (p *Peer) addVoice() error {
	output, err := newVoice(p.chosen.mimeType, p.codec, func(rtt time.Duration) {
		p.rtt.Store(int64(rtt))
		p.session.RoundTrip(rtt)
	}, func(lost, of int) { p.session.Loss(false, lost, of) })
	if err != nil {
		return err
	}
	sender, err := p.pc.AddTrack(output)
	if err != nil {
		return fmt.Errorf("voice track: %w", err)
	}
	p.output = output
	go p.do(func() { readRTCP(sender.Read, func(p []rtcp.Packet) { output.onRTCP(p, time.Now()) }) })
	return nil
}

// readRTCP reads until the other side ends. Interceptors see reports and NACKs only if they are read.
func readRTCP(read func([]byte) (int, interceptor.Attributes, error), tell func([]rtcp.Packet)) {
	buf := make([]byte, 1500)
	for bad := 0; bad < maxBadRTCP; {
		n, seen, err := read(buf)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrClosedPipe):
			return
		case err != nil: // too long, or one that pion cannot read
			bad++
		default:
			bad = 0
			if tell == nil {
				continue
			}
			if packets, err := seen.GetRTCPPackets(buf[:n]); err == nil { // the interceptors have read them already
				tell(packets)
			}
		}
	}
}

// AddCandidate takes one of the client's candidates; "" is no more of them, on which nothing depends. One that cannot be
// read is refused with a [RefusedError], one that is ignored with [ErrTooManyCandidates].
func (p *Peer) AddCandidate(line string) error {
	if line == "" {
		return nil
	}
	if p.tried >= MaxCandidates {
		return ErrTooManyCandidates
	}
	p.tried++
	if err := p.pc.AddICECandidate(webrtc.ICECandidateInit{Candidate: line}); err != nil {
		return &RefusedError{Problem: "cannot be read: " + err.Error(), Err: err}
	}
	return nil
}

// Mute stops the microphone for good and waits for it.
func (p *Peer) Mute() {
	p.stop()
	if m := p.microphone.Load(); m != nil {
		<-m.done
	}
}

// Close ends the connection and waits for all that it started.
func (p *Peer) Close() {
	p.stop()
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	if err := p.pc.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		p.log.Debug("peer close", "err", err)
	}
	p.running.Wait()
	if p.output != nil {
		p.api.Heard(p.output.quality)
	}
}
