package doortest_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/signaling/access"
	"voxgate/signaling/doortest"
)

// withWatchers are the speakers, and the backend beside one.
func withWatchers() map[string]func(*testing.T, *doortest.Locked, string) speaker {
	all := maps.Clone(speakers)
	all["sideband"] = func(t *testing.T, l *doortest.Locked, token string) speaker {
		c := doortest.Dial(t, l.URL)
		id, _ := doortest.Enters(t, c, doortest.Hello(token, ""))
		at := strings.TrimSuffix(l.URL, "/") + "/v1/sessions/" + id + "/events"
		w := doortest.DialAs(t, at, http.Header{"Authorization": {"Bearer " + operator(t, l)}})
		w.Expect("SETUP_COMPLETE")
		s := ofSocket(w, "", string(doortest.Envelope("SEND_MESSAGE", doortest.Typed("More."))))
		s.conn = nil // its loss ends nothing
		return s
	}
	return all
}

// operator makes a key that may do anything to all conversations.
func operator(t *testing.T, l *doortest.Locked) string {
	t.Helper()
	key := doortest.Must(access.NewKey(l.File, "operator"+time.Now().String(), []string{access.MayWatchAll}))
	l.Edit(func(map[string]any) {})
	return key
}

// TestEndings has a conversation at each door end in every way, of which each client hears in the words of its protocol, and go on where
// it must: when the token that it began with has expired.
func TestEndings(t *testing.T) {
	t.Parallel()
	for door, open := range withWatchers() {
		t.Run(door, func(t *testing.T) {
			t.Parallel()
			l := newTalkative(t)
			nobody := func() bool { return len(l.Host.Sessions()) == 0 }

			s := open(t, l, l.Mint(`{"expiresIn":60}`))
			l.Wait(2 * time.Minute)
			before := l.Host.Sessions()[0].Turns
			s.more()
			doortest.Eventually(t, "turn after the token has expired", func() bool { return l.Host.Sessions()[0].Turns > before })

			if status, body := l.Ask("DELETE", "/v1/sessions/"+l.Host.Sessions()[0].ID+"?now=1", operator(t, l)); status != http.StatusNoContent {
				t.Fatalf("%d %s", status, body)
			}
			s.over(websocket.CloseNormalClosure)
			doortest.Eventually(t, "end by the backend", nobody)

			s = open(t, l, l.Mint(`{"grant":{"maxSeconds":1}}`))
			s.over(websocket.CloseNormalClosure)
			doortest.Eventually(t, "end of the time", nobody)

			s = open(t, l, l.Mint(`{}`))
			if err := l.Server.Close(t.Context()); err != nil {
				t.Error(err)
			}
			s.over(websocket.CloseGoingAway)
			doortest.Eventually(t, "end of the gateway", nobody)
		})
	}
}

// TestCallersGoneWithoutAWord has the clients of all sockets answer no pings any more: no conversation outlives that for long.
func TestCallersGoneWithoutAWord(t *testing.T) {
	t.Parallel()
	l := newTalkative(t)
	begun := 0
	for _, open := range speakers {
		if s := open(t, l, l.Mint(`{}`)); s.conn != nil {
			begun++
			s.conn.Mute()
		}
	}
	doortest.Eventually(t, "end of those that are silent", func() bool { return len(l.Host.Sessions()) == len(speakers)-begun })
}
