package signaling_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/emulator"
	"voxgate/bridge/gemini/wire"
	"voxgate/media"
	"voxgate/media/mediatest"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/rtc"
)

func TestMain(m *testing.M) {
	// Conversations take their time and little else: more of them at once than there are processors, and few enough to be heard
	// in real time under -race on two. -parallel overrides it.
	if err := flag.Set("test.parallel", "3"); err != nil {
		panic(err)
	}
	// genai pulls in opencensus, which starts a worker when it is loaded and never ends it.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// patience is how long a test waits for something that shall happen: far more than it takes, even under -race on a
// machine with other work.
const patience = time.Minute

// gateway is a whole gateway with an emulator behind it, as `gateway serve` makes it.
type gateway struct {
	url    string // of the WebSocket
	http   string
	host   *bridge.Host
	server *signaling.Server
	logs   *logBook
}

type option func(*doors, *bridge.Options)

// doors is what a test may change of the front doors.
type doors struct {
	signaling.WebDoor
	origins, hosts []string
	access         *access.Gate
	more           func(*bridge.Host, *rtc.API) []signaling.Door
}

func newGateway(t testing.TB, options ...option) *gateway {
	t.Helper()
	logs := &logBook{}
	log := slog.New(slog.NewTextHandler(logs, nil))
	model := emulator.New(emulator.Options{Logger: log, Espeak: emulator.NoVoice})
	upstream := httptest.NewServer(model)
	peers, err := rtc.New(rtc.Options{UDPAddr: "127.0.0.1:0", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	ho := bridge.Options{Client: &api.Client{BaseURL: upstream.URL}, Backend: "emulator", Park: time.Minute, Logger: log}
	so := doors{WebDoor: signaling.WebDoor{RTC: peers, Logger: log}}
	for _, o := range options {
		o(&so, &ho)
	}
	host := bridge.NewHost(ho)
	so.Host = host
	page, err := signaling.Page(fstest.MapFS{"index.html": {Data: []byte("<!doctype html><title>page</title>")}}, signaling.Status{Backend: "emulator"})
	if err != nil {
		t.Fatal(err)
	}
	list := []signaling.Door{
		{Pattern: "/ws", Socket: &so.WebDoor},
		{Pattern: "/{$}", Socket: &so.WebDoor, Handler: page, Public: true},
		{Pattern: "/", Handler: page, Public: true},
	}
	if so.more != nil {
		list = append(list, so.more(host, so.RTC)...)
	}
	door := signaling.NewServer(signaling.Options{Origins: so.origins, Hosts: so.hosts, Access: so.access, Logger: log}, list...)
	server := httptest.NewServer(door)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := host.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := door.Close(ctx); err != nil {
			t.Error(err)
		}
		server.Close()
		model.Close()
		upstream.Close()
		if err := peers.Close(); err != nil {
			t.Errorf("close rtc: %v", err)
		}
		if t.Failed() {
			t.Log(logs.String())
		}
	})
	return &gateway{url: "ws" + strings.TrimPrefix(server.URL, "http"), http: server.URL, host: host, server: door, logs: logs}
}

// logBook collects what is logged.
type logBook struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBook) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// message is one message of the gateway and the way it came.
type message struct {
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"`
	Seq     uint64          `json:"seq"`
	way     string
}

func (m message) String() string {
	p := string(m.Payload)
	if len(p) > 200 {
		p = p[:200] + "…"
	}
	return fmt.Sprintf("%s %s", m.Type, p)
}

// read reads the payload.
func (m message) read(t testing.TB, into any) {
	t.Helper()
	if err := json.Unmarshal(m.Payload, into); err != nil {
		t.Fatalf("%v: %v", m, err)
	}
}

// inbox is what a client got, in order.
type inbox struct {
	t    testing.TB
	mu   sync.Mutex
	got  []message
	more chan struct{} // closed and replaced at every message
	over error         // the socket's end
}

func newInbox(t testing.TB) *inbox { return &inbox{t: t, more: make(chan struct{})} }

func (i *inbox) put(m message) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.got = append(i.got, m)
	close(i.more)
	i.more = make(chan struct{})
}

func (i *inbox) end(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.over = err
	close(i.more)
	i.more = make(chan struct{})
}

// revive lets wait go on after the socket's end: the channel still lives.
func (i *inbox) revive() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.over = nil
}

// count tells how many messages of a type have come.
func (i *inbox) count(kind string) int {
	n := 0
	for _, m := range i.all() {
		if m.Type == kind {
			n++
		}
	}
	return n
}

// warned tells how many warnings with a text have come.
func (i *inbox) warned(text string) int {
	n := 0
	for _, m := range i.all() {
		if m.Type == "LOG_MESSAGE" && strings.Contains(string(m.Payload), `"warn"`) && strings.Contains(string(m.Payload), text) {
			n++
		}
	}
	return n
}

// all returns every message so far.
func (i *inbox) all() []message {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]message(nil), i.got...)
}

// follow returns every message so far, and a channel that is closed when there is more.
func (i *inbox) follow() ([]message, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]message(nil), i.got...), i.more
}

// wait returns the first message from index `from` on that fits, and the index after it.
func (i *inbox) wait(from int, what string, fits func(message) bool) (message, int) {
	i.t.Helper()
	deadline := time.After(patience)
	for at := from; ; {
		i.mu.Lock()
		for ; at < len(i.got); at++ {
			if m := i.got[at]; fits(m) {
				i.mu.Unlock()
				return m, at + 1
			}
		}
		more, over := i.more, i.over
		i.mu.Unlock()
		if over != nil {
			i.t.Fatalf("the socket ended (%v) before %s; got %v", over, what, i.all())
		}
		select {
		case <-more:
		case <-deadline:
			i.t.Fatalf("no %s within %v; got %v", what, patience, i.all())
		}
	}
}

// client is a plain WebSocket client.
type client struct {
	*inbox
	conn *websocket.Conn
	mu   sync.Mutex // writes
	at   int
	done chan struct{}
}

func dial(t testing.TB, url string) *client {
	t.Helper()
	return dialAs(t, url, nil)
}

// dialAs sends headers with the request.
func dialAs(t testing.TB, url string, header http.Header) *client {
	t.Helper()
	return dialDoor(t, url, header, func(_ int, raw []byte) message {
		m := message{way: "socket"}
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Errorf("not JSON: %s", raw)
		}
		return m
	})
}

// dialDoor is a client of any door with a WebSocket. What is read as a message without a type is not kept.
func dialDoor(t testing.TB, url string, header http.Header, read func(kind int, raw []byte) message) *client {
	t.Helper()
	conn, _, err := websocket.DefaultDialer.Dial(url, header)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{inbox: newInbox(t), conn: conn, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		for {
			kind, raw, err := conn.ReadMessage()
			if err != nil {
				c.end(err)
				return
			}
			if m := read(kind, raw); m.Type != "" {
				c.put(m)
			}
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-c.done
	})
	return c
}

// connect opens a conversation and waits until it is set up.
func connect(t testing.TB, g *gateway, config string) *client {
	t.Helper()
	c := dial(t, g.url)
	c.send("CONNECT_GEMINI", `{"initialConfig":`+config+`}`)
	m := c.expect("SETUP_COMPLETE")
	if !strings.Contains(string(m.Payload), `"success":true`) {
		t.Fatalf("set-up failed: %v", m)
	}
	return c
}

func (c *client) raw(kind int, text []byte) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.conn.WriteMessage(kind, text); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// send sends a message; payload is JSON, or empty for none.
func (c *client) send(kind, payload string) {
	c.t.Helper()
	c.raw(websocket.TextMessage, envelope(kind, payload))
}

func envelope(kind, payload string) []byte {
	if payload == "" {
		return []byte(`{"type":"` + kind + `"}`)
	}
	return []byte(`{"type":"` + kind + `","payload":` + payload + `}`)
}

// expect waits for the next message of a type and passes over the others.
func (c *client) expect(kind string) message {
	c.t.Helper()
	var m message
	m, c.at = c.wait(c.at, kind, func(m message) bool { return m.Type == kind })
	return m
}

// ask types something and waits until the answer has been played.
func (c *client) ask(text string) {
	c.t.Helper()
	c.at = len(c.all())
	c.send("SEND_MESSAGE", typed(text))
	c.expect("TURN_COMPLETE")
}

// expectError waits for a GEMINI_ERROR that names code and field.
func (c *client) expectError(code, field string) message {
	c.t.Helper()
	m := c.expect("GEMINI_ERROR")
	checkError(c.t, m, code, field)
	return m
}

func checkError(t testing.TB, m message, code, field string) {
	t.Helper()
	var p struct {
		Message string
		Details struct{ Code, Field string }
	}
	m.read(t, &p)
	if p.Details.Code != code || p.Details.Field != field || p.Message == "" {
		t.Fatalf("error %v, want code %q and field %q", m, code, field)
	}
}

// closeCode waits for the socket's end.
func (c *client) closeCode() int {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(patience):
		c.t.Fatal("the socket was not closed")
	}
	c.inbox.mu.Lock()
	defer c.inbox.mu.Unlock()
	if ce, ok := c.over.(*websocket.CloseError); ok {
		return ce.Code
	}
	c.t.Logf("socket ended with %v", c.over)
	return 0
}

// say sends audio by socket, in messages of 20 ms, as fast as the gateway takes it.
func (c *client) say(pcm []int16, rate int) {
	c.t.Helper()
	for n := rate / 50; len(pcm) > 0; {
		n = min(n, len(pcm))
		c.send("SEND_REALTIME_INPUT", fmt.Sprintf(`{"audio":{"mimeType":"audio/pcm;rate=%d","data":%q}}`, rate, base64PCM(pcm[:n])))
		pcm = pcm[n:]
	}
}

func base64PCM(pcm []int16) string {
	return base64.StdEncoding.EncodeToString(media.AppendBytes(nil, pcm))
}

// heard joins the AUDIO_CHUNKs.
func (c *client) heard() []int16 {
	c.t.Helper()
	var pcm []int16
	for _, m := range c.all() {
		if m.Type == "AUDIO_CHUNK" {
			pcm = append(pcm, chunk(c.t, m)...)
		}
	}
	return pcm
}

func chunk(t testing.TB, m message) []int16 {
	t.Helper()
	var p struct{ Data []byte }
	m.read(t, &p)
	return media.AppendSamples(nil, p.Data)
}

// tone is a sine of half the full scale.
func tone(hz float64, d time.Duration, rate int) []int16 {
	return mediatest.Tone(d, rate, hz, 16000)
}

func silence(d time.Duration, rate int) []int16 {
	return make([]int16, int(d.Seconds()*float64(rate)))
}

// sentence is a tone as a person would say it: a pause, the tone, and a pause long enough to be the end.
func sentence(hz float64, d time.Duration, rate int) []int16 {
	pcm := silence(300*time.Millisecond, rate)
	pcm = append(pcm, tone(hz, d, rate)...)
	return append(pcm, silence(time.Second, rate)...)
}

// loud cuts the silence off both ends.
func loud(pcm []int16) []int16 {
	first, last := -1, 0
	for i, s := range pcm {
		if s > 1000 || s < -1000 {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if first < 0 {
		return nil
	}
	return pcm[first:last]
}

// toneShare is the share of hz in the voice. It is taken piece by piece: on a busy machine a sender's clock stumbles, and
// a tone with a jump in its phase is still the tone.
func toneShare(pcm []int16, hz float64) float64 {
	const piece = wire.OutputRate / 20
	if len(pcm) < piece {
		return mediatest.ToneLevel(pcm, wire.OutputRate, hz)
	}
	var share, energy float64
	for ; len(pcm) >= piece; pcm = pcm[piece:] {
		e := media.RMS(pcm[:piece])
		e *= e
		share += e * mediatest.ToneLevel(pcm[:piece], wire.OutputRate, hz)
		energy += e
	}
	return share / energy
}

func toneIs(pcm []int16, hz float64) bool { return toneShare(pcm, hz) > 0.5 }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
