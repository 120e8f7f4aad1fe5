package sip

import (
	"context"
	"errors"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/pion/rtp"

	"voxgate/bridge"
	"voxgate/internal/crash"
	"voxgate/media"
	"voxgate/signaling/access"
	"voxgate/signaling/phone"
)

// takeKey is the key that a supervisor presses to take over a call.
const takeKey = '1'

var (
	errTakeOver    = errors.New("the supervisor takes the call over")
	errSessionOver = errors.New("the call that they listened to is over")
)

// findSupervised returns the call that has a session, to listen to it.
func (d *Server) findSupervised(session string) (*call, error) {
	d.mu.Lock()
	calls := make([]*call, 0, len(d.calls))
	for _, c := range d.calls {
		calls = append(calls, c)
	}
	d.mu.Unlock()
	for _, c := range calls {
		if s := c.conversation(); s != nil && s.ID() == session && c.consultation == nil && !c.isBridged() {
			return c, nil
		}
	}
	return nil, unknownSession(session)
}

// unknownSession is the error for a session that a caller may not supervise, or that has no call here.
func unknownSession(session string) error {
	return &bridge.Error{
		Code: bridge.CodeBadMessage, Field: "supervise",
		Message: "supervise: at this gateway no call of a trunk has the conversation " + phone.ClipField(session) + ".",
	}
}

// maySupervise returns an error if the client's server key may not listen to a session.
func (d *Server) maySupervise(r *http.Request, session string) error {
	key, err := access.From(r.Context()).RequireWatcher(access.MayListen)
	if err != nil {
		return err
	}
	c, err := d.findSupervised(session)
	if err == nil && !key.MayWatch(c.conversation().Origin()) {
		return unknownSession(session) // a key cannot find out which other sessions exist
	}
	return err
}

// superviseCall turns the outgoing call c into one to a supervisor, who listens to another call (of). It ends with the
// session of that other call, unless the supervisor has taken over.
func (c *call) superviseCall(of *call) {
	c.consultation = newConsultation("")
	c.consultation.monitoredCall = of
	session := of.conversation()
	go func() {
		select {
		case <-session.Done():
			if of.line.Load().partner != c { // the supervisor has not taken over
				c.endCall(errSessionOver)
			}
		case <-c.released:
		}
	}()
}

// runSupervision lets a supervisor listen to another call. It blocks, and returns nil if the supervisor takes over that call.
func (c *call) runSupervision() error {
	session := c.consultation.monitoredCall.conversation()
	if err := c.playSession(session); !errors.Is(err, errTakeOver) {
		return err
	}
	c.consultation.isRecorded = session.IsRecorded()
	monitoredLine := c.consultation.monitoredCall.line.Load()
	select {
	case monitoredLine.joining <- c:
		return nil
	case <-monitoredLine.bridged: // put through to another person just now
		return errSessionOver
	case <-c.endRequested:
		return c.endReason()
	}
}

// playSession plays a session to the supervisor. It blocks, and returns [errTakeOver] if the supervisor takes over, or the reason to end
// the call.
func (c *call) playSession(session *bridge.Session) error {
	ctx, end := c.withCallContext(context.Background())
	defer end(nil)
	var both mixer
	leave, err := session.AddListener(&both)
	if err != nil {
		return err
	}
	defer leave()
	stop, err := c.media.startPlayback(both.mixInto)
	defer stop()
	if err != nil {
		return err
	}
	c.log.Info("supervisor listens", "session", session.ID())
	var reading sync.WaitGroup
	defer reading.Wait()
	defer end(nil)
	reading.Go(func() { crash.Run(c.log, "keypad", end, func() { c.media.stream.readKeys(ctx, c.keypad.PushKey) }) })
	return c.watchBridge(ctx, func(key byte) {
		if key == takeKey && !c.consultation.monitoredCall.line.Load().isBridged() {
			end(errTakeOver)
		}
	})
}

// readKeys passes pressed keys to press until ctx is done, and discards the audio.
func (s *stream) readKeys(ctx context.Context, press func(digit byte)) {
	defer s.stopReadsOnDone(ctx)()
	var buf [2048]byte
	var packet rtp.Packet
	for {
		n, err := s.Read(buf[:])
		if err != nil {
			return
		}
		if packet.Unmarshal(buf[:n]) == nil {
			s.readKeyPacket(&packet, s.agreement(), press)
		}
	}
}

// mixer mixes both sides of a conversation in real time. It implements [bridge.Listener].
type mixer struct {
	mu            sync.Mutex
	caller, model voice
}

// WriteCaller implements [bridge.Listener].
func (m *mixer) WriteCaller(pcm []int16, rate int, _ time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.caller.addPCM(pcm, rate)
}

// WriteModel implements [bridge.Listener].
func (m *mixer) WriteModel(pcm []int16, _ time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.model.addPCM(pcm, bridge.VoiceRate)
}

// TruncateModel implements [bridge.Listener]. A phone plays the voice in real time, so nothing can be withdrawn.
func (*mixer) TruncateModel(time.Time) {}

// AddMark implements [bridge.Listener].
func (*mixer) AddMark(time.Time) {}

// mixInto adds the next audio of both sides to frame.
func (m *mixer) mixInto(frame []int16) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.caller.mixInto(frame)
	m.model.mixInto(frame)
}

const (
	// voicePrebuffer is the audio that is buffered before playout, because it does not arrive evenly.
	voicePrebuffer = 60 * time.Millisecond
	// maxVoiceBuffer bounds the buffer: more is dropped to limit the delay.
	maxVoiceBuffer = 300 * time.Millisecond
)

// voice is one side of a mixer.
type voice struct {
	pcm       []int16 // at musicRate
	rate      int     // expected by up
	resampler *media.Resampler
	isPlaying bool
}

func (v *voice) addPCM(pcm []int16, rate int) {
	if rate != v.rate {
		v.rate, v.resampler = rate, media.NewResampler(rate, musicRate)
	}
	v.pcm = append(v.pcm, v.resampler.Resample(pcm)...)
	if over := len(v.pcm) - media.Samples(maxVoiceBuffer, musicRate); over > 0 {
		v.pcm = v.pcm[:copy(v.pcm, v.pcm[over:])]
	}
}

func (v *voice) mixInto(frame []int16) {
	need := len(frame)
	if !v.isPlaying {
		need = media.Samples(voicePrebuffer, musicRate)
	}
	if v.isPlaying = len(v.pcm) >= need; !v.isPlaying {
		return
	}
	for i := range frame {
		frame[i] = int16(min(max(int(frame[i])+int(v.pcm[i]), math.MinInt16), math.MaxInt16))
	}
	v.pcm = v.pcm[:copy(v.pcm, v.pcm[len(frame):])]
}
