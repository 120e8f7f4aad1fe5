package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

const (
	churnAtOnce = 20
	churnPark   = time.Second // how long a lost client is waited for
	// churnWarm is how many conversations come first: what is made once, and what the allocator keeps.
	churnWarm = 1000
	// churnPatience is how long what was used may take to be given back: a half-open peer is given up after 30 s.
	churnPatience = time.Minute
)

// visitor is a client without a voice.
type visitor struct {
	ws *websocket.Conn
}

// visits opens a WebSocket, and with setUp a conversation.
func visits(ctx context.Context, url string, setUp bool) (*visitor, error) {
	ws, _, err := websocket.DefaultDialer.DialContext(ctx, "ws"+strings.TrimPrefix(url, "http")+"/ws", nil)
	if err != nil {
		return nil, err
	}
	v := &visitor{ws}
	if err := ws.SetReadDeadline(time.Now().Add(connectTimeout)); err != nil {
		return v, err
	}
	if setUp {
		err = v.ask("CONNECT_GEMINI", `{"initialConfig":{},"resumable":true}`, "SETUP_COMPLETE", nil)
	}
	return v, err
}

// ask sends a message and reads until another one comes; "": no one is waited for.
func (v *visitor) ask(kind, payload, until string, into any) error {
	if err := v.ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"type":%q,"payload":%s}`, kind, payload)); err != nil {
		return err
	}
	for until != "" {
		var m message
		if err := v.ws.ReadJSON(&m); err != nil {
			return fmt.Errorf("no %s: %w", until, err)
		}
		if m.Type == until {
			if into != nil {
				return json.Unmarshal(m.Payload, into)
			}
			return nil
		}
	}
	return nil
}

// reset ends the connection as a machine does that is killed: by an RST.
func (v *visitor) reset() error {
	return errors.Join(v.ws.NetConn().(*net.TCPConn).SetLinger(0), v.ws.Close())
}

// leavings are the ways in which conversations are opened and closed.
var leavings = []struct {
	name  string
	visit func(ctx context.Context, url, offer string) error
}{
	{"goodbye", func(ctx context.Context, url, _ string) error {
		v, err := visits(ctx, url, true)
		if err != nil {
			return err
		}
		return errors.Join(v.ask("DISCONNECT_GEMINI", "null", "GEMINI_DISCONNECTED", nil), v.ws.Close())
	}},
	{"vanished, parked and forgotten", func(ctx context.Context, url, _ string) error {
		v, err := visits(ctx, url, true)
		if err != nil {
			return err
		}
		return v.ws.NetConn().Close()
	}},
	{"killed", func(ctx context.Context, url, _ string) error {
		v, err := visits(ctx, url, true)
		if err != nil {
			return err
		}
		return v.reset()
	}},
	{"killed in the middle of an answer", func(ctx context.Context, url, _ string) error {
		v, err := visits(ctx, url, true)
		if err != nil {
			return err
		}
		return errors.Join(v.ask("SEND_MESSAGE", `{"parts":[{"text":"one two three four"}]}`, "ASSISTANT_SPEAKING", nil), v.reset())
	}},
	{"half-negotiated", func(ctx context.Context, url, offer string) error {
		v, err := visits(ctx, url, true)
		if err != nil {
			return err
		}
		return errors.Join(v.ask("WEBRTC_OFFER", offer, "WEBRTC_ANSWER", nil), v.reset())
	}},
	{"resumed, then goodbye", func(ctx context.Context, url, _ string) error {
		v, err := visits(ctx, url, false)
		if err != nil {
			return err
		}
		var done struct{ ResumeToken string }
		if err := v.ask("CONNECT_GEMINI", `{"initialConfig":{},"resumable":true}`, "SETUP_COMPLETE", &done); err != nil {
			return err
		}
		w, err := visits(ctx, url, false)
		if err != nil {
			return err
		}
		err = w.ask("CONNECT_GEMINI", fmt.Sprintf(`{"initialConfig":{},"resumable":true,"resumeToken":%q}`, done.ResumeToken), "SETUP_COMPLETE", nil)
		return errors.Join(err, w.ask("DISCONNECT_GEMINI", "null", "GEMINI_DISCONNECTED", nil), v.ws.Close(), w.ws.Close())
	}},
	{"never said a word", func(ctx context.Context, url, _ string) error {
		v, err := visits(ctx, url, false)
		if err != nil {
			return err
		}
		return v.reset()
	}},
	{"refused", func(ctx context.Context, url, _ string) error {
		v, err := visits(ctx, url, false)
		if err != nil {
			return err
		}
		return errors.Join(v.ask("CONNECT_GEMINI", `{"initialConfig":{"tools":"a hammer"}}`, "GEMINI_DISCONNECTED", nil), v.ws.Close())
	}},
}

// holdings are what a gateway has.
type holdings struct {
	sessions, goroutines, files, sockets int
	heap, resident                       int64 // bytes; the heap after a garbage collection
}

// given tells whether all that was held is given back.
func (h holdings) given(before holdings) bool {
	return h.sessions == 0 && h.goroutines <= before.goroutines && h.files <= before.files && h.sockets <= before.sockets
}

// scrapeClient keeps no connection, which would be a file of the gateway's.
var scrapeClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: connectTimeout}

// scrape asks a gateway's private listener.
func scrape(url string) (string, error) {
	answer, err := scrapeClient.Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}

// holdings reads what a gateway has, by its private address and /proc.
func (p *process) holdings(private string) (h holdings, err error) {
	if _, err := scrape(private + "/debug/pprof/heap?gc=1"); err != nil { // which collects garbage
		return h, err
	}
	text, err := scrape(private + "/metrics")
	if err != nil {
		return h, err
	}
	for _, line := range strings.Split(text, "\n") {
		name, value, _ := strings.Cut(line, " ")
		n, _ := strconv.ParseFloat(value, 64)
		switch {
		case strings.HasPrefix(name, "voxgate_sessions{"):
			h.sessions += int(n)
		case name == "go_memstats_heap_alloc_bytes":
			h.heap = int64(n)
		}
	}
	// Not go_goroutines, which counts those that gather the metrics, now more, now fewer.
	if text, err = scrape(private + "/debug/pprof/goroutine?debug=1"); err != nil {
		return h, err
	}
	if _, err := fmt.Sscanf(text, "goroutine profile: total %d", &h.goroutines); err != nil {
		return h, fmt.Errorf("profile of goroutines: %w", err)
	}
	folder := fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid)
	files, err := os.ReadDir(folder)
	if err != nil {
		return h, err
	}
	h.files = len(files)
	for _, f := range files {
		if to, _ := os.Readlink(filepath.Join(folder, f.Name())); strings.HasPrefix(to, "socket:") { // fails for one that is just closed
			h.sockets++
		}
	}
	h.resident, err = p.resident()
	return h, err
}

// settled waits until what was used is given back, and returns what there is then.
func (p *process) settled(ctx context.Context, private string, before holdings) (h holdings, err error) {
	for began := time.Now(); ; {
		if h, err = p.holdings(private); err != nil || h.given(before) || time.Since(began) > churnPatience {
			return h, err
		}
		if err := sleep(ctx, 250*time.Millisecond); err != nil {
			return h, err
		}
	}
}

// measureChurn opens and closes conversations in every way, and prints what the gateway has before, meanwhile and afterwards.
func measureChurn(ctx context.Context, o options, stdout io.Writer) error {
	began := time.Now()
	model, err := start(ctx, nil, o.gateway, "emulate", "-addr", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer model.stop()
	gateway, err := start(ctx, []string{
		"VOXGATE_ADDR=127.0.0.1:0", "VOXGATE_PRIVATE_ADDR=127.0.0.1:0", "GOOGLE_GEMINI_BASE_URL=" + model.url, "VOXGATE_DRAIN=0",
		"VOXGATE_PARK=" + churnPark.String(), "VOXGATE_LIMITS=sessions=0,new-per-second=0,parked=0",
	}, o.gateway, "serve")
	if err != nil {
		return err
	}
	defer gateway.stop()
	found := regexp.MustCompile(`msg=private at=(\S+)`).FindStringSubmatch(gateway.log())
	if found == nil {
		return fmt.Errorf("no private address in\n%s", gateway.log())
	}
	offer, err := offerOfNobody()
	if err != nil {
		return err
	}
	visit := func(n int) error {
		errs := make([]error, n)
		atOnce(churnAtOnce, n, func(i int) {
			way := leavings[i%len(leavings)]
			if err := way.visit(ctx, gateway.url, offer); err != nil && ctx.Err() == nil {
				errs[i] = fmt.Errorf("%s: %w", way.name, err)
			}
		})
		return errors.Join(errs...)
	}
	if err := visit(o.sessions[0]); err != nil {
		return err
	}
	if err := sleep(ctx, o.settle); err != nil { // the last of them were parked
		return err
	}
	before, err := gateway.holdings(found[1])
	if err != nil {
		return err
	}
	t := newTable("conversations", "goroutines", "files", "sockets", "heap", "resident")
	row := func(n int, h holdings) {
		t.row(fmt.Sprint(n), fmt.Sprint(h.goroutines), fmt.Sprint(h.files), fmt.Sprint(h.sockets), megabytes(h.heap), megabytes(h.resident))
	}
	row(0, before)
	total, after := 0, before
	for _, n := range o.sessions[1:] {
		progress("%d conversations", n)
		if err := visit(n); err != nil {
			return err
		}
		if after, err = gateway.settled(ctx, found[1], before); err != nil {
			return err
		}
		total += n
		row(total, after)
	}
	ways := make([]string, len(leavings))
	for i, w := range leavings {
		ways[i] = w.name
	}
	err = t.write(stdout, began, fmt.Sprintf("%d at once, after %d to begin with; as often each: %s.", churnAtOnce, o.sessions[0], strings.Join(ways, "; ")))
	if !after.given(before) {
		err = errors.Join(err, fmt.Errorf("not everything was given back: %+v, and before %+v\n%s", after, before, gateway.log()))
	}
	return err
}

// offerOfNobody is an offer whose peer is not there any more.
func offerOfNobody() (string, error) {
	p, err := newPeer(callOptions{offers: withNACK})
	if err != nil {
		return "", err
	}
	defer p.close()
	offer, err := p.pc.CreateOffer(nil)
	if err != nil {
		return "", err
	}
	payload, err := json.Marshal(map[string]string{"sdp": offer.SDP})
	return string(payload), err
}
