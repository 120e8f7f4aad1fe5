package sip

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/emiago/sipgo/sip"

	"voxgate/signaling/phone"
	sipmedia "voxgate/signaling/phone/sip/media"
)

// FuzzRequest parses the headers of trunks' requests. All results stay within their bounds.
func FuzzRequest(f *testing.F) {
	const head = "INVITE sip:500@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bKa\r\n" +
		"From: \"Ada\" <sip:ada@192.0.2.9>;tag=1;verstat=TN-Validation-Passed\r\n" +
		"To: <sip:500@192.0.2.1>\r\nCall-ID: a\r\nCSeq: 1 INVITE\r\n"
	for _, headers := range []string{
		"Supported: timer, 100rel\r\nSession-Expires: 90;refresher=uac\r\n", "k: timer\r\nx: 4294967296\r\nRequire: ,,\r\n",
		"Replaces: b;to-tag=2;from-tag=3;early-only\r\n", "Replaces: ;;=\r\nReplaces: b\r\n", "RAck: 4294967296 1 INVITE\r\n",
		"P-Asserted-Identity: <sip:+4930@x>, <tel:1>\r\nPrivacy: id\r\n", "P-Asserted-Identity: \"\\\"\r\nPrivacy:\r\n",
		`Authorization: Digest username="bob", realm="voxgate", nonce="n", uri="sip:x", qop=auth, nc=ffffffff, cnonce="", response=""` +
			"\r\n",
		"Record-Route: <sip:a;lr>, <sip:b>\r\nContact: *\r\n", "Contact: <sip:ada@[::1]:0>\r\n",
	} {
		f.Add([]byte(head + headers + "Content-Length: 0\r\n\r\n"))
	}
	trunk := &trunkState{Trunk: &Trunk{Username: "bob", Password: "secret"}}
	door := &Server{calls: map[string]*call{}, gate: newGate(&Config{}, time.Now)}
	door.gate.trunks = []*trunkState{trunk}
	parser := sip.NewParser()
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parser.ParseSIP(text)
		req, ok := m.(*sip.Request)
		if err != nil || !ok || req.From() == nil || req.To() == nil || req.CallID() == nil || req.CSeq() == nil || req.Via() == nil {
			return
		}
		if r, ok := readRefresh(req); ok && (r.every < 0 || r.every > 0 && r.every < minSessionInterval) {
			t.Errorf("a session timer of %v", r.every)
		}
		for _, option := range missingOptions(req, extensions) {
			if option == "" || supportsOption(req, option) != requiresOption(req, option) {
				t.Errorf("wants %q", option)
			}
		}
		if old, refused := door.findReplaced(req, &call{trunk: trunk}); old != nil || refused == nil && len(req.GetHeaders("Replaces")) > 0 {
			t.Error("a call is replaced that is not there")
		}
		if r := door.gate.admitRequest(req, netip.MustParseAddr("192.0.2.9"), door.gate.trunks); r.trunk != nil {
			t.Error("let in")
		}
		if prompt := door.partyOf(req, true).PromptData(); len(prompt) > 2000 || strings.Count(prompt, "\n") != 1 {
			t.Errorf("the prompt about the caller: %q", prompt)
		}
		dialogFromRequest(req, sip.Uri{}).newRequest(sip.BYE)
	})
}

// A session timer ends only calls whose other side is gone.
func TestSessionTimer(t *testing.T) {
	timer := sessionTimer{every: 90 * time.Second}
	begun := time.Now()
	c := &call{liveness: liveness{alive: refreshTimes{refreshed: begun}}}
	for after, want := range map[time.Duration]error{59 * time.Second: nil, 61 * time.Second: errRefresh} {
		if err := c.keepAlive(timer, begun.Add(after)); err != want {
			t.Errorf("after %v: %v", after, err)
		}
	}
	c.alive.refreshed = begun.Add(50 * time.Second)
	if err := c.keepAlive(timer, begun.Add(100*time.Second)); err != nil {
		t.Errorf("refreshed: %v", err)
	}
	theirs, ours := sessionTimer{every: 90 * time.Second}, sessionTimer{every: 90 * time.Second, isRefresher: true}
	for got, want := range map[string]string{
		theirs.header(false).Value(): "90;refresher=uac", ours.header(false).Value(): "90;refresher=uas",
		ours.header(true).Value(): "90;refresher=uac",
	} {
		if got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	if err := c.keepAlive(sessionTimer{}, begun.Add(time.Hour)); err != nil {
		t.Errorf("without a timer: %v", err)
	}
}

// A bridge continues the session timer of the conversation before it.
func TestSessionTimerOfBridge(t *testing.T) {
	t.Parallel()
	ports, err := sipmedia.NewPortPool(sipmedia.RTP{Address: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	c := newCall(&Server{}, nil)
	c.media = sipmedia.NewAudio(sipmedia.Options{Ports: ports, Settings: sipmedia.Settings{SilenceSeconds: 60}})
	c.timer = sessionTimer{every: minSessionInterval}
	if err := c.media.OpenPort(); err != nil {
		t.Fatal(err)
	}
	defer c.media.ClosePort()
	stop, err := c.media.StartPlayback(func([]int16) {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	begun := time.Now()
	c.alive.refreshed = begun.Add(-c.timer.expiresAfter())
	if err := c.watchBridge(t.Context(), nil); err != errRefresh {
		t.Errorf("after %v: %v", time.Since(begun), err)
	}
}

// A tool may run before the call has stored its session.
func TestToolBeforeSession(t *testing.T) {
	if c := newCall(&Server{}, nil); c.line.Load() != c {
		t.Error("tools have no call yet")
	}
}

// The example files in docs/sip.md are valid. One is a single trunk, and one the list of fields to collect from callers.
func TestDocumentedConfigs(t *testing.T) {
	for _, name := range []string{"TRUNK_PASSWORD", "TWILIO_TRUNK_PASSWORD", "TELNYX_TRUNK_PASSWORD", "PAY_SECRET"} {
		t.Setenv(name, "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "sip.md"))
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, m := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		text := m[1]
		switch {
		case strings.Contains(text, `"outbound"`) && !strings.Contains(text, `"listen"`):
			text = `{"listen":[{"transport":"udp","address":":5060"}],"trunks":[` + text + `]}`
		case strings.HasPrefix(strings.TrimLeft(text, "{ \n"), `"collect"`):
			text = `{"listen":[{"transport":"udp","address":":5060"}],"trunks":[{"name":"a","from":["192.0.2.1"]}],` + strings.TrimLeft(text, "{ \n")
			if !strings.HasPrefix(m[1], "{") {
				text += "}"
			}
		}
		file := filepath.Join(t.TempDir(), "sip.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(file); err != nil {
			t.Errorf("%v in\n%s", err, text)
		}
		read++
	}
	if read < 5 {
		t.Errorf("there are %d files", read)
	}
}

// Each mistake in the configuration is reported with its location.
func TestBadConfigs(t *testing.T) {
	t.Setenv("SIP_SECRET", `se"cret`)
	good := `{"listen":[{"transport":"udp","address":":5060"}],"trunks":[{"name":"a","from":["192.0.2.0/24"]}]}`
	for change, want := range map[[2]string]string{
		{`"udp"`, `"ftp"`}:                                                      "listen[0].transport",
		{`"udp"`, `"tls"`}:                                                      "listen[0].cert",
		{`":5060"`, `"x"`}:                                                      "listen[0].address",
		{`["192.0.2.0/24"]`, `["192.0.2.0/33"]`}:                                "trunks[0].from[0]",
		{`["192.0.2.0/24"]`, `[]`}:                                              "trunks[0].from",
		{`"name":"a"`, `"name":""`}:                                             "trunks[0].name",
		{`"name":"a"`, `"name":"a","username":"x"`}:                             "trunks[0].password",
		{`"name":"a"`, `"name":"a","srtp":"maybe"`}:                             "trunks[0].srtp",
		{`"name":"a"`, `"name":"a","music":"pass"`}:                             `unknown field "music"`,
		{`"name":"a"`, `"name":"a","transfer":"hot"`}:                           "trunks[0].transfer",
		{`"name":"a"`, `"name":"a","transfer":"warm"`}:                          "trunks[0].transfer",
		{`"name":"a"`, `"name":"a","listen":true`}:                              "trunks[0].listen",
		{`"name":"a"`, `"name":"a","calls":-1`}:                                 "trunks[0].calls",
		{`"name":"a"`, `"name":"a","calls":"many"`}:                             "calls",
		{`"name":"a"`, `"name":"a","transferTo":["["]`}:                         "trunks[0].transferTo[0]",
		{`"name":"a"`, `"name":"a","outbound":{"server":"x"}`}:                  "trunks[0].outbound.server",
		{`"name":"a"`, `"name":"a","outbound":{"server":"sip:a;transport=ws"}`}: "trunks[0].outbound.server",
		{`"name":"a"`, `"name":"a","cals":1`}:                                   "cals",
		{`"name":"a"`, `"name":"${NO_SUCH_VARIABLE}"`}:                          "NO_SUCH_VARIABLE",
		{`"listen"`, `"rtp":{"ports":"9-8"},"listen"`}:                          "rtp.ports",
		{`"listen"`, `"external":"example.com:5060","listen"`}:                  "external",
		{`[{"transport":"udp","address":":5060"}]`, `[]`}:                       "listen",
		{`[{"name":"a","from":["192.0.2.0/24"]}]`, `[]`}:                        "trunks",
		{good, good + "{}"}:                                                     "unexpected data after the value",
		{`"listen"`, `"agents":[{"to":["*"]}],"listen"`}:                        `unknown field "agents"`,
	} {
		file := filepath.Join(t.TempDir(), "sip.json")
		if err := os.WriteFile(file, []byte(strings.Replace(good, change[0], change[1], 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", change[1], err)
		}
	}
	file := filepath.Join(t.TempDir(), "sip.json")
	withPassword := strings.Replace(good, `"name":"a"`, `"name":"a","username":"x","password":"${SIP_SECRET}"`, 1)
	if err := os.WriteFile(file, []byte(withPassword), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(file)
	if err != nil || c.Trunks[0].Password != `se"cret` {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestEndReasons(t *testing.T) {
	for err, want := range map[error]string{nil: "cause=16", sipmedia.ErrSilence: "cause=102", errRefresh: "cause=102"} {
		if got := reasonHeader(err); !strings.Contains(got, want) {
			t.Errorf("%v: %s", err, got)
		}
	}
	if got := reasonHeader(fmt.Errorf("x\r\ny")); strings.ContainsAny(got, "\r\n") {
		t.Errorf("%q", got)
	}
}

// A stranger's connection is closed after a while, unless it has a call.
func TestConnectionWithoutCallTimeout(t *testing.T) {
	for _, calls := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			places := make(chan struct{}, 1)
			conn, err := connLimiter{&phone.Acceptor{Listener: &once{conn: ours}, Unverified: places}}.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if calls {
				conn.(*unverifiedConn).markVerified()
			}
			began := time.Now()
			time.AfterFunc(time.Minute, func() { theirs.Close() })
			if n, err := conn.Read(make([]byte, 1)); err == nil {
				t.Errorf("%d bytes came", n)
			}
			if took := time.Since(began); took != map[bool]time.Duration{false: strangerTime, true: time.Minute}[calls] {
				t.Errorf("it has a call %v, and ends after %v", calls, took)
			}
			conn.Close()
			if len(places) > 0 {
				t.Error("it keeps its place")
			}
		})
	}
}

// once is a listener whose Accept always returns the same connection.
type once struct {
	net.Listener
	conn net.Conn
}

func (o *once) Accept() (net.Conn, error) { return o.conn, nil }
