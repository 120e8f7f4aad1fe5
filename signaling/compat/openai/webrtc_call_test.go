package openai_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/pion/webrtc/v4"

	"voxgate/internal/testkit"
	"voxgate/signaling/compat/openai/openaitest"
)

// pageClient is a client of a call that stores its events by type.
type pageClient struct {
	*testkit.Phone
	channel *webrtc.DataChannel
	events  chan map[string]any
}

// dialPage starts a call with a data channel with this label.
func dialPage(t *testing.T, g *testkit.Gateway, query, label string, o testkit.PhoneOptions) *pageClient {
	t.Helper()
	p := &pageClient{Phone: testkit.NewPhone(t, &testkit.Client{Inbox: testkit.NewInbox(t)}, o), events: make(chan map[string]any, 1000)}
	var err error
	if p.channel, err = p.PC.CreateDataChannel(label, nil); err != nil {
		t.Fatal(err)
	}
	p.channel.OnMessage(func(m webrtc.DataChannelMessage) {
		var e map[string]any
		if err := json.Unmarshal(m.Data, &e); err != nil {
			t.Error(err)
		}
		p.events <- e
	})
	opened := make(chan struct{})
	p.channel.OnOpen(func() { close(opened) })
	offer, err := p.PC.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.PC.SetLocalDescription(offer); err != nil {
		t.Fatal(err)
	}
	resp, sdp := testkit.SendHTTP(t, http.MethodPost, g.HTTP+"/v1/realtime/calls"+query, offer.SDP,
		"Content-Type", "application/sdp", "Authorization", "Bearer x")
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("%s %s", resp.Status, sdp)
	}
	if err := p.PC.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: sdp}); err != nil {
		t.Fatal(err)
	}
	<-opened
	return p
}

// awaitEvent waits for an event of the type kind. It returns the types of all events up to this event, and the event itself.
func (p *pageClient) awaitEvent(kind string) (kinds []string, last map[string]any) {
	for e := range p.events {
		if kinds = append(kinds, e["type"].(string)); e["type"] == kind {
			return kinds, e
		}
	}
	return kinds, nil
}

// requestAnswer sends text and requests an answer.
func (p *pageClient) requestAnswer(t *testing.T, text string) {
	t.Helper()
	for _, event := range []string{
		`{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{"type":"input_text","text":"` + text + `"}]}}`,
		`{"type":"response.create"}`,
	} {
		if err := p.channel.SendText(event); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDataChannelLabels uses data channels with any label, with a microphone and without: text is accepted, and
// events and the voice arrive.
func TestDataChannelLabels(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, openaitest.Serve)
	directions := []webrtc.RTPTransceiverDirection{
		webrtc.RTPTransceiverDirectionRecvonly, webrtc.RTPTransceiverDirectionSendrecv, webrtc.RTPTransceiverDirectionSendonly,
	}
	for i, label := range []string{"realtime-channel", "oai-events", "oai", "", "events", strings.Repeat("long ", 100)} {
		for _, direction := range directions[i%3 : i%3+1] {
			p := dialPage(t, g, "", label, testkit.PhoneOptions{Direction: direction})
			p.awaitEvent("session.created")
			p.requestAnswer(t, "Tell me something.")
			kinds, _ := p.awaitEvent("response.done")
			if !slices.Contains(kinds, "response.output_audio_transcript.delta") {
				t.Errorf("%q, %v: %v", label, direction, kinds)
			}
			if direction != webrtc.RTPTransceiverDirectionSendonly {
				testkit.Eventually(t, "the voice", func() bool { return len(testkit.TrimSilence(p.ReceivedVoice())) > 4800 })
			}
			p.HangUp()
		}
	}
}

// TestWebRTCFilterHidesInstructions checks that Azure's ?webrtcfilter=on hides from a page all events that may contain the
// session's instructions.
func TestWebRTCFilterHidesInstructions(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, openaitest.Serve)
	allowed := strings.Fields(`input_audio_buffer.speech_started input_audio_buffer.speech_stopped output_audio_buffer.started
		output_audio_buffer.stopped conversation.item.input_audio_transcription.completed conversation.item.added conversation.item.created
		response.output_text.delta response.output_text.done response.output_audio_transcript.delta response.output_audio_transcript.done`)
	for _, query := range []string{"?webrtcfilter=on", "?model=gpt-realtime&webrtcfilter=ON", "?webrtcfilter=true"} {
		p := dialPage(t, g, query, "realtime-channel", testkit.PhoneOptions{})
		if err := p.channel.SendText(`{"type":"session.update","session":{"type":"realtime","instructions":"It is a secret."}}`); err != nil {
			t.Fatal(err)
		}
		if err := p.channel.SendText(`{"type":"no such event"}`); err != nil {
			t.Fatal(err)
		}
		p.requestAnswer(t, "Tell me something.")
		kinds, _ := p.awaitEvent("output_audio_buffer.stopped")
		for _, kind := range kinds {
			if !slices.Contains(allowed, kind) {
				t.Errorf("%s: the page gets %s", query, kind)
			}
		}
		if !slices.Contains(kinds, "response.output_audio_transcript.done") || !slices.Contains(kinds, "conversation.item.added") {
			t.Errorf("%s: the page gets only %v", query, kinds)
		}
		p.HangUp()
	}
	p := dialPage(t, g, "?webrtcfilter=off", "x", testkit.PhoneOptions{})
	p.awaitEvent("session.created")
	p.HangUp()
	resp, text := testkit.SendHTTP(t, http.MethodPost, g.HTTP+"/v1/realtime/calls?webrtcfilter=perhaps", testkit.BuildOffer(t),
		"Content-Type", "application/sdp", "Authorization", "Bearer x")
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, "webrtcfilter") {
		t.Errorf("%s %s", resp.Status, text)
	}
}
