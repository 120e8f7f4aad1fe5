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

	"voxgate/internal/crash"
	"voxgate/media"
	"voxgate/media/opus"
)

const (
	// gatherWait limits how long an answer waits for our candidates, which are known within a millisecond. It waits
	// because some clients ignore trickled candidates and need them in the answer.
	gatherWait = 100 * time.Millisecond
	// gatherAll replaces gatherWait if candidates cannot be trickled. Then the answer must contain all of them.
	gatherAll = 5 * time.Second

	// maxTracks limits the tracks that a peer receives. Each new SSRC makes a track, which costs 13 KB and two
	// goroutines. Without the limit, a client created 1000 tracks within 4 s.
	maxTracks = 32
	// moreTracks is added to the limit of tracks by each offer, because an offer may add a microphone and a camera.
	moreTracks = 2
)

// Session is the conversation of a peer. Its methods may be called by any goroutine and must not block.
type Session interface {
	// Mic returns the destination for the client's audio; rate is in Hz.
	Mic(rate int) (media.Sink, error)
	// SetRoundTrip records a round trip time between gateway and client, measured with the client's RTCP reports.
	SetRoundTrip(d time.Duration)
	// RecordLoss records recent packet loss: lost of total packets. up is true for the client's microphone, and false
	// for the model's voice.
	RecordLoss(up bool, lost, total int)
	// SetFrame sets the current picture of the client's camera. changed means that it differs from the previous one.
	SetFrame(mimeType string, data []byte, changed bool)
	// ClearFrame removes the current picture of the client's camera.
	ClearFrame()
	// Crash ends the conversation because one of the peer's goroutines has panicked.
	Crash(err error)
}

// PeerOptions configure a peer. Its functions are called in Pion's goroutines.
type PeerOptions struct {
	Session Session
	Cameras *Cameras // shared by all peers of this client
	Decoder opus.DecoderChoice
	Logger  *slog.Logger

	OnConnected      func()
	OnConnectionLost func(why string) // why is a clause for users; it is "" if the client has closed the connection

	// OnCandidate receives each of our candidates for the section of [Peer.TransportSection], and "" after the last. If
	// it is nil, Answer waits for all candidates, because a client over HTTP needs them in the answer.
	OnCandidate func(line string)

	Channel string                            // label of the data channel, or AnyChannel, or "" for none; only the first channel is used
	Opened  func(*Channel)                    // called with the data channel when it has opened
	Closed  func(*Channel)                    // called with the data channel when it has closed, even if it had not opened
	Message func(message []byte, isText bool) // receives the messages of the data channel
}

// AnyChannel is the value of [PeerOptions].Channel that accepts the first data channel, whatever its label.
const AnyChannel = "*"

var (
	errOtherCodec  = errors.New("the codec of a connection cannot change")
	errNotGathered = errors.New("gathering this server's candidates timed out")
	errNoVoice     = errors.New("the offer has no section for the voice")
	errOtherRole   = errors.New("the DTLS roles of a connection cannot change")
)

// Peer is a WebRTC connection to a client. Its methods are not for concurrent use.
type Peer struct {
	log      *slog.Logger
	pc       *webrtc.PeerConnection
	session  Session
	api      *API
	decoder  opus.DecoderChoice
	trickles bool // our candidates can be sent after the answer

	tried      int         // number of the client's candidates since the last restart of ICE
	candidates []string    // addresses of the client's candidates for the current transport
	offer      Offer       // the last answered offer
	stopped    bool        // the client has stopped all sections: its next offer needs a new peer
	tag        string      // mid of the section that carries the transport; "" without one, and before the first answer
	index      int         // index of the section whose mid is tag
	mids       []string    // sections accepted by the last answer, which share the transport
	setup      string      // the client's a=setup in its first offer, which applies to all later ones; "" before the first
	role       string      // our role in DTLS
	chosen     *codec      // codec of the first offer with audio; further offers must have it; nil before the first
	codec      media.Codec // encoder and decoder of chosen
	pionOffer  string      // the newest offer given to Pion
	repeats    uint64      // number of answers for which Pion's previous answer was reused
	output     *voice      // sender of the model's voice; nil until the first offer that receives audio
	sender     *webrtc.RTPSender
	voiceAt    string // mid of the section that carries the voice, or ""

	// Pion's goroutines also use the following fields.
	gathered   chan struct{}              // holds one value once Pion has found all our candidates, perhaps those before a restart of ICE
	maxMessage atomic.Int64               // maxMessage of the last offer, in bytes
	microphone atomic.Pointer[microphone] // the newest track, even if it has ended: Pion ends tracks at each offer
	tracks     atomic.Int32               // number of tracks so far
	trackLimit atomic.Int32               // limit for tracks
	rtt        atomic.Int64               // the newest round trip time in ns; 0 before the first

	stop    context.CancelFunc
	mu      sync.Mutex
	closing bool // Close is waiting for running, so no goroutine may be added
	running sync.WaitGroup
}

// NewPeer returns a peer that waits for its first offer.
func (a *API) NewPeer(o PeerOptions) (*Peer, error) {
	pc, err := a.api.NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		return nil, fmt.Errorf("new peer: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background()) // canceled by Close
	p := &Peer{
		log: o.Logger, pc: pc, session: o.Session, api: a, decoder: o.Decoder, trickles: o.OnCandidate != nil, stop: stop,
	}
	pc.OnConnectionStateChange(func(s webrtc.PeerConnectionState) {
		p.log.Debug("peer", "state", s)
		p.containPanic("peer", func() {
			switch s {
			case webrtc.PeerConnectionStateConnected:
				o.OnConnected()
			case webrtc.PeerConnectionStateFailed:
				o.OnConnectionLost("The WebRTC connection failed")
			case webrtc.PeerConnectionStateClosed:
				o.OnConnectionLost("")
			}
		})
	})
	p.watchCandidates(o.OnCandidate)
	p.trackLimit.Store(maxTracks)
	pc.OnTrack(func(t *webrtc.TrackRemote, from *webrtc.RTPReceiver) {
		number, most := p.tracks.Add(1), p.trackLimit.Load()
		if number > most {
			o.OnConnectionLost(fmt.Sprintf("More than %d sources (SSRC) have sent over one WebRTC connection", most))
			return
		}
		if t.Kind() == webrtc.RTPCodecTypeAudio {
			p.runGuarded("microphone", func() { p.receiveTrack(ctx, number, t, from) })
		} else {
			p.runGuarded("camera", func() { o.Cameras.decodePictures(ctx, p, t) })
		}
	})
	var served atomic.Bool
	pc.OnDataChannel(func(dc *webrtc.DataChannel) {
		if o.Channel == "" || o.Channel != AnyChannel && dc.Label() != o.Channel || !served.CompareAndSwap(false, true) {
			dc.Close() // an open channel costs a goroutine and 65 KB
			return
		}
		c := NewChannel(dc, int(p.maxMessage.Load()))
		open := sync.OnceFunc(func() { o.Opened(c) }) // Pion may deliver a message before it has called the handler of OnOpen
		dc.OnOpen(func() { p.containPanic("data channel", open) })
		dc.OnClose(func() { p.containPanic("data channel", func() { o.Closed(c) }) })
		dc.OnMessage(func(m webrtc.DataChannelMessage) {
			p.containPanic("data channel", func() {
				open()
				o.Message(m.Data, m.IsString)
			})
		})
	})
	return p, nil
}

// IsSameClient reports whether an offer comes from the same client connection as this peer. It is false before the first
// Answer.
func (p *Peer) IsSameClient(o Offer) bool {
	if p.stopped || p.setup == "" || o.IsStopped() {
		return !p.stopped && p.setup != ""
	}
	return p.offer.transport.fingerprint == o.transport.fingerprint && !p.startsTransport(o) && !p.replacesTransport(o)
}

// startsTransport reports whether an offer stops all sections of the current transport, and starts other sections with
// a new transport. In that case a browser restarts ICE and DTLS (RFC 9143 section 7.5).
func (p *Peer) startsTransport(o Offer) bool {
	return p.RestartsICE(o) && !slices.ContainsFunc(p.mids, func(mid string) bool { return o.sectionByMid(mid) != nil })
}

// replacesTransport reports whether an offer stops the section that carries the transport, and moves the other sections
// to a new transport. In that case Chromium and Firefox end DTLS.
func (p *Peer) replacesTransport(o Offer) bool {
	if p.tag == "" || len(p.candidates) == 0 || p.RestartsICE(o) ||
		slices.ContainsFunc(o.sections, func(s section) bool { return s.mid == p.tag && s.offered }) {
		return false
	}
	// A client may also keep its transport (RFC 9143 section 7.5). Then it repeats one of its earlier candidates.
	return !slices.ContainsFunc(o.transportSection().attributes.values("candidate"), func(line string) bool {
		return slices.Contains(p.candidates, candidateTransport(line))
	})
}

// candidateTransport returns the protocol, address and port of a candidate (RFC 8839 section 5.1), or "" if it has no
// port of its own (active TCP).
func candidateTransport(line string) string {
	fields := strings.Fields(line)
	if len(fields) < 6 || fields[5] == "9" {
		return ""
	}
	return strings.ToLower(fields[2]) + " " + fields[4] + " " + fields[5]
}

// RestartsICE reports whether an offer restarts ICE, which interrupts the connection until the client has the answer.
func (p *Peer) RestartsICE(o Offer) bool {
	return !o.IsStopped() && p.offer.transport.ufrag != o.transport.ufrag
}

// IsConnecting reports whether the peer is connecting, initially or after a restart of ICE.
func (p *Peer) IsConnecting() bool {
	s := p.pc.ConnectionState()
	return s == webrtc.PeerConnectionStateNew || s == webrtc.PeerConnectionStateConnecting
}

// VoiceOutput returns the output for the model's voice, or nil if the last offer does not receive audio.
func (p *Peer) VoiceOutput() media.Output {
	if !p.offer.voice {
		return nil
	}
	return p.output
}

// MicrophoneSilence reports whether this peer receives the client's microphone, and how long it has been quiet.
func (p *Peer) MicrophoneSilence() (quiet time.Duration, ok bool) {
	m := p.microphone.Load()
	if m == nil || !p.offer.microphone {
		return 0, false
	}
	return time.Since(time.Unix(0, m.lastPacket.Load())), true
}

// WantsChannel reports whether the last offer has a section for data channels.
func (p *Peer) WantsChannel() bool { return p.offer.channel }

// TransportSection returns the mid and the index of the media section that carries the transport and its candidates.
// The mid may be "".
func (p *Peer) TransportSection() (mid string, index int) { return p.tag, p.index }

// containPanic runs f, and ends the conversation if it panics.
func (p *Peer) containPanic(place string, f func()) { crash.Run(p.log, place, p.session.Crash, f) }

// runGuarded runs f like containPanic, and makes Close wait for f, because Pion's own Close does not wait for the
// handlers of tracks. Once Close has begun, runGuarded does nothing.
func (p *Peer) runGuarded(place string, f func()) {
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

// Answer answers the first or a further offer. If candidates are trickled, it blocks for at most 0.1 s. It returns a
// [RefusedError] for an unusable offer.
func (p *Peer) Answer(o Offer) (sdp string, err error) {
	bad := func(err error) (string, error) {
		return "", &RefusedError{Problem: "cannot be used: " + err.Error(), Err: err}
	}
	if o.codec != nil && p.chosen != nil && o.codec != p.chosen {
		if o, err = negotiateOffer(o.from, p.chosen); err != nil {
			return "", err
		}
		if o.codec != p.chosen {
			return bad(fmt.Errorf("%s would take the place of %s: %w", o.codec.name, p.chosen.name, errOtherCodec))
		}
	}
	if o.IsStopped() {
		if p.setup == "" {
			return bad(errNothingServed)
		}
		p.stopped, p.offer = true, o.withoutText()
		p.repeats++
		return o.buildStoppedAnswer(p.pc.LocalDescription().SDP, p.repeats), nil
	}
	switch {
	case p.setup == "":
		p.setup, p.role = o.transport.setup, o.transport.answerSetup()
	case o.transport.setup == p.role:
		return bad(errOtherRole)
	}
	if o.codec != nil && p.chosen == nil {
		p.chosen, p.codec = o.codec, o.codec.new(p.decoder)
	}
	if p.RestartsICE(o) {
		p.tried, p.candidates = 0, nil
	}
	for _, line := range o.transportSection().attributes.values("candidate") {
		p.storeCandidateAddress(line)
	}
	p.tried = max(p.tried, len(o.transport.candidates)) // the maximum, because a further offer repeats the candidates of the first
	p.trackLimit.Add(moreTracks)
	voice := o.voiceSection(p.voiceAt)
	if err := p.negotiateWithPion(&o, voice); err != nil {
		return bad(err)
	}
	if err := p.waitForCandidates(); err != nil {
		return "", err
	}
	if sdp, err = o.buildClientAnswer(p.api.filterCandidates(p.pc.LocalDescription().SDP), voice, p.role, p.repeats); err == nil {
		err = o.checkAnswer(sdp)
	}
	if err != nil {
		p.log.Error("bad answer", "err", err, "offer", clipText(fmt.Sprint(o.from.media)), "answer", sdp)
		return bad(fmt.Errorf("the answer would be wrong: %w", err))
	}
	p.index = slices.IndexFunc(o.sections, func(s section) bool { return s.mid == o.transportSection().mid })
	if p.tag = ""; o.transportSection().hasMid {
		p.tag = strings.Clone(o.transportSection().mid)
	}
	p.mids = nil
	for _, mid := range o.bundledMids() {
		p.mids = append(p.mids, strings.Clone(mid))
	}
	p.offer = o.withoutText()
	return sdp, nil
}

// negotiateWithPion passes an offer to Pion and creates the answer. voiceMid is the mid of the section for the voice, or "".
func (p *Peer) negotiateWithPion(o *Offer, voiceMid string) error {
	if voiceMid != "" && p.voiceAt != "" && p.voiceAt != voiceMid { // the section with the voice was stopped, or does not receive it any more
		if err := p.pc.RemoveTrack(p.sender); err != nil {
			return fmt.Errorf("voice track: %w", err)
		}
		p.voiceAt = ""
	}
	carries := voiceMid
	if carries == "" {
		carries = p.voiceAt // the voice is on hold: Pion keeps its sender, but nothing is sent
	}
	if pionOffer := o.buildPionOffer(carries, p.setup); pionOffer == p.pionOffer {
		p.repeats++
	} else {
		p.pionOffer = ""
		if err := p.applyOffer(o, voiceMid, pionOffer); err != nil {
			return err
		}
		p.pionOffer = pionOffer
	}
	for _, line := range o.transport.candidates {
		if err := p.pc.AddICECandidate(webrtc.ICECandidateInit{Candidate: line}); err != nil {
			p.log.Debug("candidate of the offer ignored", "err", err)
		}
	}
	return nil
}

// applyOffer passes an offer to Pion, and creates Pion's answer. pionOffer is the text from buildPionOffer. applyOffer
// must not be called with the same text again, because Pion would end the tracks of unnamed sources, which interrupts
// audio.
func (p *Peer) applyOffer(o *Offer, voiceMid, pionOffer string) error {
	if err := p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: pionOffer}); err != nil {
		return err
	}
	if err := p.setCodecPreferences(o); err != nil {
		return err
	}
	if voiceMid != "" {
		if err := p.attachVoice(o, voiceMid); err != nil {
			return err
		}
	}
	a, err := p.pc.CreateAnswer(nil)
	if err != nil {
		return err
	}
	p.maxMessage.Store(int64(o.maxMessage)) // a channel may open as soon as the answer is set
	return p.pc.SetLocalDescription(a)
}

// watchCandidates passes our candidates to send, which may be nil. After the last candidate it signals
// waitForCandidates.
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
		if send != nil && (i == nil || p.api.isAnnounced(line)) {
			send(line)
		}
	})
}

// waitForCandidates waits for all our candidates, but at most gatherWait if they are trickled. It does not use Pion's
// GatheringCompletePromise, because that may never be fulfilled if it is created just as gathering completes.
func (p *Peer) waitForCandidates() error {
	wait := gatherWait
	if !p.trickles {
		wait = gatherAll
	}
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for p.pc.ICEGatheringState() != webrtc.ICEGatheringStateComplete {
		select {
		case <-p.gathered:
		case <-deadline.C:
			if !p.trickles {
				return errNotGathered
			}
			return nil
		}
	}
	return nil
}

// transceiverByMid returns Pion's transceiver of a section, or nil.
func (p *Peer) transceiverByMid(mid string) *webrtc.RTPTransceiver {
	all := p.pc.GetTransceivers()
	if i := slices.IndexFunc(all, func(t *webrtc.RTPTransceiver) bool { return t.Mid() == mid }); i >= 0 {
		return all[i]
	}
	return nil
}

// setCodecPreferences makes Pion's answer list only the formats from answerFormats, because a sender may use any listed
// format in each packet. Opus with RED comes first, because browsers send the first format of the answer.
func (p *Peer) setCodecPreferences(o *Offer) error {
	for i := range o.sections {
		s := &o.sections[i]
		if !s.accepted || s.kind == "application" {
			continue
		}
		t := p.transceiverByMid(s.mid)
		if t == nil {
			return fmt.Errorf("the %s section %q is not known", s.kind, clipText(s.mid))
		}
		if err := t.SetCodecPreferences(o.answerFormats(s)); err != nil {
			return err
		}
	}
	return nil
}

// attachVoice makes a section carry the model's voice.
func (p *Peer) attachVoice(o *Offer, mid string) error {
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
	plain, red, hasRED, _ := o.sectionByMid(mid).audioFormats(p.chosen)
	if !hasRED {
		red.PayloadType = 0
	}
	p.output.setPayloadTypes(uint8(plain.PayloadType), uint8(red.PayloadType))
	if p.voiceAt == mid {
		return nil
	}
	t := p.transceiverByMid(mid)
	var sender *webrtc.RTPSender
	var err error
	if sender = t.Sender(); sender != nil { // Pion had made the transceiver for a source that appeared before an offer named it
		err = sender.ReplaceTrack(p.output)
	} else if sender, err = p.pc.AddTrack(p.output); err == nil && sender != t.Sender() {
		err = errNoVoice
	}
	if err != nil {
		return fmt.Errorf("voice track: %w", err)
	}
	p.sender, p.voiceAt = sender, strings.Clone(mid)
	output := p.output
	go p.runGuarded("rtcp", func() { readRTCP(sender.Read, func(p []rtcp.Packet) { output.onRTCP(p, time.Now()) }) })
	return nil
}

// maxBadRTCP is the number of consecutive unreadable RTCP datagrams after which reading stops.
const maxBadRTCP = 50

// readRTCP reads RTCP until the stream ends, and passes the packets to onPackets, which may be nil. The stream must be
// read even if onPackets is nil: otherwise the interceptors receive no reports and NACKs.
func readRTCP(read func([]byte) (int, interceptor.Attributes, error), onPackets func([]rtcp.Packet)) {
	buf := make([]byte, 1500)
	for bad := 0; bad < maxBadRTCP; {
		n, seen, err := read(buf)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrClosedPipe):
			return
		case err != nil: // the datagram is too long, or Pion cannot parse it
			bad++
		default:
			bad = 0
			if onPackets == nil {
				continue
			}
			if packets, err := seen.GetRTCPPackets(buf[:n]); err == nil { // already parsed by the interceptors
				onPackets(packets)
			}
		}
	}
}

// AddCandidate adds one of the client's candidates. "" has no effect. It returns a [RefusedError] for an unreadable
// candidate, and [ErrTooManyCandidates] if it ignores the candidate.
func (p *Peer) AddCandidate(line string) error {
	if line == "" {
		return nil
	}
	if p.tried >= MaxCandidates {
		return ErrTooManyCandidates
	}
	p.tried++
	p.storeCandidateAddress(line)
	if err := p.pc.AddICECandidate(webrtc.ICECandidateInit{Candidate: line}); err != nil {
		return &RefusedError{Problem: "cannot be read: " + err.Error(), Err: err}
	}
	return nil
}

// storeCandidateAddress stores the address of a candidate.
func (p *Peer) storeCandidateAddress(line string) {
	if a := candidateTransport(line); a != "" && len(p.candidates) < 2*MaxCandidates && !slices.Contains(p.candidates, a) {
		p.candidates = append(p.candidates, a)
	}
}

// StopMicrophone stops the microphone permanently. It blocks until the microphone's goroutines have ended.
func (p *Peer) StopMicrophone() {
	p.stop()
	if m := p.microphone.Load(); m != nil {
		<-m.done
	}
}

// Close ends the connection and waits for all goroutines that it started.
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
		p.api.ReportQuality(p.output.quality)
	}
}
