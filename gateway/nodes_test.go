package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit"
	"voxgate/internal/testkit/redistest"
	"voxgate/internal/testkit/rtctest"
	"voxgate/signaling/access"
	"voxgate/store"
)

// node is one of several gateways. It runs in its own process.
type node struct {
	*program
	cmd     *exec.Cmd
	private string
}

// startCluster starts an emulator, a Redis and two gateways. Gateway a reaches Redis through network, which can be cut.
func startCluster(t *testing.T, more ...string) (redis *redistest.Server, network *redistest.Proxy, a, b *node) {
	t.Helper()
	return startClusterWith(t, startGateway(t, []string{"emulate", "-addr", "127.0.0.1:0"}, env()).url, more...)
}

// startClusterWith is startCluster with a model at a URL in place of the emulator.
func startClusterWith(t *testing.T, model string, more ...string) (redis *redistest.Server, network *redistest.Proxy, a, b *node) {
	t.Helper()
	redis, err := redistest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Stop)
	if network, err = redis.OpenProxy(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(network.Close)
	begin := func(url string) *node {
		cmd, p := startProcess(t, append(more, "GOOGLE_GEMINI_BASE_URL="+model, "VOXGATE_PRIVATE_ADDR=127.0.0.1:0",
			"VOXGATE_REDIS="+url, "VOXGATE_REDIS_SECRET=a secret of these gateways")...)
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if t.Failed() {
				t.Log(p.logged())
			}
		})
		return &node{p, cmd, p.awaitLog(`msg=private at=(\S+)`)}
	}
	return redis, network, begin(network.URL()), begin(redis.URL())
}

// visitor is a client that can continue its conversation at another gateway.
type visitor struct {
	*testkit.Client
	session, token string
	event          int // number of the newest event
}

// openConversation opens a conversation at the gateway. If the parameter from is not nil, it resumes that conversation.
func (n *node) openConversation(from *visitor) *visitor {
	n.t.Helper()
	return n.openConversationOn(testkit.DialWebSocket(n.t, n.webSocketURL("")), from)
}

// openConversationOn is openConversation on an open WebSocket.
func (n *node) openConversationOn(c *testkit.Client, from *visitor) *visitor {
	n.t.Helper()
	v := &visitor{Client: c}
	resume := ""
	if from != nil {
		resume = fmt.Sprintf(`,"resumeToken":%q,"lastEvent":%d`, from.token, from.event)
	}
	v.Send("CONNECT_GEMINI", `{"initialConfig":{},"resumable":true`+resume+`}`)
	var done struct {
		Success, Resumed       bool
		SessionID, ResumeToken string
	}
	v.awaitEvent("SETUP_COMPLETE", &done)
	v.session, v.token = done.SessionID, done.ResumeToken
	if !done.Success || done.Resumed != (from != nil) || from != nil && done.SessionID != from.session {
		n.t.Fatalf("set up: %+v", done)
	}
	return v
}

// awaitEvent waits for the next message of a type. It decodes the payload into the variable to which into points, unless
// into is nil.
func (v *visitor) awaitEvent(kind string, into any) {
	v.T.Helper()
	m := v.AwaitEvent(kind)
	for _, m := range v.Messages()[:v.At] {
		v.event = max(v.event, m.Event)
	}
	if into != nil {
		m.DecodePayload(v.T, into)
	}
}

// conversationText returns the gateway's transcript of the conversation. The text of an interrupted answer is "…".
func (v *visitor) conversationText() string {
	v.T.Helper()
	v.Send("GET_CONTEXT", "")
	var context struct {
		Entries []struct {
			Role, Content string
			Cut           bool
		}
	}
	v.awaitEvent("CONTEXT", &context)
	var list []string
	for _, e := range context.Entries {
		if e.Cut {
			e.Content = "…" // its length depends on the timing
		}
		list = append(list, e.Role+" "+e.Content)
	}
	return strings.Join(list, ", ")
}

// typeAndAwaitAnswer types a text and waits for the end of the answer, which repeats the text.
func (v *visitor) typeAndAwaitAnswer(text string) {
	v.T.Helper()
	v.SendText(text)
	v.awaitEvent("TURN_COMPLETE", nil)
}

const long = "one two three four five six seven eight nine ten"

// A conversation continues at another gateway if its gateway dies in the middle of an answer.
func TestAGatewayDies(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	redis, _, a, b := startCluster(t)
	v := a.openConversation(nil)
	v.typeAndAwaitAnswer("hello")
	v.SendText(long)
	for range 30 { // the store learns of the answer a moment after the client
		v.awaitEvent("AUDIO_CHUNK", nil)
	}
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	died := time.Now()
	w := b.openConversation(v)
	var cut struct {
		By   string
		Turn int
	}
	if w.awaitEvent("INTERRUPTED", &cut); cut.By != "link" || cut.Turn != 2 {
		t.Errorf("the answer ended as %+v", cut)
	}
	w.typeAndAwaitAnswer("still there?")
	t.Logf("answered to its end after %v", time.Since(died).Round(time.Millisecond))
	want := "user hello, assistant You said: hello, user " + long + ", assistant …, user still there?, assistant You said: still there?"
	if got := w.conversationText(); got != want {
		t.Errorf("said was %q, not %q", got, want)
	}
	b.awaitLog("connection resumed") // the same session of Gemini
	if strings.Contains(b.logged(), "fresh session started") {
		t.Errorf("a fresh session went on:\n%s", b.logged())
	}

	// Redis loses all data. The gateway that runs a conversation writes its state again.
	redis.Kill()
	w.typeAndAwaitAnswer("is Redis there?")
	newcomer := b.openConversation(nil)
	newcomer.typeAndAwaitAnswer("and without Redis?")
	if status, body := getURL(t, b.private+"/readyz"); status != http.StatusOK || !strings.Contains(body, "degraded") {
		t.Errorf("ready: %d %s", status, body)
	}
	if err := redis.Restart(); err != nil {
		t.Fatal(err)
	}
	b.awaitLog("the store responds again")
	c := nodeBeside(t, b, redis)
	w.typeAndAwaitAnswer("again")
	w.typeAndAwaitAnswer("once more") // a second turn: the store learns of a turn a moment after the client
	x := c.openConversation(w)
	if got := x.conversationText(); !strings.Contains(got, "user again, assistant You said: again, user once more") {
		t.Errorf("said was %q", got)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// nodeBeside starts one more gateway, with the Redis and the model of gateway b.
func nodeBeside(t *testing.T, b *node, redis *redistest.Server) *node {
	t.Helper()
	var model string
	for _, v := range b.cmd.Env {
		if name, value, _ := strings.Cut(v, "="); name == "GOOGLE_GEMINI_BASE_URL" {
			model = value
		}
	}
	cmd, p := startProcess(t, "GOOGLE_GEMINI_BASE_URL="+model, "VOXGATE_REDIS="+redis.URL(), "VOXGATE_REDIS_SECRET=a secret of these gateways")
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &node{program: p, cmd: cmd}
}

// A draining gateway asks its callers to move to another gateway in a pause of speech. It stops after the last has moved.
func TestAGatewayIsDrained(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	_, _, a, b := startCluster(t)
	v := a.openConversation(nil)
	v.SendText("one two three four")
	v.awaitEvent("AUDIO_CHUNK", nil)
	resp, err := http.Post(a.private+"/v1/drain", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	if status, _ := getURL(t, a.private+"/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("ready: %d", status)
	}
	v.awaitEvent("TURN_COMPLETE", nil)
	if strings.Contains(testkit.JoinMessages(v.Messages()[:v.At]), "MOVE") {
		t.Error("asked to go in the middle of an answer")
	}
	v.awaitEvent("MOVE", nil)
	next := testkit.DialWebSocket(t, b.webSocketURL(""))
	began := time.Now()
	v.Conn.Close()
	w := b.openConversationOn(next, v)
	var state struct{ State string }
	for w.awaitEvent("SESSION_STATE", &state); state.State != "live"; {
		w.awaitEvent("SESSION_STATE", &state)
	}
	t.Logf("nobody was there for %v", time.Since(began).Round(time.Millisecond))
	w.typeAndAwaitAnswer("here?")
	const want = "user one two three four, assistant You said: one two three four, user here?, assistant You said: here?"
	if got := w.conversationText(); got != want {
		t.Errorf("said was %q, not %q", got, want)
	}
	if status, body := getURL(t, a.private+"/healthz"); status != http.StatusOK {
		t.Errorf("healthy: %d %s", status, body)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Wait(); err != nil {
		t.Errorf("ended with %v\n%s", err, a.logged())
	}
}

// A gateway without Redis continues its conversations. When Redis is back, it gives up those that another gateway has taken
// over. Until then, Gemini rejects a second connection to the same session.
func TestAGatewayIsCutOff(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	model, sessions := countingModel(t)
	_, network, a, b := startClusterWith(t, model)
	v := a.openConversation(nil)
	v.typeAndAwaitAnswer("hello")
	network.SetBlackhole(true)
	v.typeAndAwaitAnswer("still here?")
	w := b.openConversation(v)
	b.awaitLog("dial failed")
	v.typeAndAwaitAnswer("and now?")
	network.SetBlackhole(false)
	var gone struct{ Reason string }
	if v.awaitEvent("GEMINI_DISCONNECTED", &gone); gone.Reason != "replaced" {
		t.Errorf("got %q", gone.Reason)
	}
	b.awaitLog("connection resumed")
	w.typeAndAwaitAnswer("over there")
	if got := w.conversationText(); !strings.HasPrefix(got, "user hello, ") || !strings.HasSuffix(got,
		"user over there, assistant You said: over there") {
		t.Errorf("said was %q", got)
	}
	if n := sessions.Load(); n != 1 {
		t.Errorf("%d sessions of Gemini", n)
	}
}

// A gateway that stays without Redis closes its connection to Gemini when the client has left. Another gateway then continues
// in the same session. The old state of the first gateway has no effect when Redis is back.
func TestAGatewayStaysCutOff(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	model, sessions := countingModel(t)
	redis, network, a, b := startClusterWith(t, model)
	v := a.openConversation(nil)
	v.typeAndAwaitAnswer("hello")
	network.SetBlackhole(true)
	v.Conn.Close()
	left := time.Now()
	w := b.openConversation(v)
	b.awaitLog("connection resumed")
	t.Logf("Gemini was there again after %v", time.Since(left).Round(time.Millisecond))
	w.typeAndAwaitAnswer("over there")
	network.SetBlackhole(false)
	a.awaitLog("taken by another gateway")
	a.awaitLog("conversation ended")
	w.typeAndAwaitAnswer("still there?")
	w.Conn.Close()
	x := nodeBeside(t, b, redis).openConversation(w)
	x.typeAndAwaitAnswer("and here?")
	got, want := x.conversationText(),
		"user over there, assistant You said: over there, user still there?, assistant You said: still there?, "+
			"user and here?, assistant You said: and here?"
	if !strings.HasPrefix(got, "user hello, ") || !strings.HasSuffix(got, want) { // the first answer may not have been reported before the cut
		t.Errorf("said was %q", got)
	}
	if n := sessions.Load(); n != 1 {
		t.Errorf("%d sessions of Gemini", n)
	}
}

// countingModel starts an emulator, and returns its URL and the number of sessions that were begun, without resumed ones.
// The emulator rejects the resume of a session whose connection is open.
func countingModel(t *testing.T) (url string, sessions *atomic.Int64) {
	t.Helper()
	sessions = new(atomic.Int64)
	url, _, stop, err := startEmulator("127.0.0.1:0", emulator.Options{Observe: func(e emulator.Event) {
		if e.Kind == emulator.EventOpened && !e.Resumed {
			sessions.Add(1)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return url, sessions
}

// Each gateway answers the backend's requests for the conversations of all gateways.
func TestTheBackendReachesAllGateways(t *testing.T) {
	t.Parallel()
	redis, err := redistest.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Stop()
	keys := filepath.Join(t.TempDir(), "keys.json")
	key, err := access.NewKey(keys, "support", []string{access.MayWatch, access.MayTalk})
	if err != nil {
		t.Fatal(err)
	}
	begin := func() *program {
		return startGateway(
			t,
			nil,
			env(
				"VOXGATE_ADDR",
				"127.0.0.1:0",
				"VOXGATE_PRIVATE_ADDR",
				"127.0.0.1:0",
				"VOXGATE_KEYS",
				keys,
				"VOXGATE_REDIS",
				redis.URL(),
				"VOXGATE_REDIS_SECRET",
				"a secret of these gateways",
			),
		)
	}
	a, b := begin(), begin()
	evil := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("who has written a gateway into Redis was asked: %v", r.Header)
	}))
	defer evil.Close()
	written, err := store.OpenRedis(redis.URL(), "a secret of these gateways", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer written.Close()
	if _, _, err := written.SetUsage(t.Context(), "nodes/all", "zzz "+evil.URL, 1, 1, -1, time.Minute); err != nil {
		t.Fatal(err)
	}
	c := a.openConversation(fmt.Sprintf(`{},"token":%q`, key))
	defer c.Conn.Close()
	c.AwaitEvent("SETUP_COMPLETE")
	ask := func(method, path string) (int, string) {
		r, err := http.NewRequest(method, b.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		r.Close = true
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	var list struct {
		Sessions []struct{ ID, Door, Node string }
	}
	b.awaitCondition(func() bool { // b learns of the call at gateway a
		_, body := ask(http.MethodGet, "/v1/sessions")
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatal(err)
		}
		return len(list.Sessions) > 0
	})
	if len(list.Sessions) != 1 || list.Sessions[0].Door != "web" || list.Sessions[0].Node == "" {
		t.Fatalf("listed: %+v", list)
	}
	at := "/v1/sessions/" + list.Sessions[0].ID
	watcher := testkit.DialWebSocketWith(t, b.webSocketURL(at+"/events"), http.Header{"Authorization": {"Bearer " + key}})
	watcher.AwaitEvent("SETUP_COMPLETE")
	watcher.SendText("hello")
	watcher.AwaitEvent("TURN_COMPLETE")
	if status, body := ask(http.MethodDelete, at+"?now=1"); status != http.StatusNoContent {
		t.Errorf("ending it: %d %s", status, body)
	}
	c.AwaitEvent("GEMINI_DISCONNECTED")
	watcher.AwaitEvent("GEMINI_DISCONNECTED")
	if status, _ := ask(http.MethodDelete, at); status != http.StatusNotFound {
		t.Errorf("ending it again: %d", status)
	}
	var past struct{ Conversations []struct{ ID, Node string } }
	private := b.awaitLog(`msg=private at=(\S+)`)
	b.awaitCondition(func() bool { // the operator's page of b shows the ended conversations of a
		_, answer, _ := requestJSON(t, http.MethodGet, private+"/ended", key, "")
		raw, err := json.Marshal(answer)
		return err == nil && json.Unmarshal(raw, &past) == nil && len(past.Conversations) > 0
	})
	if one := past.Conversations[0]; "/v1/sessions/"+one.ID != at || one.Node == "" {
		t.Errorf("%+v", past)
	}
}

// Any gateway can serve the control connection of an OpenAI call, and hang the call up. Any gateway can end a WHIP session.
func TestCallsAreReachedByAnyNode(t *testing.T) {
	t.Parallel()
	_, _, a, b := startCluster(t, "VOXGATE_AGENTS="+writeAgents(t, map[string]string{"desk": ""}))
	caller, err := rtctest.New(rtctest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	offer, err := caller.Offer(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	send := func(method, url, body string) (*http.Response, string) {
		r, err := http.NewRequest(method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/sdp")
		r.Header.Set("Origin", "http://"+r.URL.Host)
		r.Close = true
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer, string(text)
	}
	begun, sdp := send(http.MethodPost, a.url+"/v1/realtime/calls", offer)
	if err := caller.SetAnswer(sdp); err != nil { // a call that does not connect is closed after 15 s
		t.Fatal(err)
	}
	call := begun.Header.Get("Location")
	id := call[strings.LastIndex(call, "/")+1:]
	var hears *testkit.Client
	b.awaitCondition(func() bool { // b learns of the call at gateway a
		hears = b.dialWebSocket("/v1/realtime?call_id=" + id)
		first, _ := hears.AwaitMatch(0, "the first message", func(testkit.Message) bool { return true })
		return first.Type == "session.created"
	})
	answer, _ := send(http.MethodPost, b.url+call+"/hangup", "")
	if got := answer.Header.Values("Access-Control-Allow-Origin"); answer.StatusCode != http.StatusOK || len(got) != 1 {
		t.Errorf("hang up: %s %v", answer.Status, got)
	}
	if code := hears.AwaitCloseCode(); code != websocket.CloseNormalClosure {
		t.Errorf("the second connection ended with %d", code)
	}
	if answer, _ := send(http.MethodPost, b.url+call+"/hangup", ""); answer.StatusCode != http.StatusNotFound {
		t.Errorf("hang up again: %s", answer.Status)
	}
	if answer, _ := send(http.MethodPost, b.url+"/v1/realtime/calls/rtc_x_NOBODY/hangup", ""); answer.StatusCode != http.StatusNotFound {
		t.Errorf("hang up of a gateway that is gone: %s", answer.Status)
	}

	published, _ := send(http.MethodPost, a.url+"/whip/desk", offer)
	encoder := published.Header.Get("Location")
	for range 2 { // ending an ended session succeeds, too
		answer, _ := send(http.MethodDelete, b.url+encoder, "")
		if got := answer.Header.Values("Access-Control-Expose-Headers"); answer.StatusCode != http.StatusOK || len(got) != 1 {
			t.Errorf("ending %s: %s %v", encoder, answer.Status, got)
		}
	}
}
