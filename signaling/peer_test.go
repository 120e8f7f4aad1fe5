package signaling_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/pion/interceptor"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/media/opus"
)

// phone is a WebRTC client: a real Pion peer with a microphone, an ear and the data channel.
type phone struct {
	t    *testing.T
	c    *client
	pc   *webrtc.PeerConnection
	dc   *webrtc.DataChannel // nil without
	mic  *webrtc.TrackLocalStaticRTP
	next rtp.Header
	talk chan []int16 // what the microphone hears; silence when there is nothing

	mu   sync.Mutex
	ear  []int16 // what came, decoded to 24 kHz
	stop chan struct{}
	done sync.WaitGroup
}

type phoneOptions struct {
	direction webrtc.RTPTransceiverDirection // of audio; zero: sendrecv
	noAudio   bool
	channel   bool
	frame     time.Duration               // of the sender's packets; zero: 20 ms
	dtx       bool                        // silence is not sent
	network   func(*webrtc.SettingEngine) // nil: UDP on all addresses
	codecs    *webrtc.MediaEngine         // of a probe; nil: Pion's
	decoder   opus.DecoderChoice          // of the gateway
}

// newPhone makes a peer for c and its offer's parts; call offers.
func newPhone(t *testing.T, c *client, o phoneOptions) *phone {
	t.Helper()
	var settings webrtc.SettingEngine
	settings.SetIncludeLoopbackCandidate(true)
	if o.network != nil {
		o.network(&settings)
	}
	var more []func(*webrtc.API)
	if o.codecs != nil {
		settings.DisableSRTPReplayProtection(true)
		more = append(more, webrtc.WithMediaEngine(o.codecs), webrtc.WithInterceptorRegistry(&interceptor.Registry{}))
	}
	pc, err := webrtc.NewAPI(append(more, webrtc.WithSettingEngine(settings))...).NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		t.Fatal(err)
	}
	p := &phone{t: t, c: c, pc: pc, next: rtp.Header{Version: 2}, talk: make(chan []int16, 64), stop: make(chan struct{})}
	if o.frame == 0 {
		o.frame = media.FrameDuration
	}
	if !o.noAudio {
		p.addAudio(o)
	}
	if o.channel {
		if p.dc, err = pc.CreateDataChannel("events", nil); err != nil {
			t.Fatal(err)
		}
		p.dc.OnMessage(func(m webrtc.DataChannelMessage) {
			var got message
			if err := json.Unmarshal(m.Data, &got); err != nil {
				t.Errorf("not JSON: %s", m.Data)
			}
			got.way = "channel"
			c.put(got)
		})
	}
	t.Cleanup(p.hangUp)
	return p
}

// call is a conversation with a phone that has connected.
func call(t *testing.T, g *gateway, config string, o phoneOptions) (*client, *phone) {
	t.Helper()
	c := connect(t, g, config)
	p := newPhone(t, c, o)
	p.offer(false)
	p.connected()
	return c, p
}

func (p *phone) addAudio(o phoneOptions) {
	p.t.Helper()
	if o.direction == webrtc.RTPTransceiverDirectionRecvonly {
		if _, err := p.pc.AddTransceiverFromKind(webrtc.RTPCodecTypeAudio, webrtc.RTPTransceiverInit{Direction: o.direction}); err != nil {
			p.t.Fatal(err)
		}
	} else {
		mic, err := webrtc.NewTrackLocalStaticRTP(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2}, "mic", "phone")
		if err != nil {
			p.t.Fatal(err)
		}
		p.mic = mic
		direction := o.direction
		if direction == 0 {
			direction = webrtc.RTPTransceiverDirectionSendrecv
		}
		if _, err := p.pc.AddTransceiverFromTrack(mic, webrtc.RTPTransceiverInit{Direction: direction}); err != nil {
			p.t.Fatal(err)
		}
		p.done.Go(func() { p.speak(o) })
	}
	p.pc.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) { p.listen(track) })
}

// speak is the microphone: a packet every frame, in real time.
func (p *phone) speak(o phoneOptions) {
	const rate = 48000
	encoder, err := opus.NewEncoder(rate)
	if err != nil {
		p.t.Error(err)
		return
	}
	n := int(o.frame.Seconds() * rate)
	var pending []int16
	packet := make([]byte, 1500)
	tick := time.NewTicker(o.frame)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-p.stop:
			return
		}
		for len(pending) < n {
			select {
			case more := <-p.talk:
				pending = append(pending, more...)
				continue
			default:
			}
			break
		}
		p.next.Timestamp += uint32(n)
		if o.dtx && len(pending) == 0 {
			p.next.Marker = true
			continue
		}
		frame := make([]int16, n)
		pending = pending[copy(frame, pending):]
		size, err := encoder.Encode(frame, packet)
		if err != nil {
			p.t.Error(err)
			return
		}
		p.next.SequenceNumber++
		p.mic.WriteRTP(&rtp.Packet{Header: p.next, Payload: packet[:size]}) // not connected yet: dropped
		p.next.Marker = false
	}
}

// listen is the ear.
func (p *phone) listen(track *webrtc.TrackRemote) {
	decoder, err := opus.NewDecoder(24000, "libopus")
	if err != nil {
		p.t.Error(err)
		return
	}
	pcm := make([]int16, 24000*120/1000)
	for {
		packet, _, err := track.ReadRTP()
		if err != nil {
			return
		}
		if len(packet.Payload) == 0 {
			continue
		}
		n, err := decoder.Decode(packet.Payload, pcm)
		if err != nil {
			p.t.Errorf("the gateway sent bad Opus: %v", err)
			continue
		}
		p.mu.Lock()
		p.ear = append(p.ear, pcm[:n]...)
		p.mu.Unlock()
	}
}

func (p *phone) heard() []int16 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]int16(nil), p.ear...)
}

// offer makes an offer and applies the answer. Candidates trickle both ways.
func (p *phone) offer(restart bool) {
	p.t.Helper()
	at := len(p.c.all())
	p.pc.OnICECandidate(func(i *webrtc.ICECandidate) {
		payload := `{"candidate":null,"sdpMid":null,"sdpMLineIndex":null}`
		if i != nil {
			payload = string(must(json.Marshal(map[string]any{"candidate": i.ToJSON().Candidate, "sdpMid": nil, "sdpMLineIndex": 0})))
		}
		if p.dc != nil && p.dc.ReadyState() == webrtc.DataChannelStateOpen {
			p.send("WEBRTC_ICE_CANDIDATE", payload)
			return
		}
		p.c.mu.Lock()
		defer p.c.mu.Unlock()
		_ = p.c.conn.WriteMessage(websocket.TextMessage, envelope("WEBRTC_ICE_CANDIDATE", payload)) // a test may have closed it by now
	})
	offer, err := p.pc.CreateOffer(&webrtc.OfferOptions{ICERestart: restart})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.pc.SetLocalDescription(offer); err != nil {
		p.t.Fatal(err)
	}
	p.sendOffer(offer.SDP)
	m, _ := p.c.wait(at, "WEBRTC_ANSWER", func(m message) bool { return m.Type == "WEBRTC_ANSWER" })
	p.answer(m)
	p.done.Go(func() { p.trickle(at) })
}

func (p *phone) sendOffer(sdp string) {
	p.t.Helper()
	p.send("WEBRTC_OFFER", string(must(json.Marshal(map[string]string{"sdp": sdp}))))
}

func (p *phone) answer(m message) {
	p.t.Helper()
	var answer struct{ SDP string }
	m.read(p.t, &answer)
	if err := p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: answer.SDP}); err != nil {
		p.t.Fatalf("%v\n%s", err, answer.SDP)
	}
}

// offerOnly makes an offer and does nothing more: what it begins never connects.
func (p *phone) offerOnly(restart bool) {
	p.t.Helper()
	offer, err := p.pc.CreateOffer(&webrtc.OfferOptions{ICERestart: restart})
	if err != nil {
		p.t.Fatal(err)
	}
	p.c.send("WEBRTC_OFFER", string(must(json.Marshal(map[string]string{"sdp": offer.SDP})))) // a restart has cut the channel
}

// trickle adds the gateway's candidates until they end.
func (p *phone) trickle(at int) {
	for {
		all, more := p.c.follow()
		for ; at < len(all); at++ {
			if all[at].Type != "WEBRTC_ICE_CANDIDATE" {
				continue
			}
			var i struct {
				Candidate     *string
				SDPMid        *string
				SDPMLineIndex *uint16
			}
			if err := json.Unmarshal(all[at].Payload, &i); err != nil {
				p.t.Error(err)
			}
			if i.Candidate == nil {
				return
			}
			if i.SDPMid == nil || *i.SDPMid == "" || i.SDPMLineIndex == nil {
				p.t.Errorf("a candidate without its place: %s", all[at].Payload)
			}
			p.pc.AddICECandidate(webrtc.ICECandidateInit{Candidate: *i.Candidate, SDPMid: i.SDPMid, SDPMLineIndex: i.SDPMLineIndex})
		}
		select {
		case <-more:
		case <-p.stop:
			return
		}
	}
}

// send uses the channel once it is open, else the socket.
func (p *phone) send(kind, payload string) {
	if p.dc != nil && p.dc.ReadyState() == webrtc.DataChannelStateOpen {
		if err := p.dc.SendText(string(envelope(kind, payload))); err != nil {
			p.t.Errorf("channel: %v", err)
		}
		return
	}
	p.c.send(kind, payload)
}

// connected waits until media and, if there is one, the channel are up.
func (p *phone) connected() {
	p.t.Helper()
	eventually(p.t, "connection", func() bool {
		return p.pc.ConnectionState() == webrtc.PeerConnectionStateConnected &&
			(p.dc == nil || p.dc.ReadyState() == webrtc.DataChannelStateOpen)
	})
}

// eventually polls what has no event of its own.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !within(patience, ok) {
		t.Fatalf("no %s within %v", what, patience)
	}
}

// within waits for something, and tells whether it has come in time.
func within(d time.Duration, ok func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(d)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			return false
		}
	}
	return true
}

func (p *phone) hangUp() {
	select {
	case <-p.stop:
		return
	default:
		close(p.stop)
	}
	p.pc.GracefulClose()
	p.done.Wait()
}

// voiceLevel waits for a second of voice and returns the share of hz in it.
func (p *phone) voiceLevel(hz float64) float64 {
	p.t.Helper()
	eventually(p.t, "voice", func() bool { return len(loud(p.heard())) >= 24000*8/10 })
	return toneShare(loud(p.heard()), hz)
}

func TestPeerSaysBackWhatItHears(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]phoneOptions{
		"20 ms": {channel: true}, "10 ms, DTX": {frame: 10 * time.Millisecond, dtx: true},
		"60 ms, the other decoder": {frame: 60 * time.Millisecond, decoder: opus.Pion},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, p := call(t, newGateway(t, func(d *doors, _ *bridge.Options) { d.OpusDecoder = o.decoder }), `{}`, o)
			p.talk <- sentence(440, time.Second, 48000)
			if level := p.voiceLevel(440); level < 0.5 {
				t.Errorf("share of 440 Hz is %.2f", level)
			}
			turn := c.expect("TURN_COMPLETE")
			if n := c.count("AUDIO_CHUNK"); n != 0 {
				t.Errorf("%d AUDIO_CHUNKs while WebRTC carries the voice", n)
			}
			if n := c.count("ASSISTANT_SPEAKING"); n != 1 {
				t.Errorf("%d times ASSISTANT_SPEAKING", n)
			}
			if o.channel && turn.way != "channel" {
				t.Errorf("TURN_COMPLETE came by %s", turn.way)
			}
			checkSeq(t, c.all())
			p.send("DISCONNECT_GEMINI", "")
			c.expect("GEMINI_DISCONNECTED")
			if code := c.closeCode(); code != 1000 {
				t.Errorf("closed with %d", code)
			}
		})
	}
}

// checkSeq checks that the events are all there, each once.
func checkSeq(t *testing.T, all []message) {
	t.Helper()
	seen := map[uint64]bool{}
	top := uint64(0)
	for _, m := range all {
		if m.Seq == 0 {
			continue
		}
		if seen[m.Seq] {
			t.Errorf("event %d came twice", m.Seq)
		}
		seen[m.Seq] = true
		top = max(top, m.Seq)
	}
	if uint64(len(seen)) != top {
		t.Errorf("%d events, the last has seq %d", len(seen), top)
	}
}

// talks proves that the voice goes both ways over WebRTC. On a busy machine a sentence may be broken in two, and its answer with
// it: it is said three times at most.
func (p *phone) talks(hz float64) {
	p.t.Helper()
	for left := 3; ; left-- {
		at := len(p.heard())
		p.talk <- sentence(hz, 800*time.Millisecond, 48000)
		said := func() bool { return len(loud(p.heard()[at:])) >= 24000/2 }
		if left > 1 && !within(patience/3, said) {
			continue
		}
		eventually(p.t, "voice", said)
		if level := toneShare(loud(p.heard()[at:]), hz); level < 0.5 {
			p.t.Errorf("share of %v Hz is %.2f", hz, level)
		}
		break
	}
	p.c.expect("TURN_COMPLETE")
}

func TestOfferBeforeConnectAndCandidatesBeforeTheOffer(t *testing.T) {
	t.Parallel()
	c := dial(t, newGateway(t).url)
	p := newPhone(t, c, phoneOptions{channel: true})
	candidates := make(chan string, 16)
	p.pc.OnICECandidate(func(i *webrtc.ICECandidate) {
		if i == nil {
			close(candidates)
			return
		}
		candidates <- i.ToJSON().Candidate
	})
	offer, err := p.pc.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.pc.SetLocalDescription(offer); err != nil {
		t.Fatal(err)
	}
	for i := range candidates {
		c.send("WEBRTC_ICE_CANDIDATE", string(must(json.Marshal(map[string]any{"candidate": i, "sdpMid": nil, "sdpMLineIndex": nil}))))
	}
	c.send("WEBRTC_ICE_CANDIDATE", `{"candidate":null,"sdpMid":null,"sdpMLineIndex":null}`)
	p.sendOffer(offer.SDP) // as it was before gathering: the candidates are those above
	c.send("CONNECT_GEMINI", `{"initialConfig":{}}`)
	p.answer(c.expect("WEBRTC_ANSWER"))
	p.connected()
	p.talks(440)
	if n := c.count("GEMINI_ERROR"); n != 0 {
		t.Errorf("errors: %v", c.all())
	}
}

func TestEitherWayMayGoBySocket(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]phoneOptions{
		"sendonly": {direction: webrtc.RTPTransceiverDirectionSendonly}, "data only": {noAudio: true, channel: true},
		"recvonly": {direction: webrtc.RTPTransceiverDirectionRecvonly},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, p := call(t, newGateway(t), `{}`, o)
			if p.mic == nil {
				c.say(sentence(440, time.Second, 16000), 16000)
			} else {
				p.talk <- sentence(440, time.Second, 48000)
			}
			if o.direction == webrtc.RTPTransceiverDirectionRecvonly {
				if level := p.voiceLevel(440); level < 0.5 || c.count("AUDIO_CHUNK") > 0 {
					t.Errorf("share of 440 Hz is %.2f, with %d AUDIO_CHUNKs", level, c.count("AUDIO_CHUNK"))
				}
				return
			}
			c.expect("AUDIO_CHUNK")
			c.expect("TURN_COMPLETE")
			if voice := loud(c.heard()); !toneIs(voice, 440) {
				t.Error("the answer is not what was said")
			}
		})
	}
}

func TestSocketAudioIsDroppedWhileARTPMicrophoneIsLive(t *testing.T) {
	t.Parallel()
	c, p := call(t, newGateway(t), `{}`, phoneOptions{})
	p.talks(440)
	for range 3 {
		c.say(silence(100*time.Millisecond, 16000), 16000)
	}
	c.send("SEND_REALTIME_INPUT", `{}`) // answered after the audio
	c.expectError("bad_message", "payload")
	if n := c.warned("microphone"); n != 1 {
		t.Errorf("warned %d times", n)
	}
}

// The path by UDP is cut, by a restart of ICE that does not connect, and the WebSocket lives. Who sends audio by that is heard, and
// answered there, long before ICE has given the peer up (25 s).
func TestSocketAudioTakesOverFromADeadPeer(t *testing.T) {
	t.Parallel()
	c, p := call(t, newGateway(t), `{}`, phoneOptions{channel: true})
	p.talks(440)
	p.offerOnly(true)
	c.expect("WEBRTC_ANSWER")
	eventually(t, "the peer is given up", func() bool {
		c.say(silence(20*time.Millisecond, 16000), 16000)
		return slices.ContainsFunc(c.all(), func(m message) bool {
			return m.way == "socket" && (m.Type == "GEMINI_ERROR" || m.Type == "LOG_MESSAGE" && strings.Contains(string(m.Payload), "WebRTC is given up"))
		})
	})
	if c.count("GEMINI_ERROR") > 0 {
		t.Error("the peer was given up only because it did not connect")
	}
	c.at = len(c.all())
	c.say(sentence(440, time.Second, 16000), 16000)
	c.expect("AUDIO_CHUNK")
}

// Peers that do not connect are given up after ten seconds. Three conversations wait for that at once.
func TestPeersThatDoNotConnect(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	ends := map[string]func(*testing.T){}
	for name, begin := range map[string]func(*testing.T, *client) func(*testing.T){
		"the first": firstPeerFails, "another": anotherPeerFails, "a restart": restartFails,
	} {
		ends[name] = begin(t, connect(t, g, `{}`))
	}
	for name, end := range ends {
		t.Run(name, end)
	}
}

// The voice is held for a first peer, and given back to the socket.
func firstPeerFails(t *testing.T, c *client) func(*testing.T) {
	newPhone(t, c, phoneOptions{}).offerOnly(false)
	c.expect("WEBRTC_ANSWER")
	c.send("SEND_MESSAGE", typed("hello"))
	return func(t *testing.T) {
		checkError(t, c.expect("GEMINI_ERROR"), "peer_failed", "")
		for _, m := range c.all() {
			if m.Type == "AUDIO_CHUNK" {
				t.Fatal("AUDIO_CHUNK while a peer was connecting")
			}
			if m.Type == "GEMINI_ERROR" {
				break
			}
		}
		c.expect("AUDIO_CHUNK") // what was held
		c.expect("TURN_COMPLETE")
		if len(loud(c.heard())) == 0 {
			t.Error("what was held is lost")
		}
	}
}

// Who offers a new peer that does not connect is told where the voice is, on the one before; one that connects takes its place.
func anotherPeerFails(t *testing.T, c *client) func(*testing.T) {
	first := newPhone(t, c, phoneOptions{})
	first.offer(false)
	first.connected()
	first.talks(440) // so the gateway knows, too, that it is connected
	newPhone(t, c, phoneOptions{}).offerOnly(false)
	return func(t *testing.T) {
		m := c.expectError("peer_failed", "")
		if text := string(m.Payload); strings.Contains(text, "WebSocket") || !strings.Contains(text, "that there was") {
			t.Errorf("the client is told %s", text)
		}
		first.talks(440)
		second := newPhone(t, c, phoneOptions{channel: true})
		second.offer(false)
		second.connected()
		second.talks(660)
		eventually(t, "end of the first peer", func() bool {
			s := first.pc.ConnectionState()
			return s == webrtc.PeerConnectionStateClosed || s == webrtc.PeerConnectionStateDisconnected || s == webrtc.PeerConnectionStateFailed
		})
		if n := c.count("GEMINI_ERROR"); n != 1 {
			t.Errorf("errors: %v", c.all())
		}
	}
}

// A restart of ICE cuts the old path, so one that does not connect ends the peer as soon as a first connection would; one that
// does connect leaves it alone.
func restartFails(t *testing.T, c *client) func(*testing.T) {
	p := newPhone(t, c, phoneOptions{})
	p.offer(false)
	p.connected()
	p.offer(true)
	p.connected()
	p.talks(440)
	if n := c.count("GEMINI_ERROR"); n > 0 {
		t.Errorf("errors after a restart that connected: %v", c.all())
	}
	p.offerOnly(true)
	return func(*testing.T) { c.expectError("peer_failed", "") }
}

// Who sends audio by socket hears the voice there until the peer is connected, whether the offer came before it or after.
func TestSocketAudioEndsTheHold(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"the offer", "the audio"} {
		t.Run(first+" first", func(t *testing.T) {
			t.Parallel()
			c := connect(t, newGateway(t), `{}`)
			if first == "the audio" {
				c.say(make([]int16, 320), 16000)
			}
			newPhone(t, c, phoneOptions{}).offerOnly(false)
			c.expect("WEBRTC_ANSWER")
			start := time.Now()
			if first == "the offer" {
				c.say(make([]int16, 320), 16000)
			}
			c.send("SEND_MESSAGE", typed("Hello"))
			c.expect("AUDIO_CHUNK")
			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("the voice was held for %v", d)
			}
		})
	}
}

// The voice moves to a peer that connects, though it began on the socket.
func TestTheVoiceMovesFromTheSocketToThePeer(t *testing.T) {
	t.Parallel()
	c := connect(t, newGateway(t), `{}`)
	c.say(make([]int16, 320), 16000)
	p := newPhone(t, c, phoneOptions{})
	p.offer(false)
	p.connected()
	p.talks(440)
	if n := c.count("AUDIO_CHUNK"); n > 0 {
		t.Errorf("%d AUDIO_CHUNKs, though the peer was there before the answer", n)
	}
}

// oneSection is an offer with one audio section, as a client that is no browser may make it.
const oneSection = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n" +
	"m=audio 9 UDP/TLS/RTP/SAVPF %s\r\nc=IN IP4 0.0.0.0\r\na=mid:0\r\na=sendrecv\r\na=rtcp-mux\r\na=ice-ufrag:abcd\r\n" +
	"a=ice-pwd:abcdefghijklmnopqrstuvwx\r\na=setup:actpass\r\n%s%s"

const fingerprint = "a=fingerprint:sha-256 " +
	"00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF\r\n"

func TestOffersThatCannotBeServed(t *testing.T) {
	t.Parallel()
	c := connect(t, newGateway(t), `{}`)
	p := newPhone(t, c, phoneOptions{})
	for name, sdp := range map[string]string{
		"no codec we speak": fmt.Sprintf(oneSection, "9 13", "a=rtpmap:9 G722/8000\r\n", fingerprint),
		"no fingerprint":    fmt.Sprintf(oneSection, "111", "a=rtpmap:111 opus/48000/2\r\n", ""),
		"no section":        "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n",
		"cut off":           fmt.Sprintf(oneSection, "111", "a=rtpmap:111 opus/48000/2\r\n", fingerprint)[:40],
	} {
		p.sendOffer(sdp)
		m := c.expectError("bad_offer", "payload.sdp")
		t.Logf("%s: %s", name, m.Payload)
		if name == "no codec we speak" && !strings.Contains(string(m.Payload), "G722") {
			t.Errorf("%v does not say what was offered", m)
		}
	}
	p.offer(false)
	c.send("WEBRTC_ICE_CANDIDATE", `{"candidate":"candidate:nonsense","sdpMid":"0","sdpMLineIndex":0}`)
	c.expectError("bad_offer", "payload.candidate")
	p.connected()
	p.talks(440)
}

func TestTooManyOffers(t *testing.T) {
	t.Parallel()
	c := connect(t, newGateway(t), `{}`)
	for range 30 {
		c.send("WEBRTC_OFFER", `{"sdp":"x"}`)
	}
	for range 10 {
		c.expectError("bad_offer", "payload.sdp")
	}
	c.wait(c.at, "refusal", func(m message) bool { return strings.Contains(string(m.Payload), `"field":"type"`) })
	stillWorks(t, c)
}

func TestDataChannelCarriesEverything(t *testing.T) {
	t.Parallel()
	c, p := call(t, newGateway(t), weatherTool, phoneOptions{channel: true})
	at := len(c.all())
	p.send("SEND_MESSAGE", typed(`/tool get_weather {"location":"London"}`))
	id, _ := c.expectCall("get_weather")
	p.send("SEND_TOOL_RESPONSE", fmt.Sprintf(`{"toolResponse":{"functionResponses":[{"id":%q,"name":"get_weather","response":{"t":"15C"}}]}}`, id))
	c.expectTranscript("15C")
	eventually(p.t, "spoken answer", func() bool { return len(loud(p.heard())) > 2400 })
	c.expect("TURN_COMPLETE")
	p.send("SEND_MESSAGE", `{}`)
	if m := c.expectError("bad_message", "payload.parts"); m.way != "channel" {
		t.Errorf("an error went by %s, its request by channel", m.way)
	}
	c.send("SEND_MESSAGE", `{}`)
	if m := c.expectError("bad_message", "payload.parts"); m.way != "socket" {
		t.Errorf("an error went by %s, its request by socket", m.way)
	}
	p.send("UPDATE_CONFIG", weatherTool)
	if m := c.expect("SETUP_COMPLETE"); m.way != "channel" {
		t.Errorf("the answer to UPDATE_CONFIG went by %s", m.way)
	}
	for _, ask := range []struct {
		send func(kind, payload string)
		way  string
	}{{p.send, "channel"}, {c.send, "socket"}} {
		ask.send("GET_CONTEXT", "")
		if m := c.expect("CONTEXT"); m.way != ask.way || !strings.Contains(string(m.Payload), "London") {
			t.Errorf("asked by %s, got by %s: %v", ask.way, m.way, m)
		}
		ask.send("PING", "")
		if m := c.expect("PONG"); m.way != ask.way || m.Seq != 0 {
			t.Errorf("PING by %s, PONG by %s: %v", ask.way, m.way, m)
		}
	}
	for _, m := range c.all()[at:] {
		if m.Seq > 0 && m.way != "channel" {
			t.Errorf("event by %s: %v", m.way, m)
		}
	}
	checkSeq(t, c.all())
	p.dc.Close() // the events go back to the socket
	eventually(t, "end of the channel", func() bool { return p.dc.ReadyState() == webrtc.DataChannelStateClosed })
	c.send("SEND_MESSAGE", typed("hello"))
	if m := c.expect("ASSISTANT_SPEAKING"); m.way != "socket" {
		t.Errorf("an event went by %s", m.way)
	}
	checkSeq(t, c.all())
}

func TestConversationOutlivesTheSocket(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	c, p := call(t, g, weatherTool, phoneOptions{channel: true})
	c.conn.Close()
	<-c.done
	c.inbox.revive()
	eventually(p.t, "notice", func() bool { return strings.Contains(g.logs.String(), "socket lost") })
	p.talks(440)

	// A canvas of 256 KB and more comes in pieces, and a photo of 2 MB goes in pieces.
	canvas := strings.Repeat("canvas éè ", 40<<10)
	p.sendPieces("SEND_MESSAGE", typed(fmt.Sprintf(`/tool get_weather {"location":%s}`, strconv.QuoteToASCII(canvas))))
	id, raw := p.callInPieces()
	var args struct{ Location string }
	if err := json.Unmarshal([]byte(raw), &args); err != nil || args.Location != canvas {
		t.Errorf("%d bytes of the canvas came of %d, %v", len(args.Location), len(canvas), err)
	}
	photo := aPicture(t, 2<<20)
	p.sendPieces("SEND_MESSAGE", `{"parts":[{"inlineData":{"mimeType":"image/png","data":"`+photo+`"}}],"turnComplete":false}`)
	p.send("SEND_TOOL_RESPONSE", fmt.Sprintf(`{"toolResponse":{"functionResponses":[{"id":%q,"name":"get_weather","response":{"t":"15C"}}]}}`, id))
	c.expectTranscript("15C")
	c.expect("TURN_COMPLETE")
	if n := c.count("GEMINI_ERROR"); n != 0 {
		t.Errorf("errors: %v", c.all())
	}
	p.offer(false) // signalling works by channel, too
	p.talks(660)
	// Pion's own restart would cut the channel before the offer is out, so the offer is made by hand.
	p.sendOffer(strings.ReplaceAll(p.pc.LocalDescription().SDP, "a=ice-ufrag:", "a=ice-ufrag:new"))
	c.expectError("bad_offer", "payload.sdp")
	p.send("DISCONNECT_GEMINI", "")
	c.expect("GEMINI_DISCONNECTED")
}

func TestTheSocketMayCloseAsSoonAsTheChannelIsOpen(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for range 10 {
		c := connect(t, g, `{}`)
		p := newPhone(t, c, phoneOptions{channel: true})
		p.dc.OnOpen(func() { c.conn.Close() })
		p.offer(false)
		<-c.done
		c.inbox.revive()
		p.connected()
		p.send("SEND_MESSAGE", typed("hello"))
		c.expect("ASSISTANT_SPEAKING")
		p.hangUp()
	}
}

// sendPieces sends a message over the channel as PROTOCOL.md says.
func (p *phone) sendPieces(kind, payload string) {
	p.t.Helper()
	text := envelope(kind, payload)
	const size = 16 << 10
	count := (len(text) + size - 1) / size
	for i := range count {
		piece := text[i*size : min(len(text), (i+1)*size)] // ASCII only, so any cut is between two characters
		p.send("PIECE", string(must(json.Marshal(map[string]any{"id": "7", "index": i, "count": count, "data": string(piece)}))))
	}
}

// callInPieces waits for a TOOL_CALL in pieces and puts it together.
func (p *phone) callInPieces() (id, args string) {
	p.t.Helper()
	var whole strings.Builder
	for next, count := 0, 1; next < count; next++ {
		var piece struct {
			Index, Count int
			Data         string
		}
		p.c.expect("PIECE").read(p.t, &piece)
		if piece.Index != next || len(piece.Data) > 16<<10 {
			p.t.Fatalf("piece %d of %d bytes, want %d", piece.Index, len(piece.Data), next)
		}
		count = piece.Count
		whole.WriteString(piece.Data)
	}
	var m struct {
		Type    string
		Payload toolCall
	}
	if err := json.Unmarshal([]byte(whole.String()), &m); err != nil {
		p.t.Fatal(err)
	}
	if m.Type != "TOOL_CALL" {
		p.t.Fatalf("the pieces are a %s", m.Type)
	}
	call := m.Payload.ToolCall.FunctionCalls[0]
	return call.ID, string(call.Args)
}

func TestALongMessageGoesByTheSocketWhileThatIsOpen(t *testing.T) {
	t.Parallel()
	c, _ := call(t, newGateway(t), weatherTool, phoneOptions{channel: true})
	c.send("SEND_MESSAGE", typed(fmt.Sprintf(`/tool get_weather {"location":%q}`, strings.Repeat("canvas ", 40<<10))))
	if m := c.expect("TOOL_CALL"); m.way != "socket" || len(m.Payload) < 256<<10 {
		t.Errorf("%d bytes came by %s", len(m.Payload), m.way)
	}
}
