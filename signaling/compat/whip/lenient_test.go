package whip_test

import (
	"net/http"
	"strings"
	"testing"

	"voxgate/internal/testkit"
	"voxgate/signaling/compat/openai/openaitest"
	"voxgate/signaling/compat/rtvi/rtvitest"
	"voxgate/signaling/compat/whip/whiptest"
)

// TestLenientRequests sends URLs, tags and fragments in the forms of various clients: with doubled slashes and one at
// the end, tags that are weak, unquoted or in a list, and fragments without ICE credentials.
func TestLenientRequests(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, whiptest.Serve, openaitest.Serve, rtvitest.Serve)
	const sdp, fragment = "application/sdp", "application/trickle-ice-sdpfrag"
	for _, path := range []string{
		"/whip/desk/", "//whip/desk", "/whip//desk", "//whip//desk//", "/v1/realtime/calls/", "//v1/realtime/calls", "/v1//realtime/calls/",
	} {
		resp, text := testkit.SendHTTP(t, http.MethodPost, g.HTTP+path, testkit.BuildOffer(t),
			"Content-Type", sdp, "Authorization", "Bearer x")
		if resp.StatusCode != http.StatusCreated {
			t.Errorf("%s: %s %s", path, resp.Status, text)
		}
		if at := resp.Header.Get("Location"); strings.HasPrefix(at, "/whip/") {
			if resp, _ := testkit.SendHTTP(t, http.MethodDelete, g.HTTP+at+"/", ""); resp.StatusCode != http.StatusOK {
				t.Errorf("%s: its end: %s", path, resp.Status)
			}
		} else {
			testkit.SendHTTP(t, http.MethodPost, g.HTTP+at+"//hangup/", "", "Authorization", "Bearer x")
		}
	}
	resp, _ := testkit.SendHTTP(t, http.MethodPost, g.HTTP+"/api/offer/", `{}`, "Content-Type", "application/json")
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("RTVI: %s", resp.Status)
	}
	for path, want := range map[string]int{"/nowhere/": 404, "/whip/desk/x/y/": 404, "/": 200, "//": 200} {
		if resp, _ := testkit.SendHTTP(t, http.MethodGet, g.HTTP+path, ""); resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, resp.Status, want)
		}
	}

	c := whiptest.Dial(t, g, "desk")
	c.AwaitConnected()
	tag := strings.Trim(c.Etag, `"`)
	const candidate = "a=candidate:1 1 udp 2130706431 127.0.0.1 9 typ host\r\n"
	for _, test := range []struct {
		body, match string
		want        int
	}{
		{candidate, "", 204},
		{"m=audio 9 UDP/TLS/RTP/SAVPF 0\r\na=mid:0\r\n" + candidate, c.Etag, 204},
		{strings.ReplaceAll(candidate, "\r\n", "\n"), "W/" + c.Etag, 204},
		{candidate, tag, 204},
		{candidate, `"another", W/"` + tag + `"`, 204},
		{candidate, "*", 204},
		{"a=end-of-candidates\r\n", c.Etag, 204},
		{c.ICEFragment(), "W/" + c.Etag, 204},
		{candidate, `"another"`, 412},
		{candidate, "W/another", 412},
		{"a=ice-ufrag:abcd\r\n" + candidate, c.Etag, 400},
		{"a=ice-pwd:0123456789012345678901\r\n", c.Etag, 400},
		{"", c.Etag, 400},
		{"a=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\n" + candidate, "", 428},
		{"a=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\n" + candidate, `"another"`, 412},
		{"a=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\n" + candidate, "W/" + c.Etag, 200},
	} {
		resp, text := testkit.SendHTTP(t, http.MethodPatch, c.Session, test.body, "Content-Type", fragment, "If-Match", test.match)
		if resp.StatusCode != test.want {
			t.Errorf("%q with If-Match %s: %s %s, want %d", test.body, test.match, resp.Status, text, test.want)
		}
	}
}
