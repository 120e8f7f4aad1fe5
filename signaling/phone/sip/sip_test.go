package sip_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"voxgate/bridge"
	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/signaling/phone/sip"
)

func TestMain(m *testing.M) {
	// Phones are idle most of the time.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// soundLate is the delay of packets above which a phone plays silence instead of audio.
const soundLate = 200 * time.Millisecond

// patience limits how long a test waits for an event.
const patience = time.Minute

// testGateway is a gateway for phones, with an emulated model.
type testGateway struct {
	resolver atomic.Pointer[net.Resolver] // see setResolver
	t        testing.TB
	server   *sip.Server
	host     *bridge.Host
	logs     *testkit.LogBook

	recordings string // path of the folder
	refusals   refusals
	prompts    chan string // of the model's sessions
}

// refusals counts the refusals of a gateway by rule.
type refusals struct {
	mu   sync.Mutex
	list map[string]int
}

func (r *refusals) count(rule string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.list == nil {
		r.list = map[string]int{}
	}
	r.list[rule]++
}

func (r *refusals) all() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.list)
}

// config is a configuration that accepts calls from this machine.
const config = `{
	"listen": [{"transport": "udp", "address": "127.0.0.1:0"}, {"transport": "tcp", "address": "127.0.0.1:0"}],
	"trunks": [{"name": "lab", "from": ["127.0.0.1"]}],
	"agents": [{"numbers": ["*"], "prompt": "You are a lab.", "greeting": ""}, {"prompt": "Remind {{guest}} of tomorrow."}]
}`

func startGateway(t testing.TB, text string, tell ...func(sip.CallStatus)) *testGateway {
	t.Helper()
	text, answer := testkit.ExtractAgents(t, text)
	file := filepath.Join(t.TempDir(), "sip.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := sip.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	logs := &testkit.LogBook{}
	log := slog.New(slog.NewTextHandler(logs, nil))
	prompts := make(chan string, 64)
	model := testkit.StartModel(t, emulator.Options{Logger: log, Observe: func(e emulator.Event) {
		if e.Kind == emulator.EventOpened {
			select {
			case prompts <- e.Text:
			default:
			}
		}
	}})
	recordings := t.TempDir()
	host := bridge.NewHost(bridge.Options{Client: model, Backend: "emulator", Recordings: recordings, Logger: log})
	o := &testGateway{t: t, host: host, logs: logs, recordings: recordings, prompts: prompts}
	options := sip.Options{
		OnRefused: o.refusals.count, Config: c, Agents: answer, Host: host, Logger: log, Timeout: 4 * time.Second,
		Resolver: &net.Resolver{PreferGo: true, Dial: o.dialResolver},
	}
	for _, f := range tell {
		options.OnStatus = f
	}
	if o.server, err = sip.New(options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := host.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		o.server.Close()
		if t.Failed() {
			t.Log(logs)
		}
	})
	return o
}

// setResolver sets the resolver of trunks and hosts. Without one it is the system's.
func (t *testGateway) setResolver(r *net.Resolver) { t.resolver.Store(r) }

func (t *testGateway) dialResolver(ctx context.Context, network, address string) (net.Conn, error) {
	if r := t.resolver.Load(); r != nil {
		return r.Dial(ctx, network, address)
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

func (t *testGateway) sipURI(transport int) string {
	kind := []string{"", ";transport=tcp", ";transport=tls"}[transport]
	return fmt.Sprintf("sip:500@%s%s", t.server.Addresses()[transport], kind)
}

// baresip is the phone of that name (Debian's package), controlled by its socket.
type baresip struct {
	t       *testing.T
	folder  string
	control net.Conn
	events  chan phoneEvent
	at      string // its address for calls
	ended   chan struct{}
}

type phoneEvent struct {
	Event    bool
	Response bool
	OK       bool
	Type     string
	Param    string
	Data     string
}

// writeQuestion writes the WAV file that the phones play: a second of a tone, then silence.
func writeQuestion(t *testing.T, file string) {
	t.Helper()
	const rate = 16000
	pcm := append(mediatest.Tone(time.Second, rate, 440, 12000), make([]int16, 20*rate)...)
	var b bytes.Buffer
	b.WriteString("RIFF")
	binary.Write(&b, binary.LittleEndian, uint32(36+2*len(pcm)))
	b.WriteString("WAVEfmt ")
	for _, v := range []any{uint32(16), uint16(1), uint16(1), uint32(rate), uint32(2 * rate), uint16(2), uint16(16)} {
		binary.Write(&b, binary.LittleEndian, v)
	}
	b.WriteString("data")
	binary.Write(&b, binary.LittleEndian, uint32(2*len(pcm)))
	b.Write(media.AppendBytes(nil, pcm))
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// newBaresip starts a phone whose account has these parameters. It tries again, because another process may take its ports before it does.
func newBaresip(t *testing.T, account string) *baresip {
	t.Helper()
	var p *baresip
	for range 5 {
		if p = startBaresip(t, account); p != nil {
			return p
		}
	}
	t.Fatal("baresip does not start")
	return nil
}

const phoneConfig = `module_path /usr/lib/baresip/modules
module g711.so
module g722.so
module opus.so
module aufile.so
module srtp.so
module aubridge.so
module sndfile.so
module account.so
module menu.so
module ctrl_tcp.so
sip_listen %[1]s
rtp_ports %[2]d-%[3]d
audio_source aufile,%[4]s/question.wav
audio_player aubridge,heard
audio_alert aubridge,alert
snd_path %[4]s
ctrl_tcp_listen %[5]s
net_interface 127.0.0.1
call_max_calls 4
ausrc_srate 16000
auplay_srate 16000
ausrc_channels 1
auplay_channels 1
`

func startBaresip(t *testing.T, account string) *baresip {
	t.Helper()
	p := &baresip{t: t, folder: t.TempDir(), events: make(chan phoneEvent, 256), ended: make(chan struct{})}
	writeQuestion(t, filepath.Join(p.folder, "question.wav"))
	p.at = fmt.Sprintf("127.0.0.1:%d", mediatest.FreePort(t))
	control, rtpPort := fmt.Sprintf("127.0.0.1:%d", mediatest.FreePort(t)), mediatest.FreePort(t)&^1
	for name, text := range map[string]string{
		"config":   fmt.Sprintf(phoneConfig, p.at, rtpPort, rtpPort+20, p.folder, control),
		"accounts": "<sip:alice@127.0.0.1>;regint=0;" + account + "\n",
		"contacts": "",
	} {
		if err := os.WriteFile(filepath.Join(p.folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("baresip", "-4", "-f", p.folder)
	cmd.Dir = p.folder
	var out testkit.LogBook
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		_ = cmd.Wait()
		if p.control != nil {
			p.control.Close()
			<-p.ended
		}
		if t.Failed() {
			t.Log(out.String())
		}
	})
	for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) { // it does not report otherwise that it is ready
		said := out.String()
		if strings.Contains(said, "already in use") || strings.Contains(said, "init failed") {
			return nil
		}
		if strings.Contains(said, "baresip is ready") {
			var err error
			if p.control, err = net.Dial("tcp", control); err == nil {
				go p.readEvents()
				return p
			}
		}
		if time.Now().After(deadline) {
			t.Fatal(said)
		}
	}
}

// readEvents reads netstrings of JSON.
func (bs *baresip) readEvents() {
	defer close(bs.ended)
	in := bufio.NewReader(bs.control)
	for {
		head, err := in.ReadString(':')
		if err != nil {
			return
		}
		n, err := strconv.Atoi(strings.TrimSuffix(head, ":"))
		if err != nil {
			return
		}
		body := make([]byte, n+1)
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		var e phoneEvent
		if json.Unmarshal(body[:n], &e) == nil {
			select {
			case bs.events <- e:
			default:
			}
		}
	}
}

// runCommand runs a command.
func (bs *baresip) runCommand(command, params string) {
	bs.t.Helper()
	text, err := json.Marshal(map[string]string{"command": command, "params": params})
	if err != nil {
		bs.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(bs.control, "%d:%s,", len(text), text); err != nil {
		bs.t.Fatal(err)
	}
}

// awaitEvent waits for an event.
func (bs *baresip) awaitEvent(kind string) phoneEvent {
	bs.t.Helper()
	var seen []string
	for timeout := time.After(patience); ; {
		select {
		case e := <-bs.events:
			if e.Type == kind {
				return e
			}
			seen = append(seen, e.Type+" "+e.Param)
		case <-timeout:
			bs.t.Fatalf("no %s, but %q", kind, seen)
		}
	}
}

// playedAudio returns the audio that the phone has played, and its rate. The call must have ended.
func (bs *baresip) playedAudio() (pcm []int16, rate int) {
	bs.t.Helper()
	files, err := filepath.Glob(filepath.Join(bs.folder, "dump-*-dec.wav"))
	if err != nil || len(files) != 1 {
		bs.t.Fatalf("recorded %q, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil || len(b) < 44 {
		bs.t.Fatalf("heard nothing: %d bytes, %v", len(b), err)
	}
	pcm = media.AppendSamples(nil, b[44:])
	if b[22] == 2 { // of two channels, the left one
		for i := range len(pcm) / 2 {
			pcm[i] = pcm[2*i]
		}
		pcm = pcm[:len(pcm)/2]
	}
	return pcm, int(binary.LittleEndian.Uint32(b[24:]))
}

// awaitTurns waits until the model has answered n turns.
func (t *testGateway) awaitTurns(n int) {
	t.t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
		for _, s := range t.host.Sessions() {
			if s.Turns >= n {
				return
			}
		}
		if time.Now().After(deadline) {
			t.t.Fatalf("no answer: %+v", t.host.Sessions())
		}
	}
}

// A real phone calls with each codec, asks, and hears the answer.
func TestInboundCallByCodec(t *testing.T) {
	t.Parallel()
	for _, codec := range []string{"PCMU/8000/1", "PCMA/8000/1", "G722/16000/1", "opus/48000/2"} {
		t.Run(codec, func(t *testing.T) {
			t.Parallel()
			o := startGateway(t, config)
			machine := mediatest.MeasureLateness(t)
			p := newBaresip(t, "audio_codecs="+codec)
			p.runCommand("dial", o.sipURI(0))
			p.awaitEvent("CALL_ESTABLISHED")
			o.awaitTurns(1)
			p.runCommand("hangup", "")
			p.awaitEvent("CALL_CLOSED")
			pcm, rate := p.playedAudio()
			if level := mediatest.ToneLevel(pcm, rate, 440); level < 0.5 && machine.CanJudge(t, soundLate) {
				t.Errorf("the tone is %.3f of what was heard (%d samples)", level, len(pcm))
			}
		})
	}
}

// audioPort returns the gateway's port for the audio of the only call, from the log.
func (t *testGateway) audioPort() (port int) {
	t.t.Helper()
	t.awaitLog("sound=")
	_, text, _ := strings.Cut(t.logs.String(), "sound=")
	if _, err := fmt.Sscanf(text, "%d", &port); err != nil {
		t.t.Fatal(err)
	}
	return port
}
