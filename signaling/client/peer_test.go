package client_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"

	"voxgate/bridge"
	"voxgate/internal/testkit"
	"voxgate/media/opus"
)

func TestPeerSaysBackWhatItHears(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]testkit.PhoneOptions{
		"20 ms": {Channel: true}, "10 ms, DTX": {Frame: 10 * time.Millisecond, Dtx: true},
		"60 ms, the other decoder": {Frame: 60 * time.Millisecond, Decoder: opus.Pion},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, p := testkit.DialPhone(
				t, testkit.StartGateway(t, func(d *testkit.Endpoints, _ *bridge.Options) { d.OpusDecoder = o.Decoder }), `{}`, o,
			)
			p.Talk <- testkit.MakeSentence(440, time.Second, 48000)
			if level := p.AwaitToneShare(440); level < 0.5 {
				t.Errorf("share of 440 Hz is %.2f", level)
			}
			turn := c.AwaitEvent("TURN_COMPLETE")
			if n := c.CountMessages("AUDIO_CHUNK"); n != 0 {
				t.Errorf("%d AUDIO_CHUNKs while WebRTC carries the voice", n)
			}
			if n := c.CountMessages("ASSISTANT_SPEAKING"); n != 1 {
				t.Errorf("%d times ASSISTANT_SPEAKING", n)
			}
			if o.Channel && turn.Connection != "channel" {
				t.Errorf("TURN_COMPLETE came by %s", turn.Connection)
			}
			checkSeq(t, c.Messages())
			p.Send("DISCONNECT_GEMINI", "")
			c.AwaitEvent("GEMINI_DISCONNECTED")
			if code := c.AwaitCloseCode(); code != 1000 {
				t.Errorf("closed with %d", code)
			}
		})
	}
}

// checkSeq checks that all events have arrived, each once.
func checkSeq(t *testing.T, all []testkit.Message) {
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

func TestOfferBeforeConnectAndCandidatesBeforeTheOffer(t *testing.T) {
	t.Parallel()
	c := testkit.DialWebSocket(t, testkit.StartGateway(t).URL)
	p := testkit.NewPhone(t, c, testkit.PhoneOptions{Channel: true})
	candidates := make(chan string, 16)
	p.PC.OnICECandidate(func(i *webrtc.ICECandidate) {
		if i == nil {
			close(candidates)
			return
		}
		candidates <- i.ToJSON().Candidate
	})
	offer, err := p.PC.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.PC.SetLocalDescription(offer); err != nil {
		t.Fatal(err)
	}
	for i := range candidates {
		c.Send("WEBRTC_ICE_CANDIDATE", string(testkit.Must(json.Marshal(map[string]any{"candidate": i, "sdpMid": nil, "sdpMLineIndex": nil}))))
	}
	c.Send("WEBRTC_ICE_CANDIDATE", `{"candidate":null,"sdpMid":null,"sdpMLineIndex":null}`)
	p.SendOffer(offer.SDP) // as it was before gathering: the candidates are those above
	c.Send("CONNECT_GEMINI", `{"initialConfig":{}}`)
	p.ApplyAnswer(c.AwaitEvent("WEBRTC_ANSWER"))
	p.AwaitConnected()
	p.CheckAudioBothWays(440)
	if n := c.CountMessages("GEMINI_ERROR"); n != 0 {
		t.Errorf("errors: %v", c.Messages())
	}
}

func TestEitherWayMayGoBySocket(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]testkit.PhoneOptions{
		"sendonly": {Direction: webrtc.RTPTransceiverDirectionSendonly}, "data only": {NoAudio: true, Channel: true},
		"recvonly": {Direction: webrtc.RTPTransceiverDirectionRecvonly},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, p := testkit.DialPhone(t, testkit.StartGateway(t), `{}`, o)
			if p.Mic == nil {
				c.SendAudio(testkit.MakeSentence(440, time.Second, 16000), 16000)
			} else {
				p.Talk <- testkit.MakeSentence(440, time.Second, 48000)
			}
			if o.Direction == webrtc.RTPTransceiverDirectionRecvonly {
				if level := p.AwaitToneShare(440); level < 0.5 || c.CountMessages("AUDIO_CHUNK") > 0 {
					t.Errorf("share of 440 Hz is %.2f, with %d AUDIO_CHUNKs", level, c.CountMessages("AUDIO_CHUNK"))
				}
				return
			}
			c.AwaitEvent("AUDIO_CHUNK")
			c.AwaitEvent("TURN_COMPLETE")
			if voice := testkit.TrimSilence(c.ReceivedVoice()); !testkit.IsTone(voice, 440) {
				t.Error("the answer is not what was said")
			}
		})
	}
}

func TestSocketAudioIsDroppedWhileARTPMicrophoneIsLive(t *testing.T) {
	t.Parallel()
	c, p := testkit.DialPhone(t, testkit.StartGateway(t), `{}`, testkit.PhoneOptions{})
	p.CheckAudioBothWays(440)
	for range 3 {
		c.SendAudio(testkit.MakeSilence(100*time.Millisecond, 16000), 16000)
	}
	c.Send("SEND_REALTIME_INPUT", `{}`) // answered after the audio
	c.AwaitError("bad_message", "payload")
	if n := c.CountWarnings("microphone"); n != 1 {
		t.Errorf("warned %d times", n)
	}
}

// The UDP path is cut, by a restart of ICE that does not connect, and the WebSocket lives. A client that then sends
// audio over the WebSocket is heard and answered there, long before ICE closes the peer (25 s).
func TestSocketAudioTakesOverFromADeadPeer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	c, p := testkit.DialPhone(t, testkit.StartGateway(t), `{}`, testkit.PhoneOptions{Channel: true})
	p.CheckAudioBothWays(440)
	p.SendOfferOnly(true)
	c.AwaitEvent("WEBRTC_ANSWER")
	testkit.Eventually(t, "the peer is given up", func() bool {
		c.SendAudio(testkit.MakeSilence(20*time.Millisecond, 16000), 16000)
		return slices.ContainsFunc(c.Messages(), func(m testkit.Message) bool {
			return m.Connection == "socket" &&
				(m.Type == "GEMINI_ERROR" || m.Type == "LOG_MESSAGE" && strings.Contains(string(m.Payload), "WebRTC connection is closed"))
		})
	})
	if c.CountMessages("GEMINI_ERROR") > 0 {
		t.Error("the peer was given up only because it did not connect")
	}
	c.At = len(c.Messages())
	c.SendAudio(testkit.MakeSentence(440, time.Second, 16000), 16000)
	c.AwaitEvent("AUDIO_CHUNK")
}

// Peers that do not connect are closed after ten seconds. Three conversations wait for that in parallel.
func TestPeersThatDoNotConnect(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	g := testkit.StartGateway(t)
	ends := map[string]func(*testing.T){}
	for name, begin := range map[string]func(*testing.T, *testkit.Client) func(*testing.T){
		"the first": firstPeerFails, "another": anotherPeerFails, "a restart": restartFails,
	} {
		ends[name] = begin(t, testkit.OpenConversation(t, g, `{}`))
	}
	for name, end := range ends {
		t.Run(name, end)
	}
}

// The voice is held for a first peer, and returns to the socket if the peer does not connect.
func firstPeerFails(t *testing.T, c *testkit.Client) func(*testing.T) {
	testkit.NewPhone(t, c, testkit.PhoneOptions{}).SendOfferOnly(false)
	c.AwaitEvent("WEBRTC_ANSWER")
	c.Send("SEND_MESSAGE", testkit.TextPayload("hello"))
	return func(t *testing.T) {
		testkit.CheckError(t, c.AwaitEvent("GEMINI_ERROR"), "peer_failed", "")
		for _, m := range c.Messages() {
			if m.Type == "AUDIO_CHUNK" {
				t.Fatal("AUDIO_CHUNK while a peer was connecting")
			}
			if m.Type == "GEMINI_ERROR" {
				break
			}
		}
		c.AwaitEvent("AUDIO_CHUNK") // the held voice
		c.AwaitEvent("TURN_COMPLETE")
		if len(testkit.TrimSilence(c.ReceivedVoice())) == 0 {
			t.Error("what was held is lost")
		}
	}
}

// If a new peer does not connect, the client learns that the voice stays on the old one; one that connects replaces
// it.
func anotherPeerFails(t *testing.T, c *testkit.Client) func(*testing.T) {
	first := testkit.NewPhone(t, c, testkit.PhoneOptions{})
	first.Negotiate(false)
	first.AwaitConnected()
	first.CheckAudioBothWays(440) // now the gateway, too, knows that the peer is connected
	testkit.NewPhone(t, c, testkit.PhoneOptions{}).SendOfferOnly(false)
	return func(t *testing.T) {
		m := c.AwaitError("peer_failed", "")
		if text := string(m.Payload); strings.Contains(text, "WebSocket") || !strings.Contains(text, "the previous WebRTC connection") {
			t.Errorf("the client got %s", text)
		}
		first.CheckAudioBothWays(440)
		second := testkit.NewPhone(t, c, testkit.PhoneOptions{Channel: true})
		second.Negotiate(false)
		second.AwaitConnected()
		second.CheckAudioBothWays(660)
		testkit.Eventually(t, "end of the first peer", func() bool {
			s := first.PC.ConnectionState()
			return s == webrtc.PeerConnectionStateClosed || s == webrtc.PeerConnectionStateDisconnected || s == webrtc.PeerConnectionStateFailed
		})
		if n := c.CountMessages("GEMINI_ERROR"); n != 1 {
			t.Errorf("errors: %v", c.Messages())
		}
	}
}

// A restart of ICE cuts the old path. If the restart does not connect, the peer is closed after the same time as a first
// peer. A restart that connects leaves the peer open.
func restartFails(t *testing.T, c *testkit.Client) func(*testing.T) {
	p := testkit.NewPhone(t, c, testkit.PhoneOptions{})
	p.Negotiate(false)
	p.AwaitConnected()
	p.Negotiate(true)
	p.AwaitConnected()
	p.CheckAudioBothWays(440)
	if n := c.CountMessages("GEMINI_ERROR"); n > 0 {
		t.Errorf("errors after a restart that connected: %v", c.Messages())
	}
	p.SendOfferOnly(true)
	return func(*testing.T) { c.AwaitError("peer_failed", "") }
}

// A client that sends audio over the socket hears the voice there until the peer is connected, whether the offer came
// before it or after.
func TestSocketAudioEndsTheHold(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"the offer", "the audio"} {
		t.Run(first+" first", func(t *testing.T) {
			t.Parallel()
			c := testkit.OpenConversation(t, testkit.StartGateway(t), `{}`)
			if first == "the audio" {
				c.SendAudio(make([]int16, 320), 16000)
			}
			testkit.NewPhone(t, c, testkit.PhoneOptions{}).SendOfferOnly(false)
			c.AwaitEvent("WEBRTC_ANSWER")
			start := time.Now()
			if first == "the offer" {
				c.SendAudio(make([]int16, 320), 16000)
			}
			c.Send("SEND_MESSAGE", testkit.TextPayload("Hello"))
			c.AwaitEvent("AUDIO_CHUNK")
			if d := time.Since(start); d > 10*time.Second { // without this, the voice is held until the peer is closed: connectTimeout
				t.Errorf("the voice was held for %v", d)
			}
		})
	}
}

// The voice moves to a peer that connects, even if it began on the socket.
func TestTheVoiceMovesFromTheSocketToThePeer(t *testing.T) {
	t.Parallel()
	c := testkit.OpenConversation(t, testkit.StartGateway(t), `{}`)
	c.SendAudio(make([]int16, 320), 16000)
	p := testkit.NewPhone(t, c, testkit.PhoneOptions{})
	p.Negotiate(false)
	p.AwaitConnected()
	p.CheckAudioBothWays(440)
	if n := c.CountMessages("AUDIO_CHUNK"); n > 0 {
		t.Errorf("%d AUDIO_CHUNKs, though the peer was there before the answer", n)
	}
}

// oneSection is an offer with one audio section, as of a client that is not a browser.
const oneSection = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n" +
	"m=audio 9 UDP/TLS/RTP/SAVPF %s\r\nc=IN IP4 0.0.0.0\r\na=mid:0\r\na=sendrecv\r\na=rtcp-mux\r\na=ice-ufrag:abcd\r\n" +
	"a=ice-pwd:abcdefghijklmnopqrstuvwx\r\na=setup:actpass\r\n%s%s"

const fingerprint = "a=fingerprint:sha-256 " +
	"00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF\r\n"

func TestOffersThatCannotBeServed(t *testing.T) {
	t.Parallel()
	c := testkit.OpenConversation(t, testkit.StartGateway(t), `{}`)
	p := testkit.NewPhone(t, c, testkit.PhoneOptions{})
	for name, sdp := range map[string]string{
		"no codec we speak": fmt.Sprintf(oneSection, "9 13", "a=rtpmap:9 G722/8000\r\n", fingerprint),
		"no fingerprint":    fmt.Sprintf(oneSection, "111", "a=rtpmap:111 opus/48000/2\r\n", ""),
		"no section":        "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n",
		"cut off":           fmt.Sprintf(oneSection, "111", "a=rtpmap:111 opus/48000/2\r\n", fingerprint)[:40],
	} {
		p.SendOffer(sdp)
		m := c.AwaitError("bad_offer", "payload.sdp")
		t.Logf("%s: %s", name, m.Payload)
		if name == "no codec we speak" && !strings.Contains(string(m.Payload), "G722") {
			t.Errorf("%v does not say what was offered", m)
		}
	}
	p.Negotiate(false)
	c.Send("WEBRTC_ICE_CANDIDATE", `{"candidate":"candidate:nonsense","sdpMid":"0","sdpMLineIndex":0}`)
	c.AwaitError("bad_offer", "payload.candidate")
	p.AwaitConnected()
	p.CheckAudioBothWays(440)
}

func TestTooManyOffers(t *testing.T) {
	t.Parallel()
	c := testkit.OpenConversation(t, testkit.StartGateway(t), `{}`)
	for range 30 {
		c.Send("WEBRTC_OFFER", `{"sdp":"x"}`)
	}
	for range 10 {
		c.AwaitError("bad_offer", "payload.sdp")
	}
	c.AwaitMatch(c.At, "refusal", func(m testkit.Message) bool { return strings.Contains(string(m.Payload), `"field":"type"`) })
	checkStillWorks(t, c)
}

func TestDataChannelCarriesEverything(t *testing.T) {
	t.Parallel()
	c, p := testkit.DialPhone(t, testkit.StartGateway(t), testkit.WeatherTool, testkit.PhoneOptions{Channel: true})
	at := len(c.Messages())
	p.Send("SEND_MESSAGE", testkit.TextPayload(`/tool get_weather {"location":"London"}`))
	id, _ := expectCall(c, "get_weather")
	p.Send(
		"SEND_TOOL_RESPONSE",
		fmt.Sprintf(`{"toolResponse":{"functionResponses":[{"id":%q,"name":"get_weather","response":{"t":"15C"}}]}}`, id),
	)
	expectTranscript(c, "15C")
	testkit.Eventually(p.T, "spoken answer", func() bool { return len(testkit.TrimSilence(p.ReceivedVoice())) > 2400 })
	c.AwaitEvent("TURN_COMPLETE")
	p.Send("SEND_MESSAGE", `{}`)
	if m := c.AwaitError("bad_message", "payload.parts"); m.Connection != "channel" {
		t.Errorf("an error went by %s, its request by channel", m.Connection)
	}
	c.Send("SEND_MESSAGE", `{}`)
	if m := c.AwaitError("bad_message", "payload.parts"); m.Connection != "socket" {
		t.Errorf("an error went by %s, its request by socket", m.Connection)
	}
	p.Send("UPDATE_CONFIG", testkit.WeatherTool)
	if m := c.AwaitEvent("SETUP_COMPLETE"); m.Connection != "channel" {
		t.Errorf("the answer to UPDATE_CONFIG went by %s", m.Connection)
	}
	for _, ask := range []struct {
		send func(kind, payload string)
		way  string
	}{{p.Send, "channel"}, {c.Send, "socket"}} {
		ask.send("GET_CONTEXT", "")
		if m := c.AwaitEvent("CONTEXT"); m.Connection != ask.way || !strings.Contains(string(m.Payload), "London") {
			t.Errorf("asked by %s, got by %s: %v", ask.way, m.Connection, m)
		}
		ask.send("PING", "")
		if m := c.AwaitEvent("PONG"); m.Connection != ask.way || m.Seq != 0 {
			t.Errorf("PING by %s, PONG by %s: %v", ask.way, m.Connection, m)
		}
	}
	for _, m := range c.Messages()[at:] {
		if m.Seq > 0 && m.Connection != "channel" {
			t.Errorf("event by %s: %v", m.Connection, m)
		}
	}
	checkSeq(t, c.Messages())
	p.Channel.Close() // the events return to the socket
	testkit.Eventually(t, "end of the channel", func() bool { return p.Channel.ReadyState() == webrtc.DataChannelStateClosed })
	c.Send("SEND_MESSAGE", testkit.TextPayload("hello"))
	if m := c.AwaitEvent("ASSISTANT_SPEAKING"); m.Connection != "socket" {
		t.Errorf("an event went by %s", m.Connection)
	}
	checkSeq(t, c.Messages())
}

func TestConversationOutlivesTheSocket(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	g := testkit.StartGateway(t)
	c, p := testkit.DialPhone(t, g, testkit.WeatherTool, testkit.PhoneOptions{Channel: true})
	c.Conn.Close()
	<-c.Done
	c.Inbox.ClearEndError()
	testkit.Eventually(p.T, "notice", func() bool { return strings.Contains(g.Logs.String(), "socket lost") })
	p.CheckAudioBothWays(440)

	// A canvas of 256 KB and more is received in pieces, and a photo of 2 MB is sent in pieces.
	canvas := strings.Repeat("canvas éè ", 40<<10)
	sendPieces(p, "SEND_MESSAGE", testkit.TextPayload(fmt.Sprintf(`/tool get_weather {"location":%s}`, strconv.QuoteToASCII(canvas))))
	id, raw := callInPieces(p)
	var args struct{ Location string }
	if err := json.Unmarshal([]byte(raw), &args); err != nil || args.Location != canvas {
		t.Errorf("%d bytes of the canvas came of %d, %v", len(args.Location), len(canvas), err)
	}
	photo := encodePicture(t, 2<<20)
	sendPieces(p, "SEND_MESSAGE", `{"parts":[{"inlineData":{"mimeType":"image/png","data":"`+photo+`"}}],"turnComplete":false}`)
	p.Send(
		"SEND_TOOL_RESPONSE",
		fmt.Sprintf(`{"toolResponse":{"functionResponses":[{"id":%q,"name":"get_weather","response":{"t":"15C"}}]}}`, id),
	)
	expectTranscript(c, "15C")
	c.AwaitEvent("TURN_COMPLETE")
	if n := c.CountMessages("GEMINI_ERROR"); n != 0 {
		t.Errorf("errors: %v", c.Messages())
	}
	p.Negotiate(false) // signalling also works over the channel
	p.CheckAudioBothWays(660)
	// Pion's own restart would cut the channel before the offer is sent, so the offer is built here.
	p.SendOffer(strings.ReplaceAll(p.PC.LocalDescription().SDP, "a=ice-ufrag:", "a=ice-ufrag:new"))
	c.AwaitError("bad_offer", "payload.sdp")
	p.Send("DISCONNECT_GEMINI", "")
	c.AwaitEvent("GEMINI_DISCONNECTED")
}

func TestTheSocketMayCloseAsSoonAsTheChannelIsOpen(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t)
	for range 10 {
		c := testkit.OpenConversation(t, g, `{}`)
		p := testkit.NewPhone(t, c, testkit.PhoneOptions{Channel: true})
		p.Channel.OnOpen(func() { c.Conn.Close() })
		p.Negotiate(false)
		<-c.Done
		c.Inbox.ClearEndError()
		p.AwaitConnected()
		p.Send("SEND_MESSAGE", testkit.TextPayload("hello"))
		c.AwaitEvent("ASSISTANT_SPEAKING")
		p.HangUp()
	}
}

// sendPieces sends a message over the channel in pieces, as described in PROTOCOL.md.
func sendPieces(p *testkit.Phone, kind, payload string) {
	p.T.Helper()
	text := testkit.EncodeMessage(kind, payload)
	const size = 16 << 10
	count := (len(text) + size - 1) / size
	for i := range count {
		piece := text[i*size : min(len(text), (i+1)*size)] // ASCII only, so any cut is between two characters
		p.Send("PIECE", string(testkit.Must(json.Marshal(map[string]any{"id": "7", "index": i, "count": count, "data": string(piece)}))))
	}
}

// callInPieces waits for a TOOL_CALL in pieces and joins it.
func callInPieces(p *testkit.Phone) (id, args string) {
	p.T.Helper()
	var whole strings.Builder
	for next, count := 0, 1; next < count; next++ {
		var piece struct {
			Index, Count int
			Data         string
		}
		p.Client.AwaitEvent("PIECE").DecodePayload(p.T, &piece)
		if piece.Index != next || len(piece.Data) > 16<<10 {
			p.T.Fatalf("piece %d of %d bytes, want %d", piece.Index, len(piece.Data), next)
		}
		count = piece.Count
		whole.WriteString(piece.Data)
	}
	var m struct {
		Type    string
		Payload toolCall
	}
	if err := json.Unmarshal([]byte(whole.String()), &m); err != nil {
		p.T.Fatal(err)
	}
	if m.Type != "TOOL_CALL" {
		p.T.Fatalf("the pieces are a %s", m.Type)
	}
	call := m.Payload.ToolCall.FunctionCalls[0]
	return call.ID, string(call.Args)
}

func TestALongMessageGoesByTheSocketWhileThatIsOpen(t *testing.T) {
	t.Parallel()
	c, _ := testkit.DialPhone(t, testkit.StartGateway(t), testkit.WeatherTool, testkit.PhoneOptions{Channel: true})
	c.Send("SEND_MESSAGE", testkit.TextPayload(fmt.Sprintf(`/tool get_weather {"location":%q}`, strings.Repeat("canvas ", 40<<10))))
	if m := c.AwaitEvent("TOOL_CALL"); m.Connection != "socket" || len(m.Payload) < 256<<10 {
		t.Errorf("%d bytes came by %s", len(m.Payload), m.Connection)
	}
}
