package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"
	"github.com/pion/webrtc/v4"

	"voxgate/internal/testkit"
	"voxgate/internal/testkit/mediatest"
	"voxgate/internal/testkit/rtctest"
)

// newCertificate returns a self-signed certificate for gateway.test and 127.0.0.1, and its key, as PEM.
func newCertificate(t *testing.T, serial int64) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "gateway.test"}, DNSNames: []string{"gateway.test"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

func mustWriteFile(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// newTLSConfig returns the TLS configuration of a client that trusts these root certificates.
func newTLSConfig(t *testing.T, roots ...[]byte) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	for _, root := range roots {
		if !pool.AppendCertsFromPEM(root) {
			t.Fatalf("no certificate: %s", root)
		}
	}
	return &tls.Config{RootCAs: pool}
}

// certificateSerial performs a TLS handshake, and returns the serial number of the gateway's certificate.
func (p *program) certificateSerial(config *tls.Config) int64 {
	p.t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(p.url, "https://"), config)
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// TestServeOverTLS talks over TLS while the certificate is renewed. After the first of its two files, the old pair stays in
// use.
func TestServeOverTLS(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	certFile, keyFile := filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	cert1, key1 := newCertificate(t, 1)
	cert2, key2 := newCertificate(t, 2)
	mustWriteFile(t, certFile, cert1)
	mustWriteFile(t, keyFile, key1)
	p := startGateway(t, nil, env("VOXGATE_ADDR", "127.0.0.1:0", "VOXGATE_TLS_CERT", certFile, "VOXGATE_TLS_KEY", keyFile))
	if !strings.HasPrefix(p.url, "https://localhost:") {
		t.Fatalf("announced as %s", p.url)
	}
	p.url = strings.Replace(p.url, "localhost", "127.0.0.1", 1)
	config := newTLSConfig(t, cert1, cert2)
	dialer := websocket.Dialer{TLSClientConfig: config}
	dial := func(origin string) (*websocket.Conn, error) {
		conn, _, err := dialer.Dial("wss"+strings.TrimPrefix(p.url, "https"), http.Header{"Origin": {origin}})
		return conn, err
	}
	if _, err := dial(strings.Replace(p.url, "https", "http", 1)); err == nil {
		t.Error("a page that came over http may connect")
	}
	conn, err := dial(p.url)
	if err != nil {
		t.Fatal(err)
	}
	c := testkit.NewWebSocketClient(t, conn)
	c.Send("CONNECT_GEMINI", `{"initialConfig":{}}`)
	c.AwaitEvent("SETUP_COMPLETE")
	if n := p.certificateSerial(config); n != 1 {
		t.Fatalf("certificate %d", n)
	}
	until := p.awaitCondition
	browser := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	resp, err := browser.Get(p.url + "/v1beta/models")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if policy := resp.Header.Get("Strict-Transport-Security"); policy != "max-age=31536000" {
		t.Errorf("Strict-Transport-Security: %q", policy)
	}
	if keeping := resp.Header.Get("Cache-Control"); keeping != "no-store" {
		t.Errorf("Cache-Control of an answer of the API: %q", keeping)
	}
	mustWriteFile(t, certFile, cert2)
	until(func() bool {
		if n := p.certificateSerial(config); n != 1 {
			t.Fatalf("certificate %d, before its key is there", n)
		}
		return strings.Contains(p.logged(), "keeping the old one")
	})
	mustWriteFile(t, keyFile, key2)
	until(func() bool { return p.certificateSerial(config) == 2 })
	p.awaitLog("certificate renewed")
	c.SendText("hello")
	c.AwaitEvent("TURN_COMPLETE")
}

func TestBadCertificate(t *testing.T) {
	folder := t.TempDir()
	cert, _ := newCertificate(t, 1)
	_, key := newCertificate(t, 2)
	mustWriteFile(t, folder+"/cert", cert)
	mustWriteFile(t, folder+"/key", key)
	err := runCommand(
		t.Context(),
		nil,
		env("VOXGATE_ADDR", "127.0.0.1:0", "VOXGATE_TLS_CERT", folder+"/cert", "VOXGATE_TLS_KEY", folder+"/key"),
		io.Discard,
		io.Discard,
	)
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a key of another certificate: %v", err)
	}
}

// newTestCA returns Pebble, the test CA of Let's Encrypt. It validates every name at the address from resolver, at this port.
func newTestCA(port int, resolver string) http.Handler {
	quiet := log.New(io.Discard, "", 0)
	store := db.NewMemoryStore()
	authority := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {}})
	validation := va.New(quiet, 0, port, false, resolver, store)
	front := wfe.New(quiet, store, validation, authority, nil, false, false, 0, 0)
	mux := http.NewServeMux()
	mux.Handle("/", front.Handler())
	mux.Handle("/roots/", front.ManagementHandler())
	return mux
}

// startResolver starts a DNS server that resolves every name to 127.0.0.1.
func startResolver(t *testing.T) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{Listener: listener, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, asked *dns.Msg) {
		answer := new(dns.Msg).SetReply(asked)
		if q := asked.Question[0]; q.Qtype == dns.TypeA {
			answer.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: q.Qclass}, A: net.IPv4(127, 0, 0, 1)}}
		}
		w.WriteMsg(answer)
	})}
	ended := make(chan error, 1)
	go func() { ended <- server.ActivateAndServe() }()
	t.Cleanup(func() {
		server.Shutdown()
		<-ended
	})
	return listener.Addr().String()
}

// TestServeWithACME gets a certificate from a CA, which validates the domain at the gateway, and holds a conversation.
func TestServeWithACME(t *testing.T) {
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	port := mediatest.FreePort(t)
	server := httptest.NewTLSServer(newTestCA(port, startResolver(t)))
	defer server.Close()
	transport := http.DefaultTransport.(*http.Transport) // used by the gateway's ACME client, which must trust the test CA
	transport.TLSClientConfig = newTLSConfig(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	defer func() {
		transport.CloseIdleConnections()
		transport.TLSClientConfig = nil
	}()
	folder := t.TempDir()
	p := startGateway(
		t,
		nil,
		env(
			"VOXGATE_ADDR",
			fmt.Sprintf("127.0.0.1:%d", port),
			"VOXGATE_ACME_DOMAIN",
			"gateway.test",
			"VOXGATE_ACME_CACHE",
			folder,
			"VOXGATE_ACME_DIRECTORY",
			server.URL+"/dir",
		),
	)
	at, err := url.Parse(p.url)
	if err != nil || at.Hostname() != "gateway.test" {
		t.Fatalf("announced as %s, %v", p.url, err)
	}
	p.awaitCondition(func() bool { // the certificate is stored before the first client connects
		file, err := os.ReadFile(filepath.Join(folder, "gateway.test"))
		return err == nil && bytes.Contains(file, []byte("CERTIFICATE"))
	})
	roots, err := http.Get(server.URL + "/roots/0")
	if err != nil {
		t.Fatal(err)
	}
	root, err := io.ReadAll(roots.Body)
	roots.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	dialer := websocket.Dialer{
		TLSClientConfig: newTLSConfig(t, root),
		NetDial:         func(string, string) (net.Conn, error) { return net.Dial("tcp", "127.0.0.1:"+at.Port()) },
	}
	conn, _, err := dialer.Dial("wss://"+at.Host, http.Header{"Origin": {p.url}})
	if err != nil {
		t.Fatalf("%v\n%s", err, p.logged())
	}
	c := testkit.NewWebSocketClient(t, conn)
	c.Send("CONNECT_GEMINI", `{"initialConfig":{}}`)
	c.AwaitEvent("SETUP_COMPLETE")
	// A client that requests another name gets no certificate.
	if other, err := tls.Dial("tcp", "127.0.0.1:"+at.Port(), &tls.Config{ServerName: "other.test", InsecureSkipVerify: true}); err == nil {
		other.Close()
		t.Error("there is a certificate for another name")
	}
}

// TestOnePortForAll: the page and ICE-TCP share a port, with TLS and without. A client that sends nothing delays no other
// client.
func TestOnePortForAll(t *testing.T) {
	folder := t.TempDir()
	cert, key := newCertificate(t, 1)
	mustWriteFile(t, folder+"/cert", cert)
	mustWriteFile(t, folder+"/key", key)
	for name, more := range map[string][]string{
		"plain": nil,
		"TLS":   {"VOXGATE_TLS_CERT", folder + "/cert", "VOXGATE_TLS_KEY", folder + "/key"},
	} {
		t.Run(name, func(t *testing.T) {
			port := mediatest.FreePort(t)
			addr := fmt.Sprintf("127.0.0.1:%d", port)
			p := startGateway(t, nil, env(append(more, "VOXGATE_ADDR", addr, "VOXGATE_TCP_PORT", strconv.Itoa(port))...))
			silent, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer silent.Close()
			p.url = strings.Replace(p.url, "localhost", "127.0.0.1", 1)
			dialer := websocket.Dialer{TLSClientConfig: newTLSConfig(t, cert)}
			conn, _, err := dialer.Dial("ws"+strings.TrimPrefix(p.url, "http"), nil)
			if err != nil {
				t.Fatal(err)
			}
			c := testkit.NewWebSocketClient(t, conn)
			c.Send("CONNECT_GEMINI", `{"initialConfig":{}}`)
			caller, answer := offerWebRTC(c, webrtc.NetworkTypeTCP4)
			if err := caller.SetAnswer(answer); err != nil {
				t.Fatal(err)
			}
			select {
			case <-caller.Connected():
			case <-time.After(patience):
				t.Errorf("not connected\n%s\n%s", answer, p.logged())
			}
		})
	}
}

// offerWebRTC sends the offer of a new WebRTC caller with candidates of one network type, and returns the answer.
func offerWebRTC(c *testkit.Client, network webrtc.NetworkType) (caller *rtctest.Caller, answer string) {
	c.T.Helper()
	caller, err := rtctest.New(rtctest.Options{
		Channel: "events", Network: func(s *webrtc.SettingEngine) { s.SetNetworkTypes([]webrtc.NetworkType{network}) },
	})
	if err != nil {
		c.T.Fatal(err)
	}
	c.T.Cleanup(caller.Close)
	offer, err := caller.Offer(c.T.Context(), false)
	if err != nil {
		c.T.Fatal(err)
	}
	sdp, err := json.Marshal(offer)
	if err != nil {
		c.T.Fatal(err)
	}
	c.Send("WEBRTC_OFFER", fmt.Sprintf(`{"sdp":%s}`, sdp))
	var m struct{ SDP string }
	c.AwaitEvent("WEBRTC_ANSWER").DecodePayload(c.T, &m)
	return caller, m.SDP
}

// TestWebRTCElsewhere: WebRTC can listen at another address than the page, as behind a proxy on the same machine.
func TestWebRTCElsewhere(t *testing.T) {
	p := startGateway(t, nil, env("VOXGATE_ADDR", "127.0.0.1:0", "VOXGATE_WEBRTC_HOST", "127.0.0.2"))
	c := p.openConversation(`{}`)
	defer c.Conn.Close()
	_, answer := offerWebRTC(c, webrtc.NetworkTypeUDP4)
	if !strings.Contains(answer, " 127.0.0.2 ") || strings.Contains(answer, " 127.0.0.1 ") {
		t.Errorf("WebRTC is at another place:\n%s", answer)
	}
}

// TestBodiesWithTwoLengths sends a request with two lengths for its body, and then a second request on the same connection.
// After a chunked body the connection is closed, because a proxy might use the Content-Length (request smuggling).
func TestBodiesWithTwoLengths(t *testing.T) {
	p := startGateway(t, []string{"serve", "--addr", "127.0.0.1:0", "--private-addr", "127.0.0.1:0", "--rest-addr", "127.0.0.1:0"}, env())
	addresses := []string{p.url, p.awaitLog(`msg=private at=(\S+)`), p.awaitLog(`msg=REST at=(http://[^/]+)`)}
	for headers, want := range map[string]int{ // the number of answers
		"Content-Length: 2\r\n\r\n{}":                                        2,
		"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n":   1,
		"Transfer-Encoding: chunked\r\nContent-Length: 47\r\n\r\n0\r\n\r\n":  1,
		"transfer-encoding: CHUNKED\r\ncontent-length: 0\r\n\r\n0\r\n\r\n":   1,
		"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n":             1, // the server cannot see if a Content-Length was dropped
		"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n":              1,
		"Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}":         1,
		"Transfer-Encoding: \vchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n": 1,
	} {
		for _, address := range addresses {
			for _, path := range []string{"/", "/nothing", "/v1beta/models/m:generateContent", "/v1/drain"} {
				if path == "/v1/drain" && address == addresses[1] { // this would start the drain
					continue
				}
				conn, err := net.Dial("tcp", strings.TrimPrefix(strings.TrimSuffix(address, "/"), "http://"))
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n%sGET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"+
					"Connection: close\r\n\r\n", path, headers)
				text, err := io.ReadAll(conn)
				conn.Close()
				if got := strings.Count(string(text), "HTTP/1.1 "); got != want || err != nil {
					t.Errorf("%s%s with %q: %d answers, %v\n%.500s", address, path, headers, got, err, text)
				}
			}
		}
	}
}

// If a listener cannot accept connections, as with too many open files, the log has one error and not ten per second.
func TestConnectionsThatCannotBeAccepted(t *testing.T) {
	var logged bytes.Buffer
	failing := &fullListener{errors: 3}
	server := newServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if err := server.Serve(logAcceptErrors(failing, slog.New(slog.NewJSONHandler(&logged, nil)))); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the server ends by %v", err)
	}
	if text := logged.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `"level":"ERROR"`) ||
		!strings.Contains(text, "too many open files") {
		t.Errorf("logged %s", text)
	}
}

// fullListener is a listener whose Accept fails as often as errors says, and then returns net.ErrClosed.
type fullListener struct{ errors int }

func (l *fullListener) Accept() (net.Conn, error) {
	if l.errors--; l.errors < 0 {
		return nil, net.ErrClosed
	}
	return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
}

func (l *fullListener) Close() error   { return nil }
func (l *fullListener) Addr() net.Addr { return &net.TCPAddr{} }
