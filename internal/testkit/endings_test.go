package testkit_test

import (
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/internal/testkit"
	"voxgate/signaling/access"
)

// withWatchers returns the talkers of all protocols, and one that watches a conversation as the operator's backend.
func withWatchers() map[string]testkit.Talker {
	all := talkers()
	all["sideband"] = testkit.Talker{Begin: func(t *testing.T, l *testkit.LockedGateway, token string) testkit.Speaker {
		c := testkit.DialWebSocket(t, l.URL)
		id, _ := testkit.EnterConversation(t, c, testkit.ConnectPayload(token, ""))
		at := strings.TrimSuffix(l.URL, "/") + "/v1/sessions/" + id + "/events"
		w := testkit.DialWebSocketWith(t, at, http.Header{"Authorization": {"Bearer " + operator(t, l)}})
		w.AwaitEvent("SETUP_COMPLETE")
		s := testkit.NewSocketSpeaker(w, "", string(testkit.EncodeMessage("SEND_MESSAGE", testkit.TextPayload("More."))))
		s.Conn = nil // the loss of the backend's connection does not end the conversation
		return s
	}}
	return all
}

// operator creates a server key that may watch and control all conversations.
func operator(t *testing.T, l *testkit.LockedGateway) string {
	t.Helper()
	key := testkit.Must(access.NewKey(l.File, rand.Text(), []string{access.MayWatchAll}))
	l.EditKeys(func(map[string]any) {})
	return key
}

// talking is a speaker in a conversation, with the name of its protocol and the ID of the conversation.
type talking struct {
	testkit.Speaker
	name, id string
}

// allEndings lists the ways in which conversations end, and one case in which they continue. A talker of each protocol begins
// a conversation, unless skip returns true for it.
var allEndings = []struct {
	name   string
	grants string
	skip   func(name string, talker testkit.Talker) bool
	end    func(t *testing.T, l *testkit.LockedGateway, all []talking)
}{
	{"not yet, when its token has expired", `{"expiresIn":60}`, nil, func(t *testing.T, l *testkit.LockedGateway, all []talking) {
		l.AdvanceClock(2 * time.Minute)
		for _, s := range all {
			before := turns(l, s.id)
			s.More()
			testkit.Eventually(t, "turn at "+s.name, func() bool { return turns(l, s.id) > before })
			testkit.Must(0, l.Host.Session(s.id).Do(bridge.Goodbye{}))
		}
	}},
	{"its time is over", `{"grant":{"maxSeconds":10}}`, nil, func(_ *testing.T, _ *testkit.LockedGateway, all []talking) {
		for _, s := range all {
			s.AwaitEnd(websocket.CloseNormalClosure)
		}
	}},
	{"the backend ends it", `{}`, nil, func(t *testing.T, l *testkit.LockedGateway, all []talking) {
		key := operator(t, l)
		for _, s := range all {
			if status, body := l.SendRequest("DELETE", "/v1/sessions/"+s.id+"?now=1", key); status != http.StatusNoContent {
				t.Fatalf("%s: %d %s", s.name, status, body)
			}
			s.AwaitEnd(websocket.CloseNormalClosure)
		}
	}},
	{"the gateway stops", `{}`, nil, func(t *testing.T, l *testkit.LockedGateway, all []talking) {
		if err := l.Server.Close(t.Context()); err != nil {
			t.Error(err)
		}
		for _, s := range all {
			s.AwaitEnd(websocket.CloseGoingAway)
		}
	}},
	{"the client is too slow", `{}`, func(name string, talker testkit.Talker) bool {
		return talker.SoundOnly || name == "sideband" // the sideband carries no conversation
	}, func(t *testing.T, l *testkit.LockedGateway, all []talking) {
		for _, s := range all {
			s.Conn.StopReading()
		}
		left := all
		for deadline := time.Now().Add(testkit.Patience); len(left) > 0; {
			if time.Now().After(deadline) {
				t.Fatalf("%+v are kept", left)
			}
			for _, s := range left { // this shows the gateway that these clients have not vanished
				s.Ask()
			}
			testkit.PollUntil(2*time.Second, func() bool {
				left = slices.DeleteFunc(slices.Clone(left), func(s talking) bool { return l.Host.Session(s.id) == nil })
				return len(left) == 0
			})
		}
	}},
	{"the client is gone without a word", `{}`, func(name string, _ testkit.Talker) bool {
		return name == "sideband"
	}, func(_ *testing.T, _ *testkit.LockedGateway, all []talking) {
		for _, s := range all {
			s.Vanish()
		}
	}},
}

func turns(l *testkit.LockedGateway, id string) int {
	for _, info := range l.Host.Sessions() {
		if info.ID == id {
			return info.Turns
		}
	}
	return -1
}

// TestEveryProtocolReportsTheReasonOfTheEnd ends conversations at all endpoints in every way. Each client gets the reason in
// the form of its protocol.
func TestEveryProtocolReportsTheReasonOfTheEnd(t *testing.T) {
	t.Parallel()
	for _, ending := range allEndings {
		t.Run(ending.name, func(t *testing.T) {
			t.Parallel()
			l := startTalkativeGateway(t)
			var all []talking
			var known []string
			for name, talker := range withWatchers() {
				if ending.skip != nil && ending.skip(name, talker) {
					continue
				}
				s := talking{Speaker: talker.Begin(t, l, l.MintToken(ending.grants)), name: name}
				for _, info := range l.Host.Sessions() {
					if !slices.Contains(known, info.ID) {
						s.id, known = info.ID, append(known, info.ID)
					}
				}
				all = append(all, s)
			}
			ending.end(t, l, all)
			testkit.Eventually(t, "end of all", func() bool { return len(l.Host.Sessions()) == 0 })
		})
	}
}
