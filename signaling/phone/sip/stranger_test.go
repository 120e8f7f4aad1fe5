package sip_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/icholy/digest"

	"voxgate/signaling/phone"
	"voxgate/signaling/phone/sip/ua"
)

// passwordConfig returns a configuration that accepts calls with a password, from any address.
func passwordConfig(t *testing.T) string {
	return trunkConfig(t, map[string]any{"from": []string{}, "username": "alice", "password": "open sesame"})
}

// newCallerPhone returns a phone at an address, which the test drives.
func newCallerPhone(t testing.TB, o *testGateway, at string) *handset {
	t.Helper()
	conn, err := net.ListenPacket("udp", at+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &handset{t: t, signals: conn, to: net.UDPAddrFromAddrPort(o.server.Addresses()[0])}
}

const body = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 9 RTP/AVP 0\r\n"

// sendInvite sends an INVITE with a CSeq, and returns the status and text of the first final response.
func (h *handset) sendInvite(number int, headers string) (status, text string) {
	h.t.Helper()
	h.send(fmt.Sprintf("INVITE sip:500@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP %s;branch=z9hG4bKinvite%d;rport\r\nMax-Forwards: 70\r\n"+
		"From: <sip:eve@127.0.0.1>;tag=1\r\nTo: <sip:500@127.0.0.1>\r\nCall-ID: %s\r\nCSeq: %d INVITE\r\nContact: <sip:eve@%s>\r\n"+
		"%sContent-Type: application/sdp\r\nContent-Length: %d\r\n\r\n%s",
		h.signals.LocalAddr(), number, h.signals.LocalAddr(), number, h.signals.LocalAddr(), headers, len(body), body))
	text = h.awaitResponse(fmt.Sprintf("[2-6](?s:.*)CSeq: %d INVITE", number)) // not a retransmission of an earlier one
	return text[len("SIP/2.0 "):][:3], text
}

var nonceOf = regexp.MustCompile(`nonce="([^"]+)"`)

// requestNonce asks for a nonce.
func (h *handset) requestNonce(number int) string {
	h.t.Helper()
	status, text := h.sendInvite(number, "")
	m := nonceOf.FindStringSubmatch(text)
	if status != "401" || m == nil {
		h.t.Fatalf("answered %s", text)
	}
	return m[1]
}

// authenticate answers a challenge with a password, and returns the status of the response. more are additional headers.
func (h *handset) authenticate(number int, nonce, password string, more ...string) string {
	h.t.Helper()
	c, err := digest.Digest(&digest.Challenge{Realm: "voxgate", Nonce: nonce, Algorithm: "MD5", QOP: []string{"auth"}},
		digest.Options{Method: "INVITE", URI: "sip:500@127.0.0.1", Username: "alice", Password: password, Count: 1})
	if err != nil {
		h.t.Fatal(err)
	}
	status, _ := h.sendInvite(number, "Authorization: "+c.String()+"\r\n"+strings.Join(more, ""))
	return status
}

// Nothing is stored for unauthenticated addresses. Once, after 50,000 of them new ones were dropped until a restart, and after 10,000
// challenges older ones became invalid.
func TestNoStateForStrangers(t *testing.T) {
	t.Parallel()
	o := startGateway(t, passwordConfig(t))
	caller := newCallerPhone(t, o, "127.0.0.1")
	nonce, asked := caller.requestNonce(1), time.Now()
	kept := o.server.UDPConnections()
	for i := range 500 {
		stranger := newCallerPhone(t, o, fmt.Sprintf("127.0.9.%d", 1+i%250))
		stranger.send("OPTIONS sip:x SIP/2.0\r\n\r\n")
		stranger.send(hostilePackets("127.0.9.1:9")["BYE of nobody"])
		stranger.send(
			"SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 127.0.0.1;branch=z9hG4bKx\r\n" +
				"From: <sip:a@b>;tag=1\r\nTo: <sip:c@d>;tag=2\r\nCall-ID: x\r\nCSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n",
		)
		stranger.requestNonce(1)
		if i%100 == 0 {
			if status := stranger.authenticate(2, nonce, "open sesame"); status != "401" {
				t.Errorf("an answer to a challenge of another address: %s", status)
			}
		}
		stranger.signals.Close()
	}
	if now := o.server.UDPConnections(); now != kept {
		t.Errorf("%d addresses are kept, %d were before", now, kept)
	}
	if time.Since(asked) > 25*time.Second { // a challenge lasts for 30 s: this machine was too slow for the first one
		nonce = caller.requestNonce(3)
	}
	if status := caller.authenticate(2, nonce, "open sesame"); status != "200" {
		t.Errorf("a caller with the password is answered %s", status)
	}
	if now := o.server.UDPConnections(); now != kept+1 {
		t.Errorf("%d addresses are kept, %d were before and one has proved the password", now, kept)
	}
	if lines := strings.Count(o.logs.String(), "level=WARN"); lines > 10 {
		t.Errorf("%d lines in the log for 2,000 packets", lines)
	}
}

// An address that tries passwords is blocked, even with the right one. Others are not affected.
func TestPasswordGuessingBlocked(t *testing.T) {
	t.Parallel()
	o := startGateway(t, passwordConfig(t))
	eve := newCallerPhone(t, o, "127.0.0.2")
	began, tried := time.Now(), 0
	for i := 0; i < 30; i += 2 {
		if eve.authenticate(i+2, eve.requestNonce(i+1), fmt.Sprint("guess ", i)) != "403" {
			tried++
		}
	}
	status := eve.authenticate(102, eve.requestNonce(101), "open sesame")
	// Ten at once, and then one every 6 s.
	if most := 10 + int(time.Since(began)/(6*time.Second)); tried > most || tried == most && status != "403" {
		t.Errorf("%d passwords were looked at, want %d at most; the right one then: %s", tried, most, status)
	}
	alice := newCallerPhone(t, o, "127.0.0.3")
	if status := alice.authenticate(2, alice.requestNonce(1), "open sesame"); status != "200" {
		t.Errorf("another address: %s", status)
	}
}

// Refusals are counted by rule. A challenge does not count, since each good call by password begins with one.
func TestRefusalsAreCounted(t *testing.T) {
	t.Parallel()
	o := startGateway(t, configWith(t, func(c map[string]any) {
		trunk := c["trunks"].([]any)[0].(map[string]any)
		trunk["from"], trunk["username"], trunk["password"], trunk["callsPerCaller"] = []string{}, "alice", "open sesame", 1
		c["agents"].([]any)[0].(map[string]any)["numbers"] = []string{"500"}
	}))
	alice := newCallerPhone(t, o, "127.0.0.2")
	refused := func(want map[string]int) {
		t.Helper()
		if got := o.refusals.all(); !maps.Equal(got, want) {
			t.Errorf("counted %v, want %v", got, want)
		}
	}
	nonce := alice.requestNonce(1)
	if status := alice.authenticate(2, nonce, "open sesame"); status != "200" {
		t.Fatal(status)
	}
	if status := alice.authenticate(3, nonce, "open sesame"); status != "401" {
		t.Fatal(status)
	}
	refused(nil)
	if status := alice.authenticate(5, alice.requestNonce(4), "open sesame"); status != "503" {
		t.Fatal(status)
	}
	if status := alice.authenticate(7, alice.requestNonce(6), "wrong"); status != "401" {
		t.Fatal(status)
	}
	want := map[string]int{"sip calls of the caller": 1, "sip wrong password": 1}
	refused(want)
	newCallerPhone(t, o, "127.0.0.3").send("BYE sip:x SIP/2.0\r\n\r\n") // cannot be read
	bob := newCallerPhone(t, o, "127.0.0.4")
	bob.send(hostilePackets(bob.signals.LocalAddr().String())["OPTIONS of nobody"])
	bob.send(strings.Replace(hostilePackets(bob.signals.LocalAddr().String())["OPTIONS of nobody"], ";tag=2", "", 1))
	o.awaitLog("no trunk has this address")
	want["sip no trunk has this address"] = 1
	refused(want)
}

// A trunk's network identity takes precedence over the caller's. A phone with a password can state only its own identity, from any address,
// and a private caller has no number.
func TestAssertedIdentities(t *testing.T) {
	t.Parallel()
	const asserted = "P-Asserted-Identity: \"Ada\" <sip:+493017@carrier>\r\n"
	for name, test := range map[string]struct {
		trunk         map[string]any
		headers, from string
	}{
		"a network's":             {nil, asserted, "from=+493017 "},
		"nobody's":                {nil, "", "from=eve "},
		"private":                 {nil, asserted + "Privacy: id\r\n", `from="" `},
		"not private":             {nil, asserted + "Privacy: none\r\n", "from=+493017 "},
		"a password's":            {map[string]any{"from": []string{}, "username": "alice", "password": "open sesame"}, asserted, "from=eve "},
		"a password's in a range": {map[string]any{"username": "alice", "password": "open sesame"}, asserted, "from=eve "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := startGateway(t, trunkConfig(t, test.trunk))
			h := newCallerPhone(t, o, "127.0.0.1")
			status := ""
			if test.trunk == nil {
				status, _ = h.sendInvite(1, test.headers)
			} else {
				status = h.authenticate(2, h.requestNonce(1), "open sesame", test.headers)
			}
			if status != "200" {
				t.Fatalf("answered %s", status)
			}
			o.awaitLog(test.from)
		})
	}
}

// An endpoint that is closed under load leaks nothing: TestMain checks for goroutines.
func TestCloseUnderLoad(t *testing.T) {
	t.Parallel()
	for range 5 {
		o := startGateway(t, config)
		stop := make(chan struct{})
		underFire := make(chan struct{}, 8)
		var senders sync.WaitGroup
		for i := range 8 {
			conn, err := net.ListenPacket("udp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			senders.Go(func() {
				defer conn.Close()
				for n := 0; ; n++ {
					if n == 100 {
						underFire <- struct{}{}
					}
					select {
					case <-stop:
						return
					default:
						text := fmt.Sprintf("OPTIONS sip:500@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP %s;branch=z9hG4bK%d.%d\r\nFrom: <sip:a@b>;tag=1\r\n"+
							"To: <sip:c@d>\r\nCall-ID: %d.%d\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n", conn.LocalAddr(), i, n, i, n)
						_, _ = conn.WriteTo([]byte(text), net.UDPAddrFromAddrPort(o.server.Addresses()[0]))
					}
				}
			})
		}
		for range 8 {
			<-underFire
		}
		o.server.Close()
		close(stop)
		senders.Wait()
	}
}

// dialTCP connects to a gateway by TCP from an address.
func dialTCP(t *testing.T, o *testGateway, from string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.Dial("tcp", o.server.Addresses()[1].String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// isClosed reports whether the other side closes a connection.
func isClosed(conn net.Conn, within time.Duration) bool {
	_ = conn.SetReadDeadline(time.Now().Add(within))
	_, err := conn.Read(make([]byte, 1))
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// Connections from unknown addresses are closed if no trunk can be there.
func TestStrangerConnectionsClosed(t *testing.T) {
	t.Parallel()
	o := startGateway(t, config)
	if !isClosed(dialTCP(t, o, "127.0.0.9"), patience) {
		t.Error("a stranger's connection stays")
	}
	o.awaitLog("no trunk has this address")
	conn := dialTCP(t, o, "127.0.0.1")
	if _, err := conn.Write([]byte("\r\n\r\n")); err != nil { // RFC 5626, section 3.5.1
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(conn, make([]byte, 2)); err != nil {
		t.Errorf("there is no answer to a trunk: %v", err)
	}
}

// If a trunk may call from anywhere, connections without a call are limited. Connections with a call do not count.
func TestStrangerConnectionLimit(t *testing.T) {
	t.Parallel()
	o := startGateway(t, passwordConfig(t))
	conn := dialTCP(t, o, "127.0.0.9")
	caller := &handset{t: t, signals: &messageConn{conn, "TCP", bufio.NewReader(conn)}}
	if status := caller.authenticate(2, caller.requestNonce(1), "open sesame"); status != "200" {
		t.Fatal(status)
	}
	began := time.Now()
	var crowd []net.Conn
	for range phone.MaxUnverifiedConns {
		crowd = append(crowd, dialTCP(t, o, "127.0.0.9"))
	}
	if !isClosed(dialTCP(t, o, "127.0.0.9"), patience) {
		t.Errorf("there are more than %d strangers", phone.MaxUnverifiedConns)
	}
	for i, one := range crowd {
		if isClosed(one, time.Millisecond) && time.Since(began) < ua.StrangerTime {
			t.Fatalf("of %d strangers the %d. is closed", phone.MaxUnverifiedConns, i+1)
		}
	}
	o.awaitLog("too many strangers")
	crowd[0].Close()
	for deadline := time.Now().Add(patience); isClosed(dialTCP(t, o, "127.0.0.9"), 100*time.Millisecond); {
		if time.Now().After(deadline) {
			t.Fatal("one who leaves makes no place")
		}
	}
}
