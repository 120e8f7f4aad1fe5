package testkit_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
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

	"github.com/icholy/digest"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/compat/geminirest"
	"voxgate/signaling/phone/sip"
	"voxgate/signaling/rtc"
)

// floodBodies is the limit of the flooded gateway for request bodies, in megabytes: room for three of the bodies sent.
const floodBodies = 24

// slowBackend starts a backend that reads 100 KB per second and does not answer.
func slowBackend(t *testing.T) *httptest.Server {
	t.Helper()
	up := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for buf := make([]byte, 1<<10); ; <-tick.C {
			if _, err := io.ReadFull(r.Body, buf); err != nil {
				return
			}
		}
	}))
	t.Cleanup(up.Close)
	return up
}

// withREST returns an option that serves the REST API with the backend up.
func withREST(t *testing.T, model *api.Client) testkit.Option {
	return func(d *testkit.Endpoints, _ *bridge.Options) {
		d.AddEndpoints(func(host *bridge.Host, peers *rtc.API) []signaling.Endpoint {
			server := geminirest.New(host, model, nil, slog.New(slog.DiscardHandler))
			t.Cleanup(server.Close)
			return server.Endpoints()
		})
	}
}

// floodREST sends large bodies at the same time. Bodies without room are rejected, and the clients of the others leave at the
// end.
func floodREST(t *testing.T, g *testkit.Gateway, up *httptest.Server) testkit.Flooder {
	const size, requests = 8, 20 // MB
	const refused = requests - floodBodies/size
	body := `{"contents":[{"parts":[{"text":"` + strings.Repeat("A", size<<20-100) + `"}]}]}`
	ctx, leave := context.WithCancel(t.Context())
	answers := make(chan string, requests)
	var running sync.WaitGroup
	ask := func() {
		at := g.HTTP + "/v1beta/models/gemini-3.8-flash:generateContent"
		r := testkit.Must(http.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader(body)))
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return // the client has left
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" ||
			!strings.Contains(string(text), `"status":"UNAVAILABLE"`) {
			t.Errorf("%s %v: %s", resp.Status, resp.Header, text)
		}
		answers <- resp.Status
	}
	return testkit.Flooder{Send: func(n int) bool {
		if n < requests {
			running.Go(ask)
			return true
		}
		late := time.After(testkit.Patience)
		for n := range refused {
			select {
			case <-answers:
			case <-late:
				t.Errorf("%d are refused, want %d", n, refused)
				return false
			}
		}
		return false
	}, End: func() {
		leave()
		running.Wait()
		up.CloseClientConnections() // otherwise it would read the data in the kernel's buffers for half a minute
		if n := len(answers); n > 0 {
			t.Errorf("%d more are refused", n)
		}
	}}
}

// floodEmulator sends bodies with as many JSON values as possible to a gateway without an API key, whose emulator reads them.
func floodEmulator(t *testing.T, _ *testkit.Gateway) testkit.Flooder {
	const requests = 6
	model := testkit.StartModel(t, emulator.Options{})
	gate := testkit.Must(access.New(access.Options{
		Agents: testkit.Agents, Limits: access.Limits{BodyMegabytes: floodBodies}, Logger: slog.New(slog.DiscardHandler),
	}))
	t.Cleanup(func() { gate.Close() })
	g := testkit.StartGateway(t, func(d *testkit.Endpoints, _ *bridge.Options) { d.Access = gate }, withREST(t, model))
	at, body := g.HTTP+"/v1beta/models/gemini-3.8-flash:countTokens", `{"x":[`+testkit.RepeatJSON(19<<20/3, "{}")+`]}`
	var running sync.WaitGroup
	return testkit.Flooder{Send: func(n int) bool {
		running.Go(func() {
			resp, text := testkit.SendHTTP(t, http.MethodPost, at, body)
			busy := resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != ""
			if !busy && (resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, "at most 100000 values")) {
				t.Errorf("%s: %.300s", resp.Status, text)
			}
		})
		return n+1 < requests
	}, End: running.Wait}
}

// floodSideband sends messages as the operator's backend, which watches a conversation.
func floodSideband(messages ...string) func(*testing.T, *testkit.Gateway) testkit.Flooder {
	return func(t *testing.T, _ *testkit.Gateway) testkit.Flooder {
		l := testkit.StartLockedGateway(t, nil)
		c := testkit.DialWebSocket(t, l.URL)
		id, _ := testkit.EnterConversation(t, c, testkit.ConnectPayload(l.MintToken(`{}`), ""))
		at := strings.TrimSuffix(l.URL, "/") + "/v1/sessions/" + id + "/events"
		backend := testkit.DialWebSocketWith(t, at, http.Header{"Authorization": {"Bearer " + operator(t, l)}})
		backend.AwaitEvent("SETUP_COMPLETE")
		f := testkit.NewSocketFlooder(backend, messages...)
		f.End = func() { testkit.DropConnection(backend); testkit.DropConnection(c) }
		return f
	}
}

// stranger is a simple SIP client at a UDP address.
type stranger struct {
	net.PacketConn
	to net.Addr
	n  int // number of requests sent
}

func newStranger(t *testing.T, server *sip.Server, at string) *stranger {
	t.Helper()
	return &stranger{PacketConn: testkit.Must(net.ListenPacket("udp", at+":0")), to: net.UDPAddrFromAddrPort(server.Addresses()[0])}
}

// ask sends a request and returns the final response, or "" if none arrives in the time wait: UDP packets may be lost.
func (s *stranger) ask(method, headers, body string, wait time.Duration) string {
	s.n++
	sequence := fmt.Sprintf("CSeq: %d %s\r\n", s.n, method)
	fmt.Fprintf(s, "%s sip:500@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP %s;branch=z9hG4bKflood%d;rport\r\nMax-Forwards: 70\r\n"+
		"From: <sip:eve@127.0.0.1>;tag=1\r\nTo: <sip:500@127.0.0.1>\r\nCall-ID: %d-%s\r\n%s"+
		"Contact: <sip:eve@%s>\r\n%sContent-Length: %d\r\n\r\n%s",
		method, s.LocalAddr(), s.n, s.n, s.LocalAddr(), sequence, s.LocalAddr(), headers, len(body), body)
	s.SetReadDeadline(time.Now().Add(wait))
	for buf := make([]byte, 4<<10); wait > 0; {
		n, _, err := s.ReadFrom(buf)
		if err != nil {
			return ""
		}
		if text := string(buf[:n]); strings.Contains(text, sequence) && !strings.HasPrefix(text, "SIP/2.0 1") {
			return text
		}
	}
	return ""
}

var toOf = regexp.MustCompile(`(?m)^To: .*\r\n`)

// invite begins a call, and fails the test if the call is not answered.
func (s *stranger) invite(t *testing.T) {
	t.Helper()
	sdp := fmt.Sprintf("v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio %d RTP/AVP 0\r\n",
		s.LocalAddr().(*net.UDPAddr).Port)
	answer := s.ask("INVITE", "Content-Type: application/sdp\r\n", sdp, testkit.Patience)
	if !strings.HasPrefix(answer, "SIP/2.0 200") {
		t.Fatalf("the call is answered %q", answer)
	}
	fmt.Fprintf(s, "ACK sip:500@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP %s;branch=z9hG4bKack;rport\r\nMax-Forwards: 70\r\n"+
		"From: <sip:eve@127.0.0.1>;tag=1\r\n%sCall-ID: %d-%s\r\nCSeq: %d ACK\r\nContent-Length: 0\r\n\r\n",
		s.LocalAddr(), toOf.FindString(answer), s.n, s.LocalAddr(), s.n)
}

// isHungUp waits for a BYE, and answers it.
func (s *stranger) isHungUp(t *testing.T) {
	t.Helper()
	s.SetReadDeadline(time.Now().Add(testkit.Patience))
	for buf := make([]byte, 4<<10); ; {
		n, _, err := s.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		if first, headers, _ := strings.Cut(string(buf[:n]), "\r\n"); strings.HasPrefix(first, "BYE ") {
			fmt.Fprintf(s, "SIP/2.0 200 OK\r\n%s", headers)
			return
		}
	}
}

func (s *stranger) Write(b []byte) (int, error) { return s.WriteTo(b, s.to) }

var nonceOf = regexp.MustCompile(`nonce="([^"]+)"`)

// newTrunks serves SIP for two trunks: one is identified by its address, 127.0.0.5, and the other by a password.
func newTrunks(t *testing.T, g *testkit.Gateway) *sip.Server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sip.json")
	const config = `{"listen":[{"transport":"udp","address":"127.0.0.1:0"}],
		"trunks":[{"name":"lab","from":["127.0.0.5"]},{"name":"any","username":"alice","password":"open sesame"}]}`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	options := sip.Options{Agents: testkit.Agents, Host: g.Host, Logger: slog.New(slog.DiscardHandler)}
	options.Config = testkit.Must(sip.Load(file))
	server := testkit.Must(sip.New(options))
	t.Cleanup(server.Close)
	return server
}

// floodSIP sends SIP requests from many unknown addresses, and tries passwords from another one. The SIP endpoint must still
// answer its trunk.
func floodSIP(t *testing.T, g *testkit.Gateway) testkit.Flooder {
	server := newTrunks(t, g)
	eve, lab := newStranger(t, server, "127.0.9.251"), newStranger(t, server, "127.0.0.5")
	return testkit.Flooder{Send: func(n int) bool {
		s := newStranger(t, server, fmt.Sprintf("127.0.9.%d", 1+n%250))
		defer s.Close()
		s.ask("OPTIONS", "", "", 0)
		s.ask("BYE", "", "", 0)
		s.ask("INVITE", "", "", 0)
		challenge := nonceOf.FindStringSubmatch(eve.ask("INVITE", "", "", time.Second))
		if challenge == nil {
			return true
		}
		proof := testkit.Must(digest.Digest(&digest.Challenge{Realm: "voxgate", Nonce: challenge[1], Algorithm: "MD5", QOP: []string{"auth"}},
			digest.Options{Method: "INVITE", URI: "sip:500@127.0.0.1", Username: "alice", Password: fmt.Sprint("guess ", n), Count: 1}))
		if answer := eve.ask("INVITE", "Authorization: "+proof.String()+"\r\n", "", time.Second); strings.HasPrefix(answer, "SIP/2.0 2") {
			t.Errorf("a wrong password: %s", answer)
		}
		return true
	}, End: func() {
		if answer := lab.ask("OPTIONS", "", "", testkit.Patience); !strings.HasPrefix(answer, "SIP/2.0 200") {
			t.Errorf("the trunk is answered %s", answer)
		}
		eve.Close()
		lab.Close()
	}}
}
