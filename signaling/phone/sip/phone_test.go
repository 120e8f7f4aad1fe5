package sip_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/mediatest"
)

// awaitSession waits until there is exactly one conversation, and returns it.
func (t *testGateway) awaitSession() *bridge.Session {
	t.t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
		if all := t.host.Sessions(); len(all) == 1 {
			return t.host.Session(all[0].ID)
		}
		if time.Now().After(deadline) {
			t.t.Fatalf("%d conversations", len(t.host.Sessions()))
		}
	}
}

// sendText sends a text to the model, as if the user had typed it. With it the emulator calls tools.
func (t *testGateway) sendText(text string) {
	t.t.Helper()
	if err := t.awaitSession().Do(bridge.Message{Text: text, TurnComplete: true}); err != nil {
		t.t.Fatal(err)
	}
}

// watchEvents returns the events of the only conversation.
func (t *testGateway) watchEvents() <-chan bridge.Event {
	t.t.Helper()
	events := make(chan bridge.Event, 1024)
	stop, err := t.awaitSession().Watch(func(e bridge.Event) {
		select {
		case events <- e:
		default:
		}
	})
	if err != nil {
		t.t.Fatal(err)
	}
	t.t.Cleanup(stop)
	return events
}

// awaitEvent waits for an event.
func awaitEvent[E any](t testing.TB, events <-chan bridge.Event, want func(E) bool) E {
	t.Helper()
	for timeout := time.After(patience); ; {
		select {
		case e := <-events:
			if b, ok := e.Body.(E); ok && want(b) {
				return b
			}
		case <-timeout:
			var none E
			t.Fatalf("no %T", none)
		}
	}
}

func (t *testGateway) awaitLog(text string) {
	t.t.Helper()
	t.awaitLogTimes(text, 1)
}

// awaitLogTimes waits until a text was logged a number of times.
func (t *testGateway) awaitLogTimes(text string, times int) {
	t.t.Helper()
	if !t.logs.AwaitCount(text, times) {
		t.t.Fatalf("%q was not logged %d times", text, times)
	}
}

// configWith returns the usual configuration with a change.
func configWith(t testing.TB, change func(c map[string]any)) string {
	t.Helper()
	var c map[string]any
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		t.Fatal(err)
	}
	change(c)
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// trunkConfig returns the usual configuration with more fields of the trunk.
func trunkConfig(t testing.TB, fields map[string]any) string {
	return configWith(t, func(c map[string]any) {
		trunk := c["trunks"].([]any)[0].(map[string]any)
		for name, value := range fields {
			trunk[name] = value
		}
	})
}

// A trunk can require encryption: TLS for signalling, SRTP for media. A phone without SRTP is refused.
func TestSecureCalls(t *testing.T) {
	t.Parallel()
	cert, key := writeCertificate(t)
	o := startGateway(t, configWith(t, func(c map[string]any) {
		c["listen"] = []any{
			map[string]any{"transport": "udp", "address": "127.0.0.1:0"},
			map[string]any{"transport": "tcp", "address": "127.0.0.1:0"},
			map[string]any{"transport": "tls", "address": "127.0.0.1:0", "cert": cert, "key": key},
		}
		c["trunks"].([]any)[0].(map[string]any)["srtp"] = "required"
	}))
	open := newBaresip(t, "audio_codecs=PCMU/8000/1")
	open.runCommand("dial", o.sipURI(0))
	if e := open.awaitEvent("CALL_CLOSED"); !strings.Contains(e.Param, "488") {
		t.Errorf("refused with %q", e.Param)
	}
	machine := mediatest.MeasureLateness(t)
	p := newBaresip(t, "audio_codecs=opus/48000/2;mediaenc=srtp-mand")
	p.runCommand("dial", o.sipURI(2))
	p.awaitEvent("CALL_ESTABLISHED")
	o.awaitTurns(1)
	p.runCommand("hangup", "")
	p.awaitEvent("CALL_CLOSED")
	pcm, rate := p.playedAudio()
	if level := mediatest.ToneLevel(pcm, rate, 440); level < 0.5 && machine.CanJudge(t, soundLate) {
		t.Errorf("the tone is %.3f of what was heard", level)
	}
}

// Pressed keys reach the model as one text, and keys that the model presses are sent.
func TestKeypad(t *testing.T) {
	t.Parallel()
	o := startGateway(t, config)
	p := newBaresip(t, "audio_codecs=PCMU/8000/1")
	p.runCommand("dial", o.sipURI(0))
	p.awaitEvent("CALL_ESTABLISHED")
	events := o.watchEvents()
	for _, key := range "159*0" {
		p.runCommand("sndcode", string(key))
	}
	awaitEvent(t, events, func(e bridge.AssistantText) bool {
		return e.Final && strings.Contains(e.Text, "keys of the telephone: 159*0")
	})
	o.sendText(`/tool send_dtmf {"digits":"7#,A"}`)
	for _, want := range "7#A" {
		if e := p.awaitEvent("CALL_DTMF_START"); e.Param != string(want) {
			t.Errorf("heard the key %q, not %q", e.Param, want)
		}
	}
}

// An agent that asks for two keys gets them as soon as they are pressed.
func TestKeypadMaximumDigits(t *testing.T) {
	t.Parallel()
	o := startGateway(t, configWith(t, func(c map[string]any) { c["agents"].([]any)[0].(map[string]any)["keys"] = 2 }))
	p := newBaresip(t, "audio_codecs=PCMU/8000/1")
	p.runCommand("dial", o.sipURI(0))
	p.awaitEvent("CALL_ESTABLISHED")
	events := o.watchEvents()
	for _, key := range "1590" {
		p.runCommand("sndcode", string(key))
	}
	for _, keys := range []string{"15", "90"} {
		awaitEvent(t, events, func(e bridge.UserText) bool { return strings.HasSuffix(e.Text, "keys of the telephone: "+keys) })
	}
}

// A call is on hold for as long as the phone signals it.
func TestHold(t *testing.T) {
	t.Parallel()
	o := startGateway(t, config)
	p := newBaresip(t, "audio_codecs=PCMU/8000/1;mediaenc=srtp-mand")
	p.runCommand("dial", o.sipURI(0))
	p.awaitEvent("CALL_ESTABLISHED")
	o.awaitTurns(1)
	p.runCommand("hold", "")
	o.awaitLog("hold=true")
	p.runCommand("resume", "")
	o.awaitLogTimes("hold=false", 2) // the first as the call began
	o.sendText("Are you there?")
	o.awaitTurns(2)
	p.runCommand("hangup", "")
	p.awaitEvent("CALL_CLOSED")
}

// The model hangs up only after its voice was played: its answer to the hang-up tool, and the goodbye after maxSeconds.
func TestHangUpAfterPlayout(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ config, types, says, reason string }{
		"by its tool": {config, "/tool end_call {}", "end_call", "goodbye"},
		"maxSeconds":  {trunkConfig(t, map[string]any{"maxSeconds": 3}), "", "The time for this conversation is over", "time limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := startGateway(t, test.config)
			p := newBaresip(t, "audio_codecs=PCMA/8000/1")
			p.runCommand("dial", o.sipURI(1))
			p.awaitEvent("CALL_ESTABLISHED")
			events := o.watchEvents()
			o.awaitTurns(1) // so that the caller does not interrupt the goodbye
			if test.types != "" {
				o.sendText(test.types)
			}
			// It is reported when its voice is played.
			awaitEvent(t, events, func(e bridge.AssistantText) bool { return strings.Contains(e.Text, test.says) })
			awaitEvent(t, events, func(bridge.TurnComplete) bool { return true })
			p.awaitEvent("CALL_CLOSED")
			o.awaitLog("call ended")
			if !strings.Contains(o.logs.String(), test.reason) {
				t.Errorf("the log is %s", o.logs)
			}
		})
	}
}

// A call is transferred only to targets that the trunk allows.
func TestTransfer(t *testing.T) {
	t.Parallel()
	desk := newBaresip(t, "audio_codecs=PCMU/8000/1;answermode=auto")
	o := startGateway(t, trunkConfig(t, map[string]any{"transferTo": []string{"sip:alice@127.0.0.1:*"}}))
	p := newBaresip(t, "audio_codecs=PCMU/8000/1")
	p.runCommand("dial", o.sipURI(0))
	p.awaitEvent("CALL_ESTABLISHED")
	events := o.watchEvents()
	o.sendText(`/tool transfer_call {"target":"sip:premium@192.0.2.7"}`)
	failed := awaitEvent(t, events, func(e bridge.ToolStatus) bool { return e.Status == bridge.StatusFailed })
	if !strings.Contains(string(failed.Result), "may not be called") {
		t.Errorf("failed with %s", failed.Result)
	}
	o.sendText(fmt.Sprintf(`/tool transfer_call {"target":"sip:alice@%s"}`, desk.at))
	desk.awaitEvent("CALL_ESTABLISHED")
	o.awaitLog("the call was transferred")
}

// Callers with the password are admitted from any address, others are not, and a digest answer counts once.
func TestPasswordAuthentication(t *testing.T) {
	t.Parallel()
	o := startGateway(t, trunkConfig(t, map[string]any{"from": []string{}, "username": "alice", "password": "open sesame", "digest": "MD5"}))
	wrong := newBaresip(t, "audio_codecs=PCMU/8000/1;auth_user=alice;auth_pass=wrong")
	wrong.runCommand("dial", o.sipURI(0))
	if e := wrong.awaitEvent("CALL_CLOSED"); !strings.Contains(e.Param, "401") {
		t.Errorf("refused with %q", e.Param)
	}
	p := newBaresip(t, `audio_codecs=PCMU/8000/1;auth_user=alice;auth_pass="open sesame"`)
	p.runCommand("dial", o.sipURI(0))
	p.awaitEvent("CALL_ESTABLISHED")
	p.runCommand("hangup", "")
	p.awaitEvent("CALL_CLOSED")
	if n := strings.Count(o.logs.String(), "conversation started"); n > 1 {
		t.Errorf("%d conversations", n)
	}
}

// If the trunk enables early media, the greeting is played before the call is answered.
func TestEarlyMediaGreeting(t *testing.T) {
	t.Parallel()
	o := startGateway(t, configWith(t, func(c map[string]any) {
		c["trunks"].([]any)[0].(map[string]any)["early"] = true
		c["agents"] = []any{map[string]any{"numbers": []string{"*"}, "greeting": "Say hello."}}
	}))
	early := (&scenario{}).request("INVITE", 1, sdp("[media_ip]", "sendrecv", plain))
	early.steps.WriteString(`<recv response="100" optional="true"/>` + "\n")
	early.expect(183, "m=audio").expect(200, "m=audio").request("ACK", 1, "").bye(2).run(t, o)
	(&scenario{}).request("INVITE", 1, sdp("[media_ip]", "sendrecv", plain), "Supported: 100rel").rings(183, "m=audio").
		request("PRACK", 2, "", "RAck: [$2] 1 INVITE").expect(200, "PRACK").expect(200, "m=audio").request("ACK", 1, "").bye(3).run(t, o)
	log := o.logs.String()
	if started := strings.Index(log, "conversation started"); started < 0 {
		t.Error("there was no conversation")
	}
}

// A digest answer is accepted once, and only with the password.
func TestDigestReplay(t *testing.T) {
	t.Parallel()
	o := startGateway(t, trunkConfig(t, map[string]any{"from": []string{}, "username": "alice", "password": "open sesame"}))
	usual := sdp("[media_ip]", "sendrecv", plain)
	refused := (&scenario{}).request("INVITE", 1, usual).
		ringing().
		expect(401, "WWW-Authenticate: Digest realm=.voxgate.*algorithm=SHA-256").
		request("ACK", 1, "")
	replayed := `Authorization: Digest username="alice",realm="voxgate",nonce="NOTOURS",uri="sip:500@127.0.0.1",` +
		`response="00000000000000000000000000000000",algorithm=MD5,cnonce="x",qop=auth,nc=00000001`
	refused.steps.WriteString("<send retrans=\"500\"><![CDATA[\n" + message("INVITE", 2, "", usual, []string{replayed}) + "]]></send>\n")
	refused.ringing().expect(401, "WWW-Authenticate").request("ACK", 2, "").run(t, o)
	o.awaitLog("an unknown or expired nonce")
	if n := len(o.host.Sessions()); n > 0 {
		t.Errorf("%d conversations", n)
	}
}

// A caller is limited to the trunk's number of calls, and the rule is logged.
func TestCallLimits(t *testing.T) {
	t.Parallel()
	o := startGateway(t, trunkConfig(t, map[string]any{"callsPerCaller": 1}))
	p := newBaresip(t, "audio_codecs=PCMU/8000/1")
	p.runCommand("dial", o.sipURI(0))
	p.awaitEvent("CALL_ESTABLISHED")
	again := newBaresip(t, "audio_codecs=PCMU/8000/1")
	again.runCommand("dial", o.sipURI(0))
	if e := again.awaitEvent("CALL_CLOSED"); !strings.Contains(e.Param, "503") {
		t.Errorf("refused with %q", e.Param)
	}
	o.awaitLog(`rule="calls of the caller"`)
	p.runCommand("hangup", "")
	p.awaitEvent("CALL_CLOSED")
	o.awaitLog("call ended")
	again.runCommand("dial", o.sipURI(0))
	again.awaitEvent("CALL_ESTABLISHED")
}

func writeCertificate(t *testing.T) (cert, key string) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, own.Public(), own)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", private)
}
