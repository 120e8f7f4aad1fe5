package sip

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"voxgate/bridge"
	"voxgate/internal/crash"
	"voxgate/media"
	"voxgate/media/rtpaudio"
	"voxgate/signaling/phone"
	"voxgate/signaling/rtc"
)

// uplinkRate is the maximum rate of decoded audio, in Hz: the Live API's own. G.711 is sent up at its 8 kHz, without resampling.
const uplinkRate = 16000

// callMedia is the RTP media of a call.
type callMedia struct {
	ports     *portPool
	resolver  *net.Resolver // for names in descriptions
	stream    *stream       // nil until openPort is called
	trunk     *Trunk        // provides the settings
	keypad    *phone.Keypad
	onQuality func(rtc.Quality) // receives the quality of each ended stream, incoming and outgoing; may be nil
	screen    *callScreen
	log       *slog.Logger

	mu         sync.Mutex
	local      local
	peer       *description    // the peer's newest offer; nil if it has answered ours
	ourKeys    []crypto        // keys in our offer
	agreed     *agreement      // nil before negotiation
	session    *bridge.Session // nil unless a conversation runs
	codecRun   *activeCodec
	filler     *worker             // sends music or silence; may be nil
	holdMusic  bool                // the other side hears music, and the conversation is on hold
	playback   func(frame []int16) // instead of a conversation, adds audio to frame at musicRate; may be nil
	lastReport time.Time

	codecSwitches sync.WaitGroup // switches of the codec in progress
}

var errSilence = errors.New("no RTP packet received for too long")

// applyOffer applies an offer of the peer, the first one or a later one. An error rejects it.
func (r *callMedia) applyOffer(sdp []byte) error {
	d, err := r.parseDescription(sdp)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	d, agreed, err := d.negotiateSection(r.trunk.SRTP, r.availableKeys())
	if err != nil {
		return err
	}
	if r.agreed != nil {
		r.local.version++
	}
	r.agreed, r.peer = agreed, d
	return r.applyAgreement()
}

// applyAnswer applies the peer's answer to our offer.
func (r *callMedia) applyAnswer(sdp []byte) error {
	d, err := r.parseDescription(sdp)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	d, agreed, err := d.negotiateSection(r.trunk.SRTP, r.availableKeys())
	if err != nil {
		return err
	}
	offered, events := r.offeredTypes()
	agreed.receiveAnswered(d.payloads, offered, events)
	if r.agreed != nil { // it answers a later offer of ours
		r.local.version++
		r.peer = d
	}
	r.agreed = agreed
	return r.applyAgreement()
}

// offeredTypes returns the payload types of our newest offer. Needs mu.
func (r *callMedia) offeredTypes() (list []payload, events uint8) {
	if r.peer != nil { // our newest offer repeated the agreement
		if r.agreed.event != nil {
			events = r.agreed.event.number
		}
		return []payload{r.agreed.payload}, events
	}
	for _, c := range codecs {
		list = append(list, payload{c.offeredType, c})
	}
	return list, ourEvents
}

// followCodec switches to another codec of the agreement, after the peer has.
func (r *callMedia) followCodec(to *codec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.agreed == nil || r.agreed.codec == to {
		return
	}
	if agreed := r.agreed.withCodec(to); agreed != nil {
		r.agreed = agreed
		if err := r.applyAgreement(); err != nil {
			r.log.Warn("switching to the peer's new codec failed", "codec", to.name, "err", err)
		}
	}
}

// parseDescription parses a description, and resolves the names in it.
func (r *callMedia) parseDescription(sdp []byte) (*description, error) {
	d, err := parseSDP(sdp)
	if err != nil {
		return nil, err
	}
	for _, one := range append([]*description{d}, d.alternatives...) {
		if one.remote.Addr().IsValid() || one.host == "" || phone.IsInvalidHost(one.host) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
		list, err := r.resolver.LookupNetIP(ctx, "ip", one.host)
		cancel()
		if err != nil {
			continue // not a section to agree on
		}
		i := slices.IndexFunc(list, func(a netip.Addr) bool { return a.Unmap().Is4() == r.local.address.Is4() })
		one.remote = netip.AddrPortFrom(list[max(i, 0)].Unmap(), one.remote.Port())
	}
	return d, nil
}

// availableKeys returns our keys that an agreement may use. Needs mu.
func (r *callMedia) availableKeys() []crypto {
	if r.agreed != nil && r.agreed.out != nil {
		return append([]crypto{*r.agreed.out}, r.ourKeys...)
	}
	return r.ourKeys
}

// openPort takes a port from the pool.
func (r *callMedia) openPort() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stream, err = r.ports.openStream(); err != nil {
		return err
	}
	r.stream.onForeign = func(from, described netip.AddrPort) {
		r.log.Warn("audio dropped: its source is not the address in the SDP; set nat of the trunk to accept it", "from", from, "described",
			described)
	}
	r.stream.onCodec = func(to *codec) {
		r.codecSwitches.Go(func() { // not waited for: the goroutine that reads packets ends with its codec
			crash.Run(r.log, "sip media", func(error) { _ = r.stream.conn.Close() }, func() { r.followCodec(to) })
		})
	}
	r.local.port = r.stream.port
	return r.applyAgreement()
}

// applyAgreement puts the agreement into effect, once there are a port and an agreement. It restarts the media if the codec has changed.
// Needs mu.
func (r *callMedia) applyAgreement() error {
	if r.stream == nil || r.agreed == nil {
		return nil
	}
	if err := r.stream.applyAgreement(r.agreed, r.trunk.NAT); err != nil {
		return err
	}
	switch {
	case r.playback != nil:
		return r.startFiller()
	case r.session == nil:
		return nil
	}
	if !r.codecRun.isUnchanged(r.agreed) {
		if r.codecRun != nil {
			r.codecRun.stop()
		}
		var err error
		if r.codecRun, err = r.startCodec(r.session, r.agreed); err != nil {
			return err
		}
	}
	if err := r.startFiller(); err != nil {
		return err
	}
	r.log.Info("sound", "codec", r.agreed.codec.name, "srtp", r.agreed.out != nil, "hold", r.agreed.isHeld)
	return r.session.Do(bridge.Pause{On: r.agreed.isHeld || r.holdMusic})
}

// setHoldMusic plays music on hold to the other side instead of the conversation, or stops that.
func (r *callMedia) setHoldMusic(on bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holdMusic = on
	return r.applyAgreement()
}

// hasHoldMusic reports whether the other side hears music on hold.
func (r *callMedia) hasHoldMusic() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holdMusic
}

// localDescription returns our answer to the newest offer, or our own offer if the peer has sent none.
func (r *callMedia) localDescription() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buildDescription(r.agreed)
}

// buildReoffer returns a later offer, with the current agreement. It offers audio both ways, as in a new call (RFC 3261, section 14.2). A
// side that has put us on hold repeats that in its answer. We never put the other side on hold.
func (r *callMedia) buildReoffer() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.peer == nil {
		return r.buildDescription(nil)
	}
	r.local.version++
	both := *r.agreed
	both.direction = "sendrecv"
	return r.buildDescription(&both)
}

// buildDescription returns our answer to the peer's offer with an agreement, or our own offer if the peer has sent none. Needs mu.
func (r *callMedia) buildDescription(agreed *agreement) []byte {
	if r.peer != nil {
		return r.peer.answer(r.local, agreed)
	}
	if r.trunk.SRTP == srtpRequired && r.ourKeys == nil {
		r.ourKeys = offeredKeys()
	}
	return offer(r.local, r.ourKeys, "sendrecv")
}

// startConversation connects the media to the conversation until stop is called. It does not block.
func (r *callMedia) startConversation(s *bridge.Session) (stop func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session, r.lastReport = s, time.Now()
	r.stream.resetSilence()
	return r.stopMedia, r.applyAgreement()
}

// startPlayback sends a source to the other side, without a conversation, until stop is called.
func (r *callMedia) startPlayback(source func(frame []int16)) (stop func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.playback, r.lastReport = source, time.Now()
	r.stream.resetSilence()
	return r.stopMedia, r.applyAgreement()
}

// stopMedia stops the conversation or playback.
func (r *callMedia) stopMedia() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.filler.stop()
	if r.codecRun != nil {
		r.codecRun.stop()
	}
	r.filler, r.codecRun, r.session, r.playback = nil, nil, nil, nil
}

// checkSilence sends RTCP reports, and returns an error if no RTP packet was received for too long. It is called once a
// second.
func (r *callMedia) checkSilence(now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.lastReport) >= reportEvery {
		r.lastReport = now
		r.stream.sendReport(now)
	}
	onHold := r.agreed != nil && r.agreed.onHold()
	if r.stream.silentFor(now) > r.trunk.silenceTimeout() && !onHold {
		return errSilence
	}
	return nil
}

// closePort returns the port to the pool.
func (r *callMedia) closePort() {
	r.mu.Lock()
	if r.stream != nil {
		r.stream.ignoreCodecs()
		r.stream.closePort()
		r.reportQuality(r.stream.outgoingQuality)
	}
	r.mu.Unlock()
	r.codecSwitches.Wait()
}

// reportQuality reports the quality of a stream that has carried packets.
func (r *callMedia) reportQuality(q rtc.Quality) {
	if r.onQuality != nil && q.Packets > 0 {
		r.onQuality(q)
	}
}

// worker is a goroutine that can be stopped.
type worker struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func startWorker(f func(ctx context.Context)) *worker {
	ctx, cancel := context.WithCancel(context.Background())
	w := &worker{cancel, make(chan struct{})}
	go func() {
		defer close(w.done)
		f(ctx)
	}()
	return w
}

func (w *worker) stop() {
	if w != nil {
		w.cancel()
		<-w.done
	}
}

// sessionSender is the sender for a conversation's audio.
type sessionSender struct {
	*rtpaudio.Sender
	session *bridge.Session
}

// activeCodec runs the media of an agreement in both directions.
type activeCodec struct {
	agreed *agreement
	*worker
}

// isUnchanged reports whether another agreement has the same media: an INVITE that refreshes the session timer repeats the agreement.
func (h *activeCodec) isUnchanged(agreed *agreement) bool {
	return h != nil && h.agreed.payload == agreed.payload && slices.Equal(h.agreed.acceptedPayloads, agreed.acceptedPayloads) &&
		slices.Equal(h.agreed.events, agreed.events)
}

// startCodec starts to send and receive media according to an agreement.
func (r *callMedia) startCodec(s *bridge.Session, agreed *agreement) (*activeCodec, error) {
	codec := agreed.codec.media
	mic, err := s.NewMicrophone(codec.DecodedRate(uplinkRate))
	if err != nil {
		return nil, err
	}
	sender, err := rtpaudio.NewSender(r.stream, codec)
	if err != nil {
		return nil, err
	}
	sender.SetPayloadTypes(agreed.number, 0)
	r.stream.sender.Store(&sessionSender{sender, s})
	if !r.screen.ask || r.screen.decided.Load() {
		s.AttachOutput(sender)
	}
	s.HoldVoice(false)
	r.stream.keyReader = digitReader{} // with another codec, the peer may have started a new stream
	sink := r.screen.wrapSink(r.keypad.FilterSecret(mic))
	receiver := rtpaudio.NewReceiver(sink, rtpaudio.ReceiverOptions{
		Codec: codec, PayloadTypes: agreed.types(), EventTypes: agreed.events,
		OnEvent: func(e rtpaudio.Event) { r.stream.keyReader.readEvent(e, r.keypad.PushKey) },
		OnLoss:  func(lost, of int) { s.RecordLoss(true, lost, of) },
	})
	stream := r.stream
	return &activeCodec{agreed, startWorker(func(ctx context.Context) {
		err := receiver.Run(ctx, stream)
		stats := receiver.Stats()
		r.reportQuality(rtc.Quality{
			Up: true, Packets: stats.Packets, LostPackets: stats.Lost, LatePackets: stats.Late, Jitter: stats.Jitter, Concealed: stats.Concealed,
		})
		r.log.Info("sound ended", "codec", agreed.codec.name, "packets", stats.Packets, "lost", stats.Lost, "late", stats.Late,
			"concealed", stats.Concealed, "jitter", stats.Jitter, "err", err)
	})}, nil
}

// comfortEvery is the interval of comfort noise in a pause, for peers that have missed a packet. comfortLevel is its loudness: -65 dBov, as
// on a quiet line, in one byte (RFC 3389, section 3.1).
const comfortEvery = 200 * time.Millisecond

var comfortLevel = []byte{65}

// startFiller sends music on hold, the played source, or silence if the trunk requires packets. Needs mu.
func (r *callMedia) startFiller() error {
	r.filler.stop()
	r.filler = nil
	stream, number, source := r.stream, r.agreed.number, r.playback
	switch {
	case r.holdMusic:
		position := 0
		source = func(frame []int16) { position = renderMusic(frame, position) }
	case source != nil:
	case r.trunk.Silence == "":
		return nil
	case r.trunk.Silence == silenceComfort && r.agreed.comfort != 0:
		number = r.agreed.comfort
		r.filler = startWorker(func(ctx context.Context) {
			stream.fillPauses(ctx, number, comfortEvery, func() []byte { return comfortLevel })
		})
		return nil
	}
	encoder, err := r.agreed.codec.media.NewEncoder(musicRate)
	if err != nil {
		return err
	}
	frame, payload := make([]int16, media.Samples(media.FrameDuration, musicRate)), make([]byte, media.MaxPacketBytes)
	size := 0
	next := func() []byte {
		if source != nil {
			clear(frame)
			source(frame)
		}
		if size == 0 || source != nil { // silence is encoded once
			size, _ = encoder.Encode(frame, payload) // cannot fail for a frame of 20 ms
		}
		return payload[:size]
	}
	r.filler = startWorker(func(ctx context.Context) { stream.fillPauses(ctx, number, media.FrameDuration, next) })
	return nil
}
