package rtc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/interceptor"
	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"

	"voxgate/crash"
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
	// SetRoundTrip takes a round trip to the client, by its reports.
	SetRoundTrip(d time.Duration)
	// RecordLoss takes how many packets were lost lately, and of how many: up, of the client's microphone, or down, of the model's voice.
	RecordLoss(up bool, lost, of int)
	// SetFrame takes what the client's camera shows, and whether that is something new; ClearFrame: it shows nothing any more.
	SetFrame(mimeType string, data []byte, changed bool)
	ClearFrame()
	// Crash ends the conversation: one of the peer's goroutines has panicked.
	Crash(err error)
}

// PeerOptions say whom a peer serves, and what it calls when something happens. The functions are called in goroutines of pion.
type PeerOptions struct {
	Session Session
	Cameras *Cameras // of all peers of this client
	Decoder opus.DecoderChoice
	Logger  *slog.Logger

	Connected func()
	Lost      func(why string) // a clause for people; "": the client has closed it

	// Candidate takes one of our candidates, which belongs to the section of Tag; "": there are no more. Nil: the client cannot
	// get them one by one, as after an HTTP request: its Answer waits until it has them all.
	Candidate func(line string)

	Channel string                            // the label of the data channel, or AnyChannel; only the first is served; "": none
	Opened  func(*Channel)                    // the data channel
	Closed  func(*Channel)                    // the data channel, even if it had not opened
	Message func(message []byte, isText bool) // by the data channel
}

// AnyChannel has the first data channel served, whatever its label is.
const AnyChannel = "*"

var (
	errOtherCodec  = errors.New("the codec of a connection stays")
	errNotGathered = errors.New("the candidates of this server are not known in time")
	errNoVoice     = errors.New("the voice has no place in the offer")
	errOtherRole   = errors.New("the roles of DTLS stay as they were")
)

// Peer is a WebRTC connection to a client. Its methods are not for concurrent use.
type Peer struct {
	log      *slog.Logger
	pc       *webrtc.PeerConnection
	session  Session
	api      *API
	decoder  opus.DecoderChoice
	trickles bool // our candidates can be sent one by one

	tried      int         // candidates of the client, since the last restart of ICE
	candidates []string    // the addresses of those that came one by one, or with the section of tag
	offer      Offer       // the last one that was answered
	stopped    bool        // the client has taken back all sections: what it offers next is for another peer
	tag        string      // the mid of the section that carries the transport; "" before the first answer, and where the offer has none
	index      int         // of the same section
	mids       []string    // of the sections that the last answer has accepted, which share the transport
	setup      string      // the client's side of DTLS in its first offer, which stays; "" before it
	role       string      // ours
	chosen     *codec      // of the first offer with audio, which all others must have; nil before that
	codec      media.Codec // the same
	pionOffer  string      // the newest that Pion has got
	repeats    uint64      // how many answers were made of Pion's earlier ones
	output     *voice      // nil until the first offer with voice
	sender     *webrtc.RTPSender
	voiceAt    string // the mid of the section that has the sender; "": none has

	// Of pion's goroutines, too.
	gathered   chan struct{}              // has room for one: Pion has all our candidates, perhaps those before a restart of ICE
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
		p.containPanic("peer", func() {
			switch s {
			case webrtc.PeerConnectionStateConnected:
				o.Connected()
			case webrtc.PeerConnectionStateFailed:
				o.Lost("The WebRTC connection failed")
			case webrtc.PeerConnectionStateClosed:
				o.Lost("")
			}
		})
	})
	p.watchCandidates(o.Candidate)
	p.mayCome.Store(maxTracks)
	pc.OnTrack(func(t *webrtc.TrackRemote, from *webrtc.RTPReceiver) {
		number, most := p.tracks.Add(1), p.mayCome.Load()
		if number > most {
			o.Lost(fmt.Sprintf("More than %d sources (SSRC) have sent over one WebRTC connection", most))
			return
		}
		if t.Kind() == webrtc.RTPCodecTypeAudio {
			p.do("microphone", func() { p.receive(ctx, number, t, from) })
		} else {
			p.do("camera", func() { o.Cameras.look(ctx, p, t) })
		}
	})
	var served atomic.Bool
	pc.OnDataChannel(func(dc *webrtc.DataChannel) {
		if o.Channel == "" || o.Channel != AnyChannel && dc.Label() != o.Channel || !served.CompareAndSwap(false, true) {
			dc.Close() // each one that stays is a goroutine and 65 KB
			return
		}
		c := newChannel(dc, int(p.maxMessage.Load()))
		dc.OnOpen(func() { p.containPanic("data channel", func() { o.Opened(c) }) })
		dc.OnClose(func() { p.containPanic("data channel", func() { o.Closed(c) }) })
		dc.OnMessage(func(m webrtc.DataChannelMessage) {
			p.containPanic("data channel", func() { o.Message(m.Data, m.IsString) })
		})
	})
	return p, nil
}

// Made reports whether an offer is of the client's side of this peer; before its first Answer none is.
func (p *Peer) Made(o Offer) bool {
	if p.stopped || p.setup == "" || o.Stopped() {
		return !p.stopped && p.setup != ""
	}
	return p.offer.transport.fingerprint == o.transport.fingerprint && !p.startsTransport(o) && !p.replacesTransport(o)
}

// startsTransport reports whether an offer has stopped all sections that share the transport, and begins others with one of their own. A
// transport ends with its last section (RFC 9143 section 7.5): a browser then begins ICE and DTLS again, with the same certificate.
func (p *Peer) startsTransport(o Offer) bool {
	return p.Restarts(o) && !slices.ContainsFunc(p.mids, func(mid string) bool { return o.section(mid) != nil })
}

// replacesTransport reports whether an offer has stopped the section that carries the transport, and gives the others another one: Chromium
// and Firefox end DTLS then, and begin with other ports but the same ufrag and certificate. A client that goes on with its transport, as
// RFC 9143 section 7.5 lets it, repeats candidates.
func (p *Peer) replacesTransport(o Offer) bool {
	if p.tag == "" || len(p.candidates) == 0 || p.Restarts(o) ||
		slices.ContainsFunc(o.sections, func(s section) bool { return s.mid == p.tag && s.offered }) {
		return false
	}
	return !slices.ContainsFunc(o.tag().attributes.all("candidate"), func(line string) bool {
		return slices.Contains(p.candidates, candidateAddress(line))
	})
}

// candidateAddress returns the protocol, address and port of a candidate (RFC 8839 section 5.1); "" if it has no port of its own, as active
// TCP.
func candidateAddress(line string) string {
	fields := strings.Fields(line)
	if len(fields) < 6 || fields[5] == "9" {
		return ""
	}
	return strings.ToLower(fields[2]) + " " + fields[4] + " " + fields[5]
}

// Restarts reports whether an offer restarts ICE, which cuts the path until the answer is there.
func (p *Peer) Restarts(o Offer) bool {
	return !o.Stopped() && p.offer.transport.ufrag != o.transport.ufrag
}

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

// Tag returns the mid of the media section that carries the transport, and its index: that is where candidates belong. The mid is "" where
// the offer has none, and before the first Answer.
func (p *Peer) Tag() (mid string, index int) { return p.tag, p.index }

// containPanic runs f, and ends the conversation if it panics.
func (p *Peer) containPanic(place string, f func()) { crash.Run(p.log, place, p.session.Crash, f) }

// do runs f as containPanic does, and has Close wait for it: pion's own Close returns while a track's handler still runs.
func (p *Peer) do(place string, f func()) {
	p.mu.Lock()
	ok := !p.closing
	if ok {
		p.running.Add(1)
	}
	p.mu.Unlock()
	if ok {
		defer p.running.Done()
		p.containPanic(place, f)
	}
}

// Answer answers an offer, the first or a further one, within 0.1 s if candidates are trickled. An offer that cannot be used is
// refused with a [RefusedError]: among them one without the codec that the connection has begun with.
func (p *Peer) Answer(o Offer) (sdp string, err error) {
	bad := func(err error) (string, error) {
		return "", &RefusedError{Problem: "cannot be used: " + err.Error(), Err: err}
	}
	if o.codec != nil && p.chosen != nil && o.codec != p.chosen {
		if o, err = newOffer(o.from, p.chosen); err != nil {
			return "", err
		}
		if o.codec != p.chosen {
			return bad(fmt.Errorf("%s would take the place of %s: %w", o.codec.name, p.chosen.name, errOtherCodec))
		}
	}
	if o.Stopped() {
		if p.setup == "" {
			return bad(errNothingServed)
		}
		p.stopped, p.offer = true, o.kept()
		p.repeats++
		return o.stoppedAnswer(p.pc.LocalDescription().SDP, p.repeats), nil
	}
	switch {
	case p.setup == "":
		p.setup, p.role = o.transport.setup, o.transport.role()
	case o.transport.setup == p.role:
		return bad(errOtherRole)
	}
	if o.codec != nil && p.chosen == nil {
		p.chosen, p.codec = o.codec, o.codec.new(p.decoder)
	}
	if p.Restarts(o) {
		p.tried, p.candidates = 0, nil
	}
	for _, line := range o.tag().attributes.all("candidate") {
		p.noteCandidate(line)
	}
	p.tried = max(p.tried, len(o.transport.candidates)) // a further offer repeats those of the first
	p.mayCome.Add(moreTracks)
	voice := o.voiceSection(p.voiceAt)
	if err := p.negotiate(&o, voice); err != nil {
		return bad(err)
	}
	if err := p.gather(); err != nil {
		return "", err
	}
	if sdp, err = o.wireAnswer(p.api.filtered(p.pc.LocalDescription().SDP), voice, p.role, p.repeats); err == nil {
		err = o.checkAnswer(sdp)
	}
	if err != nil {
		p.log.Error("bad answer", "err", err, "offer", clip(fmt.Sprint(o.from.media)), "answer", sdp)
		return bad(fmt.Errorf("the answer would be wrong: %w", err))
	}
	p.index = slices.IndexFunc(o.sections, func(s section) bool { return s.mid == o.tag().mid })
	if p.tag = ""; o.tag().hasMid {
		p.tag = strings.Clone(o.tag().mid)
	}
	p.mids = nil
	for _, mid := range o.bundled() {
		p.mids = append(p.mids, strings.Clone(mid))
	}
	p.offer = o.kept()
	return sdp, nil
}

// negotiate has Pion take an offer, and answer it with the voice in a section; "": none takes it.
func (p *Peer) negotiate(o *Offer, voice string) error {
	if voice != "" && p.voiceAt != "" && p.voiceAt != voice { // the section that had it was stopped, or takes none any more
		if err := p.pc.RemoveTrack(p.sender); err != nil {
			return fmt.Errorf("voice track: %w", err)
		}
		p.voiceAt = ""
	}
	carries := voice
	if carries == "" {
		carries = p.voiceAt // on hold: Pion keeps its sender, and nothing is sent
	}
	if regular := o.regular(carries, p.setup); regular == p.pionOffer {
		p.repeats++
	} else {
		p.pionOffer = ""
		if err := p.renegotiate(o, voice, regular); err != nil {
			return err
		}
		p.pionOffer = regular
	}
	for _, line := range o.transport.candidates {
		if err := p.pc.AddICECandidate(webrtc.ICECandidateInit{Candidate: line}); err != nil {
			p.log.Debug("candidate of the offer ignored", "err", err)
		}
	}
	return nil
}

// renegotiate gives Pion an offer that is new to it. It is not done for others, such as a hold: Pion ends the tracks of all sources that
// the offer does not name, which costs sound and a transceiver each time.
func (p *Peer) renegotiate(o *Offer, voice, regular string) error {
	if err := p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: regular}); err != nil {
		return err
	}
	if err := p.prefer(o); err != nil {
		return err
	}
	if voice != "" {
		if err := p.placeVoice(o, voice); err != nil {
			return err
		}
	}
	a, err := p.pc.CreateAnswer(nil)
	if err != nil {
		return err
	}
	p.maxMessage.Store(int64(o.maxMessage)) // a channel may open as soon as there is an answer
	return p.pc.SetLocalDescription(a)
}

// watchCandidates has send, which may be nil, get our candidates, and gather learn that there are no more.
func (p *Peer) watchCandidates(send func(line string)) {
	p.gathered = make(chan struct{}, 1)
	p.pc.OnICECandidate(func(i *webrtc.ICECandidate) {
		line := ""
		if i != nil {
			line = i.ToJSON().Candidate
		} else {
			select {
			case p.gathered <- struct{}{}:
			default:
			}
		}
		if send != nil && (i == nil || p.api.announces(line)) {
			send(line)
		}
	})
}

// gather waits for our candidates. It does not use Pion's GatheringCompletePromise: one that is made while Pion finishes may never be kept,
// since Pion reads what to call before it changes its state.
func (p *Peer) gather() error {
	wait := gatherWait
	if !p.trickles {
		wait = gatherAll
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	for p.pc.ICEGatheringState() != webrtc.ICEGatheringStateComplete {
		select {
		case <-p.gathered:
		case <-late.C:
			if !p.trickles {
				return errNotGathered
			}
			return nil
		}
	}
	return nil
}

// transceiver returns Pion's part of a section.
func (p *Peer) transceiver(mid string) *webrtc.RTPTransceiver {
	all := p.pc.GetTransceivers()
	if i := slices.IndexFunc(all, func(t *webrtc.RTPTransceiver) bool { return t.Mid() == mid }); i >= 0 {
		return all[i]
	}
	return nil
}

// prefer has the answer name the offer's formats and no others, or it would be the sender's choice in each packet; Opus with copies before
// plain Opus, where the offer has it: a browser sends what stands first.
func (p *Peer) prefer(o *Offer) error {
	for i := range o.sections {
		s := &o.sections[i]
		if !s.accepted || s.kind == "application" {
			continue
		}
		t := p.transceiver(s.mid)
		if t == nil {
			return fmt.Errorf("the %s section %q is not known", s.kind, clip(s.mid))
		}
		if err := t.SetCodecPreferences(o.answered(s)); err != nil {
			return err
		}
	}
	return nil
}

// placeVoice has a section carry the model's voice.
func (p *Peer) placeVoice(o *Offer, mid string) error {
	if p.output == nil {
		output, err := newVoice(p.chosen.mimeType, p.codec, func(rtt time.Duration) {
			p.rtt.Store(int64(rtt))
			p.session.SetRoundTrip(rtt)
		}, func(lost, of int) { p.session.RecordLoss(false, lost, of) })
		if err != nil {
			return err
		}
		p.output = output
	}
	plain, red, hasRED, _ := o.section(mid).audio(p.chosen)
	if !hasRED {
		red.PayloadType = 0
	}
	p.output.setTypes(uint8(plain.PayloadType), uint8(red.PayloadType))
	if p.voiceAt == mid {
		return nil
	}
	t := p.transceiver(mid)
	var sender *webrtc.RTPSender
	var err error
	if sender = t.Sender(); sender != nil { // of a source that has come without an offer
		err = sender.ReplaceTrack(p.output)
	} else if sender, err = p.pc.AddTrack(p.output); err == nil && sender != t.Sender() {
		err = errNoVoice
	}
	if err != nil {
		return fmt.Errorf("voice track: %w", err)
	}
	p.sender, p.voiceAt = sender, strings.Clone(mid)
	output := p.output
	go p.do("rtcp", func() { readRTCP(sender.Read, func(p []rtcp.Packet) { output.onRTCP(p, time.Now()) }) })
	return nil
}

// maxBadRTCP is how many datagrams of RTCP in a row may be unreadable before no more are read.
const maxBadRTCP = 50

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
	p.noteCandidate(line)
	if err := p.pc.AddICECandidate(webrtc.ICECandidateInit{Candidate: line}); err != nil {
		return &RefusedError{Problem: "cannot be read: " + err.Error(), Err: err}
	}
	return nil
}

// noteCandidate keeps the address of a candidate.
func (p *Peer) noteCandidate(line string) {
	if a := candidateAddress(line); a != "" && len(p.candidates) < 2*MaxCandidates && !slices.Contains(p.candidates, a) {
		p.candidates = append(p.candidates, a)
	}
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
