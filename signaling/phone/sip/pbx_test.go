package sip_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media/g711"
	"voxgate/signaling/phone/sip"
)

// The tests of this file are run by `make test-pbx`. They use real phone systems, with the unchanged files of docs/sip.md. Only the network
// 192.0.2.0/24 of the examples is replaced by loopback addresses.
//
// Kamailio is Debian's package. Asterisk is the program that ASTERISK names, or the one on the PATH. Debian 12 has no package of it, and
// Debian's unstable suite has; or build it from its source (https://docs.asterisk.org), with chan_pjsip and the modules that docs/sip.md
// names.

// network is the beginning of the IP addresses of one test: "127.3.200.".
type network string

func newNetwork(t *testing.T) network {
	t.Helper()
	if os.Getenv("TEST_PBX") == "" {
		t.Skip("make test-pbx runs it")
	}
	return network(fmt.Sprintf("127.%d.%d.", 1+rand.N(254), rand.N(255)))
}

const (
	asterisk = "5" // the last numbers of the addresses, as in docs/sip.md
	voxgate  = "10"
	kamailio = "20"
)

// readDocs returns the example files in a section of docs/sip.md, and the whole text of the section.
func (n network) readDocs(t *testing.T, section string) (files []string, text string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "sip.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(page), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("docs/sip.md has no section %q", section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	text = strings.ReplaceAll(text, "192.0.2.", string(n))
	for _, m := range regexp.MustCompile("(?s)```[a-z]*\n(.*?)```").FindAllStringSubmatch(text, -1) {
		files = append(files, m[1])
	}
	return files, text
}

// startGateway starts a gateway with a file of docs/sip.md, at its own address of the network. An agent answers 500.
func (n network) startGateway(t *testing.T, text string, trunk map[string]any) *testGateway {
	t.Helper()
	var c map[string]any
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	at := string(n) + voxgate
	c["listen"] = []any{
		map[string]any{"transport": "udp", "address": at + ":5060"}, map[string]any{"transport": "tcp", "address": at + ":5060"},
	}
	c["external"], c["rtp"] = at, map[string]any{"address": at}
	c["agents"] = []any{map[string]any{"numbers": []string{"500"}, "prompt": "You are a lab.", "greeting": ""}}
	for name, value := range trunk {
		c["trunks"].([]any)[0].(map[string]any)[name] = value
	}
	file, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return startGateway(t, string(file))
}

// startProgram starts a program that runs until the test ends, and returns its output.
func startProgram(t *testing.T, name string, args ...string) *testkit.LogBook {
	t.Helper()
	cmd := exec.Command(name, args...)
	var out testkit.LogBook
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(out.String())
		}
	})
	return &out
}

// awaitCondition waits until so returns true.
func awaitCondition(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not %s", what)
		}
	}
}

// startAsterisk runs Asterisk with the files of docs/sip.md and phones in pjsip.conf. Endpoints get a transport, so that their audio is
// sent from its address, and not from 127.0.0.1.
func (n network) startAsterisk(t *testing.T, pjsip, extensions, telephones string) {
	t.Helper()
	command, err := exec.LookPath(cmp.Or(os.Getenv("ASTERISK"), "asterisk"))
	if err != nil {
		t.Fatalf("There is no Asterisk: install your distribution's package, or set ASTERISK to the program (%v).", err)
	}
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "moh"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "asterisk.conf")
	for name, text := range map[string]string{
		"asterisk.conf": strings.ReplaceAll(
			"[directories]\nastetcdir=F\nastdbdir=F\nastspooldir=F\nastrundir=F\nastlogdir=F\n[options]\nverbose=3\n", "F", folder),
		"modules.conf":     "[modules]\nautoload=yes\n",
		"musiconhold.conf": "[default]\nmode=files\ndirectory=" + filepath.Join(folder, "moh") + "\n",
		"moh/music.ulaw":   string(g711.MuLaw.AppendEncoded(nil, mediatest.Chords(time.Minute, 8000))),
		"logger.conf":      "[logfiles]\nconsole=notice,warning,error,verbose\n",
		"pjsip.conf": "[udp]\ntype=transport\nprotocol=udp\nbind=" + string(n) + asterisk + ":5060\n\n" +
			strings.ReplaceAll(pjsip+telephones, "type=endpoint\n", "type=endpoint\ntransport=udp\n"),
		"extensions.conf": extensions,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	startProgram(t, command, "-f", "-C", file)
	awaitCondition(t, "booted", func() bool {
		out, err := exec.Command(command, "-C", file, "-rx", "core waitfullybooted").CombinedOutput()
		return err == nil && strings.Contains(string(out), "fully booted")
	})
}

// asteriskConfig returns the configuration of the phone in Asterisk, which identifies it by its Contact, with a number.
func (bs *baresip) asteriskConfig(number string) string {
	return fmt.Sprintf(`
[%[1]s]
type=aor
contact=sip:alice@%[2]s

[%[1]s]
type=endpoint
aors=%[1]s
context=default
allow=!all,ulaw,alaw
direct_media=no

[%[1]s]
type=identify
endpoint=%[1]s
match_header=Contact: /%[2]s/
`, number, bs.at)
}

// startBehindAsterisk starts an Asterisk with phones, numbered from 101, and a gateway, whose trunk may have more fields.
func (n network) startBehindAsterisk(t *testing.T, trunk map[string]any, telephones ...*baresip) *testGateway {
	t.Helper()
	files, _ := n.readDocs(t, "Asterisk")
	if len(files) != 3 {
		t.Fatalf("%d files", len(files))
	}
	known := ""
	for i, p := range telephones {
		known += p.asteriskConfig(fmt.Sprint(101 + i))
	}
	n.startAsterisk(t, files[1], files[2], known)
	return n.startGateway(t, files[0], trunk)
}

func (n network) agentURI(host string) string { return "sip:500@" + string(n) + host + ":5060" }

// hangUps are the ways to end a phone's call to an agent.
var hangUps = map[string]func(p *baresip, o *testGateway){
	"the telephone hangs up": func(p *baresip, _ *testGateway) { p.runCommand("hangup", "") },
	"the agent hangs up":     func(_ *baresip, o *testGateway) { o.sendText("/tool end_call {}") },
}

// talkToAgent makes a phone call an agent, which answers a tone, receives keys and is put on hold. Then one of them hangs up.
func (bs *baresip) talkToAgent(o *testGateway, at string, hangsUp func(*baresip, *testGateway)) {
	bs.t.Helper()
	machine := mediatest.MeasureLateness(bs.t)
	bs.runCommand("dial", at)
	bs.awaitEvent("CALL_ESTABLISHED")
	events := o.watchEvents()
	o.awaitTurns(1)
	for _, key := range "42#" {
		bs.runCommand("sndcode", string(key))
	}
	awaitEvent(bs.t, events, func(e bridge.UserText) bool { return strings.Contains(e.Text, "keys of the telephone: 42") })
	awaitEvent(bs.t, events, func(bridge.TurnComplete) bool { return true })
	bs.runCommand("hold", "")
	o.awaitLog("hold=true")
	bs.runCommand("resume", "")
	o.awaitLogTimes("hold=false", 2)
	o.sendText("Are you there?")
	awaitEvent(bs.t, events, func(e bridge.AssistantText) bool { return strings.Contains(e.Text, "there") })
	hangsUp(bs, o)
	bs.awaitEvent("CALL_CLOSED")
	o.awaitLog("call ended")
	pcm, rate := bs.playedAudio()
	loudest := 0.0
	for second := 0; (second+1)*rate <= len(pcm); second++ {
		loudest = max(loudest, mediatest.ToneLevel(pcm[second*rate:(second+1)*rate], rate, 440))
	}
	if loudest < 0.5 && machine.CanJudge(bs.t, soundLate) {
		bs.t.Errorf("the tone is %.3f of the best second of %d samples", loudest, len(pcm))
	}
}

// An Asterisk phone calls an agent, and each of them hangs up in turn.
func TestInboundCallFromAsterisk(t *testing.T) {
	for name, hangsUp := range hangUps {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			p := newBaresip(t, "audio_codecs=PCMU/8000/1")
			p.talkToAgent(n.startBehindAsterisk(t, nil, p), n.agentURI(asterisk), hangsUp)
		})
	}
}

// POST /v1/calls reaches an Asterisk phone, or reports why not.
func TestOutboundCallByAsterisk(t *testing.T) {
	n := newNetwork(t)
	person, busy := newBaresip(t, "audio_codecs=PCMU/8000/1;answermode=auto"), newBaresip(t, "audio_codecs=PCMU/8000/1;answermode=manual")
	o := n.startBehindAsterisk(t, nil, person, busy)
	b := startBackend(t, o)
	call := func(to string) (int, string) {
		return b.sendRequest(b.key, "POST", "/v1/calls", `{"to":"`+to+`","trunk":"pbx","agent":{"prompt":"You remind people."}}`)
	}
	state := func(id, want string) {
		t.Helper()
		var text string
		awaitCondition(t, want, func() bool {
			_, text = b.sendRequest(b.key, "GET", "/v1/calls/"+id, "")
			return strings.Contains(text, want)
		})
		t.Log(text)
	}
	var made struct {
		ID    string
		Error struct{ SIP int }
	}
	for _, us := range []bool{false, true} {
		status, text := call("101")
		if err := json.Unmarshal([]byte(text), &made); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s %v", status, text, err)
		}
		person.awaitEvent("CALL_ESTABLISHED")
		state(made.ID, sip.StateAnswered)
		o.awaitTurns(2) // the greeting, and the answer to the tone
		if us {
			b.sendRequest(b.key, "DELETE", "/v1/calls/"+made.ID, "")
			person.awaitEvent("CALL_CLOSED")
			state(made.ID, `"hungUpBy":"us"`)
		} else {
			person.runCommand("hangup", "")
			state(made.ID, `"hungUpBy":"them"`)
		}
	}
	if status, text := call("103"); status != http.StatusConflict {
		t.Errorf("nobody there: %d %s", status, text)
	} else {
		t.Log(text)
	}
	status, text := call("102") // it rings there
	if err := json.Unmarshal([]byte(text), &made); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s %v", status, text, err)
	}
	busy.awaitEvent("CALL_INCOMING")
	busy.runCommand("hangup", "486 Busy Here")
	state(made.ID, sip.StateBusy)
}

// An agent transfers a caller to another Asterisk phone: by REFER, and by a call of our own.
func TestTransferByAsterisk(t *testing.T) {
	for _, manner := range []string{"refer", "warm"} {
		t.Run(manner, func(t *testing.T) {
			n := newNetwork(t)
			p, desk := newBaresip(t, "audio_codecs=PCMU/8000/1"), newBaresip(t, "audio_codecs=PCMU/8000/1;answermode=auto")
			trunk := map[string]any{}
			if manner == "warm" {
				trunk["transfer"] = manner
			}
			o := n.startBehindAsterisk(t, trunk, p, desk)
			p.runCommand("dial", n.agentURI(asterisk))
			p.awaitEvent("CALL_ESTABLISHED")
			o.awaitTurns(1)
			o.sendText(`/tool transfer_call {"target":"102","about":"A broken boiler."}`)
			desk.awaitEvent("CALL_ESTABLISHED")
			if manner == "warm" {
				o.awaitLogTimes("conversation started", 2)
				desk.runCommand("sndcode", "1")
				o.awaitLog("call bridged")
			} else {
				o.awaitLog("the call was transferred")
			}
			for _, pair := range [][2]*baresip{{p, desk}, {desk, p}} {
				pair[0].runCommand("sndcode", "7")
				if e := pair[1].awaitEvent("CALL_DTMF_START"); e.Param != "7" {
					t.Errorf("heard the key %q", e.Param)
				}
			}
			desk.runCommand("hangup", "")
			p.awaitEvent("CALL_CLOSED")
			o.awaitLogTimes("call ended", map[string]int{"refer": 1, "warm": 2}[manner])
		})
	}
}

// If the target of a REFER is busy, Asterisk loses the caller and keeps our leg, which ends when packets stop.
func TestReferToBusyAsteriskPhone(t *testing.T) {
	n := newNetwork(t)
	p, desk := newBaresip(t, "audio_codecs=PCMU/8000/1"), newBaresip(t, "audio_codecs=PCMU/8000/1;answermode=manual")
	o := n.startBehindAsterisk(t, map[string]any{"silenceSeconds": 5}, p, desk)
	p.runCommand("dial", n.agentURI(asterisk))
	p.awaitEvent("CALL_ESTABLISHED")
	o.awaitTurns(1)
	o.sendText(`/tool transfer_call {"target":"102"}`)
	desk.awaitEvent("CALL_INCOMING")
	desk.runCommand("hangup", "486 Busy Here")
	o.awaitLog("call ended")
}

// startKamailio starts a Kamailio with the route of docs/sip.md, which leads to a gateway by a transport, and returns the gateway.
func (n network) startKamailio(t *testing.T, transport string) *testGateway {
	t.Helper()
	files, text := n.readDocs(t, "Kamailio in front")
	trunks := regexp.MustCompile("(?s)`(\"trunks\": .*?)`").FindStringSubmatch(text)
	modules := regexp.MustCompile(`with the modules (.*?):`).FindStringSubmatch(text)
	if len(files) != 1 || trunks == nil || modules == nil {
		t.Fatalf("%d files, %q, %q", len(files), trunks, modules)
	}
	at := string(n) + kamailio
	head := "auto_aliases=no\ntcp_source_ipv4=" + at + "\nlisten=udp:" + at + ":5060\nlisten=tcp:" + at + ":5060\n"
	for module := range strings.SplitSeq(strings.Replace(modules[1], " and ", ", ", 1), ", ") {
		head += "loadmodule \"" + module + ".so\"\n"
	}
	route := files[0]
	if transport != "udp" {
		route = strings.Replace(route, voxgate+":5060", voxgate+":5060;transport="+transport, 1)
	}
	folder := t.TempDir()
	file := filepath.Join(folder, "kamailio.cfg")
	if err := os.WriteFile(file, []byte(head+route), 0o600); err != nil {
		t.Fatal(err)
	}
	o := n.startGateway(t, "{"+trunks[1]+"}", nil)
	startProgram(t, "kamailio", "-f", file, "-DD", "-E", "-n", "1", "-N", "1", "-Y", folder)
	awaitCondition(t, "listening", func() bool { // UDP is opened before TCP
		conn, err := net.Dial("tcp", at+":5060")
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return o
}

// A phone calls an agent through Kamailio by each transport, and each of them hangs up in turn.
func TestCallsThroughKamailio(t *testing.T) {
	for _, transport := range []string{"udp", "tcp"} {
		for name, hangsUp := range hangUps {
			t.Run(transport+", "+name, func(t *testing.T) {
				n := newNetwork(t)
				o := n.startKamailio(t, transport)
				newBaresip(t, "audio_codecs=PCMU/8000/1").talkToAgent(o, n.agentURI(kamailio), hangsUp)
			})
		}
	}
}

// Behind a carrier's proxies messages are longer than 1,300 bytes, and each request of a call follows the whole route.
func TestLongRoutesThroughKamailio(t *testing.T) {
	for _, transport := range []string{"udp", "tcp"} {
		for _, us := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, we hang up: %v", transport, us), func(t *testing.T) {
				n := newNetwork(t)
				o := n.startKamailio(t, transport)
				via, route := "", []string{}
				for i := range 3 { // sipp plays those proxies, too
					via += fmt.Sprintf("Via: SIP/2.0/UDP 192.0.2.%d;branch=z9hG4bK%s\n", i, strings.Repeat("x", 150))
					route = append(route, fmt.Sprintf("Record-Route: <sip:[local_ip]:[local_port];lr;proxy=%d%s>", i, strings.Repeat("x", 150)))
				}
				route = append(route, strings.TrimSpace(via))
				hears, holds := sdp("[media_ip]", "sendrecv", plain), sdp("[media_ip]", "sendonly", plain)
				from := "Via: SIP/2.0/UDP " + string(n) + kamailio
				s := (&scenario{}).request("INVITE", 1, hears, route...).ringing().expect(200, "m=audio").request("ACK", 1, "").
					request("INVITE", 2, holds).ringing().expect(200, "a=recvonly").request("ACK", 2, "").
					request("INVITE", 3, hears).ringing().expect(200, "a=sendrecv").request("ACK", 3, "").
					await("UPDATE", from).reply("405 Method Not Allowed").
					await("INVITE", from).answerInvite(hears).await("ACK", from)
				if us {
					s.await("BYE", from).reply("200 OK")
				} else {
					s.bye(4)
				}
				s.routeThrough(string(n)+kamailio, string(n)+voxgate+":5060")
				wait := s.start(t, mediatest.FreePort(t), 1, string(n)+kamailio+":5060")
				o.awaitLogTimes("hold=false", 2)
				<-o.server.RefreshSession()
				if us {
					o.sendText("/tool end_call {}")
				}
				said := wait()
				o.awaitLog("call ended")
				for _, first := range []string{"SIP/2.0 200 OK", "INVITE sip:ada@"} {
					_, text, _ := strings.Cut(said, "\n\n"+first)
					text, _, _ = strings.Cut(text, "\n-----")
					if len(text) < 1300 || strings.Count(text, ";proxy=") < 3 {
						t.Errorf("%s has %d bytes:\n%s", first, len(text), text)
					}
				}
			})
		}
	}
}

// answerInvite answers an INVITE of the other side.
func (s *scenario) answerInvite(body string) *scenario {
	s.steps.WriteString("<send><![CDATA[\nSIP/2.0 200 OK\n[last_Via:]\n[last_From:]\n[last_To:]\n[last_Call-ID:]\n[last_CSeq:]\n" +
		"Contact: <sip:ada@[local_ip]:[local_port]>\nContent-Type: application/sdp\nContent-Length: [len]\n\n" + body + "]]></send>\n")
	return s
}

// routeThrough sends all requests after the first by a route to a target.
func (s *scenario) routeThrough(route, target string) {
	first, rest, _ := strings.Cut(s.steps.String(), "</send>")
	s.steps.Reset()
	s.steps.WriteString(first + "</send>" +
		strings.ReplaceAll(rest, "sip:500@[remote_ip]:[remote_port] SIP/2.0\n", "sip:voxgate@"+target+" SIP/2.0\nRoute: <sip:"+route+";lr>\n"))
}
