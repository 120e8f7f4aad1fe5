package signaling

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/sdp/v3"
	"github.com/pion/webrtc/v4"

	"voxgate/bridge"
	"voxgate/media"
)

const (
	// connectTimeout is how long a peer may take from its offer to being connected. DTLS has no limit of its own: of
	// 14 connections made while a link died, one hung for 36 s.
	connectTimeout = 10 * time.Second

	// gatherWait is how long an answer waits for our own candidates. They are the addresses of a port that is open
	// already, so they are there within a millisecond, and a client that ignores trickled ones gets them, too.
	gatherWait = 100 * time.Millisecond

	// defaultChannelMessage is the limit of a peer that names none (RFC 8841 section 6.1).
	defaultChannelMessage = 64 << 10

	// uplinkRate is what Opus is decoded to: the Live API's own rate, so nothing has to be resampled.
	uplinkRate = 16000

	// eventsLabel is the data channel that carries this protocol.
	eventsLabel = "events"
)

// offer is what we must know of an SDP offer before pion sees it.
type offer struct {
	sdp         string
	fingerprint string // of its DTLS certificate: another one is another peer
	ufrag       string // of ICE; a new one restarts it
	voice       bool   // an audio section on which we may send
	channel     bool   // a section for data channels
	maxMessage  int    // bytes, of the data channel
}

// parseOffer reads an offer and refuses what cannot be served.
func parseOffer(text string) (offer, error) {
	o := offer{sdp: text, maxMessage: defaultChannelMessage}
	bad := func(problem string) (offer, error) {
		return o, &bridge.Error{Code: bridge.CodeBadOffer, Field: "payload.sdp", Message: "payload.sdp " + problem}
	}
	if text == "" {
		return bad("is missing or empty")
	}
	if len(text) > maxSDP {
		return bad(fmt.Sprintf("has %d bytes, more than %d", len(text), maxSDP))
	}
	var d sdp.SessionDescription
	if err := d.UnmarshalString(text); err != nil {
		return bad("cannot be read: " + err.Error())
	}
	if len(d.MediaDescriptions) == 0 {
		return bad("has no media section")
	}
	o.fingerprint, _ = d.Attribute("fingerprint")
	o.ufrag, _ = d.Attribute("ice-ufrag")
	audio, opus := false, false
	var codecs []string
	for _, m := range d.MediaDescriptions {
		if f, ok := m.Attribute("fingerprint"); ok && o.fingerprint == "" {
			o.fingerprint = f
		}
		if u, ok := m.Attribute("ice-ufrag"); ok && o.ufrag == "" {
			o.ufrag = u
		}
		switch {
		case m.MediaName.Media == "audio" && m.MediaName.Port.Value != 0:
			audio = true
			names := codecNames(m)
			if hasOpus(names) {
				opus = true
				_, inactive := m.Attribute("inactive")
				_, sendonly := m.Attribute("sendonly")
				o.voice = o.voice || !inactive && !sendonly
			}
			codecs = append(codecs, names...)
		case m.MediaName.Media == "application":
			o.channel = true
			if s, ok := m.Attribute("max-message-size"); ok {
				if n, err := strconv.Atoi(s); err == nil {
					o.maxMessage = n
				}
				if o.maxMessage <= 0 || o.maxMessage > maxChannelMessage { // 0: any size
					o.maxMessage = maxChannelMessage
				}
			}
		}
	}
	if o.fingerprint == "" {
		return bad("has no DTLS fingerprint")
	}
	if audio && !opus {
		return bad("offers no codec that is served here; Opus is, and the offer has " + strings.Join(codecs, ", "))
	}
	return o, nil
}

// codecNames are the encodings of a media section, as "opus/48000/2"; static payload types without a name count, too.
func codecNames(m *sdp.MediaDescription) []string {
	static := map[string]string{"0": "PCMU/8000", "8": "PCMA/8000", "9": "G722/8000"} // RFC 3551 section 6
	names := map[string]string{}
	for _, a := range m.Attributes {
		if a.Key == "rtpmap" {
			if pt, name, ok := strings.Cut(a.Value, " "); ok {
				names[pt] = name
			}
		}
	}
	var list []string
	for _, pt := range m.MediaName.Formats {
		name := names[pt]
		if name == "" {
			name = static[pt]
		}
		if name != "" {
			list = append(list, name)
		}
	}
	return list
}

func hasOpus(names []string) bool {
	for _, n := range names {
		if strings.EqualFold(n, "opus/48000/2") {
			return true
		}
	}
	return false
}

// peer is a WebRTC connection to the client. The call's loop owns it; the callbacks of pion only post to that loop.
type peer struct {
	log          *slog.Logger
	pc           *webrtc.PeerConnection
	fingerprint  string
	ufrag        string
	from         way // where offers came from, and answers and candidates go
	connected    bool
	late         *time.Timer      // gives it up if it has not connected
	voice        bool             // the offer lets us send audio
	output       *media.RTPOutput // nil until the first offer with voice
	channel      *dataChannel     // nil until open
	maxMessage   int              // bytes
	wantsChannel bool             // the offer has a section for it
	mid          string           // of the section that carries the transport
	stop         context.CancelFunc
	microphone   atomic.Pointer[microphone]

	mu      sync.Mutex
	closing bool // guards running: nothing is added once it is waited for
	running sync.WaitGroup
}

// do runs f and has close wait for it: pion's own Close returns while a track's handler still runs.
func (p *peer) do(f func()) {
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

// microphone is a track being received.
type microphone struct {
	cancel   context.CancelFunc
	done     chan struct{}
	receiver *media.Receiver
}

// apply answers an offer, the first or a further one.
func (p *peer) apply(o offer) (answer string, err error) {
	bad := func(err error) (string, error) {
		return "", &bridge.Error{Code: bridge.CodeBadOffer, Field: "payload.sdp", Message: "payload.sdp cannot be used: " + err.Error(), Err: err}
	}
	if o.voice && p.output == nil {
		if err := p.addVoice(); err != nil {
			return "", err
		}
	}
	if err := p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: o.sdp}); err != nil {
		return bad(err)
	}
	a, err := p.pc.CreateAnswer(nil)
	if err != nil {
		return bad(err)
	}
	gathered := webrtc.GatheringCompletePromise(p.pc)
	if err := p.pc.SetLocalDescription(a); err != nil {
		return bad(err)
	}
	timer := time.NewTimer(gatherWait)
	defer timer.Stop()
	select {
	case <-gathered:
	case <-timer.C:
	}
	p.ufrag, p.voice, p.wantsChannel, p.maxMessage = o.ufrag, o.voice, o.channel, o.maxMessage
	local := p.pc.LocalDescription().SDP
	p.mid = firstMid(local)
	return wireAnswer(local, o.sdp), nil
}

// wireAnswer makes of pion's answer the one that is sent: video, which nobody looks at yet, is inactive, and refused
// sections get what pion leaves out and aiortc insists on (allowed by RFC 8829 section 5.3.1): the offer's mid and the
// transport of the first section that was accepted.
func wireAnswer(answer, offer string) string {
	var a, o sdp.SessionDescription
	if a.UnmarshalString(answer) != nil || o.UnmarshalString(offer) != nil || len(a.MediaDescriptions) != len(o.MediaDescriptions) {
		return answer
	}
	var transport []sdp.Attribute
	for _, m := range a.MediaDescriptions {
		if m.MediaName.Port.Value == 0 {
			continue
		}
		for _, key := range []string{"ice-ufrag", "ice-pwd", "setup", "rtcp-mux"} {
			if v, ok := m.Attribute(key); ok {
				transport = append(transport, sdp.Attribute{Key: key, Value: v})
			}
		}
		break
	}
	for i, m := range a.MediaDescriptions {
		switch {
		case m.MediaName.Port.Value == 0:
			if mid, ok := o.MediaDescriptions[i].Attribute("mid"); ok {
				m.Attributes = append(m.Attributes, sdp.Attribute{Key: "mid", Value: mid})
			}
			m.Attributes = append(append(m.Attributes, transport...), sdp.Attribute{Key: "inactive"})
		case m.MediaName.Media == "video":
			for j, attribute := range m.Attributes {
				if slices.Contains([]string{"sendrecv", "sendonly", "recvonly"}, attribute.Key) {
					m.Attributes[j].Key = "inactive"
				}
			}
		}
	}
	b, err := a.Marshal()
	if err != nil {
		return answer
	}
	return string(b)
}

// firstMid is the media section that carries the transport: all are bundled into the first one that is accepted.
func firstMid(text string) string {
	var d sdp.SessionDescription
	if err := d.UnmarshalString(text); err != nil {
		return ""
	}
	for _, m := range d.MediaDescriptions {
		if mid, ok := m.Attribute("mid"); ok && m.MediaName.Port.Value != 0 {
			return mid
		}
	}
	return ""
}

// addVoice adds the track that carries the model's voice.
func (p *peer) addVoice() error {
	track, err := webrtc.NewTrackLocalStaticRTP(webrtc.RTPCodecCapability{
		MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2,
	}, "voice", "voxgate")
	if err != nil {
		return fmt.Errorf("voice track: %w", err)
	}
	sender, err := p.pc.AddTrack(track)
	if err != nil {
		return fmt.Errorf("voice track: %w", err)
	}
	if p.output, err = media.NewRTPOutput(track); err != nil {
		return fmt.Errorf("voice encoder: %w", err)
	}
	go p.do(func() { // somebody must read the RTCP, or reports and NACK do nothing
		buf := make([]byte, 1500)
		for {
			if _, _, err := sender.Read(buf); err != nil {
				return
			}
		}
	})
	return nil
}

// receive feeds a track to the session until it ends. A newer track takes over from an older one.
func (p *peer) receive(ctx context.Context, track *webrtc.TrackRemote, s *bridge.Session, decoder media.DecoderChoice) {
	sink, err := s.Mic(uplinkRate)
	if err != nil {
		p.log.Error("microphone", "err", err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &microphone{cancel: cancel, done: make(chan struct{})}
	m.receiver = media.NewReceiver(sink, []uint8{uint8(track.PayloadType())}, decoder)
	defer close(m.done)
	if old := p.microphone.Swap(m); old != nil {
		old.cancel()
		<-old.done
	}
	err = m.receiver.Run(ctx, trackReader{track})
	p.microphone.CompareAndSwap(m, nil)
	stats := m.receiver.Stats()
	p.log.Info("microphone track ended", "packets", stats.Packets, "lost", stats.Lost, "late", stats.Late,
		"concealed", stats.Concealed, "err", err)
}

// trackReader is the [media.RTPReader] of a track.
type trackReader struct{ track *webrtc.TrackRemote }

func (r trackReader) Read(b []byte) (int, error) {
	n, _, err := r.track.Read(b)
	return n, err
}

func (r trackReader) SetReadDeadline(t time.Time) error { return r.track.SetReadDeadline(t) }

// addCandidate takes one of the client's candidates.
func (p *peer) addCandidate(c candidatePayload) error {
	if c.Candidate == nil || *c.Candidate == "" {
		return nil // no more: nothing depends on it
	}
	// The place is left out: all sections are bundled, and clients that give none of it must work, too.
	if err := p.pc.AddICECandidate(webrtc.ICECandidateInit{Candidate: *c.Candidate}); err != nil {
		return &bridge.Error{
			Code: bridge.CodeBadOffer, Field: "payload.candidate",
			Message: fmt.Sprintf("payload.candidate cannot be read: %v", err), Err: err,
		}
	}
	return nil
}

// maxCandidates bounds the candidates kept for an offer.
const maxCandidates = 64

// mute stops the microphone for good and waits for it.
func (p *peer) mute() {
	p.stop()
	if m := p.microphone.Load(); m != nil {
		<-m.done
	}
}

// close ends the connection and waits for all that it started.
func (p *peer) close() {
	if p.late != nil {
		p.late.Stop()
	}
	p.stop()
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	if err := p.pc.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		p.log.Debug("peer close", "err", err)
	}
	p.running.Wait()
}

// dataChannel is the [line] over the data channel "events".
type dataChannel struct {
	dc         *webrtc.DataChannel
	maxMessage int
	low        chan struct{}
}

func newDataChannel(dc *webrtc.DataChannel, maxMessage int) *dataChannel {
	d := &dataChannel{dc: dc, maxMessage: maxMessage, low: make(chan struct{}, 1)}
	dc.SetBufferedAmountLowThreshold(maxBuffered / 2)
	dc.OnBufferedAmountLow(func() {
		select {
		case d.low <- struct{}{}:
		default:
		}
	})
	return d
}

func (d *dataChannel) limit() int { return d.maxMessage }

func (d *dataChannel) write(message []byte) error { return d.dc.SendText(string(message)) }

func (d *dataChannel) ready(ctx context.Context) error { return d.below(ctx, maxBuffered, slowChannel) }

// below waits until at most n bytes are buffered.
func (d *dataChannel) below(ctx context.Context, n uint64, patience time.Duration) error {
	if d.dc.BufferedAmount() <= n {
		return nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for d.dc.BufferedAmount() > n {
		if d.dc.ReadyState() != webrtc.DataChannelStateOpen {
			return net.ErrClosed
		}
		select {
		case <-d.low:
		case <-timer.C:
			return errSlow
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
