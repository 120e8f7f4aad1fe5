package signaling_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/bridge/gemini/emulator"
)

// speakers are a client of each door, which begins a conversation with a token. What it returns has the model take one more turn.
var speakers = map[string]func(t *testing.T, l *locked, token string) (more func()){
	"web": func(t *testing.T, l *locked, token string) func() {
		c := dial(t, l.url)
		enters(t, c, hello(token, ""))
		return func() { _ = c.conn.WriteMessage(websocket.TextMessage, envelope("SEND_MESSAGE", typed("More."))) }
	},
	"live": func(t *testing.T, l *locked, token string) func() {
		c := dialLive(t, l.gateway, "?key="+token, nil)
		c.raw(websocket.TextMessage, []byte(`{"setup":{}}`))
		c.expect("setupComplete")
		const more = `{"clientContent":{"turns":[{"role":"user","parts":[{"text":"More."}]}],"turnComplete":true}}`
		return func() { _ = c.conn.WriteMessage(websocket.TextMessage, []byte(more)) }
	},
	"openai": func(t *testing.T, l *locked, token string) func() {
		c := dialRealtime(t, l.gateway, "?model=gpt-realtime", http.Header{"Authorization": {"Bearer " + token}})
		c.configure(`{"type":"realtime"}`)
		return func() {
			_ = c.conn.WriteMessage(websocket.TextMessage, []byte(
				`{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{"type":"input_text","text":"More."}]}}`))
			_ = c.conn.WriteMessage(websocket.TextMessage, []byte(`{"type":"response.create"}`))
		}
	},
	"openai calls": func(t *testing.T, l *locked, token string) func() {
		c, p, _ := dialCall(t, l.gateway, token, nil)
		c.configure(`{"type":"realtime"}`)
		return func() { p.talk <- sentence(440, time.Second, 48000) }
	},
	"whip": func(t *testing.T, l *locked, token string) func() {
		c := dialWHIPAs(t, l.gateway, "desk", token)
		c.connected()
		return func() { c.talk <- sentence(440, time.Second, 48000) }
	},
	"vox": func(t *testing.T, l *locked, token string) func() {
		c := dialVOX(t, l.gateway, nil)
		c.start(`,"model":"gemini-3.8-live","token":"` + token + `"`)
		return func() { _ = c.conn.WriteMessage(websocket.TextMessage, []byte(`{"type":"text","text":"More."}`)) }
	},
}

// newTalkative is a locked gateway with every door of speakers.
func newTalkative(t *testing.T) *locked {
	return newLocked(t, nil, withLive(t, emulator.Scenario{}, nil), withOpenAI, withWHIP, withVOX(t, nil, nil))
}

// A conversation outlives its token, and so does the token's budget: what is granted is what is spent, however long it takes.
func TestABudgetOutlivesItsToken(t *testing.T) {
	t.Parallel()
	for door, open := range speakers {
		t.Run(door, func(t *testing.T) {
			t.Parallel()
			l := newTalkative(t)
			more := open(t, l, l.mint(`{"expiresIn":60,"grant":{"tokens":500}}`))
			var last bridge.Info
			for turn := 1; ; turn++ {
				if last.Tokens > 1500 {
					t.Fatalf("a budget of 500 tokens has paid %d", last.Tokens)
				}
				more()
				l.wait(2 * time.Minute) // longer than the token is good, and than what nobody uses is remembered
				ended := false
				eventually(t, "end of a turn", func() bool {
					list := l.host.Sessions()
					if ended = len(list) == 0; !ended {
						last = list[0]
					}
					return ended || last.Turns >= turn
				})
				if ended {
					break
				}
			}
			if last.Tokens < 250 {
				t.Errorf("ended after %d tokens", last.Tokens)
			}
		})
	}
}
