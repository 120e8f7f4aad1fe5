package testkit_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/pion/ice/v4"
	"github.com/pion/webrtc/v4"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/internal/testkit"
	"voxgate/signaling/access"
)

// goodMessages lists messages that a client may send in a conversation, except for those that end it or would need a new
// connection to Gemini.
var goodMessages = []string{
	`{"type":"SEND_MESSAGE","id":"m1","payload":{` +
		`"parts":[{"text":"a"},{"inlineData":{"mimeType":"image/png","data":"AAAA"}}],"turnComplete":false}}`,
	`{"type":"SEND_REALTIME_INPUT","payload":{"audio":{"mimeType":"audio/pcm;rate=8000","data":"AAAA"}}}`,
	`{"type":"SEND_REALTIME_INPUT","payload":{"video":{"mimeType":"image/jpeg","data":"AAAA"},"text":"","activityStart":true}}`,
	`{"type":"SEND_REALTIME_INPUT","payload":{"mediaChunks":[{"mimeType":"image/jpeg","data":"AAAA"}],"audioStreamEnd":true}}`,
	`{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"functionResponses":[` +
		`{"id":"1","name":"f","response":{"a":1},"scheduling":"SILENT","willContinue":true}]}}}`,
	`{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"parts":[{"functionResponse":{"id":"1",` +
		`"response":{"role":"user","parts":[{"functionResponse":{"response":1}}]}}}]}}}`,
	`{"type":"UPDATE_CONFIG","payload":{"tools":7}}`,
	`{"type":"GET_CONTEXT","id":"7"}`, `{"type":"PING"}`, `{"type":"INTERRUPT"}`,
	`{"type":"WEBRTC_OFFER","payload":{"sdp":"v=0"}}`,
	`{"type":"WEBRTC_ICE_CANDIDATE","payload":{"candidate":"candidate:1 1 udp 1 192.0.2.1 9 typ host","sdpMid":"0","sdpMLineIndex":0}}`,
	`{"type":"PIECE","payload":{"id":"1","index":0,"count":1,"data":"{}"}}`,
	`{"type":"CONNECT_GEMINI","payload":{"initialConfig":{}}}`,
}

// badInputTarget tries bad inputs at a gateway.
type badInputTarget struct {
	*testkit.LockedGateway

	model           *httptest.Server // backend of the REST API
	token, operator string
	cases           int
}

// badInputs is a group of bad inputs.
type badInputs struct {
	name string
	try  func(*testing.T)
	logs int // allowed number of log lines per case
}

// TestBadInput sends groups of bad inputs to all endpoints. After each group, the next call works. No client gets an
// unknown_error, the log has at most a line or two per input, and no goroutines or memory are leaked.
func TestBadInput(t *testing.T) { // not parallel: it counts the resources of the process
	if testing.Short() {
		t.Skip("takes seconds")
	}
	model := emulatorForREST(t)
	l := testkit.StartLockedGateway(t, func(o *access.Options) {
		o.Limits = access.Limits{NewPerSecond: -1, NewPerSecondPerKey: -1, NewPerMinute: -1}
	},
		append(serveAll(t), withREST(t, &api.Client{BaseURL: model.URL}),
			func(_ *testkit.Endpoints, o *bridge.Options) { o.Park = 0 })...) // a bad message may request parking
	d := &badInputTarget{LockedGateway: l, model: model, token: l.MintToken(`{"once":false}`), operator: operator(t, l)}
	d.good(t)
	d.udp(t, true)
	total := 0
	groups := []badInputs{
		{"requests", d.requests, 1},
		{"bodies", d.bodies, 1},
		{"handshakes", d.handshakes, 2},
		{"frames", d.frames, 2},
		{"first messages", d.firstMessages, 9},
		{"tokens", d.tokens, 3},
		{"messages", d.messages, 1},
		{"messages by data channel", d.channelMessages, 1},
		{"messages of an operator's backend", d.sideband, 1},
		{"requests of telephones by UDP", d.sip, 1},
		{"requests that begin calls, or are calls", d.posts, 4},
		{"offers", d.offers, 4},
		{"candidates", d.candidates, 1},
		{"packets", func(t *testing.T) { d.udp(t, false) }, 1},
	}
	for _, p := range protocols {
		for _, m := range p.Malformed {
			groups = append(groups, badInputs{m.Name, func(t *testing.T) { d.cases += m.Send(t, d.LockedGateway, d.token) }, m.Logs})
		}
	}
	for _, group := range groups {
		before := awaitIdle(t, d.Gateway)
		d.cases = 0
		began := time.Now()
		d.run(t, group.name, group.try)
		lines := strings.Split(d.Logs.String(), "\n")
		d.run(t, group.name+", and the next call", d.good)
		total += d.cases
		if most := 40 + group.logs*d.cases; len(lines) > most {
			t.Errorf("%s: %d lines were logged, %s … %s", group.name, len(lines), lines[0], lines[len(lines)-2])
		}
		for _, line := range lines {
			if strings.Contains(line, "level=ERROR") || strings.Contains(line, "panic") || strings.Contains(line, "unknown_error") {
				t.Errorf("%s: %s", group.name, line)
			}
		}
		after := checkReleased(t, d.Gateway, group.name, before)
		t.Logf("%s: %d cases in %v, %d lines of log, heap %+d KB", group.name, d.cases, time.Since(began).Round(time.Millisecond), len(lines),
			(int64(after.heap)-int64(before.heap))>>10)
	}
	t.Logf("%d cases", total)
	if total < 300 {
		t.Error("too few")
	}
}

// run runs f in a subtest, at whose end the clients of f are closed.
func (target *badInputTarget) run(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		target.LockedGateway.T = t
		f(t)
	})
	target.LockedGateway.T = t
}

// awaitIdle waits until all conversations have ended, and returns the resources that the process holds then.
func awaitIdle(t *testing.T, g *testkit.Gateway) (r resources) {
	t.Helper()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	testkit.Eventually(t, "end of all conversations", func() bool { return len(g.Host.Sessions()) == 0 })
	testkit.PollUntil(100*time.Millisecond, func() bool {
		r = heldResources(t, g)
		return false
	})
	return r
}

// checkReleased waits until the process has no more goroutines than before, and about as much memory.
func checkReleased(t *testing.T, g *testkit.Gateway, name string, before resources) (after resources) {
	t.Helper()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	most := resources{before.goroutines, before.descriptors, before.heap + 4<<20}
	if testkit.PollUntil(
		testkit.Patience,
		func() bool {
			if runtime.NumGoroutine() > most.goroutines {
				return false
			}
			after = heldResources(t, g)
			return after.goroutines <= most.goroutines && after.descriptors <= most.descriptors && after.heap <= most.heap
		},
	) {
		return after
	}
	after = heldResources(t, g)
	stacks := make([]byte, 1<<20)
	t.Errorf(
		"%s: %d goroutines became %d, %d descriptors %d, and %d KB of heap %d\n%s",
		name, before.goroutines, after.goroutines, before.descriptors, after.descriptors, before.heap>>10, after.heap>>10,
		stacks[:runtime.Stack(stacks, true)],
	)
	return after
}

// good holds a valid conversation.
func (target *badInputTarget) good(t *testing.T) {
	c := testkit.DialWebSocket(t, target.URL)
	testkit.EnterConversation(t, c, testkit.ConnectPayload(target.token, ""))
	c.Send("SEND_MESSAGE", testkit.TextPayload("Hi"))
	c.AwaitEvent("AUDIO_CHUNK")
	leave(c)
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func (target *badInputTarget) address() string { return strings.TrimPrefix(target.HTTP, "http://") }

// exchange sends bytes over a new connection, and returns the bytes received until the connection closes.
func (target *badInputTarget) exchange(t *testing.T, text string) string {
	t.Helper()
	target.cases++
	conn, err := net.Dial("tcp", target.address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(testkit.Patience))
	io.WriteString(conn, text)
	conn.(*net.TCPConn).CloseWrite()
	got, _ := io.ReadAll(conn)
	return string(got)
}

// requests sends invalid HTTP requests, and valid requests to wrong paths.
func (target *badInputTarget) requests(t *testing.T) {
	var all []string
	for _, method := range []string{"GET", "POST", "DELETE", "OPTIONS", "CONNECT", "BREW", "get", ""} {
		for _, path := range []string{
			"/nothing", "/ws", "/v1/tokens", "/v1/sessions", "/v1/sessions/x", "/v1/sessions/%2e%2e/events", "/v1/sessions//events",
			"/../../etc/passwd", "*", "//", "/%zz",
			"/\x00", "/?" + strings.Repeat("a=b&", 1000), "http://elsewhere.example/", "/status%00",
		} {
			all = append(all, method+" "+path+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		}
	}
	for _, headers := range []string{
		"", "Host: a\r\nHost: b\r\n", "Host: localhost\r\nContent-Length: -1\r\n",
		"Host: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n",
		"Host: localhost\r\nTransfer-Encoding: chunked, gzip\r\n", "Host: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n",
		"Host: localhost\r\n folded\r\n", "Host: localhost\r\nno colon\r\n", "Host: localhost\r\n\x00: x\r\n",
		"Host: localhost\r\nAuthorization: Bearer \xff\r\n",
		"Host: localhost\r\nX: " + strings.Repeat("x", 2<<20) + "\r\n", "Host: localhost\r\n" + strings.Repeat("A: b\r\n", 100000),
		"Host: localhost\r\nOrigin: http://\xff\r\n", "Host: localhost\r\nOrigin: a\r\nOrigin: b\r\n", "Host: [::1\r\n",
		"Host: localhost:99999999\r\n",
		"Host: localhost\r\nX-Forwarded-For: " + strings.Repeat("1.1.1.1,", 1000) + "\r\n",
		"Host: localhost\r\nAuthorization: Bearer " + strings.Repeat(".", 9000) + "\r\n",
	} {
		all = append(all, "POST /v1/tokens HTTP/1.1\r\n"+headers+"\r\n")
	}
	all = append(
		all,
		"\x16\x03\x01\x02\x00\x01",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		strings.Repeat("A", 1<<20),
		"\r\n\r\n\r\n",
		"GET / HTTP/9.9\r\n\r\n",
		"GET /",
	)
	served := regexp.MustCompile(`^(HTTP/1\.[01] (204|3\d\d|4\d\d|501|505) |$)`)
	for _, request := range all {
		if got := target.exchange(t, request); !served.MatchString(got) {
			if !strings.HasPrefix(request, "OPTIONS * ") && !strings.HasPrefix(request, "GET // ") && !strings.HasPrefix(request, "GET /? ") &&
				!strings.HasPrefix(request, "GET /?a") &&
				!strings.HasPrefix(request, "GET http:") {
				t.Errorf("%.100q: %.200q", request, got)
			}
		}
	}
}

// bodies sends bad bodies of requests for tokens, with a key that may mint.
func (target *badInputTarget) bodies(t *testing.T) {
	good := `{"identity":"ada","expiresIn":60,"once":true,"grant":{"models":["a*"],"tools":["b"],"maxSeconds":5,"sessions":1,` +
		`"tokens":100,"doors":["web"],"agent":{"prompt":"x"}}}`
	long := `{"identity":"` + strings.Repeat("x", 1<<20) + `"}`
	for _, body := range append(testkit.MalformedVariants(good), strings.Repeat("[", 60<<10), long, "") {
		target.cases++
		status, _, text := target.RequestToken(target.Key, body)
		testkit.CheckNoGoWords(t, text)
		if status != http.StatusBadRequest && status != http.StatusOK ||
			status == http.StatusOK && !strings.Contains(text, `"token"`) {
			t.Errorf("%.100q: %d %s", body, status, text)
		}
	}
}

// handshakes sends bad handshakes of WebSockets.
func (target *badInputTarget) handshakes(t *testing.T) {
	const key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
	for _, test := range []struct{ headers, want string }{
		{"Connection: Upgrade\r\nUpgrade: websocket\r\n", "HTTP/1.1 400"},
		{"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n", "HTTP/1.1 400"},
		{"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 12\r\n" + key, "HTTP/1.1 400"},
		{"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: short\r\n", "HTTP/1.1 400"},
		{"Connection: Upgrade\r\nUpgrade: h2c\r\nSec-WebSocket-Version: 13\r\n" + key, "HTTP/1.1 426"},
		{"Connection: close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" + key, "HTTP/1.1 426"},
		{"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nOrigin: null\r\n" + key, "HTTP/1.1 403"},
	} {
		if got := target.exchange(t, "GET /ws HTTP/1.1\r\nHost: localhost\r\n"+test.headers+"\r\n"); !strings.HasPrefix(got, test.want) {
			t.Errorf("%q: %.200q", test.headers, got)
		}
	}
	// The gateway accepts no extension, above all no compression: a small message could expand to a huge one.
	for _, headers := range []http.Header{
		{"Sec-WebSocket-Extensions": {"permessage-deflate"}},
		{"Sec-WebSocket-Extensions": {"permessage-deflate; server_no_context_takeover; client_no_context_takeover"}},
		{"Sec-WebSocket-Extensions": {"permessage-deflate; client_max_window_bits=99, x-webkit-deflate-frame"}},
		{"Sec-WebSocket-Extensions": {strings.Repeat("permessage-deflate,", 300)}},
		{"Sec-WebSocket-Protocol": {strings.Repeat("a,", 2000)}},
		{"Sec-WebSocket-Protocol": {"voxgate.token." + strings.Repeat("A", 8000)}},
		{"Sec-WebSocket-Protocol": {", ,voxgate.token.,,voxgate"}},
	} {
		target.cases++
		conn, resp, err := websocket.DefaultDialer.Dial(target.URL, headers)
		if err != nil {
			t.Errorf("%.100v: %v", headers, err)
			continue
		}
		if got := resp.Header.Get("Sec-WebSocket-Extensions"); got != "" {
			t.Errorf("%q is taken", got)
		}
		conn.UnderlyingConn().Write(testkit.EncodeFrame(4<<4|websocket.TextMessage, "\x4a\x04\x00")) // RSV1: compressed
		conn.SetReadDeadline(time.Now().Add(testkit.Patience))
		if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseProtocolError) {
			t.Errorf("%.100v: a compressed message: %v", headers, err)
		}
		conn.Close()
	}
}

// frames sends invalid WebSocket frames.
func (target *badInputTarget) frames(t *testing.T) {
	const text, binaryKind, closeKind, ping = websocket.TextMessage, websocket.BinaryMessage, websocket.CloseMessage, websocket.PingMessage
	frame := testkit.EncodeFrame
	unmasked := []byte{0x81, 2, '{', '}'}
	notFinal := func(kind int, payload string) []byte {
		b := frame(kind, payload)
		b[0] &^= 0x80
		return b
	}
	length := func(n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{0x81, 0x80 | 127}, n) }
	all := map[string][]byte{
		"unmasked": unmasked, "RSV2": frame(2<<4|text, "{}"), "RSV3": frame(1<<4|text, "{}"), "a length of 2^63": length(1 << 63),
		"a length of 2^62": length(1 << 62),
		"17 MB": append(
			length(17<<20),
			0,
			0,
			0,
			0,
		), "half a header": {0x81}, "half a length": {0x81, 0xfe, 1}, "half a mask": {0x81, 0x82, 0, 0}, "half a payload": frame(text, "{}")[:7],
		"a part of nothing": frame(
			0,
			"{}",
		), "text within a message": append(notFinal(text, "{"), frame(text, "}")...), "a message without end": notFinal(text, "{"),
		"a ping in parts": notFinal(ping, ""), "a long ping": frame(ping, strings.Repeat("x", 126)), "a close of one byte": frame(closeKind, "x"),
		"a close with an odd code": frame(
			closeKind,
			"\x00\x01",
		), "a close with bad UTF-8": frame(closeKind, "\x03\xe8\xff"), "a close with 1006": frame(closeKind, "\x03\xee"),
		"many empty parts":       append(notFinal(text, ""), bytes.Repeat(notFinal(0, ""), 5000)...),
		"a message in bytes":     append(notFinal(text, "{"), bytes.Repeat(notFinal(0, " "), 5000)...),
		"bytes that are no text": frame(binaryKind, "\xff\xfe"), "text that is none": frame(text, "\xff\xfe"),
		"an empty text": frame(text, ""),
		"a long pong":   frame(websocket.PongMessage, strings.Repeat("x", 125)),
	}
	for kind := range 16 {
		if kind > 2 && kind < 8 || kind > 10 {
			all["kind "+strconv.Itoa(kind)] = frame(kind, "")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, opened := range []bool{false, true} {
			target.cases++
			c := testkit.DialWebSocket(t, target.URL)
			if opened {
				testkit.EnterConversation(t, c, testkit.ConnectPayload(target.token, ""))
			}
			if _, err := c.Conn.UnderlyingConn().Write(all[name]); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			c.Conn.UnderlyingConn().(*net.TCPConn).CloseWrite()
			c.AwaitCloseCode() // fails the test if the socket does not end
			testkit.CheckNoUnknownError(t, c)
		}
	}
}

// firstMessages sends bad messages in place of CONNECT_GEMINI.
func (target *badInputTarget) firstMessages(t *testing.T) {
	config := `{"model":"gemini-3.8-live","voice":"Puck","temperature":1,` +
		`"tools":[{"functionDeclarations":[{"name":"f","parameters":{"type":"object"}}]}],` +
		`"voxgate":{"maxDuration":"1h","history":[{"role":"user","content":"x"}]}}`
	good := `{"type":"CONNECT_GEMINI","payload":{"token":"` + target.token + `","resumable":false,"resumeToken":"x","lastEvent":1,` +
		`"initialConfig":` + config + `}}`
	all := append(testkit.MalformedVariants(good), goodMessages[:len(goodMessages)-1]...)
	for _, raw := range append(all, strings.Repeat("x", 2<<20), `{"type":"SEND_MESSAGE","payload":"`+strings.Repeat("x", 2<<20)+`"}`) {
		target.cases++
		c := testkit.DialWebSocket(t, target.URL)
		c.SendTextFrame(raw)
		c.Conn.WriteMessage(websocket.TextMessage, testkit.EncodeMessage("PING", "")) // an error before the conversation has begun
		c.AwaitMatch(
			0, fmt.Sprintf("answer to %.200q", raw), func(m testkit.Message) bool { return m.Type == "GEMINI_ERROR" || m.Type == "PONG" },
		)
		testkit.CheckNoUnknownError(t, c)
		testkit.DropConnection(c)
	}
}

// tokens sends invalid tokens.
func (target *badInputTarget) tokens(t *testing.T) {
	parts := strings.Split(target.token, ".")
	encoded := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	all := []string{
		".", "..", "...", "a.b.c", strings.Repeat(".", 8000), "\x00", "\xff", " ", parts[0] + "." + parts[1], parts[0] + "." + parts[1] + ".",
		target.token + "." + parts[2], target.token + "=",
		strings.ToUpper(target.token), parts[1] + "." + parts[0] + "." + parts[2],
		"vgk_", "vgk_" + strings.Repeat("\xff", 43), "Bearer " + target.token,
	}
	for _, header := range []string{
		`{}`, `[]`, `null`, `{"alg":"none"}`, `{"alg":"HS256","crit":["x"]}`, `{"alg":["HS256"]}`,
		`{"alg":"HS256","kid":"../../etc/passwd"}`, strings.Repeat("[", 5000),
	} {
		all = append(all, encoded(header)+"."+parts[1]+"."+parts[2])
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	for i, changed := range testkit.MalformedVariants(string(claims)) {
		if token := parts[0] + "." + encoded(changed) + "." + parts[2]; i%3 == 0 && token != target.token {
			all = append(all, token)
		}
	}
	for _, token := range all {
		target.cases++
		c := testkit.DialWebSocket(t, target.URL)
		c.Send("CONNECT_GEMINI", string(testkit.Must(json.Marshal(map[string]string{"token": token}))))
		if m := c.AwaitEvent("GEMINI_ERROR"); !strings.Contains(string(m.Payload), `"unauthorized"`) {
			t.Errorf("%.100q: %v", token, m)
		}
		c.AwaitCloseCode()
	}
}

// malformedMessages returns variants of goodMessages with one mistake each.
func malformedMessages() (all []string) {
	for _, good := range goodMessages {
		all = append(all, testkit.MalformedVariants(good)...)
	}
	return all
}

// messages sends malformed messages in a conversation, which must continue.
func (target *badInputTarget) messages(t *testing.T) {
	for some := range slices.Chunk(malformedMessages(), 150) {
		c := testkit.DialWebSocket(t, target.URL)
		testkit.EnterConversation(t, c, testkit.ConnectPayload(target.token, ""))
		for _, raw := range some {
			target.cases++
			c.SendTextFrame(raw)
		}
		c.SendFrame(websocket.BinaryMessage, []byte("\x00"))
		before := c.CountMessages("PONG")
		c.Send("PING", "")
		testkit.Eventually(t, "answer", func() bool { return c.CountMessages("PONG") > before })
		testkit.CheckNoUnknownError(t, c)
		leave(c)
	}
}

// channelMessages sends malformed messages over a data channel.
func (target *badInputTarget) channelMessages(t *testing.T) {
	c := testkit.DialWebSocket(t, target.URL)
	testkit.EnterConversation(t, c, testkit.ConnectPayload(target.token, ""))
	p := testkit.NewPhone(t, c, testkit.PhoneOptions{Channel: true, NoAudio: true})
	for n := range 30 { // data channels that the protocol does not have
		if _, err := p.PC.CreateDataChannel(strings.Repeat("x", n*100), nil); err != nil {
			t.Fatal(err)
		}
		target.cases++
	}
	p.Negotiate(false)
	p.AwaitConnected()
	all := malformedMessages()
	for n := 0; n < len(all); n += len(all) / 150 {
		target.cases++
		if len(all[n]) > 60<<10 {
			continue
		}
		if err := p.Channel.SendText(all[n]); err != nil {
			t.Fatal(err)
		}
	}
	p.Channel.Send([]byte{0})
	p.Channel.SendText("")
	before := c.CountMessages("PONG")
	p.Send("PING", "")
	testkit.Eventually(t, "answer", func() bool { return c.CountMessages("PONG") > before })
	testkit.CheckNoUnknownError(t, c)
	leave(c)
	p.HangUp()
}

// offers sends SDP offers that no client creates.
func (target *badInputTarget) offers(t *testing.T) {
	pc, err := webrtc.NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	for _, kind := range []webrtc.RTPCodecType{webrtc.RTPCodecTypeAudio, webrtc.RTPCodecTypeVideo} {
		if _, err := pc.AddTransceiverFromKind(kind); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pc.CreateDataChannel("events", nil); err != nil {
		t.Fatal(err)
	}
	offer, err := pc.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	good := offer.SDP
	section := good[strings.Index(good, "m=audio"):strings.Index(good, "m=video")]
	all := []string{
		"", "v=0", good[:len(good)/2], strings.ReplaceAll(good, "\r\n", "\n\n"), strings.ReplaceAll(good, "\r\n", ""), strings.ToUpper(good),
		good + good,
		good + strings.Repeat(
			"m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n",
			500,
		), good + strings.Repeat("a=x:y\r\n", 3000), good + strings.Repeat(section, 5), strings.ReplaceAll(good, "sha-256", "md5"),
		strings.ReplaceAll(
			good,
			"111",
			"99999999999999999999",
		), strings.ReplaceAll(good, "111", "-1"), strings.ReplaceAll(good, "BUNDLE 0 1 2", "BUNDLE 0 0 0"),
		strings.ReplaceAll(
			good,
			"opus/48000/2",
			"opus/0/0",
		), strings.ReplaceAll(good, "opus/48000/2", "opus"), strings.ReplaceAll(good, "a=mid:1", "a=mid:0"),
		strings.ReplaceAll(
			good,
			"a=setup:actpass",
			"a=setup:nobody",
		), strings.ReplaceAll(good, "a=ice-ufrag:", "a=ice-ufrag:"+strings.Repeat("x", 20000)),
		good + "a=candidate:1 1 udp 1 127.0.0.1 9 typ host\r\n" + strings.Repeat(
			"a=candidate:1 1 udp 1 192.0.2.1 9 typ host\r\n",
			300,
		), "\x00" + good, "\xff\xfe" + good,
		strings.ReplaceAll(
			good,
			"c=IN IP4",
			"c=IN IP9",
		), good + strings.Repeat("a=ssrc:1 cname:x\r\n", 1000), good + strings.Repeat("a=rid:x send\r\n", 1000),
	}
	lines := strings.SplitAfter(good, "\r\n")
	for n := 0; n < len(lines); n += 1 + len(lines)/25 {
		all = append(
			all,
			strings.Join(slices.Delete(slices.Clone(lines), n, n+1), ""),
			strings.Join(slices.Insert(slices.Clone(lines), n, lines[n]), ""),
		)
	}
	for some := range slices.Chunk(all, 9) { // one fewer than the limit of offers at once
		c := testkit.DialWebSocket(t, target.URL)
		testkit.EnterConversation(t, c, testkit.ConnectPayload(target.token, ""))
		for _, sdp := range some {
			target.cases++
			before := c.CountMessages("GEMINI_ERROR") + c.CountMessages("WEBRTC_ANSWER")
			c.Send("WEBRTC_OFFER", string(testkit.Must(json.Marshal(map[string]string{"sdp": sdp}))))
			testkit.Eventually(
				t,
				fmt.Sprintf("answer to %.100q", sdp),
				func() bool { return c.CountMessages("GEMINI_ERROR")+c.CountMessages("WEBRTC_ANSWER") > before },
			)
		}
		testkit.CheckNoUnknownError(t, c)
		leave(c)
	}
}

// candidates sends invalid candidates, and candidates with addresses to which the gateway should not send.
func (target *badInputTarget) candidates(t *testing.T) {
	fields := strings.Fields("candidate:1 1 udp 2130706431 192.0.2.1 50000 typ host")
	var all []string
	for n := range fields {
		for _, value := range []string{
			"", "x", "-1", "99999999999999999999", "\x00", "::ffff:127.0.0.1", "fe80::1%lo", "169.254.169.254", "a.local",
			"255.255.255.255", strings.Repeat("9", 900),
		} {
			spoilt := slices.Clone(fields)
			spoilt[n] = value
			all = append(all, strings.Join(spoilt, " "))
		}
		all = append(all, strings.Join(fields[:n], " "))
	}
	all = append(all, strings.Repeat("x", 2000), strings.Join(fields, " ")+strings.Repeat(" a b", 100))
	c := testkit.DialWebSocket(t, target.URL)
	testkit.EnterConversation(t, c, testkit.ConnectPayload(target.token, ""))
	send := func() {
		for _, line := range all {
			target.cases++
			c.Send("WEBRTC_ICE_CANDIDATE", string(testkit.Must(json.Marshal(map[string]string{"candidate": line}))))
		}
		before := c.CountMessages("PONG")
		c.Send("PING", "")
		testkit.Eventually(t, "answer", func() bool { return c.CountMessages("PONG") > before })
	}
	send() // without an offer
	testkit.NewPhone(t, c, testkit.PhoneOptions{Channel: true}).SendOfferOnly(false)
	send()
	testkit.CheckNoUnknownError(t, c)
	leave(c)
}

// packets returns datagrams that may arrive at a UDP port.
func packets() (all [][]byte) {
	stun := func(kind uint16, length uint16, attributes ...byte) []byte {
		b := binary.BigEndian.AppendUint16(nil, kind)
		b = binary.BigEndian.AppendUint16(b, length)
		b = append(b, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
		return append(b, attributes...)
	}
	for _, kind := range []uint16{0x0001, 0x0011, 0x0101, 0x0111, 0x0003, 0x3fff} {
		all = append(
			all,
			stun(kind, 0),
			stun(kind, 4, 0, 6, 0, 0),
			stun(kind, 8, 0, 6, 0xff, 0xff, 'a', ':', 'b', 0),
			stun(kind, 0xfffc),
			stun(kind, 3, 1, 2, 3),
			stun(kind, 12, 0, 6, 0, 3, 'a', ':', 'b', 0, 0x80, 0x28, 0, 4),
		) // with an invalid FINGERPRINT
	}
	for _, kind := range []byte{20, 21, 22, 23, 24, 25, 63} { // DTLS records (RFC 6347 section 4.1), a flight of ClientHello among them
		for _, body := range [][]byte{nil, {1}, {1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0}, bytes.Repeat([]byte{0xff}, 1200)} {
			for _, length := range []uint16{uint16(len(body)), 0xffff} {
				record := append([]byte{kind, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 9}, binary.BigEndian.AppendUint16(nil, length)...)
				all = append(all, append(record, body...))
			}
		}
	}
	for _, kind := range []byte{111, 0, 127, 200, 201, 205, 206, 255} { // RTP and RTCP, not encrypted
		for _, first := range []byte{0x80, 0xbf, 0x9f, 0xa0} {
			all = append(all, []byte{first, kind}, append([]byte{first, kind, 0xff, 0xff}, bytes.Repeat([]byte{7}, 40)...))
		}
	}
	all = append(all, []byte{}, []byte{0}, bytes.Repeat([]byte{0}, 1500), bytes.Repeat([]byte{0xff}, 65000), []byte("GET / HTTP/1.1\r\n\r\n"),
		append([]byte{0x13, 0x88, 0x13, 0x88, 0, 0, 0, 0, 0, 0, 0, 0}, 1, 0, 0, 3)) // a truncated SCTP INIT
	return all
}

// udp sends bad packets to the WebRTC port before and during a call, from the client's address and from another one.
func (target *badInputTarget) udp(t *testing.T, warmUp bool) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stranger, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	mux := ice.NewUDPMuxDefault(ice.UDPMuxParams{UDPConn: conn})
	defer mux.Close()
	c := testkit.DialWebSocket(t, target.URL)
	testkit.EnterConversation(t, c, testkit.ConnectPayload(target.token, ""))
	p := testkit.NewPhone(t, c, testkit.PhoneOptions{Channel: true, Network: func(s *webrtc.SettingEngine) {
		s.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
		s.SetICEUDPMux(mux)
	}})
	p.Negotiate(false)
	found := regexp.MustCompile(`candidate:\S+ 1 udp \d+ 127\.0\.0\.1 (\d+) typ host`).FindStringSubmatch(p.PC.RemoteDescription().SDP)
	if found == nil {
		t.Fatalf("no candidate in %s", p.PC.RemoteDescription().SDP)
	}
	to := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: testkit.Must(strconv.Atoi(found[1]))}
	flood := func(from ...net.PacketConn) {
		for _, packet := range packets() {
			for _, conn := range from {
				target.cases++
				conn.WriteTo(packet, to)
			}
		}
	}
	if !warmUp {
		flood(stranger)
	}
	p.AwaitConnected()
	if !warmUp {
		flood(stranger, conn)
	}
	if !warmUp {
		p.CheckAudioBothWays(440)
		stranger.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		buf := make([]byte, 1500)
		if n, _, err := stranger.ReadFrom(buf); err == nil {
			t.Errorf("a stranger was answered: % x", buf[:n])
		}
	}
	leave(c)
	p.HangUp()
}
