// Package media implements the audio of phone calls: session descriptions (SDP), RTP or SRTP with one peer, keys (DTMF), music on hold,
// and the relay of audio between two calls. It does not depend on SIP signalling. A conversation with the model is connected through
// the interface [Conversation].
package media

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"voxgate/internal/crash"
	"voxgate/media"
	"voxgate/media/rtpaudio"
	"voxgate/signaling/phone"
	"voxgate/signaling/rtc"
)

// uplinkRate is the maximum sample rate of the audio for the model, in Hz. It is the Live API's own rate. G.711 is not
// resampled to it, but stays at 8 kHz.
const uplinkRate = 16000

// Audio is the RTP audio of a call. It holds the port and what is agreed with the peer, and sends and receives the
// packets.
type Audio struct {
	ports     *PortPool
	resolver  *net.Resolver // for names in descriptions
	stream    *stream       // nil until OpenPort is called
	settings  Settings
	onKey     func(key byte)    // receives the pressed keys
	onQuality func(rtc.Quality) // receives the quality of each ended stream, incoming and outgoing; may be nil
	log       *slog.Logger

	mu           sync.Mutex
	local        local
	peer         *description // the peer's newest offer, or its answer to a later offer of ours; nil before either
	ourKeys      []crypto     // keys in our offer
	agreed       *agreement   // nil before negotiation
	conversation Conversation // nil while no conversation runs
	codecRun     *activeCodec
	filler       *worker             // sends music, a played source, or silence; nil if none is sent
	holdMusic    bool                // the other side hears music, and the conversation is on hold
	playback     func(frame []int16) // adds audio to frame at PlaybackRate, instead of a conversation; may be nil
	lastReport   time.Time

	codecSwitches sync.WaitGroup // goroutines that switch the codec
}

// Options configure the audio of a call.
type Options struct {
	Settings Settings
	Ports    *PortPool
	Resolver *net.Resolver // for names in descriptions
	Local    netip.Addr    // our address for the peer
	// OnKey receives the keys that the peer presses. It must not block.
	OnKey func(key byte)
	// OnQuality receives the quality of each ended stream, incoming and outgoing. It may be nil.
	OnQuality func(rtc.Quality)
	Logger    *slog.Logger
}

// NewAudio returns the audio of a call. It has no port before OpenPort.
func NewAudio(o Options) *Audio {
	return &Audio{
		ports: o.Ports, resolver: o.Resolver, settings: o.Settings, onKey: o.OnKey, onQuality: o.OnQuality, log: o.Logger,
		local: local{address: o.Local, id: rand.Uint64() >> 1, version: 1},
	}
}

// Conversation receives the caller's audio, and provides the model's.
type Conversation interface {
	// NewMicrophone returns a sink for the caller's audio at the given sample rate.
	NewMicrophone(rate int) (media.Sink, error)
	// AttachOutput sets the output that receives the model's audio.
	AttachOutput(out media.Output)
	// HoldVoice(true) delays the model's audio until HoldVoice(false) is called.
	HoldVoice(on bool)
	// RecordLoss records recent packet loss: lost of total packets. up is true for the caller's audio, and false for
	// the model's.
	RecordLoss(up bool, lost, total int)
	// Pause(true) stops the conversation in both directions, as for a call on hold, until Pause(false) is called.
	Pause(on bool) error
}

// sdpHostTimeout limits the resolution of a host name in a description, because a call is waiting for it.
const sdpHostTimeout = 2 * time.Second

var ErrSilence = errors.New("no RTP packet received for too long")

// ApplyOffer applies the first or a later offer of the peer. If it fails, the offer is rejected.
func (a *Audio) ApplyOffer(sdp []byte) error {
	d, err := a.parseDescription(sdp)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	d, agreed, err := d.negotiateSection(a.settings.SRTP, a.availableKeys())
	if err != nil {
		return err
	}
	if a.agreed != nil {
		a.local.version++
	}
	a.agreed, a.peer = agreed, d
	return a.applyAgreement()
}

// ApplyAnswer applies the peer's answer to our offer.
func (a *Audio) ApplyAnswer(sdp []byte) error {
	d, err := a.parseDescription(sdp)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	d, agreed, err := d.negotiateSection(a.settings.SRTP, a.availableKeys())
	if err != nil {
		return err
	}
	offered, events := a.offeredTypes()
	agreed.acceptAnsweredTypes(d.payloads, offered, events)
	if a.agreed != nil { // the answered offer was not our first
		a.local.version++
		a.peer = d
	}
	a.agreed = agreed
	return a.applyAgreement()
}

// offeredTypes returns the payload types in our newest offer: list for audio, and events for telephone-event. The
// caller must hold mu.
func (a *Audio) offeredTypes() (list []payload, events uint8) {
	if a.peer != nil { // the peer made an offer, so ours is a later one that repeated what is agreed
		if a.agreed.event != nil {
			events = a.agreed.event.number
		}
		return []payload{a.agreed.payload}, events
	}
	for _, c := range codecs {
		list = append(list, payload{c.offeredType, c})
	}
	return list, ourEvents
}

// switchCodec switches our codec to another agreed codec, because the peer has switched to it.
func (a *Audio) switchCodec(to *codec) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.agreed == nil || a.agreed.codec == to {
		return
	}
	if agreed := a.agreed.withCodec(to); agreed != nil {
		a.agreed = agreed
		if err := a.applyAgreement(); err != nil {
			a.log.Warn("switching to the peer's new codec failed", "codec", to.name, "err", err)
		}
	}
}

// parseDescription parses a session description, and resolves the host names in it.
func (a *Audio) parseDescription(sdp []byte) (*description, error) {
	d, err := parseSDP(sdp)
	if err != nil {
		return nil, err
	}
	for _, one := range append([]*description{d}, d.alternatives...) {
		if one.remote.Addr().IsValid() || one.host == "" || phone.IsInvalidHost(one.host) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), sdpHostTimeout)
		list, err := a.resolver.LookupNetIP(ctx, "ip", one.host)
		cancel()
		if err != nil {
			continue // without an address, negotiate rejects this section
		}
		i := slices.IndexFunc(list, func(ip netip.Addr) bool { return ip.Unmap().Is4() == a.local.address.Is4() })
		one.remote = netip.AddrPortFrom(list[max(i, 0)].Unmap(), one.remote.Port())
	}
	return d, nil
}

// availableKeys returns our SRTP keys, of which an agreement may use one. The caller must hold mu.
func (a *Audio) availableKeys() []crypto {
	if a.agreed != nil && a.agreed.out != nil {
		return append([]crypto{*a.agreed.out}, a.ourKeys...)
	}
	return a.ourKeys
}

// OpenPort takes a port from the pool, and opens it.
func (a *Audio) OpenPort() (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stream, err = a.ports.openStream(); err != nil {
		return err
	}
	a.stream.onForeign = func(from, described netip.AddrPort) {
		a.log.Warn("audio dropped: its source is not the address in the SDP; set nat of the trunk to accept it", "from", from, "described",
			described)
	}
	a.stream.onCodec = func(to *codec) {
		a.codecSwitches.Go(func() { // in the background, because switchCodec waits for the end of the goroutine that calls onCodec
			crash.Run(a.log, "sip media", func(error) { _ = a.stream.conn.Close() }, func() { a.switchCodec(to) })
		})
	}
	a.local.port = a.stream.port
	return a.applyAgreement()
}

// applyAgreement makes the stream and the media use the current agreement. It does nothing before the audio has both a
// port and an agreement. It restarts the media if the codec has changed. The caller must hold mu.
func (a *Audio) applyAgreement() error {
	if a.stream == nil || a.agreed == nil {
		return nil
	}
	if err := a.stream.applyAgreement(a.agreed, a.settings.NAT); err != nil {
		return err
	}
	switch {
	case a.playback != nil:
		return a.startFillerAudio()
	case a.conversation == nil:
		return nil
	}
	if !a.codecRun.isUnchanged(a.agreed) {
		if a.codecRun != nil {
			a.codecRun.stop()
		}
		var err error
		if a.codecRun, err = a.startCodec(a.conversation, a.agreed); err != nil {
			return err
		}
	}
	if err := a.startFillerAudio(); err != nil {
		return err
	}
	a.log.Info("sound", "codec", a.agreed.codec.name, "srtp", a.agreed.out != nil, "hold", a.agreed.isHeld)
	return a.conversation.Pause(a.agreed.isHeld || a.holdMusic)
}

// SetHoldMusic(true) plays music on hold to the other side instead of the conversation. SetHoldMusic(false) stops the
// music.
func (a *Audio) SetHoldMusic(isOn bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holdMusic = isOn
	return a.applyAgreement()
}

// HasHoldMusic reports whether the other side hears music on hold.
func (a *Audio) HasHoldMusic() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.holdMusic
}

// LocalDescription returns our answer to the newest offer, or our own offer if the peer has sent none.
func (a *Audio) LocalDescription() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.buildDescription(a.agreed)
}

// BuildReoffer returns an offer for a call that has media already. It offers what is agreed, or all codecs if the peer
// has never made an offer. It offers audio in both directions, as for a new call (RFC 3261, section 14.2). A peer that
// has put us on hold repeats the hold in its answer.
func (a *Audio) BuildReoffer() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.peer == nil {
		return a.buildDescription(nil)
	}
	a.local.version++
	both := *a.agreed
	both.direction = "sendrecv"
	return a.buildDescription(&both)
}

// buildDescription returns our answer to the peer's offer, with the codec and direction in agreed. If the peer has sent
// no offer, it returns our own offer. The caller must hold mu.
func (a *Audio) buildDescription(agreed *agreement) []byte {
	if a.peer != nil {
		return a.peer.buildAnswer(a.local, agreed)
	}
	if a.settings.SRTP == srtpRequired && a.ourKeys == nil {
		a.ourKeys = newOfferKeys()
	}
	return buildOffer(a.local, a.ourKeys, "sendrecv")
}

// StartConversation connects the media to a conversation until stop is called. It does not block.
func (a *Audio) StartConversation(c Conversation) (stop func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conversation, a.lastReport = c, time.Now()
	a.stream.resetSilence()
	return a.stopMedia, a.applyAgreement()
}

// StartPlayback sends the audio of source to the other side, without a conversation, until stop is called. It does not
// block. It calls source for each frame; source adds its audio to the frame.
func (a *Audio) StartPlayback(source func(frame []int16)) (stop func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.playback, a.lastReport = source, time.Now()
	a.stream.resetSilence()
	return a.stopMedia, a.applyAgreement()
}

// stopMedia stops the conversation or playback.
func (a *Audio) stopMedia() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.filler.stop()
	if a.codecRun != nil {
		a.codecRun.stop()
	}
	a.filler, a.codecRun, a.conversation, a.playback = nil, nil, nil, nil
}

// ReportAndCheckSilence sends an RTCP report when one is due. It returns [ErrSilence] if no RTP packet was received for
// too long. Call it once a second.
func (a *Audio) ReportAndCheckSilence(now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.lastReport) >= reportEvery {
		a.lastReport = now
		a.stream.sendReport(now)
	}
	onHold := a.agreed != nil && a.agreed.isOnHold()
	if a.stream.silentFor(now) > a.settings.silenceTimeout() && !onHold {
		return ErrSilence
	}
	return nil
}

// Port returns the local port. It is valid only after OpenPort.
func (a *Audio) Port() int { return a.stream.port }

// DropReceived drops the packets that have arrived so far.
func (a *Audio) DropReceived() { a.stream.dropReceived() }

// SendDigits sends digits as telephone events instead of audio. It blocks until they are sent. "," is a pause of half a
// second.
func (a *Audio) SendDigits(ctx context.Context, digits string) error {
	return a.stream.sendDigits(ctx, digits)
}

// WaitVoiceEnd blocks until the model's voice has ended. It fails if that takes longer than [SpokenTimeout].
func (a *Audio) WaitVoiceEnd(ctx context.Context) error { return a.stream.waitVoiceEnd(ctx) }

// ReadKeys passes pressed keys to [Options.OnKey] until ctx is done, and discards the audio. It is for calls that have
// no conversation.
func (a *Audio) ReadKeys(ctx context.Context) { a.stream.readKeys(ctx, a.onKey) }

// DistrustReports makes ReportAndCheckSilence ignore the peer's RTCP reports from now on. A phone system may still send
// reports although the caller is gone.
func (a *Audio) DistrustReports() { a.stream.mayBeGone.Store(true) }

// ClosePort closes the port and returns it to the pool.
func (a *Audio) ClosePort() {
	a.mu.Lock()
	if a.stream != nil {
		a.stream.ignoreCodecSwitches()
		a.stream.closePort()
		a.reportQuality(a.stream.outgoingQuality)
	}
	a.mu.Unlock()
	a.codecSwitches.Wait()
}

// reportQuality reports the quality of a stream, unless it has carried no packets.
func (a *Audio) reportQuality(q rtc.Quality) {
	if a.onQuality != nil && q.Packets > 0 {
		a.onQuality(q)
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

// activeCodec runs the media of an agreement in both directions.
type activeCodec struct {
	agreed *agreement
	*worker
}

// isUnchanged reports whether another agreement has the same codecs and payload types. It has the same ones if, for
// example, the peer only refreshes the session timer by INVITE.
func (a *activeCodec) isUnchanged(agreed *agreement) bool {
	return a != nil && a.agreed.payload == agreed.payload && slices.Equal(a.agreed.acceptedPayloads, agreed.acceptedPayloads) &&
		slices.Equal(a.agreed.events, agreed.events)
}

// startCodec starts to send and receive media according to an agreement.
func (a *Audio) startCodec(c Conversation, agreed *agreement) (*activeCodec, error) {
	codec := agreed.codec.media
	mic, err := c.NewMicrophone(codec.BestDecodeRate(uplinkRate))
	if err != nil {
		return nil, err
	}
	sender, err := rtpaudio.NewSender(a.stream, codec)
	if err != nil {
		return nil, err
	}
	sender.SetPayloadTypes(agreed.number, 0)
	onLoss := func(lost, of int) {
		sender.ReportLoss(lost, of)
		c.RecordLoss(false, lost, of)
	}
	a.stream.onLoss.Store(&onLoss)
	c.AttachOutput(sender)
	c.HoldVoice(false)
	a.stream.keyReader = digitReader{} // the peer may have started a new stream with the new codec
	receiver := rtpaudio.NewReceiver(mic, rtpaudio.ReceiverOptions{
		Codec: codec, PayloadTypes: agreed.codecPayloadTypes(), EventTypes: agreed.events,
		OnEvent: func(e rtpaudio.Event) { a.stream.keyReader.detectDigit(e, a.onKey) },
		OnLoss:  func(lost, of int) { c.RecordLoss(true, lost, of) },
	})
	stream := a.stream
	return &activeCodec{agreed, startWorker(func(ctx context.Context) {
		err := receiver.Run(ctx, stream)
		stats := receiver.Stats()
		a.reportQuality(rtc.Quality{
			Up: true, Packets: stats.Packets, LostPackets: stats.Lost, LatePackets: stats.Late, Jitter: stats.Jitter, Concealed: stats.Concealed,
		})
		a.log.Info("sound ended", "codec", agreed.codec.name, "packets", stats.Packets, "lost", stats.Lost, "late", stats.Late,
			"concealed", stats.Concealed, "jitter", stats.Jitter, "err", err)
	})}, nil
}

// comfortEvery is the interval between two comfort noise packets in a pause. One packet would be enough for a pause,
// but it may be lost.
const comfortEvery = 200 * time.Millisecond

// comfortLevel is the payload of a comfort noise packet: the noise level in -dBov (RFC 3389, section 3.1). -65 dBov is
// the level of a quiet line.
var comfortLevel = []byte{65}

// startFillerAudio starts to send audio other than the model's voice: music on hold, the playback source, or, if the
// trunk's settings ask for it, silence. The caller must hold mu.
func (a *Audio) startFillerAudio() error {
	a.filler.stop()
	a.filler = nil
	stream, number, source := a.stream, a.agreed.number, a.playback
	switch {
	case a.holdMusic:
		position := 0
		source = func(frame []int16) { position = renderMusic(frame, position) }
	case source != nil:
	case a.settings.Silence == "":
		return nil
	case a.settings.Silence == silenceComfort && a.agreed.comfort != 0:
		number = a.agreed.comfort
		a.filler = startWorker(func(ctx context.Context) {
			stream.fillPauses(ctx, number, comfortEvery, func() []byte { return comfortLevel })
		})
		return nil
	}
	encoder, err := a.agreed.codec.media.NewEncoder(PlaybackRate)
	if err != nil {
		return err
	}
	frame, payload := make([]int16, media.Samples(media.FrameDuration, PlaybackRate)), make([]byte, media.MaxPacketBytes)
	size := 0
	next := func() []byte {
		if source != nil {
			clear(frame)
			source(frame)
		}
		if size == 0 || source != nil { // silence is encoded only once
			size, _ = encoder.Encode(frame, payload) // cannot fail for a frame of 20 ms
		}
		return payload[:size]
	}
	a.filler = startWorker(func(ctx context.Context) { stream.fillPauses(ctx, number, media.FrameDuration, next) })
	return nil
}
