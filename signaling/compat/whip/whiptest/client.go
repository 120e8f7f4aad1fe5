package whiptest

import (
	"net/http"
	"strings"
	"testing"

	"voxgate/bridge"
	"voxgate/internal/testkit"
	"voxgate/signaling"
	"voxgate/signaling/compat/whip"
	"voxgate/signaling/rtc"

	"github.com/pion/webrtc/v4"
)

// Serve adds the endpoints for WHIP clients.
func Serve(d *testkit.Endpoints, _ *bridge.Options) {
	d.Agents = testkit.Agents
	d.AddEndpoints(func(host *bridge.Host, api *rtc.API) []signaling.Endpoint {
		server := whip.Server{
			Agents: d.Agents, Host: host, RTC: api, Logger: d.Logger,
			ICEServers: func() []signaling.ICEServer { return []signaling.ICEServer{{URLs: []string{"stun:stun.example.com"}}} },
		}
		return server.Endpoints()
	})
}

// Call is a WHIP client, implemented with Pion.
type Call struct {
	*testkit.Phone
	Session string // URL of the session, for later requests
	Etag    string
}

// ICEFragment returns the client's ICE parameters, with the candidates known so far.
func (c *Call) ICEFragment() string {
	var b strings.Builder
	sdp := c.PC.LocalDescription().SDP
	for line := range strings.Lines(sdp) {
		for _, prefix := range []string{"a=ice-ufrag:", "a=ice-pwd:", "a=mid:", "a=candidate:", "m="} {
			if strings.HasPrefix(line, prefix) {
				b.WriteString(line)
			}
		}
	}
	return b.String()
}

// Dial begins a call with an agent.
func Dial(t *testing.T, g *testkit.Gateway, agent string) *Call {
	t.Helper()
	return DialAs(t, g, agent, "nobody's")
}

// DialAs begins a call with a token.
func DialAs(t *testing.T, g *testkit.Gateway, agent, token string) *Call {
	t.Helper()
	return DialPath(t, g, "/whip/"+agent, token, testkit.PhoneOptions{}, "sendrecv")
}

// DialPath posts an offer to a path of WHIP or WHEP, and checks the direction of the answer's audio.
func DialPath(t *testing.T, g *testkit.Gateway, path, token string, o testkit.PhoneOptions, direction string) *Call {
	t.Helper()
	whipCall := &Call{Phone: testkit.NewPhone(t, &testkit.Client{Inbox: testkit.NewInbox(t)}, o)}
	offer, err := whipCall.PC.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	gathered := webrtc.GatheringCompletePromise(whipCall.PC)
	if err := whipCall.PC.SetLocalDescription(offer); err != nil {
		t.Fatal(err)
	}
	resp, sdp := testkit.SendHTTP(
		t, http.MethodPost, g.HTTP+path, offer.SDP, "Content-Type", "application/sdp", "Authorization", "Bearer "+token,
	)
	h := resp.Header
	if resp.StatusCode != http.StatusCreated || h.Get("Content-Type") != "application/sdp" ||
		h.Get("Link") != `<stun:stun.example.com>; rel="ice-server"` ||
		h.Get("ETag") == "" || h.Get("Cache-Control") != "no-store" {
		t.Fatalf("%s %v: %s", resp.Status, h, sdp)
	}
	if !strings.Contains(sdp, "a="+direction+"\r\n") || !strings.Contains(sdp, "a=candidate:") {
		t.Errorf("answered %s", sdp)
	}
	whipCall.Session, whipCall.Etag = g.HTTP+h.Get("Location"), h.Get("ETag")
	if err := whipCall.PC.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: sdp}); err != nil {
		t.Fatal(err)
	}
	<-gathered
	return whipCall
}

// PatchCandidates sends the client's candidates.
func (c *Call) PatchCandidates(etag string) (*http.Response, string) {
	c.T.Helper()
	return testkit.SendHTTP(
		c.T, http.MethodPatch, c.Session, c.ICEFragment(), "Content-Type", "application/trickle-ice-sdpfrag", "If-Match", etag,
	)
}
