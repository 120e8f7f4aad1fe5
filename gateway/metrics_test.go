package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"

	"voxgate/internal/testkit"
	"voxgate/signaling/access"
)

func getURL(t *testing.T, url string) (status int, body string) {
	t.Helper()
	resp, body := testkit.SendHTTP(t, http.MethodGet, url, "")
	return resp.StatusCode, body
}

// The private listener exports metrics of a conversation, while it runs and after its end.
func TestMetrics(t *testing.T) {
	p := startGateway(t, []string{"serve", "--addr", "127.0.0.1:0", "--private-addr", "127.0.0.1:0"}, env())
	private := p.awaitLog(`msg=private at=(\S+)`)
	c := p.openConversation(`{}`)
	c.AwaitEvent("SETUP_COMPLETE")
	c.SendText("hello")
	c.AwaitEvent("TURN_COMPLETE")
	if _, text := getURL(t, private+"/metrics"); !strings.Contains(text, `voxgate_sessions{door="web",state="live"} 1`) {
		t.Errorf("while it runs:\n%s", filterMetrics(text))
	}
	c.Send("DISCONNECT_GEMINI", "")
	c.AwaitEvent("GEMINI_DISCONNECTED")
	c.Conn.Close()
	text := awaitMetric(t, private, "voxgate_sessions_ended_total")
	for _, want := range []string{
		`voxgate_answer_seconds_count 1`, `voxgate_answer_part_seconds_count{part="model"} 1`,
		`voxgate_answer_part_seconds_bucket{part="gateway",le="+Inf"} 1`, "process_resident_memory_bytes", "go_goroutines",
		`voxgate_sessions{door="web",state="live"} 0`, `voxgate_sessions_ended_total{door="web",reason="goodbye"} 1`,
		`voxgate_sessions_begun_total{door="web"} 1`, `voxgate_build_info{goversion="go`,
		`voxgate_turns_total{cut="nothing"} 1`, `voxgate_model_dials_total{kind="first",outcome="ok"} 1`,
		`voxgate_model_links_ended_total{cause="planned"} 1`, `voxgate_model_stalls_total{remedy="nudge"} 0`,
		`voxgate_tokens_total{direction="in",key="",modality="audio"} `, `voxgate_tokens_total{direction="out",key="",modality="audio"} `,
		`voxgate_dollars_total{key=""} 0.0`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s:\n%s", want, filterMetrics(text))
		}
	}
}

// Tokens are counted while the conversation runs, also without their modality: 100,000 read and 7,000 thought tokens here.
// Another 20,000 are only in the total, so their direction is unknown, too.
func TestTokensWithoutModality(t *testing.T) {
	model := startGateway(t, []string{"emulate", "-addr", "127.0.0.1:0", "-scenario", `{"faults":[{"on":"text","nth":1,"times":1,"send":` +
		`"{\"usageMetadata\":{\"promptTokenCount\":100000,\"thoughtsTokenCount\":7000,\"totalTokenCount\":127000}}"}]}`}, env())
	p := startGateway(
		t,
		[]string{"serve"},
		env("VOXGATE_ADDR", "127.0.0.1:0", "VOXGATE_PRIVATE_ADDR", "127.0.0.1:0", "GOOGLE_GEMINI_BASE_URL", model.url),
	)
	private := p.awaitLog(`msg=private at=(\S+)`)
	c := p.openConversation(`{}`)
	defer c.Conn.Close()
	c.AwaitEvent("SETUP_COMPLETE")
	c.SendText("hello")
	c.AwaitEvent("TURN_COMPLETE")
	text := awaitMetric(t, private, "voxgate_tokens_total")
	for _, want := range []string{
		`{direction="in",key="",modality="unknown"} 1`, `{direction="out",key="",modality="unknown"} 7`,
		`{direction="unknown",key="",modality="unknown"} 20000`,
		`{direction="out",key="",modality="audio"} `,
	} {
		if !strings.Contains(text, "voxgate_tokens_total"+want) {
			t.Errorf("no %s:\n%s", want, filterMetrics(text))
		}
	}
}

// awaitMetric waits until the metrics contain a series, and returns the text of all metrics.
func awaitMetric(t *testing.T, private, series string) string {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		if _, text := getURL(t, private+"/metrics"); strings.Contains(text, series) {
			return text
		} else if time.Now().After(deadline) {
			t.Fatalf("no %s:\n%s", series, filterMetrics(text))
		}
	}
}

// filterMetrics returns the lines of the gateway's own metrics, without the buckets of histograms.
func filterMetrics(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "voxgate_") && !strings.Contains(line, "_bucket") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// Metrics, health and the profiler are served at the private address only.
func TestThePrivateListener(t *testing.T) {
	p := startGateway(t, []string{"serve", "--addr", "127.0.0.1:0", "--private-addr", "127.0.0.1:0"}, env())
	private := p.awaitLog(`msg=private at=(\S+)`)
	for path, says := range map[string]string{
		"/metrics": "voxgate_sessions", "/healthz": "ok", "/readyz": "ok", "/debug/pprof/": "goroutine",
		"/debug/pprof/goroutine?debug=1": "goroutine profile",
	} {
		if status, body := getURL(t, private+path); status != http.StatusOK || !strings.Contains(body, says) {
			t.Errorf("%s: %d %.300s", path, status, body)
		}
		if status, body := getURL(t, p.url+path); status != http.StatusNotFound || strings.Contains(body, says) {
			t.Errorf("%s is served to everybody: %d %.300s", path, status, body)
		}
	}
	var says strings.Builder
	asks := []string{"health", "--private-addr", strings.TrimPrefix(private, "http://")}
	if err := runCommand(t.Context(), asks, env(), &says, io.Discard); err != nil || says.String() != "ok\n" {
		t.Errorf("health: %q, %v", says.String(), err)
	}
	if err := runCommand(t.Context(), []string{"health", "--private-addr", "127.0.0.1:1"}, env(), io.Discard, io.Discard); err == nil {
		t.Error("a gateway is healthy that is not there")
	}
	if err := runCommand(t.Context(), []string{"health"}, env(), io.Discard, io.Discard); err == nil ||
		!strings.Contains(err.Error(), "VOXGATE_PRIVATE_ADDR") {
		t.Errorf("nowhere to ask: %v", err)
	}
	if status, body := getURL(t, private+"/debug/pprof/cmdline"); strings.Contains(body, "serve") || strings.Contains(body, "-test") {
		t.Errorf("the command line is shown, which may hold a secret: %d %s", status, body)
	}
}

func TestFoldersMustBeThere(t *testing.T) {
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"record-all: name a folder": {"--record-all"},
		"recordings: ":              {"--recordings", t.TempDir() + "/none"},
		"is not a folder":           {"--recordings", file},
		"calls: ":                   {"--calls", file},
		"keep: -1":                  {"--keep", "-1"},
		"keep: 200000000000000":     {"--keep", "200000000000000"},
	} {
		if _, err := parseSettings(args, nil, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// A gateway sends traces of conversations to the collector that the environment names. Without a collector it creates none.
func TestTraces(t *testing.T) {
	sent := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		sent <- r.URL.Path + string(body)
	}))
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	p := startGateway(t, []string{"serve", "--addr", "127.0.0.1:0"}, env())
	p.askOnce(`{}`)
	p.stopGateway() // sends the remaining spans
	close(sent)
	var all strings.Builder
	for one := range sent {
		all.WriteString(one)
	}
	for _, want := range []string{"/v1/traces", "voxgate", "conversation", "turn", "link"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("the collector does not learn of %s: %q", want, all.String())
		}
	}
}

// The results of outgoing calls, and the quality of their audio, are in the metrics.
func TestMetricsOfTelephones(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	trunk, sound := listenUDP(t), listenUDP(t)
	p, key := startDialler(t, trunk)
	private := p.awaitLog(`msg=private at=(\S+)`)
	ask := func(method, path, body string) string { return p.requestWithKey(key, method, path, body) }
	const call = `{"to":"+49302","trunk":"line","agent":{"prompt":"You call."}}`
	replied := make(chan string, 1)
	go func() { replied <- ask(http.MethodPost, "/v1/calls", call) }()
	awaitAndReply(t, trunk, "INVITE", "486 Busy Here", "")
	<-replied
	awaitMetric(t, private, `voxgate_sip_calls_out_total{outcome="busy"} 1`)

	go func() { replied <- ask(http.MethodPost, "/v1/calls", call) }()
	invite := awaitAndReply(t, trunk, "INVITE", "200 OK", fmt.Sprintf(
		callSDP, sound.LocalAddr().(*net.UDPAddr).Port))
	id := regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(<-replied)
	port := regexp.MustCompile(`m=audio (\d+)`).FindStringSubmatch(invite)
	if id == nil || port == nil {
		t.Fatalf("no call:\n%s", invite)
	}
	to := net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:" + port[1]))
	stop := make(chan struct{})
	var talking sync.WaitGroup
	talking.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		packet := rtp.Packet{Header: rtp.Header{Version: 2, SSRC: 7}, Payload: make([]byte, 160)}
		for {
			packet.SequenceNumber++
			packet.Timestamp += 160
			if b, err := packet.Marshal(); err == nil {
				_, _ = sound.WriteTo(b, to)
			}
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	})
	defer talking.Wait()
	defer close(stop)
	awaitMetric(t, private, `voxgate_sessions{door="sip",state="live"} 1`)
	reportLoss(t, sound, to, 10, 100)
	for deadline := time.Now().Add(patience); !strings.Contains(ask(http.MethodGet, "/v1/sessions", ""), `"down":0.1`); {
		if time.Now().After(deadline) {
			t.Fatal("the reported loss is not in the list of sessions")
		}
	}
	ask(http.MethodDelete, "/v1/calls/"+id[1], "")
	awaitAndReply(t, trunk, "BYE", "200 OK", "")
	awaitMetric(t, private, `voxgate_sip_calls_out_total{outcome="answered"} 1`)
	awaitMetric(t, private, `voxgate_rtp_jitter_seconds_count{direction="up"} 1`)
	awaitMetric(t, private, `voxgate_rtp_packets_total{direction="down"} 100`)
	awaitMetric(t, private, `voxgate_rtp_packets_lost_total{direction="down"} 10`)

	at, err := net.ResolveUDPAddr("udp", p.awaitLog(`msg=listening door=sip transport=UDP at=(\S+)`))
	if err != nil {
		t.Fatal(err)
	}
	refused := fmt.Sprintf("INVITE sip:500@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP %s;branch=z9hG4bKm\r\nMax-Forwards: 70\r\n"+
		"From: <sip:ada@127.0.0.1>;tag=1\r\nTo: <sip:500@127.0.0.1>\r\nCall-ID: m\r\nCSeq: 1 INVITE\r\nContact: <sip:ada@%s>\r\n"+
		"Content-Length: 0\r\n\r\n", trunk.LocalAddr(), trunk.LocalAddr())
	if _, err := trunk.WriteTo([]byte(refused), at); err != nil {
		t.Fatal(err)
	}
	awaitMetric(t, private, `voxgate_refusals_total{rule="sip no agent"} 1`)
}

// requestWithKey sends a request with a server key, and returns the body of the answer.
func (p *program) requestWithKey(key, method, path, body string) string {
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Error(err)
		return ""
	}
	r.Header.Set("Authorization", "Bearer "+key)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	defer answer.Body.Close()
	b, _ := io.ReadAll(answer.Body)
	return string(b)
}

// reportLoss sends an RTCP report about the stream that comes from the address `from`. It reports the number of lost
// packets, out of the number in the parameter of.
func reportLoss(t *testing.T, sound net.PacketConn, from *net.UDPAddr, lost, of uint32) {
	t.Helper()
	var ours rtp.Packet
	b := make([]byte, 1500)
	err := sound.SetReadDeadline(time.Now().Add(patience))
	if err == nil {
		var n int
		if n, _, err = sound.ReadFrom(b); err == nil {
			err = ours.Unmarshal(b[:n])
		}
	}
	for _, share := range []uint32{0, 1} { // the gateway counts the loss between two reports
		if err != nil {
			t.Fatal(err)
		}
		heard := rtcp.ReceptionReport{SSRC: ours.SSRC, LastSequenceNumber: 1000 + share*of, TotalLost: share * lost}
		b, err = rtcp.Marshal([]rtcp.Packet{&rtcp.ReceiverReport{SSRC: 1, Reports: []rtcp.ReceptionReport{heard}}})
		if err == nil {
			_, err = sound.WriteTo(b, &net.UDPAddr{IP: from.IP, Port: from.Port + 1})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// startDialler starts a gateway that may call +49 numbers over a trunk. It returns a server key that may place such calls.
// The pairs in more are further settings.
func startDialler(t *testing.T, trunk net.PacketConn, more ...string) (p *program, key string) {
	t.Helper()
	keys := filepath.Join(t.TempDir(), "keys.json")
	key, err := access.NewKey(keys, "dialler", []string{access.MayCall, access.MayWatchAll})
	if err != nil {
		t.Fatal(err)
	}
	model := startGateway(t, []string{"emulate", "-addr", "127.0.0.1:0"}, env())
	return startGateway(t, []string{"serve"}, env(append(more,
		"VOXGATE_ADDR", "127.0.0.1:0", "VOXGATE_PRIVATE_ADDR", "127.0.0.1:0", "VOXGATE_KEYS", keys, "GOOGLE_GEMINI_BASE_URL", model.url,
		"VOXGATE_SIP", writeTempFile(t, fmt.Sprintf(`{"listen":[{"transport":"udp","address":"127.0.0.1:0"}],
			"trunks":[{"name":"line","callsPerSecond":100,"from":["127.0.0.1"],
			"outbound":{"server":"sip:%s","from":"+49301","to":["+49*"]}}]}`, trunk.LocalAddr())),
	)...)), key
}

func listenUDP(t *testing.T) net.PacketConn {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// callSDP is an SDP for G.711 audio at a port on the loopback.
const callSDP = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio %d RTP/AVP 0\r\n"

// awaitAndReply waits for a SIP request with this method, answers it with status and sdp, and returns the request.
func awaitAndReply(t *testing.T, trunk net.PacketConn, method, status, sdp string) string {
	t.Helper()
	if err := trunk.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 65535); ; {
		n, from, err := trunk.ReadFrom(b)
		if err != nil {
			t.Fatalf("no %s: %v", method, err)
		}
		if request := string(b[:n]); strings.HasPrefix(request, method+" ") {
			_, _ = trunk.WriteTo(responseTo(trunk, request, status, sdp), from)
			return request
		}
	}
}

var dialog = regexp.MustCompile(`(?m)^(Via|From|To|Call-ID|CSeq): [^\r]*`)

// responseTo returns the response to a SIP request, with this status and SDP.
func responseTo(trunk net.PacketConn, request, status, sdp string) []byte {
	head := "SIP/2.0 " + status + "\r\n"
	for _, field := range dialog.FindAllString(request, -1) {
		if strings.HasPrefix(field, "To:") && !strings.Contains(field, "tag=") {
			field += ";tag=them"
		}
		head += field + "\r\n"
	}
	return fmt.Appendf(nil, "%sContact: <sip:ada@%s>\r\nContent-Type: application/sdp\r\nContent-Length: %d\r\n\r\n%s",
		head, trunk.LocalAddr(), len(sdp), sdp)
}
