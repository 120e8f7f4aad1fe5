package testkit_test

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/internal/testkit"
)

// startTalkativeGateway returns a locked gateway with every protocol and small socket buffers.
func startTalkativeGateway(t *testing.T) *testkit.LockedGateway {
	return startTalkativeGatewayWith(t, nil)
}

// startTalkativeGatewayWith is startTalkativeGateway, and records in seen what the model receives, unless seen is nil. change
// changes the options before.
func startTalkativeGatewayWith(
	t *testing.T, seen *testkit.SeenByModel, change ...testkit.Option,
) *testkit.LockedGateway {
	options := append(serveAll(t), func(d *testkit.Endpoints, _ *bridge.Options) { d.SmallBuffers = true })
	options = append(options, change...)
	if seen != nil {
		options = append(options, testkit.WithSeenModel(t, seen))
	}
	return testkit.StartLockedGateway(t, nil, options...)
}

// A conversation outlives its token, and so does the token's budget: it is spent as granted, however long that takes. The
// last turn may exceed a budget in tokens, but not one in dollars. The maximum cost of a turn is 0.023 dollars, 0.035 with
// the long prompt of VOX, and 0.006 with the text model.
func TestABudgetOutlivesItsToken(t *testing.T) {
	t.Parallel()
	for name, talker := range talkers() {
		dollars, tokens := cmp.Or(talker.Dollars, 0.026), cmp.Or(talker.Tokens, 500)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			last := spends(t, talker, fmt.Sprintf(`"tokens":%d`, tokens), func(i bridge.Info) bool { return i.Tokens > tokens+1200 })
			if last.Tokens < tokens/2 {
				t.Errorf("ended after %d tokens", last.Tokens)
			}
		})
		t.Run(name+" in dollars", func(t *testing.T) {
			t.Parallel()
			last := spends(t, talker, fmt.Sprintf(`"dollars":%g`, dollars), func(i bridge.Info) bool { return *i.Dollars > dollars })
			if *last.Dollars == 0 {
				t.Error("ended before it has cost anything")
			}
		})
	}
}

// talkers returns the Talkers of all protocols.
func talkers() map[string]testkit.Talker {
	all := map[string]testkit.Talker{}
	for _, p := range protocols {
		maps.Copy(all, p.Talkers)
	}
	return all
}

// A REST call whose token expires meanwhile continues, and its cost counts towards the budget of that token's conversations.
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
	l := testkit.StartLockedGateway(t, nil, withREST(t, &api.Client{BaseURL: up.URL}))
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
		_ = c.Conn.WriteMessage(websocket.TextMessage, more) // fails if the conversation has ended
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

// spends lets a client with this grant talk until the conversation ends, and returns the Info of its end. It fails the test
// if over returns true.
func spends(
	t *testing.T, talker testkit.Talker, grant string, over func(bridge.Info) bool,
) (last bridge.Info) {
	t.Helper()
	end := make(chan bridge.Info, 1)
	l := startTalkativeGatewayWith(t, nil, func(_ *testkit.Endpoints, o *bridge.Options) {
		o.Observe = func(_ string, o bridge.Observation) {
			if e, ok := o.(bridge.SessionEnded); ok {
				end <- e.Info
			}
		}
	})
	more := talker.Begin(t, l, l.MintToken(`{"expiresIn":60,"grant":{`+grant+`}}`)).More
	for turn := 1; ; turn++ {
		more()
		l.AdvanceClock(2 * time.Minute) // longer than the lifetime of the token, and of unused entries in the gate
		ended := false
		testkit.Eventually(t, "end of a turn", func() bool {
			list := l.Host.Sessions()
			if ended = len(list) == 0; !ended {
				last = list[0]
			}
			return ended || last.Turns >= turn
		})
		if ended { // perhaps by a turn that the list never showed
			last = <-end
		}
		if over(last) {
			t.Fatalf("a grant of %s has paid %d tokens, %v dollars", grant, last.Tokens, last.Dollars)
		}
		if ended {
			return last
		}
	}
}
