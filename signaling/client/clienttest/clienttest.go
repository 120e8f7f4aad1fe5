// Package clienttest has clients of the client protocol for the tests that all protocols must pass. It is imported by
// tests only.
package clienttest

import (
	"encoding/json"
	"testing"

	"github.com/pion/webrtc/v4"

	"voxgate/internal/testkit"
)

// Conformance holds clients of the client protocol for the conformance tests. It adds no endpoint, because the gateway
// of every test serves this protocol.
var Conformance = testkit.Conformance{
	Name:    "web",
	Talkers: map[string]testkit.Talker{"web": {Begin: dialSpeaker}},
	SoundClients: map[string]testkit.SoundClient{
		"web": {Begin: dialSoundCall}, "web by WebRTC": {Begin: dialSoundCallByWebRTC, ByWebRTC: true},
	},
	PostOffer: postOffer,
	FillQueues: map[string]func(*testing.T, *testkit.Gateway) func(){
		"web": fillQueues, "web, by data channel": fillQueuesByChannel,
	},
}

// dial begins a conversation with a token.
func dial(t *testing.T, l *testkit.LockedGateway, token string) *testkit.Client {
	c := testkit.DialWebSocket(t, l.URL)
	testkit.EnterConversation(t, c, testkit.ConnectPayload(token, ""))
	return c
}

func dialSpeaker(t *testing.T, l *testkit.LockedGateway, token string) testkit.Speaker {
	return testkit.NewSocketSpeaker(
		dial(t, l, token), "GEMINI_DISCONNECTED", string(testkit.EncodeMessage("SEND_MESSAGE", testkit.TextPayload("More."))),
	)
}

func dialSoundCall(t *testing.T, l *testkit.LockedGateway, token string) testkit.SoundCall {
	c := dial(t, l, token)
	return testkit.SoundCall{
		Client: c, Rate: 16000,
		Send: func(piece []byte, encode testkit.Base64Encoding) {
			c.Send("SEND_REALTIME_INPUT", `{"audio":{"mimeType":"audio/pcm;rate=16000","data":"`+encode(piece)+`"}}`)
		},
		Release:  func() { c.Send("SEND_REALTIME_INPUT", `{"audioStreamEnd":true}`) },
		HasVoice: func(m testkit.Message) bool { return m.Type == "AUDIO_CHUNK" },
	}
}

func dialSoundCallByWebRTC(t *testing.T, l *testkit.LockedGateway, token string) testkit.SoundCall {
	c := dial(t, l, token)
	p := testkit.NewPhone(t, c, testkit.PhoneOptions{Dtx: true})
	p.Negotiate(false)
	p.AwaitConnected()
	return testkit.SoundCall{
		Client: c, Rate: 48000, Phone: p,
		Release:  func() { c.Send("SEND_REALTIME_INPUT", `{"audioStreamEnd":true}`) },
		HasVoice: func(m testkit.Message) bool { return m.Type == "ASSISTANT_SPEAKING" },
	}
}

func postOffer(t *testing.T, g *testkit.Gateway, offer string) (text string, isAnswer bool) {
	c := testkit.OpenConversation(t, g, `{}`)
	defer testkit.DropConnection(c)
	c.Send("WEBRTC_OFFER", string(testkit.Must(json.Marshal(map[string]string{"sdp": offer}))))
	m, _ := c.AwaitMatch(0, "an answer", func(m testkit.Message) bool { return m.Type == "WEBRTC_ANSWER" || m.Type == "GEMINI_ERROR" })
	var answer struct{ SDP, Message string }
	m.DecodePayload(t, &answer)
	return answer.SDP + answer.Message, answer.SDP != ""
}

// EncodeOffer returns a message with another offer of the same peer.
func EncodeOffer(t *testing.T, p *testkit.Phone, restart bool) string {
	t.Helper()
	offer, err := p.PC.CreateOffer(&webrtc.OfferOptions{ICERestart: restart})
	if err != nil {
		t.Fatal(err)
	}
	return string(testkit.EncodeMessage("WEBRTC_OFFER", string(testkit.Must(json.Marshal(map[string]string{"sdp": offer.SDP})))))
}

func fillQueues(t *testing.T, g *testkit.Gateway) (leave func()) {
	const audio = `{"type":"SEND_REALTIME_INPUT","payload":{"audio":{"mimeType":"audio/pcm;rate=16000","data":"AAA="}}}`
	c, p := testkit.DialPhone(t, g, `{}`, testkit.PhoneOptions{})
	testkit.SendBurst(c, EncodeOffer(t, p, false), audio)
	testkit.SendBurst(c, EncodeOffer(t, p, true), audio)
	c.AskText("Are you there?")
	return func() { testkit.DropConnection(c) }
}

func fillQueuesByChannel(t *testing.T, g *testkit.Gateway) (leave func()) {
	c, p := testkit.DialPhone(t, g, `{}`, testkit.PhoneOptions{Channel: true})
	for n := range testkit.MoreThanAnyQueue {
		if n%100 == 0 {
			c.SendTextFrame(EncodeOffer(t, p, false))
		}
		p.Send("SEND_REALTIME_INPUT", `{"audio":{"mimeType":"audio/pcm;rate=16000","data":"AAA="}}`)
	}
	p.Send("SEND_MESSAGE", testkit.TextPayload("Are you there?"))
	c.AwaitEvent("TURN_COMPLETE")
	return func() { p.HangUp(); testkit.DropConnection(c) }
}
