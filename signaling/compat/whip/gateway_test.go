package whip_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"

	"voxgate/internal/testkit"
	"voxgate/signaling/compat/whip/whiptest"
)

// TestWHIPConversation holds a conversation with an agent, trickles candidates, restarts ICE, and ends the call.
func TestWHIPConversation(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, whiptest.Serve)
	c := whiptest.Dial(t, g, "desk")
	if resp, _ := c.PatchCandidates(c.Etag); resp.StatusCode != http.StatusNoContent {
		t.Errorf("candidates: %s", resp.Status)
	}
	c.AwaitConnected()
	c.Talk <- testkit.MakeSentence(440, time.Second, 48000)
	testkit.Eventually(t, "the answer", func() bool { return c.AwaitToneShare(440) > 0.5 })
	if resp, _ := c.PatchCandidates(`"other"`); resp.StatusCode != http.StatusPreconditionFailed {
		t.Errorf("another ETag: %s", resp.Status)
	}
	if resp, _ := c.PatchCandidates(""); resp.StatusCode != http.StatusNoContent { // like Eyevinn's page and Medooze's player
		t.Errorf("no ETag: %s", resp.Status)
	}
	other := strings.Replace(c.ICEFragment(), "a=ice-ufrag:", "a=ice-ufrag:x", 1)
	resp, _ := testkit.SendHTTP(t, http.MethodPatch, c.Session, other, "Content-Type", "application/trickle-ice-sdpfrag")
	if resp.StatusCode != http.StatusPreconditionRequired {
		t.Errorf("a restart without an ETag: %s", resp.Status)
	}

	offer, err := c.PC.CreateOffer(&webrtc.OfferOptions{ICERestart: true})
	if err != nil {
		t.Fatal(err)
	}
	gathered := webrtc.GatheringCompletePromise(c.PC)
	if err := c.PC.SetLocalDescription(offer); err != nil {
		t.Fatal(err)
	}
	<-gathered
	resp, fragment := c.PatchCandidates("*")
	if resp.StatusCode != http.StatusOK || resp.Header.Get("ETag") == c.Etag || !strings.Contains(fragment, "a=ice-pwd:") ||
		!strings.Contains(fragment, "a=candidate:") {
		t.Fatalf("restart: %s %v %s", resp.Status, resp.Header, fragment)
	}
	answer := c.PC.RemoteDescription().SDP
	var again strings.Builder
	for line := range strings.Lines(answer) {
		for _, name := range []string{"a=ice-ufrag:", "a=ice-pwd:"} {
			if strings.HasPrefix(line, name) {
				for other := range strings.Lines(fragment) {
					if strings.HasPrefix(other, name) {
						line = other
					}
				}
			}
		}
		again.WriteString(line)
	}
	if err := c.PC.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: again.String()}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the connection", func() bool {
		return c.PC.ICEConnectionState() == webrtc.ICEConnectionStateConnected || c.PC.ICEConnectionState() == webrtc.ICEConnectionStateCompleted
	})
	c.Talk <- testkit.MakeSentence(660, time.Second, 48000)
	testkit.Eventually(t, "the answer after the restart", func() bool {
		voice := testkit.TrimSilence(c.ReceivedVoice())
		return testkit.ToneShare(voice[len(voice)-24000/4:], 660) > 0.5 // the newest quarter of a second
	})

	if resp, _ := testkit.SendHTTP(t, http.MethodDelete, c.Session, ""); resp.StatusCode != http.StatusOK {
		t.Errorf("end: %s", resp.Status)
	}
	if resp, _ := testkit.SendHTTP(t, http.MethodDelete, c.Session, ""); resp.StatusCode != http.StatusOK {
		t.Errorf("end again: %s", resp.Status)
	}
	if resp, _ := c.PatchCandidates("*"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("candidates after the end: %s", resp.Status)
	}
	testkit.Eventually(t, "the end", func() bool { return len(g.Host.Sessions()) == 0 })
}

// TestWHEPListener has encoders that only send, as in RFC 9725, and other clients that listen to the agent.
func TestWHEPListener(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, whiptest.Serve)
	sends := testkit.PhoneOptions{Direction: webrtc.RTPTransceiverDirectionSendonly}
	takes := testkit.PhoneOptions{Direction: webrtc.RTPTransceiverDirectionRecvonly}
	encoder := whiptest.DialPath(t, g, "/whip/eager", "", sends, "recvonly")
	encoder.AwaitConnected()
	turns := func(n int) {
		t.Helper()
		testkit.Eventually(t, "a turn", func() bool { return g.Host.Sessions()[0].Turns >= n })
	}
	encoder.Talk <- testkit.MakeSentence(440, time.Second, 48000)
	turns(1) // a turn without a listener

	session := strings.TrimPrefix(encoder.Session, g.HTTP+"/whip/eager/")
	at := "/whep/eager?session=" + session
	listener := whiptest.DialPath(t, g, at, "", takes, "sendonly")
	if resp, _ := listener.PatchCandidates(listener.Etag); resp.StatusCode != http.StatusNoContent {
		t.Errorf("candidates: %s", resp.Status)
	}
	listener.AwaitConnected()
	testkit.Eventually(t, "the greeting", func() bool { return len(testkit.TrimSilence(listener.ReceivedVoice())) > 4800 })
	turns(2)
	encoder.Talk <- testkit.MakeSentence(660, time.Second, 48000)
	testkit.Eventually(t, "the answer", func() bool {
		voice := testkit.TrimSilence(listener.ReceivedVoice())
		return testkit.ToneShare(voice[max(0, len(voice)-24000/4):], 660) > 0.5
	})

	next := whiptest.DialPath(t, g, at, "", takes, "sendonly") // replaces the first listener
	next.AwaitConnected()
	if resp, _ := listener.PatchCandidates(listener.Etag); resp.StatusCode != http.StatusNotFound {
		t.Errorf("candidates of the one before: %s", resp.Status)
	}
	if resp, _ := testkit.SendHTTP(t, http.MethodDelete, listener.Session, ""); resp.StatusCode != http.StatusOK {
		t.Errorf("end of the one before: %s", resp.Status)
	}
	turns(3)
	encoder.Talk <- testkit.MakeSentence(440, time.Second, 48000)
	next.AwaitToneShare(440)
	if resp, _ := testkit.SendHTTP(t, http.MethodDelete, next.Session, ""); resp.StatusCode != http.StatusOK {
		t.Errorf("end of the listener: %s", resp.Status)
	}
	testkit.Eventually(t, "its end", func() bool { return next.PC.ConnectionState() != webrtc.PeerConnectionStateConnected })

	for _, test := range []struct {
		path, offer string
		status      int
	}{
		{at, testkit.BuildOffer(t), http.StatusNotAcceptable},
		{at, "v=0", http.StatusBadRequest},
		{"/whep/desk?session=" + session, "", http.StatusNotFound},
		{"/whep/eager", "", http.StatusNotFound},
	} {
		resp, text := testkit.SendHTTP(t, http.MethodPost, g.HTTP+test.path, test.offer, "Content-Type", "application/sdp")
		if resp.StatusCode != test.status {
			t.Errorf("%s: %s %s", test.path, resp.Status, text)
		}
	}
	encoder.HangUp()
	testkit.Eventually(t, "the end", func() bool { return len(g.Host.Sessions()) == 0 })
	if resp, _ := testkit.SendHTTP(t, http.MethodDelete, encoder.Session, ""); resp.StatusCode != http.StatusOK {
		t.Errorf("end of what has just ended: %s", resp.Status)
	}

	both := whiptest.Dial(t, g, "desk")
	resp, _ := testkit.SendHTTP(t, http.MethodPost, strings.Replace(both.Session, "/whip/desk/", "/whep/desk?session=", 1),
		strings.ReplaceAll(testkit.BuildOffer(t), "a=sendrecv", "a=recvonly"), "Content-Type", "application/sdp")
	if resp.StatusCode != http.StatusConflict {
		t.Errorf("beside an encoder that hears: %s", resp.Status)
	}
}

// TestWHIPGreeting checks that the agent speaks first.
func TestWHIPGreeting(t *testing.T) {
	t.Parallel()
	c := whiptest.Dial(t, testkit.StartGateway(t, whiptest.Serve), "eager")
	c.AwaitConnected()
	testkit.Eventually(t, "the greeting", func() bool { return len(testkit.TrimSilence(c.ReceivedVoice())) > 4800 })
}

// TestWHIPRefusals checks that each invalid request gets the answer of RFC 9725.
func TestWHIPRefusals(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil, whiptest.Serve)
	token := "Bearer " + l.MintToken(`{"once":false}`)
	oneWay := strings.Replace(testkit.BuildOffer(t), "a=sendrecv", "a=recvonly", 1)
	for _, test := range []struct {
		method, path, token, contentType, body string
		status                                 int
	}{
		{http.MethodPost, "/whip/desk", "", "application/sdp", oneWay, http.StatusUnauthorized},
		{http.MethodPost, "/whip/nobody", token, "application/sdp", oneWay, http.StatusNotFound},
		{http.MethodPost, "/whip/desk", token, "text/plain", oneWay, http.StatusUnsupportedMediaType},
		{http.MethodPost, "/whip/desk", token, "application/sdp", "v=0", http.StatusBadRequest},
		{http.MethodPost, "/whip/desk", token, "application/sdp", oneWay, http.StatusNotAcceptable},
		{http.MethodPost, "/whip/desk", token, "application/sdp", strings.Repeat("x", 100_000), http.StatusRequestEntityTooLarge},
		{http.MethodOptions, "/whip/desk", "", "", "", http.StatusNoContent},
		{http.MethodGet, "/whip/desk", "", "", "", http.StatusNoContent},
		{http.MethodPut, "/whip/desk", token, "", "", http.StatusMethodNotAllowed},
		{http.MethodPatch, "/whip/desk/none", token, "application/trickle-ice-sdpfrag", "", http.StatusNotFound},
		{http.MethodDelete, "/whip/desk/none", token, "", "", http.StatusNotFound},
	} {
		resp, text := testkit.SendHTTP(
			t,
			test.method,
			l.HTTP+test.path,
			test.body,
			"Authorization",
			test.token,
			"Content-Type",
			test.contentType,
		)
		if resp.StatusCode != test.status {
			t.Errorf("%s %s %.20q: %s %s", test.method, test.path, test.body, resp.Status, text)
		}
	}
}
