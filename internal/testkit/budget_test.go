package testkit_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit"
)

// speaker is a client of a door that talks.
type speaker struct {
	more func()          // has the model take one more turn
	over func(code int)  // waits for the end of the conversation, as its protocol says it; code is the close code of a socket
	conn *testkit.Client // its socket or data channel; nil: it has none
	gone func()          // has it vanish
	ask  func()          // sends what the gateway answers by conn
}

// socketSpeaker is a speaker that sends these messages for more, and hears of the end by a last message, if there is one, and a close code.
func socketSpeaker(c *testkit.Client, last string, more ...string) speaker {
	say := func() {
		for _, m := range more {
			_ = c.Conn.WriteMessage(websocket.TextMessage, []byte(m)) // fails if it ends meanwhile
		}
	}
	return speaker{
		more: say,
		ask:  say,
		over: func(code int) {
			c.T.Helper()
			if got := c.CloseCode(); got != code || last != "" && c.CountMessages(last) != 1 {
				c.T.Errorf("closed with %d, want %d; got %v", got, code, c.Messages())
			}
		},
		conn: c, gone: c.IgnorePings,
	}
}

// phoneSpeaker is a speaker by WebRTC.
func phoneSpeaker(p *testkit.Phone) speaker {
	return speaker{
		more: func() { p.Talk <- testkit.MakeSentence(440, time.Second, 48000) },
		over: func(int) {
			p.T.Helper()
			testkit.Eventually(p.T, "end of the connection", func() bool { return p.PC.ConnectionState() != webrtc.PeerConnectionStateConnected })
		},
		gone: p.DropNetwork,
	}
}

// voxSpeaker is a speaker at the door of VOX, with a Live model or with one that writes.
func voxSpeaker(t *testing.T, l *testkit.LockedGateway, token, model string) speaker {
	c := testkit.DialVOX(t, l.Gateway, nil)
	c.StartConversation(`,"model":"` + model + `","token":"` + token + `"`)
	s := socketSpeaker(c.Client, "session_end", `{"type":"text","text":"More."}`)
	closed := s.over
	s.over = func(code int) {
		if c.AwaitEvent("session_end", nil); code == websocket.CloseNormalClosure { // another conversation may follow
			testkit.DropConnection(c.Client)
		} else {
			closed(code)
		}
	}
	return s
}

// speakers are a client of each door, which begins a conversation with a token.
var speakers = map[string]func(t *testing.T, l *testkit.LockedGateway, token string) speaker{
	"web": func(t *testing.T, l *testkit.LockedGateway, token string) speaker {
		c := testkit.DialWebSocket(t, l.URL)
		testkit.EnterConversation(t, c, testkit.ConnectPayload(token, ""))
		return socketSpeaker(c, "GEMINI_DISCONNECTED", string(testkit.EncodeMessage("SEND_MESSAGE", testkit.TextPayload("More."))))
	},
	"live": func(t *testing.T, l *testkit.LockedGateway, token string) speaker {
		c := testkit.DialLive(t, l.Gateway, "?key="+token, nil)
		c.SendFrame(websocket.TextMessage, []byte(`{"setup":{}}`))
		c.AwaitEvent("setupComplete")
		return socketSpeaker(c, "", `{"clientContent":{"turns":[{"role":"user","parts":[{"text":"More."}]}],"turnComplete":true}}`)
	},
	"openai": func(t *testing.T, l *testkit.LockedGateway, token string) speaker {
		c := testkit.DialRealtime(t, l.Gateway, "?model=gpt-realtime", http.Header{"Authorization": {"Bearer " + token}})
		c.ConfigureSession(`{"type":"realtime"}`)
		return socketSpeaker(c.Client, "",
			`{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{"type":"input_text","text":"More."}]}}`,
			`{"type":"response.create"}`)
	},
	"openai calls": func(t *testing.T, l *testkit.LockedGateway, token string) speaker {
		c, p, _ := testkit.DialCall(t, l.Gateway, token, nil)
		c.ConfigureSession(`{"type":"realtime"}`)
		s := phoneSpeaker(p)
		long := fmt.Sprintf(
			`{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{"type":"input_text","text":"%s"}]}}`,
			strings.Repeat("word ", 8000))
		s.conn, s.ask = c.Client, func() {
			for range 10 { // a peer takes a megabyte that nobody reads
				c.Send(long)
			}
		}
		return s
	},
	"whip": func(t *testing.T, l *testkit.LockedGateway, token string) speaker {
		c := testkit.DialWHIPAs(t, l.Gateway, "desk", token)
		c.AwaitConnected()
		return phoneSpeaker(c.Phone)
	},
	"rtvi": func(t *testing.T, l *testkit.LockedGateway, token string) speaker {
		c := testkit.DialRTVI(t, l.Gateway, token, "")
		s := phoneSpeaker(c.Phone)
		ended := s.over
		s.conn, s.more, s.over = c.Client, func() { c.SendText("More.") }, func(code int) {
			c.AwaitEvent("signalling") // peerLeft
			ended(code)
		}
		s.ask = func() {
			for range 10 {
				c.Send(`{"label":"rtvi-ai","type":"dance","id":"` + strings.Repeat("x", 40_000) + `"}`)
			}
		}
		return s
	},
	"vox": func(t *testing.T, l *testkit.LockedGateway, token string) speaker {
		return voxSpeaker(t, l, token, "gemini-3.8-live")
	},
	"vox, typed": func(t *testing.T, l *testkit.LockedGateway, token string) speaker {
		s := voxSpeaker(t, l, token, "gemini-2.5-flash")
		long := `{"type":"text","text":"` + strings.Repeat("word ", 4000) + `"}` // it comes back
		s.ask = func() { _ = s.conn.Conn.WriteMessage(websocket.TextMessage, []byte(long)) }
		return s
	},
	"telephony": func(t *testing.T, l *testkit.LockedGateway, token string) speaker {
		c := dialTelephone(t, l.Gateway, http.Header{"Authorization": {"Bearer " + token}})
		testkit.Eventually(t, "call", func() bool { // others may end meanwhile
			return slices.ContainsFunc(l.Host.Sessions(), func(i bridge.Info) bool { return i.Protocol == "telephony" })
		})
		s := socketSpeaker(c, "")
		s.more = func() {
			for pcm := range slices.Chunk(testkit.MakeSentence(440, time.Second, 8000), 160) {
				_ = c.Conn.WriteMessage(
					websocket.TextMessage,
					[]byte(`{"event":"media","stream_sid":"MZ1","media":{"payload":"`+testkit.Base64PCM(pcm)+`"}}`),
				)
			}
		}
		s.ask = s.more
		return s
	},
}

// startTalkativeGateway is a locked gateway with every door of speakers.
func startTalkativeGateway(t *testing.T) *testkit.LockedGateway {
	return startTalkativeGatewayWith(t, nil)
}

// startTalkativeGatewayWith is newTalkative, and notes what the model has received; nil: nothing does.
func startTalkativeGatewayWith(t *testing.T, seen *testkit.SeenByModel) *testkit.LockedGateway {
	return testkit.StartLockedGateway(
		t,
		nil,
		testkit.WithLive(t, emulator.Scenario{}, nil),
		testkit.WithOpenAI,
		testkit.WithWHIP,
		testkit.WithRTVI,
		testkit.WithVOX(t, seen, nil),
		withTelephony(t),
		func(d *testkit.Endpoints, _ *bridge.Options) { d.SmallBuffers = true },
	)
}

// A conversation outlives its token, and so does the token's budget: what is granted is what is spent, however long it takes. Of tokens the
// last turn may take more, of dollars not: there a turn's bound is 0.023, or 0.035 with the
// long prompt of VOX; with the model that writes 0.006.
func TestABudgetOutlivesItsToken(t *testing.T) {
	t.Parallel()
	for door, open := range speakers {
		dollars, tokens := 0.026, 500
		switch door {
		case "vox":
			dollars = 0.04
		case "vox, typed": // a turn has some 1,000 tokens of VOX's prompt
			dollars, tokens = 0.0065, 1500
		}
		t.Run(door, func(t *testing.T) {
			t.Parallel()
			last := spends(t, open, fmt.Sprintf(`"tokens":%d`, tokens), func(i bridge.Info) bool { return i.Tokens > tokens+1200 })
			if last.Tokens < tokens/2 {
				t.Errorf("ended after %d tokens", last.Tokens)
			}
		})
		t.Run(door+" in dollars", func(t *testing.T) {
			t.Parallel()
			last := spends(t, open, fmt.Sprintf(`"dollars":%g`, dollars), func(i bridge.Info) bool { return *i.Dollars > dollars })
			if *last.Dollars == 0 {
				t.Error("ended before it has cost anything")
			}
		})
	}
}

// A call of REST whose token expires while it runs goes on, and what it has cost counts for the conversations of that token.
func TestARESTCallOutlivesItsToken(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	const granted, cost = 6000, 5600
	goOn := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"one\"}]}}]}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-goOn
		fmt.Fprintf(w, "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"two\"}]},\"finishReason\":\"STOP\"}],"+
			"\"usageMetadata\":{\"totalTokenCount\":%d}}\n\n", cost)
	}))
	t.Cleanup(up.Close)
	l := testkit.StartLockedGateway(t, nil, withREST(t, up))
	token := l.MintToken(fmt.Sprintf(`{"expiresIn":60,"once":false,"grant":{"tokens":%d}}`, granted))
	c := testkit.DialWebSocket(t, l.URL)
	testkit.EnterConversation(t, c, testkit.ConnectPayload(token, ""))
	resp := testkit.PostAs(t, l.HTTP+"/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse", token, "application/json",
		strings.NewReader(fmt.Sprintf(`{"contents":[{"parts":[{"text":"x"}]}],"generationConfig":{"maxOutputTokens":%d}}`, cost-100)))
	first := make([]byte, len("data: "))
	if _, err := io.ReadFull(resp.Body, first); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	l.AdvanceClock(2 * time.Minute)
	close(goOn)
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(rest), `"two"`) {
		t.Errorf("the stream ends with %q, %v", rest, err)
	}
	last := 0
	for turn := 1; len(l.Host.Sessions()) > 0; turn++ {
		more := testkit.EncodeMessage("SEND_MESSAGE", testkit.TextPayload(strings.Repeat("more ", 50)))
		_ = c.Conn.WriteMessage(websocket.TextMessage, more) // it may have ended
		testkit.Eventually(t, "end of a turn", func() bool {
			list := l.Host.Sessions()
			if len(list) > 0 {
				last = list[0].Tokens
			}
			return len(list) == 0 || list[0].Turns >= turn
		})
		if last > granted-cost+1200 { // the last turn may take more
			t.Fatalf("of %d tokens the stream has spent %d, and the conversation %d", granted, cost, last)
		}
	}
	if last == 0 {
		t.Error("the conversation ended before it has cost anything")
	}
}

// spends has a client talk with a grant until the conversation ends, and returns what was seen of it last.
func spends(
	t *testing.T, open func(*testing.T, *testkit.LockedGateway, string) speaker, grant string, over func(bridge.Info) bool,
) (last bridge.Info) {
	t.Helper()
	l := startTalkativeGateway(t)
	more := open(t, l, l.MintToken(`{"expiresIn":60,"grant":{`+grant+`}}`)).more
	for turn := 1; ; turn++ {
		more()
		l.AdvanceClock(2 * time.Minute) // longer than the token is good, and than what nobody uses is remembered
		ended := false
		testkit.Eventually(t, "end of a turn", func() bool {
			list := l.Host.Sessions()
			if ended = len(list) == 0; !ended {
				last = list[0]
			}
			return ended || last.Turns >= turn
		})
		if over(last) {
			t.Fatalf("a grant of %s has paid %d tokens, %v dollars", grant, last.Tokens, last.Dollars)
		}
		if ended {
			return last
		}
	}
}
