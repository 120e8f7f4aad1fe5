package testkit_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/gorilla/websocket"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"voxgate/bridge"
	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/api"
	"voxgate/gateway/telemetry/tracing"
	"voxgate/internal/testkit"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/compat/geminirest"
	"voxgate/signaling/phone/mediastream"
	"voxgate/tools"
	"voxgate/tools/canvas"
	"voxgate/tools/guard"
	"voxgate/tools/mcp"
	"voxgate/tools/webhook"
)

// foreignSecret is the secret that the gateway sends to the servers. No error may contain it.
const foreignSecret = "hidden-7f3a"

// foreignHost is the host of the server, and elsewhereHost the target of its redirects.
const foreignHost, elsewhereHost = "server.test", "elsewhere.test"

// foreignReader is a part of the gateway that reads answers of a third party's server.
type foreignReader struct {
	kind      string           // content type of the answer
	good      http.HandlerFunc // sends the valid answer
	hits      string           // the fault applies to requests with this text in the body; empty means all
	within    time.Duration    // the reader's own deadline
	allocated uint64           // maximum bytes allocated for one answer; 0 means 16 MiB
	byStatus  bool             // only the status matters; the body is read up to a limit
	// open is called once. It returns a function that reads one answer, and returns an error unless the answer is valid.
	open func(t *testing.T, url string) (read func() error)
}

// foreignFault sends an invalid answer to one request on the connection c, which is closed afterwards.
type foreignFault func(c net.Conn, kind string)

// answerForever writes a header and a beginning, and then repeats the same text endlessly, with a pause after each piece.
func answerForever(header, begin, text string, pause time.Duration) foreignFault {
	piece := []byte(text)
	if pause == 0 {
		piece = bytes.Repeat(piece, 1+(16<<10)/len(piece))
	}
	return func(c net.Conn, kind string) {
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nConnection: close\r\n%s", kind, header)
		_, err := io.WriteString(c, begin)
		for n := 0; err == nil && n < 256<<20; n += len(piece) { // a reader that reads this much has no limit
			_, err = c.Write(piece)
			time.Sleep(pause)
		}
	}
}

// redirectTo answers each request with a redirect, whose status decides whether clients repeat the body.
func redirectTo(status int, location string) foreignFault {
	return func(c net.Conn, _ string) {
		fmt.Fprintf(c, "HTTP/1.1 %d Elsewhere\r\nLocation: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status, location)
	}
}

// foreignFaults returns the invalid answers of a server, by description.
func foreignFaults() map[string]foreignFault {
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	fmt.Fprint(w, `{"a":"`)
	for range 200 {
		_, _ = w.Write(bytes.Repeat([]byte("a"), 1<<20))
	}
	_ = w.Close()
	const drip = 100 * time.Millisecond
	return map[string]foreignFault{
		"a refusal for ever": func(c net.Conn, kind string) { // Retry-After has more seconds than a time.Duration can hold
			const refusal = "HTTP/1.1 503 Busy\r\nContent-Type: %s\r\nRetry-After: 9223372037\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
			fmt.Fprintf(c, refusal, kind)
		},
		"an endless text":                 answerForever("\r\n", `{"a":"`, "a", 0),
		"an endless picture":              answerForever("\r\n", picture, "a", 0),
		"an endless list":                 answerForever("\r\n", `{"keys":[`, "1,", 0),
		"endless objects":                 answerForever("\r\n", `[`, `{"a":{}},`, 0),
		"endless white space":             answerForever("\r\n", "", " ", 0),
		"an endless line of an event":     answerForever("\r\n", "data: ", "a", 0),
		"an event of endless lines":       answerForever("\r\n", "", "data: a\n", 0),
		"an endless comment":              answerForever("\r\n", "", ":", 0),
		"a body of a byte now and then":   answerForever("\r\n", "{", " ", drip),
		"comments now and then":           answerForever("\r\n", "", ": alive\n\n", drip),
		"a chunk of a byte now and then":  answerForever("Transfer-Encoding: chunked\r\n\r\n", "", "1\r\n \r\n", drip),
		"an endless header":               answerForever("", "X-Y: ", "a", 0),
		"headers without an end":          answerForever("", "", "X-Y: a\r\n", 0),
		"a header of a byte now and then": answerForever("", "X-Y: ", "a", drip),
		"an endless chunk size":           answerForever("Transfer-Encoding: chunked\r\n\r\n", "", "0", 0),
		"endless trailers":                answerForever("Transfer-Encoding: chunked\r\n\r\n", "2\r\n{}\r\n0\r\n", "X-Y: a\r\n", 0),
		"early hints without an end": func(c net.Conn, _ string) {
			for err := error(nil); err == nil; {
				_, err = io.WriteString(c, strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 100))
			}
		},
		"no answer": func(c net.Conn, _ string) { _, _ = io.Copy(io.Discard, c) },
		"a bomb of gzip": func(c net.Conn, kind string) {
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n", kind, bomb.Len())
			_, _ = c.Write(bomb.Bytes())
		},
		"an error without an end": func(c net.Conn, kind string) {
			fmt.Fprintf(c, "HTTP/1.1 500 No\r\nContent-Type: %s\r\nConnection: close\r\n\r\n", kind)
			for err := error(nil); err == nil; {
				_, err = io.WriteString(c, `{"error":"`+strings.Repeat("a", 16<<10))
			}
		},
		"an error now and then": func(c net.Conn, kind string) {
			fmt.Fprintf(c, "HTTP/1.1 500 No\r\nContent-Type: %s\r\nConnection: close\r\n\r\n", kind)
			for err := error(nil); err == nil; time.Sleep(drip) {
				_, err = io.WriteString(c, ` `)
			}
		},
		"an end in the middle": func(c net.Conn, kind string) {
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: 1000\r\n\r\n{\"a\":", kind)
		},
		"an end of the header":       func(c net.Conn, _ string) { fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-") },
		"an end at once":             func(net.Conn, string) {},
		"no HTTP":                    func(c net.Conn, _ string) { fmt.Fprint(c, "SSH-2.0-OpenSSH_9.2\r\n") },
		"a redirect for ever":        redirectTo(http.StatusTemporaryRedirect, "http://"+foreignHost+"/again"),
		"a redirect by GET":          redirectTo(http.StatusFound, "/again"),
		"a redirect elsewhere":       redirectTo(http.StatusTemporaryRedirect, "http://"+elsewhereHost+"/"),
		"a redirect to data":         redirectTo(http.StatusTemporaryRedirect, "data:application/json,%7B%7D"),
		"a redirect to a file":       redirectTo(http.StatusFound, "file:///etc/passwd"),
		"a redirect without a place": redirectTo(http.StatusTemporaryRedirect, ""),
	}
}

// mostRequests is the number of times that a reader may repeat a request within its deadline. Later answers are valid, so
// that a reader that repeats without a pause ends.
const mostRequests = 50

// foreignServer is an HTTP server with connections in memory, so both ends of each connection are in the synctest bubble.
type foreignServer struct {
	reader foreignReader
	fault  atomic.Pointer[foreignFault]
	asked  atomic.Int64 // number of requests since the start of the newest fault
	conns  chan net.Conn
	over   chan struct{}          // closed at the end of the test
	leak   atomic.Pointer[string] // a request to elsewhereHost that contains a secret

	mu      sync.Mutex
	open    []net.Conn
	running sync.WaitGroup
}

func (s *foreignServer) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(address)
	near, far := net.Pipe()
	s.mu.Lock()
	s.open = append(s.open, far)
	s.mu.Unlock()
	switch host {
	case foreignHost:
		select {
		case s.conns <- far:
			return near, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.over: // a transport finishes its dials even if no request waits
			return nil, net.ErrClosed
		}
	case elsewhereHost:
		s.running.Go(func() {
			defer far.Close()
			request := make([]byte, 64<<10)
			n, _ := far.Read(request)
			if text := string(request[:n]); strings.Contains(text, foreignSecret) {
				s.leak.Store(&text)
			}
		})
		return near, nil
	}
	return nil, fmt.Errorf("%s is dialled", host)
}

func (s *foreignServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.running.Add(1)
	defer s.running.Done()
	body, _ := io.ReadAll(r.Body)
	fault := s.fault.Load()
	if s.asked.Add(1) > mostRequests || fault == nil || !bytes.Contains(body, []byte(s.reader.hits)) {
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.reader.good(w, r)
		return
	}
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		defer conn.Close()
		(*fault)(conn, s.reader.kind)
	}
}

// foreignListener is the net.Listener of a foreignServer.
type foreignListener struct {
	*foreignServer
	closed chan struct{}
}

func (l foreignListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l foreignListener) Close() error   { close(l.closed); return nil }
func (l foreignListener) Addr() net.Addr { return &net.TCPAddr{} }

// serve starts the server, and sends all HTTP requests of this process to it until the test ends.
func (s *foreignServer) serve(t *testing.T) {
	s.conns, s.over = make(chan net.Conn), make(chan struct{})
	server := &http.Server{Handler: s, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(foreignListener{s, make(chan struct{})})
	}()
	usual := http.DefaultTransport
	transport := usual.(*http.Transport).Clone()
	transport.Proxy, transport.DialContext = nil, s.dial
	http.DefaultTransport = transport
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		http.DefaultTransport = usual
		close(s.over)
		_ = server.Close()
		<-ended
		s.mu.Lock()
		for _, conn := range s.open {
			_ = conn.Close()
		}
		s.mu.Unlock()
		s.running.Wait()
	})
}

// allocatedBytes returns the number of bytes that the process has allocated on the heap since its start.
func allocatedBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// TestForeignBodies sends invalid answers to each part of the gateway that reads from other servers. The reader ends within
// its deadline, allocates no more than its limit, and sends no secret to another host. It fails with an error without
// secrets, and reads the next answer.
func TestForeignBodies(t *testing.T) { // not parallel: it replaces http.DefaultTransport
	if testing.Short() {
		t.Skip("takes seconds")
	}
	faults := foreignFaults()
	// Readers with a limit of 64 MiB share their code, and need a second for each endless body. So most such tests are skipped.
	alike := []string{"an endless picture", "an endless list", "endless white space", "an event of endless lines"}
	for name, reader := range foreignReaders(t) {
		for fault, answer := range faults {
			if reader.allocated > 64<<20 && slices.Contains(alike, fault) {
				continue
			}
			t.Run(name+"/"+fault, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { checkForeignReader(t, reader, answer) })
			})
		}
	}
}

func checkForeignReader(t *testing.T, reader foreignReader, fault foreignFault) {
	server := &foreignServer{reader: reader}
	server.serve(t)
	url := "http://" + foreignHost + "/" + foreignSecret
	read := reader.open(t, url)
	if err := read(); err != nil {
		t.Fatalf("the first answer, a good one: %v", err)
	}
	server.asked.Store(0)
	server.fault.Store(&fault)
	began, before := time.Now(), allocatedBytes()
	err := read()
	allocated, lasted := allocatedBytes()-before, time.Since(began)
	switch {
	case err == nil && reader.byStatus:
	case err == nil:
		t.Error("the answer was taken for a good one")
	case strings.Contains(err.Error(), foreignSecret), strings.Contains(err.Error(), "PRIVATE KEY"):
		t.Errorf("the error has a secret: %v", err)
	}
	if asked := server.asked.Load(); asked > mostRequests {
		t.Errorf("%d requests were made; %d are the most", asked, mostRequests)
	}
	if leak := server.leak.Load(); leak != nil {
		t.Errorf("a secret went elsewhere: %.300s", *leak)
	}
	most := reader.allocated
	if most == 0 {
		most = 16 << 20
	}
	if allocated > most {
		t.Errorf("%d bytes were allocated; %d are the most", allocated, most)
	}
	if most := reader.within + time.Second; lasted > most {
		t.Errorf("it took %v; the deadline is %v", lasted, reader.within)
	}
	server.fault.Store(nil)
	synctest.Wait() // wait until the failed connection is closed
	if err := read(); err != nil {
		t.Errorf("the next answer: %v", err)
	}
	runtime.KeepAlive(server)
}

// answerWith returns a handler that answers with a text of the content type kind.
func answerWith(kind, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, text)
	}
}

// foreignReaders returns all parts of the gateway that read over HTTP from servers of third parties.
func foreignReaders(t *testing.T) map[string]foreignReader {
	const jsonType, stream = "application/json", "text/event-stream"
	readers := map[string]foreignReader{
		"webhook of a tool": {
			kind: jsonType, good: answerWith(jsonType, `{"ok":true}`), within: toolTime, open: openWebhook,
		},
		"webhook of a tool, line by line": {
			kind: "application/x-ndjson", good: answerWith("application/x-ndjson", "{\"progress\":1}\n{\"ok\":true}\n"), within: toolTime,
			open: openWebhook,
		},
		"webhook of sessions and numbers": {
			kind: jsonType, good: answerWith(jsonType, `{"ok":true}`), within: toolTime, open: openEndpoint,
		},
		"MCP, first connection":            {kind: jsonType, good: serveMCP(), within: toolTime + 5*time.Second, open: openMCPConnection},
		"MCP, first connection, by events": {kind: stream, good: serveMCP(), within: toolTime + 5*time.Second, open: openMCPConnection},
		"MCP, list of tools": {
			kind: jsonType, good: serveMCP(), hits: `"tools/list"`, within: toolTime + 5*time.Second, open: openMCPConnection,
		},
		"MCP, call":           {kind: jsonType, good: serveMCP(), hits: `"tools/call"`, within: toolTime, open: openMCPCall},
		"MCP, call by events": {kind: stream, good: serveMCP(), hits: `"tools/call"`, within: toolTime, open: openMCPCall},
		"picture of a canvas": {
			kind: "image/png", good: answerWith("image/png", picture), within: 10 * time.Second, open: openPicture,
		},
		"check of Google's key": {
			kind: jsonType, good: answerWith(jsonType, `{"name":"models/x"}`), within: 10 * time.Second, byStatus: true, open: openCheck,
		},
		"upgrade to Google's Live API": {kind: jsonType, good: upgradeLive, within: 20 * time.Second, open: openLive},
	}
	readers["command to a telephony provider"] = foreignReader{
		kind: jsonType, good: answerWith(jsonType, `{"data":{"result":"ok"}}`), within: 5 * time.Second, byStatus: true, open: openProvider,
	}
	readers["collector of traces"] = foreignReader{
		kind: "application/x-protobuf", good: func(http.ResponseWriter, *http.Request) {}, within: 10 * time.Second, byStatus: true,
		open: openCollector,
	}
	readers["token of Vertex AI"] = tokenReader(t)
	readers["key set of an issuer"] = keySetReader(t)
	for name, reader := range restReaders() {
		readers[name] = reader
	}
	return readers
}

// toolTime is the timeout of a tool call.
const toolTime = 20 * time.Second

// picture is the start of a PNG, which suffices to detect its type.
const picture = "\x89PNG\r\n\x1a\n"

// runTool calls a tool with a timeout of toolTime.
func runTool(t *testing.T, tool tools.Tool) error {
	ctx, cancel := context.WithTimeout(t.Context(), toolTime)
	defer cancel()
	result, err := tool.Run(tools.WithEnv(ctx, &tools.Env{Call: "1", SessionInfo: tools.SessionInfo{Session: "s"}}), nil)
	if err == nil && !json.Valid(result) {
		err = fmt.Errorf("the model gets %.50q", result)
	}
	return err
}

func openWebhook(t *testing.T, url string) func() error {
	pool := webhook.NewPool(nil)
	t.Cleanup(pool.Close)
	tool := testkit.Must(webhook.New(webhook.Options{
		Declaration: tools.Declaration{Name: "f"}, URL: url, Secret: foreignSecret, Pool: pool,
		Headers: map[string]string{"X-Key": foreignSecret},
	}))
	return func() error { return runTool(t, tool) }
}

func openEndpoint(t *testing.T, url string) func() error {
	endpoint := testkit.Must(webhook.NewEndpoint(url, foreignSecret))
	t.Cleanup(endpoint.Close)
	return func() error {
		ctx, cancel := context.WithTimeout(t.Context(), toolTime)
		defer cancel()
		status, answer, err := endpoint.Post(ctx, "1", map[string]string{"a": foreignSecret})
		if err == nil && (status != http.StatusOK || !json.Valid(answer)) {
			err = fmt.Errorf("answered %d, %d bytes", status, len(answer))
		}
		return err
	}
}

// serveMCP returns the handler of an MCP server with one tool.
func serveMCP() http.HandlerFunc {
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server {
		server := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
		sdk.AddTool(server, &sdk.Tool{Name: "f"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: `{"ok":true}`}}}, nil, nil
		})
		return server
	}, &sdk.StreamableHTTPOptions{Stateless: true, DisableLocalhostProtection: true})
	return handler.ServeHTTP
}

func mcpOptions(url string) mcp.Options {
	return mcp.Options{
		Name: "m", URL: url, Headers: map[string]string{"Authorization": "Bearer " + foreignSecret}, Logger: slog.New(slog.DiscardHandler),
	}
}

func openMCPConnection(t *testing.T, url string) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(t.Context(), toolTime)
		defer cancel()
		server, err := mcp.Connect(ctx, mcpOptions(url))
		if err == nil {
			server.Close()
		}
		return err
	}
}

func openMCPCall(t *testing.T, url string) func() error {
	server := testkit.Must(mcp.Connect(t.Context(), mcpOptions(url)))
	t.Cleanup(server.Close)
	return func() error { return runTool(t, server.Tools()[0]) }
}

func openPicture(t *testing.T, url string) func() error {
	client := guard.NewClient(guard.Options{AllowPrivate: true})
	transport := client.Transport.(*http.Transport)
	transport.DialTLSContext = http.DefaultTransport.(*http.Transport).DialContext // https URLs are requested without TLS
	t.Cleanup(client.CloseIdleConnections)
	fetcher := canvas.NewFetcher(client)
	return func() (err error) {
		defer func() {
			if aborted := recover(); aborted != nil {
				err = errors.New("the answer broke off")
			}
		}()
		w := httptest.NewRecorder()
		w.Body = nil // do not keep the body, which may have megabytes
		path := fetcher.SignURL(strings.Replace(url, "http://", "https://", 1))
		fetcher.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/"+path, nil))
		if w.Code != http.StatusOK {
			err = fmt.Errorf("answered %d", w.Code)
		}
		return err
	}
}

func openCheck(t *testing.T, url string) func() error {
	client := &api.Client{BaseURL: strings.TrimSuffix(url, "/"+foreignSecret), APIKey: foreignSecret}
	return func() error { return client.Check(t.Context(), "x") }
}

// upgradeLive answers the upgrade to a WebSocket, and the setup.
func upgradeLive(w http.ResponseWriter, r *http.Request) {
	ws, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer ws.Close()
	if _, _, err = ws.ReadMessage(); err == nil {
		_ = ws.WriteMessage(websocket.TextMessage, []byte(`{"setupComplete":{}}`))
		_, _, _ = ws.ReadMessage()
	}
}

func openLive(t *testing.T, url string) func() error {
	base := strings.TrimSuffix(url, "/"+foreignSecret)
	client := &api.Client{BaseURL: base, APIKey: foreignSecret, NetDial: http.DefaultTransport.(*http.Transport).DialContext}
	return func() error {
		conn, err := gemini.Dial(t.Context(), client, gemini.Setup{})
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
}

// openProvider offers a call like Telnyx, which no agent answers. The gateway rejects it through Telnyx's REST API, which it
// also uses to hang up, transfer calls and send keys.
func openProvider(t *testing.T, url string) func() error {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "telephony.json")
	config := testkit.Must(json.Marshal(map[string]any{"publicURL": "https://voice.test", "providers": []any{map[string]string{
		"profile": "telnyx", "verify": base64.StdEncoding.EncodeToString(public), "apiKey": foreignSecret, "api": url,
	}}}))
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	door := testkit.Must(mediastream.New(file, mediastream.Options{Logger: logger}))
	server := signaling.NewServer(signaling.Options{Logger: logger}, door.Endpoints()...)
	t.Cleanup(func() {
		if err := server.Close(context.Background()); err != nil {
			t.Error(err)
		}
		door.Close()
	})
	const offer = `{"data":{"event_type":"call.initiated","id":"e","payload":{"call_control_id":"c","to":"+1","direction":"incoming"}}}`
	return func() error {
		log.Reset()
		r := httptest.NewRequest(http.MethodPost, "http://localhost/telephony/telnyx/answer", strings.NewReader(offer))
		stamp := fmt.Sprint(time.Now().Unix())
		r.Header.Set("Telnyx-Timestamp", stamp)
		r.Header.Set("Telnyx-Signature-Ed25519", base64.StdEncoding.EncodeToString(ed25519.Sign(private, []byte(stamp+"|"+offer))))
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			return fmt.Errorf("answered %d %s: %s", w.Code, w.Body, &log)
		}
		return nil
	}
}

// openCollector returns a function that sends the trace of a conversation to a collector.
func openCollector(t *testing.T, url string) func() error {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "X-Key="+foreignSecret)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	return func() error {
		log.Reset()
		tracer := testkit.Must(tracing.New(context.Background(), logger))
		tracer.Observe("a", bridge.SessionStarted{Info: bridge.Info{Started: time.Now()}})
		tracer.Observe("a", bridge.SessionEnded{At: time.Now()})
		if err := tracer.Close(context.Background()); err != nil {
			return err
		}
		if log.Len() > 0 {
			return errors.New(log.String())
		}
		return nil
	}
}

// tokenReader returns the reader of access tokens for a service account.
func tokenReader(t *testing.T) foreignReader {
	key := testkit.Must(rsa.GenerateKey(rand.Reader, 2048))
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: testkit.Must(x509.MarshalPKCS8PrivateKey(key))})
	return foreignReader{
		kind: "application/json", within: 10 * time.Second,
		good: answerWith("application/json", `{"access_token":"x","expires_in":3600,"token_type":"Bearer"}`),
		open: func(t *testing.T, url string) func() error {
			file := filepath.Join(t.TempDir(), "account.json")
			account := testkit.Must(json.Marshal(map[string]string{
				"type": "service_account", "client_email": foreignSecret + "@x.test", "private_key": string(private), "token_uri": url,
			}))
			if err := os.WriteFile(file, account, 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
			return func() error {
				client := &api.Client{Vertex: &api.Vertex{Project: "p"}} // a new client, which has no token yet
				_, _, err := client.Credentials(t.Context())
				return err
			}
		},
	}
}

// keySetReader returns the reader of an issuer's key set.
func keySetReader(t *testing.T) foreignReader {
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	point := testkit.Must(key.PublicKey.ECDH()).Bytes()
	encode := base64.RawURLEncoding.EncodeToString
	set := fmt.Sprintf(`{"keys":[{"kty":"EC","kid":"a","crv":"P-256","x":"%s","y":"%s"}]}`, encode(point[1:33]), encode(point[33:]))
	return foreignReader{
		kind: "application/json", good: answerWith("application/json", set), within: 10 * time.Second,
		open: func(t *testing.T, url string) func() error {
			file := filepath.Join(t.TempDir(), "keys.json")
			text := testkit.Must(json.Marshal(map[string]any{
				"secret":  encode(make([]byte, 32)),
				"issuers": []any{map[string]any{"name": "idp", "algorithm": "ES256", "jwks": url, "audience": "voxgate", "grant": map[string]any{}}},
			}))
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			return func() error { // with a new gate, because a gate that has keys keeps them
				gate := testkit.Must(access.New(access.Options{Required: true, Keys: file, Logger: slog.New(slog.DiscardHandler)}))
				defer gate.Close()
				token := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
					"aud": "voxgate", "sub": "ada", "exp": time.Now().Add(time.Minute).Unix(),
				})
				token.Header["kid"] = "a"
				request := &http.Request{Header: http.Header{"Authorization": {"Bearer " + testkit.Must(token.SignedString(key))}}}
				return access.From(gate.WithClient(request)).Authorize(&bridge.SessionRequest{}, "")
			}
		},
	}
}

// restReaders returns the readers of the REST API's backends: Google, and a server with OpenAI's API.
func restReaders() map[string]foreignReader {
	const (
		jsonType, stream = "application/json", "text/event-stream"
		silence          = 3 * time.Minute
		toGoogle         = 512 << 20 // an answer, such as an image, has at most 64 MiB
		toOpenAI         = 128 << 20 // an answer has at most 16 MiB
		asked            = `{"contents":[{"parts":[{"text":"Hi"}]}]}`
		googles          = `{"candidates":[{"content":{"parts":[{"text":"Hi"}]},"finishReason":"STOP"}]}`
		completion       = `{"choices":[{"message":{"content":"Hi"},"delta":{"content":"Hi"},"finish_reason":"stop"}]}`
	)
	readers := map[string]foreignReader{}
	for name, call := range map[string]struct {
		path, body, kind, good string
	}{
		"generate": {"/v1beta/models/g:generateContent", asked, jsonType, googles},
		"stream":   {"/v1beta/models/g:streamGenerateContent?alt=sse", asked, stream, "data: " + googles + "\n\n"},
		"tokens":   {"/v1beta/models/g:countTokens", asked, jsonType, `{"totalTokens":1}`},
		"model":    {"/v1beta/models/g", "", jsonType, `{"name":"models/g"}`},

		"OpenAI, generate": {"/v1beta/models/o:generateContent", asked, jsonType, completion},
		"OpenAI, stream":   {"/v1beta/models/o:streamGenerateContent?alt=sse", asked, stream, "data: " + completion + "\n\ndata: [DONE]\n\n"},
		"OpenAI, embed": {
			"/v1beta/models/o:embedContent", `{"content":{"parts":[{"text":"Hi"}]}}`, jsonType, `{"data":[{"embedding":[1]}]}`,
		},
	} {
		most := uint64(toGoogle)
		if strings.HasPrefix(name, "OpenAI") {
			most = toOpenAI
		}
		readers["REST, "+name] = foreignReader{
			kind: call.kind, good: answerWith(call.kind, call.good), within: silence, allocated: most,
			open: func(t *testing.T, url string) func() error { return openREST(t, url, call.path, call.body) },
		}
	}
	readers["text model by Google's SDK"] = foreignReader{
		kind: stream, good: answerWith(stream, "data: "+googles+"\n\n"), within: silence, allocated: toGoogle, open: openTextModel,
	}
	return readers
}

func openTextModel(t *testing.T, url string) func() error {
	log := slog.New(slog.DiscardHandler)
	client := &api.Client{BaseURL: strings.TrimSuffix(url, "/"+foreignSecret), APIKey: foreignSecret}
	host := bridge.NewHost(bridge.Options{Client: client, Logger: log})
	models := geminirest.New(host, client, nil, log)
	t.Cleanup(func() {
		models.Close()
		if err := host.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return func() error {
		var text bytes.Buffer
		_, err := models.GenerateContent(t.Context(), bridge.Unlimited, "g", json.RawMessage(`{"contents":[{"parts":[{"text":"Hi"}]}]}`),
			func(piece json.RawMessage) error { text.Write(piece); return nil })
		if err == nil && !strings.Contains(text.String(), `"Hi"`) {
			err = errors.New("no text")
		}
		return err
	}
}

func openREST(t *testing.T, url, path, body string) func() error {
	log := slog.New(slog.DiscardHandler)
	client := &api.Client{BaseURL: strings.TrimSuffix(url, "/"+foreignSecret), APIKey: foreignSecret}
	host := bridge.NewHost(bridge.Options{Client: client, Logger: log})
	door := geminirest.New(host, client, []geminirest.Route{{Model: "o", OpenAI: &geminirest.OpenAI{URL: url, Key: foreignSecret}}}, log)
	server := signaling.NewServer(signaling.Options{Logger: log}, door.Endpoints()...)
	t.Cleanup(func() {
		if err := errors.Join(host.Shutdown(context.Background()), server.Close(context.Background())); err != nil {
			t.Error(err)
		}
		door.Close()
	})
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	return func() error {
		w := httptest.NewRecorder()
		server.ServeHTTP(w, httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body)))
		if text := w.Body.String(); w.Code != http.StatusOK || strings.Contains(text, `"error"`) || !strings.Contains(text, `"`) {
			return fmt.Errorf("answered %d: %.300s", w.Code, text)
		}
		return nil
	}
}
