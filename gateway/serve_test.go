package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"voxgate/internal/testkit"
)

func TestMain(m *testing.M) {
	// Secrets that configuration files name. Parallel tests cannot set them.
	for name, secret := range map[string]string{"SECRET": "hush", "TWILIO_AUTH_TOKEN": "secret of a test"} {
		if err := os.Setenv(name, secret); err != nil {
			panic(err)
		}
	}
	// genai pulls in opencensus, which starts a worker when it is loaded and never ends it.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"),
		goleak.IgnoreTopFunction("github.com/letsencrypt/pebble/v2/va.VAImpl.processTasks")) // Pebble never ends it
}

// patience limits how long a test waits for an expected event.
const patience = time.Minute

// program is a running gateway command, in the test's process unless [startProcess] has started it.
type program struct {
	t     *testing.T
	url   string
	stop  context.CancelFunc
	force context.CancelFunc // ends the drain, as a second signal does
	done  chan error

	mu   sync.Mutex
	log  bytes.Buffer
	more chan struct{}
}

func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log.Write(b)
	select {
	case p.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (p *program) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// startGateway runs a gateway command and waits until the log has its address. It drains for 0 s unless environ says
// otherwise.
func startGateway(t *testing.T, args []string, environ variables) *program {
	t.Helper()
	forced, force := context.WithCancel(context.Background())
	t.Cleanup(force)
	ctx, stop := context.WithCancel(context.WithValue(context.Background(), forceKey{}, forced))
	p := &program{t: t, stop: stop, force: force, done: make(chan error, 1), more: make(chan struct{}, 1)}
	atOnce := variables{"VOXGATE_DRAIN": "0"}
	maps.Copy(atOnce, environ)
	go func() { p.done <- runCommand(ctx, args, atOnce, io.Discard, p) }()
	t.Cleanup(p.stopGateway)
	p.url = strings.TrimSuffix(p.awaitLog(`url"?[=:]"?([^\s"]+)`), "/")
	return p
}

// awaitCondition calls done every 20 ms until it returns true.
func (p *program) awaitCondition(done func() bool) {
	p.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !done(); <-tick.C {
		if time.Now().After(deadline) {
			p.t.Fatalf("not in time:\n%s", p.logged())
		}
	}
}

// awaitLog waits until the log matches the pattern, and returns the last group of the match.
func (p *program) awaitLog(pattern string) string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	deadline := time.After(patience)
	for {
		if m := re.FindStringSubmatch(p.logged()); m != nil {
			return m[len(m)-1]
		}
		select {
		case <-p.more:
		case err := <-p.done:
			p.t.Fatalf("ended: %v\n%s", err, p.logged())
		case <-deadline:
			p.t.Fatalf("no %s in the log:\n%s", pattern, p.logged())
		}
	}
}

func (p *program) stopGateway() {
	p.stop()
	if p.done == nil {
		return
	}
	select {
	case err := <-p.done:
		if err != nil {
			p.t.Errorf("ended with %v", err)
		}
	case <-time.After(patience):
		p.t.Error("did not stop")
	}
	p.done = nil
}

// openConversation opens a WebSocket of the client protocol and begins a conversation. It does not wait for its setup.
func (p *program) openConversation(config string) *testkit.Client {
	p.t.Helper()
	c := testkit.DialWebSocket(p.t, p.webSocketURL(""))
	// The write fails if the gateway has already refused the client and closed the socket.
	_ = c.Conn.WriteMessage(websocket.TextMessage, testkit.EncodeMessage("CONNECT_GEMINI", `{"initialConfig":`+config+`}`))
	return c
}

// webSocketURL returns the URL of a WebSocket at a path of the gateway.
func (p *program) webSocketURL(path string) string {
	return "ws" + strings.TrimPrefix(p.url, "http") + path
}

// dialWebSocket opens a WebSocket of any protocol at a path of the gateway, and sends the first messages.
func (p *program) dialWebSocket(path string, first ...string) *testkit.Client {
	p.t.Helper()
	c := testkit.DialProtocol(p.t, p.webSocketURL(path), nil, testkit.ParseAnyMessage)
	for _, m := range first {
		c.SendTextFrame(m)
	}
	return c
}

// askOnce opens a conversation and types a text. It returns all messages until the end of the answer, or of the conversation.
func (p *program) askOnce(config string) string {
	p.t.Helper()
	c := p.openConversation(config)
	defer testkit.DropConnection(c)
	_, next, ok := c.AwaitMatchOrEnd(0, "set up", func(m testkit.Message) bool {
		return m.Type == "SETUP_COMPLETE" && strings.Contains(string(m.Payload), `"success":true`)
	})
	if ok {
		c.SendText("hello")
		c.AwaitMatchOrEnd(next, "TURN_COMPLETE", func(m testkit.Message) bool { return m.Type == "TURN_COMPLETE" })
	}
	return c.Text()
}

func TestServeWithoutAKeyTalksToTheEmulator(t *testing.T) {
	p := startGateway(t, nil, env("VOXGATE_ADDR", "127.0.0.1:0"))
	p.awaitLog("No GEMINI_API_KEY is set: the built-in emulator answers")
	if got := p.askOnce(`{}`); !strings.Contains(got, `"backend":"emulator"`) || !strings.Contains(got, "AUDIO_CHUNK") {
		t.Errorf("the conversation was %.2000s", got)
	}
	resp, err := http.Get(p.url + "/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("GET /: %d", resp.StatusCode)
	}
}

func TestServeUsesAnotherPlaceForGemini(t *testing.T) {
	model := startGateway(t, []string{"emulate", "-addr", "127.0.0.1:0"}, env())
	p := startGateway(t, []string{"serve"}, env("VOXGATE_ADDR", "127.0.0.1:0", "GOOGLE_GEMINI_BASE_URL", model.url+"/some/prefix"))
	if got := p.askOnce(`{}`); !strings.Contains(got, `"backend":"gemini"`) || !strings.Contains(got, "AUDIO_CHUNK") {
		t.Errorf("the conversation was %.2000s", got)
	}
}

// TestServeUsesVertexAI gets a token from a service account's token server, and sends it to the emulator.
func TestServeUsesVertexAI(t *testing.T) {
	const secret = "ya29.planted-secret"
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":3600}`, secret)
	}))
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	defer tokens.Close()
	key, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	account, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "robot@example.test", "token_uri": tokens.URL,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "account.json")
	if err := os.WriteFile(file, account, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file) // read by Google's library

	model := startGateway(t, []string{"emulate", "-addr", "127.0.0.1:0"}, env())
	p := startGateway(t, []string{"serve"}, env("VOXGATE_ADDR", "127.0.0.1:0", "GOOGLE_GENAI_USE_VERTEXAI", "true",
		"GOOGLE_CLOUD_PROJECT", "a-project", "GOOGLE_VERTEX_BASE_URL", model.url))
	p.awaitLog("by Vertex AI.*project=a-project")
	got := p.askOnce(`{"model":"gemini-live-2.5-flash-native-audio"}`)
	if !strings.Contains(got, `"backend":"vertex"`) || !strings.Contains(got, "AUDIO_CHUNK") {
		t.Errorf("the conversation was %.2000s", got)
	}
	p.stopGateway()
	if all := got + p.logged(); strings.Contains(all, "planted-secret") || strings.Contains(got, "a-project") {
		t.Errorf("too much is shown:\n%s", all)
	}
}

// TestServeLogsWhatAGoogleReportChanges starts with a report of check google: the log names the assumptions that it replaces.
func TestServeLogsWhatAGoogleReportChanges(t *testing.T) {
	report := writeTempFile(t, `{"results":[{"model":"gemini-3.8-live","name":"the end of the stream ends a turn",`+
		`"verdict":"different","found":["answers"]}]}`)
	p := startGateway(t, []string{"serve"}, env("VOXGATE_ADDR", "127.0.0.1:0", "VOXGATE_GOOGLE_REPORT", report))
	p.awaitLog("replaces assumptions.*model=gemini-3.8-live found.silence_required=false")
	p.stopGateway()
}

// TestTheKeyIsToldToNobody uses a key and searches for it in all messages and log lines. It does so also when Google rejects
// the key, and when Google cannot be reached.
func TestTheKeyIsToldToNobody(t *testing.T) {
	const key = "invalid-planted-secret-4711"
	model := startGateway(t, []string{"emulate", "-addr", "127.0.0.1:0"}, env())
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "API key not valid: "+r.Header.Get("x-goog-api-key")+r.URL.RawQuery, http.StatusBadRequest)
	}))
	defer echo.Close()
	for name, base := range map[string]string{"refused": model.url, "unreachable": "http://" + closed.Addr().String(), "echoed": echo.URL} {
		p := startGateway(t, []string{"serve"}, env("VOXGATE_ADDR", "127.0.0.1:0", "GEMINI_API_KEY", key, "GOOGLE_GEMINI_BASE_URL", base))
		got := p.askOnce(`{}`)
		if !strings.Contains(got, `"success":false`) || !strings.Contains(got, "GEMINI_ERROR") {
			t.Errorf("%s: the conversation was %.2000s", name, got)
		}
		p.awaitLog("Gemini does not answer as it should")
		p.stopGateway()
		if strings.Contains(got+p.logged(), "planted-secret") {
			t.Errorf("%s: the key is in a message or the log:\n%s\n%s", name, got, p.logged())
		}
	}
}

func TestBadCommands(t *testing.T) {
	for _, args := range [][]string{
		{"sing"},
		{"emulate", "-scenario", "{}}"},
		{"emulate", "-addr", "0.0.0.0:0"},
		{"serve", "-addr", "0.0.0.0:0"},
	} {
		if err := runCommand(t.Context(), args, env(), io.Discard, &bytes.Buffer{}); err == nil {
			t.Errorf("%v ran", args)
		}
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err := runCommand(t.Context(), nil, env("VOXGATE_ADDR", taken.Addr().String()), io.Discard, &bytes.Buffer{}); err == nil {
		t.Error("serve ran on a port that is taken")
	}
}
