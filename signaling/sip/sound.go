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
	"voxgate/crash"
	"voxgate/media"
	"voxgate/media/rtpaudio"
	"voxgate/signaling/phone"
	"voxgate/signaling/rtc"
)

// uplinkRate is the highest rate that is decoded to, in Hz: the Live API's own. G.711 goes up at its 8 kHz; nothing is resampled.
const uplinkRate = 16000

// sound is how a call is heard: RTP of its own ([rtpSound]) or WebRTC ([webSound]).
type sound interface {
	// offer takes a description that the peer offers, the first one or a later one. An error refuses it.
	offer(sdp []byte) error
	// describe returns our answer to the newest offer, or our own offer if there was none.
	describe() []byte
	// carry has the conversation hear and be heard until stop is called. It does not block.
	carry(s *bridge.Session) (stop func(), err error)
	// check is called once a second, and returns why the call must end.
	check(now time.Time) error
	// lost is closed when the sound has ended by itself. It may be called once carry has returned.
	lost() <-chan struct{}
}

// rtpSound is a call's sound by RTP.
type rtpSound struct {
	ports     *portPool
	resolver  *net.Resolver // of names in descriptions
	stream    *stream       // nil until open
	trunk     *Trunk        // whose rules it follows
	keypad    *phone.Keypad
	onQuality func(rtc.Quality) // gets each stream that has ended, theirs and ours
	screen    *callScreen
	log       *slog.Logger

	mu       sync.Mutex
	local    local
	peer     *description    // the peer's newest; nil: it has answered our offer
	offered  []crypto        // keys that our offer had
	agreed   *agreement      // nil: nothing is
	session  *bridge.Session // nil: none is carried
	hearing  *activeCodec
	filling  *worker             // of what goes out while nothing else does; nil: nothing
	waiting  bool                // the other side hears music, and the conversation is on hold
	plays    func(frame []int16) // adds what the other side hears in the place of a conversation, at musicRate; nil: there is one
	reported time.Time

	following sync.WaitGroup // a change of the codec
}

var errSilence = errors.New("no packet has come for too long")

// offer implements sound.
func (r *rtpSound) offer(sdp []byte) error {
	d, err := r.read(sdp)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	d, agreed, err := d.agreeOn(r.trunk.SRTP, r.keys())
	if err != nil {
		return err
	}
	if r.agreed != nil {
		r.local.version++
	}
	r.agreed, r.peer = agreed, d
	return r.apply()
}

// answer takes the peer's answer to our offer.
func (r *rtpSound) answer(sdp []byte) error {
	d, err := r.read(sdp)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	d, agreed, err := d.agreeOn(r.trunk.SRTP, r.keys())
	if err != nil {
		return err
	}
	offered, events := r.offeredTypes()
	agreed.receiveAnswered(d.payloads, offered, events)
	if r.agreed != nil { // it answers our later offer
		r.local.version++
		r.peer = d
	}
	r.agreed = agreed
	return r.apply()
}

// offeredTypes are the payload types of our newest offer. Needs mu.
func (r *rtpSound) offeredTypes() (list []payload, events uint8) {
	if r.peer != nil { // it repeats what was agreed
		if r.agreed.event != nil {
			events = r.agreed.event.number
		}
		return []payload{r.agreed.payload}, events
	}
	for _, c := range codecs {
		list = append(list, payload{c.ours, c})
	}
	return list, ourEvents
}

// followCodec has sound go by another codec of the answer, which the peer has changed to.
func (r *rtpSound) followCodec(to *codec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.agreed == nil || r.agreed.codec == to {
		return
	}
	if agreed := r.agreed.withCodec(to); agreed != nil {
		r.agreed = agreed
		if err := r.apply(); err != nil {
			r.log.Warn("the peer sends by another codec, which cannot be heard", "codec", to.name, "err", err)
		}
	}
}

// read reads a description, and looks up the names in it.
func (r *rtpSound) read(sdp []byte) (*description, error) {
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
			continue // it is no section to agree on
		}
		i := slices.IndexFunc(list, func(a netip.Addr) bool { return a.Unmap().Is4() == r.local.address.Is4() })
		one.remote = netip.AddrPortFrom(list[max(i, 0)].Unmap(), one.remote.Port())
	}
	return d, nil
}

// keys are those of ours that an agreement may use. Needs mu.
func (r *rtpSound) keys() []crypto {
	if r.agreed != nil && r.agreed.out != nil {
		return append([]crypto{*r.agreed.out}, r.offered...)
	}
	return r.offered
}

// open takes a port.
func (r *rtpSound) open() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stream, err = r.ports.open(); err != nil {
		return err
	}
	r.stream.onForeign = func(from, described netip.AddrPort) {
		r.log.Warn("audio is dropped: it does not come from where the description says; nat of the trunk lets it in", "from", from, "described",
			described)
	}
	r.stream.onCodec = func(to *codec) {
		r.following.Go(func() { // the goroutine that reads packets ends with its codec
			crash.Run(r.log, "sip media", func(error) { _ = r.stream.conn.Close() }, func() { r.followCodec(to) })
		})
	}
	r.local.port = r.stream.port
	return r.apply()
}

// apply has packets taken and sent as it was agreed. Needs mu.
func (r *rtpSound) apply() error {
	if r.stream == nil || r.agreed == nil {
		return nil
	}
	if err := r.stream.configure(r.agreed, r.trunk.NAT); err != nil {
		return err
	}
	switch {
	case r.plays != nil:
		return r.fill()
	case r.session == nil:
		return nil
	}
	if !r.hearing.isUnchanged(r.agreed) {
		if r.hearing != nil {
			r.hearing.stop()
		}
		var err error
		if r.hearing, err = r.hear(r.session, r.agreed); err != nil {
			return err
		}
	}
	if err := r.fill(); err != nil {
		return err
	}
	r.log.Info("sound", "codec", r.agreed.codec.name, "srtp", r.agreed.out != nil, "hold", r.agreed.held)
	return r.session.Do(bridge.Pause{On: r.agreed.held || r.waiting})
}

// setWaiting has the other side hear music in the place of the conversation, or takes it back to that.
func (r *rtpSound) setWaiting(on bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = on
	return r.apply()
}

// isWaiting reports whether the other side hears music.
func (r *rtpSound) isWaiting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting
}

// describe implements sound.
func (r *rtpSound) describe() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.description(r.agreed)
}

// propose is a later offer of ours, of what was agreed. It is for sound both ways, as in a new call (RFC 3261, section 14.2): a side that
// has us on hold says so again if it wants to keep that. We put nobody on hold.
func (r *rtpSound) propose() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.peer == nil {
		return r.description(nil)
	}
	r.local.version++
	both := *r.agreed
	both.answered = "sendrecv"
	return r.description(&both)
}

// description is ours of what was agreed, or of all that we have if the peer has described nothing but an answer to that. Needs mu.
func (r *rtpSound) description(agreed *agreement) []byte {
	if r.peer != nil {
		return r.peer.answer(r.local, agreed)
	}
	if r.trunk.SRTP == srtpRequired && r.offered == nil {
		r.offered = offeredKeys()
	}
	return offer(r.local, r.offered, "sendrecv")
}

// carry implements sound.
func (r *rtpSound) carry(s *bridge.Session) (stop func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session, r.reported = s, time.Now()
	r.stream.resetSilence()
	return r.rest, r.apply()
}

// play has the other side hear a source, without a conversation, until stop is called.
func (r *rtpSound) play(source func(frame []int16)) (stop func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plays, r.reported = source, time.Now()
	r.stream.resetSilence()
	return r.rest, r.apply()
}

// rest stops what carry or play has begun.
func (r *rtpSound) rest() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.filling.stop()
	if r.hearing != nil {
		r.hearing.stop()
	}
	r.filling, r.hearing, r.session, r.plays = nil, nil, nil, nil
}

// check implements sound: it reports what was sent, and ends a call from which no packet comes.
func (r *rtpSound) check(now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.reported) >= reportEvery {
		r.reported = now
		r.stream.report(now)
	}
	onHold := r.agreed != nil && r.agreed.onHold()
	if r.stream.silentFor(now) > r.trunk.silenceTimeout() && !onHold {
		return errSilence
	}
	return nil
}

// lost implements sound: RTP has no end of its own.
func (r *rtpSound) lost() <-chan struct{} { return nil }

// close gives the port back.
func (r *rtpSound) close() {
	r.mu.Lock()
	if r.stream != nil {
		r.stream.ignoreCodecs()
		r.stream.close()
		r.onQuality(r.stream.down)
	}
	r.mu.Unlock()
	r.following.Wait()
}

// worker is a goroutine.
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

// sending is what a conversation is heard by.
type sending struct {
	*rtpaudio.Sender
	session *bridge.Session
}

// activeCodec is a codec at work, up and down.
type activeCodec struct {
	agreed *agreement
	*worker
}

// isUnchanged reports whether another agreement changes nothing for it: an INVITE that refreshes the session timer says the same again.
func (h *activeCodec) isUnchanged(agreed *agreement) bool {
	return h != nil && h.agreed.payload == agreed.payload && slices.Equal(h.agreed.receives, agreed.receives) &&
		slices.Equal(h.agreed.events, agreed.events)
}

// hear has sound go both ways as it was agreed on.
func (r *rtpSound) hear(s *bridge.Session, agreed *agreement) (*activeCodec, error) {
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
	r.stream.sending.Store(&sending{sender, s})
	if !r.screen.ask || r.screen.decided.Load() {
		s.AttachOutput(sender)
	}
	s.HoldVoice(false)
	r.stream.pressed = digitReader{} // with the codec, the peer may have begun a new stream
	sink := r.screen.wrapSink(r.keypad.FilterSecret(phone.WithoutMusic(mic, r.trunk.Music)))
	receiver := rtpaudio.NewReceiver(sink, rtpaudio.ReceiverOptions{
		Codec: codec, PayloadTypes: agreed.types(), EventTypes: agreed.events,
		OnEvent: func(e rtpaudio.Event) { r.stream.pressed.read(e, r.keypad.PushKey) },
		OnLoss:  func(lost, of int) { s.RecordLoss(true, lost, of) },
	})
	stream := r.stream
	return &activeCodec{agreed, startWorker(func(ctx context.Context) {
		err := receiver.Run(ctx, stream)
		stats := receiver.Stats()
		r.onQuality(rtc.Quality{
			Up: true, Packets: stats.Packets, Lost: stats.Lost, Late: stats.Late, Jitter: stats.Jitter, Concealed: stats.Concealed,
		})
		r.log.Info("sound ended", "codec", agreed.codec.name, "packets", stats.Packets, "lost", stats.Lost, "late", stats.Late,
			"concealed", stats.Concealed, "jitter", stats.Jitter, "err", err)
	})}, nil
}

// comfortEvery is how often comfort noise is repeated in a pause, for peers that have missed it, and comfortLevel how loud it is: -65 dBov,
// as a quiet line. It is one byte (RFC 3389, section 3.1).
const comfortEvery = 200 * time.Millisecond

var comfortLevel = []byte{65}

// fill has music go out for one who waits, what is played, or silence for a trunk that wants packets. Needs mu.
func (r *rtpSound) fill() error {
	r.filling.stop()
	r.filling = nil
	stream, number, source := r.stream, r.agreed.number, r.plays
	switch {
	case r.waiting:
		position := 0
		source = func(frame []int16) { position = renderMusic(frame, position) }
	case source != nil:
	case r.trunk.Silence == "":
		return nil
	case r.trunk.Silence == silenceComfort && r.agreed.comfort != 0:
		number = r.agreed.comfort
		r.filling = startWorker(func(ctx context.Context) {
			stream.fill(ctx, number, comfortEvery, func() []byte { return comfortLevel })
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
			size, _ = encoder.Encode(frame, payload) // a frame of 20 ms can be
		}
		return payload[:size]
	}
	r.filling = startWorker(func(ctx context.Context) { stream.fill(ctx, number, media.FrameDuration, next) })
	return nil
}
