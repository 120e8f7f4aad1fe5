// Package whiptest has clients of WHIP and WHEP for the tests that all protocols must pass. It is imported by tests
// only.
package whiptest

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"voxgate/internal/testkit"
)

// Conformance holds clients of WHIP for the conformance tests.
var Conformance = testkit.Conformance{
	Name:      "whip",
	Serve:     func(*testing.T) testkit.Option { return Serve },
	Talkers:   map[string]testkit.Talker{"whip": {Begin: dialSpeaker, SoundOnly: true}},
	PostOffer: postOffer, NeedsAudio: true,
	FillQueues:      map[string]func(*testing.T, *testkit.Gateway) func(){"whip": fillQueues},
	DialCallControl: dialCallControl,
	Floods:          []testkit.Flood{{Name: "WHIP: restarts of ICE", Dial: dialFlooder}},
	StartPaths:      map[string]string{"/whip/desk": "application/sdp"},
}

func dialSpeaker(t *testing.T, l *testkit.LockedGateway, token string) testkit.Speaker {
	c := DialAs(t, l.Gateway, "desk", token)
	c.AwaitConnected()
	return testkit.NewPhoneSpeaker(c.Phone)
}

func postOffer(t *testing.T, g *testkit.Gateway, offer string) (text string, isAnswer bool) {
	resp, text := testkit.SendHTTP(
		t, http.MethodPost, g.HTTP+"/whip/desk", offer, "Content-Type", "application/sdp", "Authorization", "Bearer x",
	)
	if resp.StatusCode >= http.StatusInternalServerError {
		t.Errorf("%s: %s", resp.Status, text)
	}
	if at := resp.Header.Get("Location"); at != "" {
		testkit.SendHTTP(t, http.MethodDelete, g.HTTP+at, "")
	}
	return text, resp.StatusCode < 300
}

func fillQueues(t *testing.T, g *testkit.Gateway) (leave func()) {
	c := Dial(t, g, "desk")
	c.AwaitConnected()
	var asking sync.WaitGroup
	for range 40 {
		asking.Go(func() {
			r, _ := http.NewRequest(http.MethodPatch, c.Session, strings.NewReader(c.ICEFragment()))
			r.Header.Set("Content-Type", "application/trickle-ice-sdpfrag")
			r.Header.Set("If-Match", "*")
			if resp, err := http.DefaultClient.Do(r); err == nil {
				resp.Body.Close()
			}
		})
	}
	asking.Wait()
	return func() {
		testkit.SendHTTP(t, http.MethodDelete, c.Session, "")
		c.HangUp()
	}
}

// dialCallControl returns a function that sends a PATCH of an unknown type to a call. The URL of the call is its only
// secret.
func dialCallControl(t *testing.T, l *testkit.LockedGateway, token string) (control func(token string) (isServed bool)) {
	c := DialAs(t, l.Gateway, "desk", token)
	return func(token string) bool {
		resp, _ := testkit.SendHTTP(t, http.MethodPatch, c.Session, "", "Content-Type", "text/plain", "Authorization", "Bearer "+token)
		return resp.StatusCode == http.StatusUnsupportedMediaType
	}
}

func dialFlooder(t *testing.T, g *testkit.Gateway) testkit.Flooder {
	c := Dial(t, g, "desk")
	c.AwaitConnected()
	fragment := c.ICEFragment()
	return testkit.Flooder{Send: func(n int) bool {
		f := strings.Replace(fragment, "a=ice-ufrag:", fmt.Sprintf("a=ice-ufrag:%d", n), 1)
		testkit.SendHTTP(t, http.MethodPatch, c.Session, f, "Content-Type", "application/trickle-ice-sdpfrag", "If-Match", "*")
		return true
	}, End: func() {
		testkit.SendHTTP(t, http.MethodDelete, c.Session, "")
		c.HangUp()
	}}
}
