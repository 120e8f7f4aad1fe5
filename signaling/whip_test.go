package signaling_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"

	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/rtc"
	"voxgate/signaling/whip"
)

// withWHIP opens the door for clients of WHIP, with two agents.
func withWHIP(d *doors, _ *bridge.Options) {
	before := d.more
	d.more = func(host *bridge.Host, api *rtc.API) []signaling.Door {
		door := whip.Door{
			Config: &whip.Config{Agents: map[string]whip.Agent{"desk": {Prompt: "Be brief."}, "eager": {Greeting: "Greet."}}}, Host: host, RTC: api, Logger: d.Logger,
			ICEServers: func() []signaling.ICEServer { return []signaling.ICEServer{{URLs: []string{"stun:stun.example.com"}}} },
		}
		list := door.Doors()
		if before != nil {
			list = append(list, before(host, api)...)
		}
		return list
	}
}

// whipRequest sends a request, and returns the answer and its body.
func whipRequest(t *testing.T, method, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp, string(text)
}

// whipCall is a client of WHIP, in Pion.
type whipCall struct {
	*phone
	session string // its URL
	etag    string
}

// fragment is the client's side of ICE, with candidates where they are known.
func (c *whipCall) fragment() string {
	var b strings.Builder
	sdp := c.pc.LocalDescription().SDP
	for line := range strings.Lines(sdp) {
		for _, prefix := range []string{"a=ice-ufrag:", "a=ice-pwd:", "a=mid:", "a=candidate:", "m="} {
			if strings.HasPrefix(line, prefix) {
				b.WriteString(line)
			}
		}
	}
	return b.String()
}

func dialWHIP(t *testing.T, g *gateway, agent string) *whipCall {
	t.Helper()
	return dialWHIPAs(t, g, agent, "nobody's")
}

func dialWHIPAs(t *testing.T, g *gateway, agent, token string) *whipCall {
	t.Helper()
	c := &whipCall{phone: newPhone(t, &client{inbox: newInbox(t)}, phoneOptions{})}
	offer, err := c.pc.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	gathered := webrtc.GatheringCompletePromise(c.pc)
	if err := c.pc.SetLocalDescription(offer); err != nil {
		t.Fatal(err)
	}
	resp, sdp := whipRequest(t, http.MethodPost, g.http+"/whip/"+agent, offer.SDP, "Content-Type", "application/sdp", "Authorization", "Bearer "+token)
	h := resp.Header
	if resp.StatusCode != http.StatusCreated || h.Get("Content-Type") != "application/sdp" || h.Get("Link") != `<stun:stun.example.com>; rel="ice-server"` || h.Get("ETag") == "" {
		t.Fatalf("%s %v: %s", resp.Status, h, sdp)
	}
	if !strings.Contains(sdp, "a=sendrecv") || !strings.Contains(sdp, "a=candidate:") {
		t.Errorf("answered %s", sdp)
	}
	c.session, c.etag = g.http+h.Get("Location"), h.Get("ETag")
	if err := c.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: sdp}); err != nil {
		t.Fatal(err)
	}
	<-gathered
	return c
}

func (c *whipCall) patch(etag string) (*http.Response, string) {
	c.t.Helper()
	return whipRequest(c.t, http.MethodPatch, c.session, c.fragment(), "Content-Type", "application/trickle-ice-sdpfrag", "If-Match", etag)
}

// TestWHIP talks with an agent, tells candidates one by one, restarts ICE, and ends the call.
func TestWHIP(t *testing.T) {
	t.Parallel()
	g := newGateway(t, withWHIP)
	c := dialWHIP(t, g, "desk")
	if resp, _ := c.patch(c.etag); resp.StatusCode != http.StatusNoContent {
		t.Errorf("candidates: %s", resp.Status)
	}
	c.connected()
	c.talk <- sentence(440, time.Second, 48000)
	eventually(t, "the answer", func() bool { return c.voiceLevel(440) > 0.5 })
	if resp, _ := c.patch(`"other"`); resp.StatusCode != http.StatusPreconditionFailed {
		t.Errorf("another ETag: %s", resp.Status)
	}
	if resp, _ := c.patch(""); resp.StatusCode != http.StatusPreconditionRequired {
		t.Errorf("no ETag: %s", resp.Status)
	}

	offer, err := c.pc.CreateOffer(&webrtc.OfferOptions{ICERestart: true})
	if err != nil {
		t.Fatal(err)
	}
	gathered := webrtc.GatheringCompletePromise(c.pc)
	if err := c.pc.SetLocalDescription(offer); err != nil {
		t.Fatal(err)
	}
	<-gathered
	resp, fragment := c.patch("*")
	if resp.StatusCode != http.StatusOK || resp.Header.Get("ETag") == c.etag || !strings.Contains(fragment, "a=ice-pwd:") || !strings.Contains(fragment, "a=candidate:") {
		t.Fatalf("restart: %s %v %s", resp.Status, resp.Header, fragment)
	}
	answer := c.pc.RemoteDescription().SDP
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
	if err := c.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: again.String()}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the connection", func() bool {
		return c.pc.ICEConnectionState() == webrtc.ICEConnectionStateConnected || c.pc.ICEConnectionState() == webrtc.ICEConnectionStateCompleted
	})
	c.talk <- sentence(660, time.Second, 48000)
	eventually(t, "the answer after the restart", func() bool {
		voice := loud(c.heard())
		return toneShare(voice[len(voice)-24000/4:], 660) > 0.5 // the newest quarter of a second
	})

	if resp, _ := whipRequest(t, http.MethodDelete, c.session, ""); resp.StatusCode != http.StatusOK {
		t.Errorf("end: %s", resp.Status)
	}
	if resp, _ := whipRequest(t, http.MethodDelete, c.session, ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("end again: %s", resp.Status)
	}
	eventually(t, "the end", func() bool { return len(g.host.Sessions()) == 0 })
}

// TestWHIPGreets has the agent speak first.
func TestWHIPGreets(t *testing.T) {
	t.Parallel()
	c := dialWHIP(t, newGateway(t, withWHIP), "eager")
	c.connected()
	eventually(t, "the greeting", func() bool { return len(loud(c.heard())) > 4800 })
}

// TestWHIPRefuses answers each request that is wrong as RFC 9725 has it.
func TestWHIPRefuses(t *testing.T) {
	t.Parallel()
	l := newLocked(t, nil, withWHIP)
	token := "Bearer " + l.mint(`{"once":false}`)
	oneWay := strings.Replace(someOffer(t), "a=sendrecv", "a=sendonly", 1)
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
		resp, text := whipRequest(t, test.method, l.http+test.path, test.body, "Authorization", test.token, "Content-Type", test.contentType)
		if resp.StatusCode != test.status {
			t.Errorf("%s %s %.20q: %s %s", test.method, test.path, test.body, resp.Status, text)
		}
	}
}
