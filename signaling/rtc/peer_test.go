package rtc

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/interceptor"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
	"go.uber.org/goleak"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/media/g711"
	"voxgate/media/opus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// conversation is a [Session] that stores what it receives.
type conversation struct {
	mu   sync.Mutex
	rate int
	pcm  []int16
}

func (c *conversation) Mic(rate int) (media.Sink, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rate = rate
	return c, nil
}

func (c *conversation) Rate() int { return c.rate }

func (c *conversation) WritePCM(pcm []int16) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pcm = append(c.pcm, pcm...)
	return nil
}

// newestAudio returns the newest second of the microphone, and its rate, or nil if there is less.
func (c *conversation) newestAudio() ([]int16, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rate == 0 || len(c.pcm) < c.rate {
		return nil, 0
	}
	return append([]int16(nil), c.pcm[len(c.pcm)-c.rate:]...), c.rate
}

func (*conversation) SetRoundTrip(time.Duration)    {}
func (*conversation) RecordLoss(bool, int, int)     {}
func (*conversation) SetFrame(string, []byte, bool) {}
func (*conversation) ClearFrame()                   {}
func (*conversation) Crash(error)                   {}

// client is a Pion peer that offers some codecs and sends audio with one of them.
type client struct {
	t     *testing.T
	pc    *webrtc.PeerConnection
	track *webrtc.TrackLocalStaticRTP
	came  chan []byte // payloads of the received voice; dropped if it is full
	types chan uint8  // and their types

	receivers map[*webrtc.RTPReceiver]bool // all that an answer has given a track
	started   chan struct{}                // a value for each of them that reads the SRTP stream of its SSRC
	running   int                          // how many values awaitReceivers has taken

	sequence uint16        // of the newest packet of exchange
	ssrc     atomic.Uint32 // of its packets; 0 means Pion's
}

// setAnswer hands the gateway's answer to the client. It does not wait until the client's receivers run.
func (c *client) setAnswer(answer string) {
	c.t.Helper()
	must(c.t, c.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: answer}))
	for _, r := range c.pc.GetReceivers() {
		if len(r.Tracks()) > 0 {
			c.receivers[r] = true
		}
	}
}

// awaitReceivers waits until every receiver of the answers so far has started; the connection must be up. It must be
// called before the next answer, which may stop a receiver before it has started. Voice must not be sent before: Pion
// (webrtc v4.2, srtp v3.0 and v3.1) takes the packet for one of an unknown source and looks into its SRTP stream,
// without a lock, while the receiver that starts reads the same stream.
func (c *client) awaitReceivers() {
	for ; c.running < len(c.receivers); c.running++ {
		<-c.started
	}
}

// NewInterceptor implements [interceptor.Factory]: it sets the client's SSRC in packets.
func (c *client) NewInterceptor(string) (interceptor.Interceptor, error) {
	return &clientInterceptor{client: c}, nil
}

type clientInterceptor struct {
	interceptor.NoOp
	client *client
}

func (s *clientInterceptor) BindRemoteStream(_ *interceptor.StreamInfo, r interceptor.RTPReader) interceptor.RTPReader {
	s.client.started <- struct{}{}
	return r
}

func (s *clientInterceptor) BindLocalStream(_ *interceptor.StreamInfo, w interceptor.RTPWriter) interceptor.RTPWriter {
	return interceptor.RTPWriterFunc(func(h *rtp.Header, payload []byte, a interceptor.Attributes) (int, error) {
		if ssrc := s.client.ssrc.Load(); ssrc != 0 {
			h.SSRC = ssrc
		}
		return w.Write(h, payload, a)
	})
}

func newClient(t *testing.T, says webrtc.RTPCodecParameters, offered ...webrtc.RTPCodecParameters) *client {
	t.Helper()
	return newClientWith(t, func(*webrtc.SettingEngine) {}, says, offered...)
}

func newClientWith(
	t *testing.T,
	network func(*webrtc.SettingEngine),
	says webrtc.RTPCodecParameters,
	offered ...webrtc.RTPCodecParameters,
) *client {
	t.Helper()
	engine := &webrtc.MediaEngine{}
	for _, c := range offered {
		must(t, engine.RegisterCodec(c, webrtc.RTPCodecTypeAudio))
	}
	var settings webrtc.SettingEngine
	settings.SetIncludeLoopbackCandidate(true)
	settings.SetICEMulticastDNSMode(1)
	network(&settings)
	c := &client{
		t: t, came: make(chan []byte, 1000), types: make(chan uint8, 1000),
		receivers: make(map[*webrtc.RTPReceiver]bool), started: make(chan struct{}, 100),
	}
	registry := &interceptor.Registry{}
	registry.Add(c)
	api := webrtc.NewAPI(webrtc.WithMediaEngine(engine), webrtc.WithSettingEngine(settings), webrtc.WithInterceptorRegistry(registry))
	pc, err := api.NewPeerConnection(webrtc.Configuration{})
	must(t, err)
	c.pc = pc
	c.track, err = webrtc.NewTrackLocalStaticRTP(says.RTPCodecCapability, "mic", "mic")
	must(t, err)
	_, err = pc.AddTrack(c.track)
	must(t, err)
	var reading sync.WaitGroup
	pc.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		reading.Add(1)
		defer reading.Done()
		for {
			p, _, err := track.ReadRTP()
			if err != nil {
				return
			}
			select {
			case c.came <- p.Payload:
				c.types <- p.PayloadType
			default:
			}
		}
	})
	t.Cleanup(func() {
		must(t, pc.GracefulClose())
		reading.Wait()
	})
	return c
}

// offer returns an offer with all candidates.
func (c *client) offer() string {
	c.t.Helper()
	o, err := c.pc.CreateOffer(nil)
	must(c.t, err)
	gathered := webrtc.GatheringCompletePromise(c.pc)
	must(c.t, c.pc.SetLocalDescription(o))
	<-gathered
	return c.pc.LocalDescription().SDP
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var (
	offerOpus = webrtc.RTPCodecParameters{
		PayloadType:        111,
		RTPCodecCapability: webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2},
	}
	offerPCMU = webrtc.RTPCodecParameters{
		PayloadType:        0,
		RTPCodecCapability: webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypePCMU, ClockRate: 8000},
	}
	offerPCMA = webrtc.RTPCodecParameters{
		PayloadType:        8,
		RTPCodecCapability: webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypePCMA, ClockRate: 8000},
	}
)

// newAnsweredPeer creates a peer for an offer in an HTTP request: one offer, one answer, no candidates except in them. It
// returns the answer, and a channel that is closed when the peer has connected.
func newAnsweredPeer(t *testing.T, s Session, offer string) (p *Peer, answer string, connected chan struct{}) {
	t.Helper()
	api, err := New(Options{UDPAddr: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { must(t, api.Close()) })
	return answerWith(t, api, s, offer)
}

func answerWith(t *testing.T, api *API, s Session, offer string) (p *Peer, answer string, connected chan struct{}) {
	t.Helper()
	connected = make(chan struct{})
	p, err := api.NewPeer(PeerOptions{
		Session: s, Cameras: &Cameras{}, Logger: slog.New(slog.DiscardHandler),
		OnConnected: func() { close(connected) }, OnConnectionLost: func(string) {},
	})
	must(t, err)
	t.Cleanup(p.Close)
	o, err := ParseOffer(offer)
	must(t, err)
	answer, err = p.Answer(o)
	must(t, err)
	return p, answer, connected
}

// TestCodecNegotiation: if a peer offers one codec, audio uses it in both directions. If a peer offers several, audio uses the
// best of them.
func TestCodecNegotiation(t *testing.T) {
	for _, c := range []struct {
		name    string
		offered []webrtc.RTPCodecParameters
		want    webrtc.RTPCodecParameters
		codec   media.Codec
		rate    int // of the session's microphone
	}{
		{"PCMU", []webrtc.RTPCodecParameters{offerPCMU}, offerPCMU, g711.MuLaw, 8000},
		{"PCMA", []webrtc.RTPCodecParameters{offerPCMA}, offerPCMA, g711.ALaw, 8000},
		{"Opus", []webrtc.RTPCodecParameters{offerPCMU, offerPCMA, offerOpus}, offerOpus, opus.Codec{}, 16000},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			session := &conversation{}
			phone := newClient(t, c.want, c.offered...)
			p, answer, connected := newAnsweredPeer(t, session, phone.offer())
			for _, o := range []webrtc.RTPCodecParameters{offerOpus, offerPCMU, offerPCMA} {
				name := strings.TrimPrefix(o.MimeType, "audio/")
				if got, want := strings.Contains(answer, name), o.MimeType == c.want.MimeType; got != want {
					t.Errorf("the answer has %s: %v\n%s", name, got, answer)
				}
			}
			phone.setAnswer(answer)
			<-connected
			phone.awaitReceivers()
			voice := p.VoiceOutput()
			encoder, err := c.codec.NewEncoder(24000)
			must(t, err)
			decodedRate := c.codec.BestDecodeRate(24000)
			decoder, err := c.codec.NewDecoder(decodedRate)
			must(t, err)
			up, down := mediatest.Tone(20*time.Second, 24000, 700, 8000), mediatest.Tone(20*time.Second, 24000, 1100, 8000)
			var heard []int16
			pcm, buf := make([]int16, media.Samples(media.MaxPacketDuration, 48000)), make([]byte, media.MaxPacketBytes)
			frame := time.NewTicker(media.FrameDuration)
			defer frame.Stop()
			for i := 0; ; i++ {
				if i == len(up)/480 {
					mic, rate := session.newestAudio()
					t.Fatalf("after 20 s: %d samples at %d Hz from the microphone, %d of the voice", len(mic), rate, len(heard))
				}
				n, err := encoder.Encode(up[480*i:][:480], buf)
				must(t, err)
				must(t, phone.track.WriteRTP(&rtp.Packet{
					Header:  rtp.Header{Version: 2, SequenceNumber: uint16(i), Timestamp: uint32(i * c.codec.ClockRate() / 50)},
					Payload: buf[:n],
				}))
				must(t, voice.WriteFrame(media.Frame{PCM: down[480*i:][:480], PTS: time.Duration(i) * media.FrameDuration, Start: i == 0}))
				for len(phone.came) > 0 {
					if got := <-phone.types; got != uint8(c.want.PayloadType) {
						t.Fatalf("the voice comes with payload type %d", got)
					}
					n, err := decoder.Decode(<-phone.came, pcm)
					must(t, err)
					heard = append(heard, pcm[:n]...)
				}
				mic, rate := session.newestAudio()
				if len(heard) >= decodedRate && mic != nil {
					mine, his := mediatest.ToneLevel(mic, rate, 700), mediatest.ToneLevel(heard[len(heard)-decodedRate/2:], decodedRate, 1100)
					t.Logf("after %d packets: the tone is %.4f of what the session hears, the voice %.4f of what the peer does", i, mine, his)
					if mine > 0.98 && his > 0.98 {
						if rate != c.rate {
							t.Errorf("the microphone has %d Hz, want %d", rate, c.rate)
						}
						return
					}
				}
				<-frame.C
			}
		})
	}
}

// TestAnswerWithoutTrickling: a peer of an HTTP request needs nothing but one answer.
func TestAnswerWithoutTrickling(t *testing.T) {
	phone := newClient(t, offerOpus, offerOpus)
	_, answer, connected := newAnsweredPeer(t, &conversation{}, phone.offer())
	if !strings.Contains(answer, "a=candidate:") || !strings.Contains(answer, "a=end-of-candidates") {
		t.Errorf("the answer does not have the candidates:\n%s", answer)
	}
	phone.setAnswer(answer)
	<-connected
}

// TestCodecKeptOnRenegotiation: a connection keeps its first codec, or the offer is rejected.
func TestCodecKeptOnRenegotiation(t *testing.T) {
	phone := newClient(t, offerOpus, offerOpus, offerPCMU)
	first := phone.offer()
	p, _, _ := newAnsweredPeer(t, &conversation{}, first)
	o, err := ParseOffer(strings.ReplaceAll(first, "opus/48000/2", "G722/8000"))
	must(t, err)
	_, err = p.Answer(o)
	var refused *RefusedError
	if !errors.As(err, &refused) || !strings.Contains(refused.Problem, "codec") {
		t.Errorf("the codec changes: %v", err)
	}
}
