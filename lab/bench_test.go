package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
)

// built contains the options for a gateway without the race detector, because the tests must not measure the cost of the detector.
var built = options{seed: 1}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == echoCommand { // this program, started as the echo server
		if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
			panic(err)
		}
		return
	}
	err := os.Chdir("..") // as in "bin/lab"
	var remove func()
	if err == nil {
		remove, err = built.buildGateway(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	flag.Parse()
	flag.Set("test.parallel", "3") // the tests in real time run in parallel: they mostly wait
	code := m.Run()
	remove()
	os.Exit(code)
}

// All rows of the table are measured, whatever the figures are.
func TestLoadTable(t *testing.T) {
	t.Parallel()
	o := built
	o.sessions, o.window, o.settle = []int{1}, time.Second, 300*time.Millisecond
	var out bytes.Buffer
	if err := errors.Join(measureCallCosts(t.Context(), o, &out), measureTurns(t.Context(), o, 1, &out)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`CPU per minute of a call, 1 calls \| \d+.\d+ s \| –`,
		`memory per call, 1 calls \| -?\d+.\d+ MB`,
		`packets late, p95; machine idle; cores of the gateway, 1 calls \| \d+.\d ms; \d+.\d %; \d.\d+`,
		`CPU time, memory and lateness are of 1s`,
		`the model \| \d+.\d+ s \| –`,
		`the gateway \| \d+.\d+ s \| \d+.\d+ s`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
}

// shortPhases is long enough for some 100 voiced blocks, in addition to an outage of 2 s.
var shortPhases = callPhases{
	settle: 500 * time.Millisecond, clean: 1500 * time.Millisecond, bad: 5 * time.Second, after: backTime + time.Second,
}

// Speech survives bad networks: three calls in real time. What one seed shows of a network two others must show, too: a machine with other
// work loses packets of its own, but not each time.
func TestBadNetworks(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	floors := map[string]float64{"5": 0.98, "20": 0.9, "dark": 0.95}
	chosen := slices.DeleteFunc(slices.Clone(badNetworks), func(c condition) bool { return floors[c.name] == 0 })
	stage, err := built.startStage(t.Context(), voxgate, silence)
	if err != nil {
		t.Fatal(err)
	}
	defer stage.close()
	for o := built; ; o.seed++ {
		calls, errs := callAll(t.Context(), stage, o.seed, chosen, shortPhases)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		var faults, failed []string
		var late time.Duration
		for _, c := range calls {
			before := len(faults)
			late = max(late, quantile(c.delays, 0.99))
			up, down := c.evaluate()
			for way, got := range map[string]measured{"to the model": up, "to the person": down} {
				t.Logf("%s, %s: %+v", c.name, way, got)
				if got.blocks < 90 || got.share < floors[c.name] {
					faults = append(faults, fmt.Sprintf("%s, %s: %s of %d blocks arrive", c.name, way, formatPercent(got.share), got.blocks))
				}
				if got.remainingDelay > 10*time.Millisecond+2*late || c.blackout > 0 && got.recovery > 300*time.Millisecond+2*late {
					faults = append(
						faults,
						fmt.Sprintf("%s, %s: heard again after %v, and then %v later than before", c.name, way, got.recovery, got.remainingDelay),
					)
				}
			}
			if len(faults) > before {
				failed = append(failed, c.name)
			}
		}
		chosen = slices.DeleteFunc(chosen, func(c condition) bool { return !slices.Contains(failed, c.name) })
		switch {
		case len(faults) == 0:
			return
		case o.seed < built.seed+2:
			t.Log(strings.Join(faults, "; "))
		case late > 100*time.Millisecond:
			t.Skipf("this machine is too busy for calls in real time: packets were sent %v late", late)
		default:
			t.Fatal(strings.Join(faults, "; "))
		}
	}
}

// The audio of the callers of a load is neither speech nor silence: the gateway treats lower levels as silence, which is cheaper.
func TestRoomNoise(t *testing.T) {
	room, decoder := roomNoisePackets(), newListener(modelRate)
	for i := range 3 * roomFrames {
		// After a repetition of the packets the codec needs a few frames to recover.
		if level := media.RMS(decoder.decodePacket(room[i%roomFrames])); level >= 100 || level < 64 && i%roomFrames >= 3 {
			t.Errorf("frame %d has a level of %.0f", i, level)
		}
	}
}

// An added delay is found, and so is a loss: most of the audio with which a decoder conceals a lost packet does not count as speech.
func TestJudgeSpeech(t *testing.T) {
	s := speech()
	for name, test := range map[string]struct {
		encoder     func() *talker
		lost        float64
		fec         bool
		least, most float64
	}{
		"clean, low delay":     {newLowDelayTalker, 0, false, 0.999, 1},
		"clean, as a browser":  {newBrowserTalker, 0, false, 0.99, 1},
		"lost, made up":        {newLowDelayTalker, 0.2, false, 0.75, 0.88},
		"lost, made up by FEC": {newBrowserTalker, 0.2, true, 0.92, 0.97},
	} {
		const passes, delay = 2, 130 * time.Millisecond
		start := time.Now()
		path := mediatest.NewPath(1, 1)
		path.SetImpairment(mediatest.Impairment{Delay: delay, Loss: test.lost})
		heard := through(t, s, passes*s.frameCount(), test.encoder, path, test.fec, start)
		var utterances []utterance
		for i := range passes {
			utterances = append(utterances, utterance{start.Add(time.Duration(i*s.frameCount()) * frame), 0, s.frameCount()})
		}
		present, late := 0, []time.Duration(nil)
		all := judgeSpeech(s, utterances, heard)
		for _, v := range all {
			if v.present {
				present++
				late = append(late, v.delay)
			}
		}
		if share := float64(present) / float64(len(all)); share < test.least || share > test.most {
			t.Errorf("%s: a share of %.4f, want %v to %v", name, share, test.least, test.most)
		}
		if got := quantile(late, 0.5); got < delay || got > delay+frame {
			t.Errorf("%s: a delay of %v, want %v, or a frame more", name, got, delay)
		}
	}
}

// through passes the speech through a codec and a network. The decoder repairs lost packets from the next packet if it may, or
// conceals them.
func through(
	t *testing.T,
	s *reference,
	frames int,
	newEncoder func() *talker,
	path *mediatest.Path,
	fec bool,
	start time.Time,
) (heard []piece) {
	t.Helper()
	encoder, decoder := newEncoder(), newListener(modelRate)
	missing := 0
	for i := range frames {
		packet := encoder.encodeFrame(s.micFrame(i))
		at, copies := path.Send(start.Add(time.Duration(i) * frame))
		if copies == 0 {
			missing++
			continue
		}
		for ; missing > 0; missing-- {
			var next []byte
			if fec && missing == 1 {
				next = packet
			}
			pcm := make([]int16, block)
			if err := decoder.Conceal(next, pcm); err != nil {
				t.Fatal(err)
			}
			heard = append(heard, piece{at, pcm})
		}
		heard = append(heard, piece{at, slices.Clone(decoder.decodePacket(packet))})
	}
	return heard
}

func TestRecovery(t *testing.T) {
	from := time.Now()
	at := func(spoken, delay int, present bool) verdict {
		return verdict{
			spokenAt: from.Add(time.Duration(spoken) * time.Millisecond),
			present:  present,
			delay:    time.Duration(delay) * time.Millisecond,
		}
	}
	for want, all := range map[time.Duration][]verdict{
		30 * time.Millisecond: {at(-100, 30, true), at(-80, 0, false), at(0, 30, true), at(20, 30, true)},
		31 * time.Millisecond: {at(0, 0, false), at(100, 0, false), at(120, -89, true)}, // 31 ms after the first word
		32 * time.Millisecond: {at(-20, 52, true), at(0, 40, true)},                     // of an earlier word
		time.Hour:             {at(-100, 30, true), at(0, 0, false)},
	} {
		if got := recoveryTime(all, from); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// A call in which nothing arrives after the condition must not count as one whose delay has returned to its previous value.
func TestDelayWithoutRecovery(t *testing.T) {
	now := time.Now()
	c := &impaired{callPhases: shortPhases, begin: now, end: now.Add(shortPhases.bad)}
	var all []verdict
	for i := range 600 {
		at := now.Add(time.Duration(i-100) * 20 * time.Millisecond)
		all = append(all, verdict{spokenAt: at, present: at.Before(c.end), delay: 30 * time.Millisecond})
	}
	if m := c.evaluateDirection(all); m.share != 1 || m.remainingDelay < time.Second {
		t.Errorf("%.2f of it heard, and %v later", m.share, m.remainingDelay)
	}
}

// gatewayTiming is for subjects with replies within 30 ms.
var gatewayTiming = trialTiming{500 * time.Millisecond, 300 * time.Millisecond, 250 * time.Millisecond}

const trialFrames = int(500 * time.Millisecond / frame)

// Beeps begin anywhere in a packet, at the returned times, and can be heard in a packet soon after.
func TestMakeBeeps(t *testing.T) {
	const n, parts = 40, 10
	trials, frames := gatewayTiming.makeBeeps(n, micRate)
	packets := encodeFrames(frames)
	if len(packets) != n*trialFrames {
		t.Fatal(len(packets))
	}
	var count [parts]int
	decoder := newListener(micRate)
	for i, trial := range trials {
		count[trial%frame*parts/frame]++
		first := 0 // first packet in which the beep can be heard
		for j := i * trialFrames; j < (i+1)*trialFrames; j++ {
			if isLoud(decoder.decodePacket(packets[j])) && first == 0 {
				first = j
			}
		}
		if late := first - int(trial/frame); late < 0 || late > 1 {
			t.Errorf("beep %d is heard %d packets later", i, late)
		}
	}
	if slices.Min(count[:]) < n/parts-2 || slices.Max(count[:]) > n/parts+2 {
		t.Errorf("beeps begin in the parts of a packet: %v", count)
	}
}

func TestMatchReplies(t *testing.T) {
	var sent []time.Time
	start := time.Now()
	for i := range 3 * trialFrames {
		sent = append(sent, start.Add(time.Duration(i+1)*frame)) // at the end of the packet
	}
	trials := []time.Duration{0, gatewayTiming.trial + 5*time.Millisecond, 2 * gatewayTiming.trial}
	replies := []time.Time{start.Add(52 * time.Millisecond), start.Add(2*gatewayTiming.trial + 47*time.Millisecond)}
	if _, err := gatewayTiming.matchReplies(trials, sent, replies); err == nil {
		t.Error("a lost reply is not noticed")
	}
	l, err := gatewayTiming.matchReplies(slices.Delete(trials, 1, 2), sent, replies)
	if err != nil || !slices.Equal(l.mouthToEar, []time.Duration{52 * time.Millisecond, 47 * time.Millisecond}) {
		t.Errorf("%+v, %v", l, err)
	}
}

// Two subjects in a few cells: each cell of the comparison has a figure or a reason, and the page shows both.
func TestCompare(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	folder := t.TempDir()
	want := map[string]string{voxgate: "join.0 beep cancelled twice dropped.in", echoing: "join.0 beep"}
	for id, measured := range want {
		c := &comparison{options: built, trialTiming: gatewayTiming, runs: 1, cells: strings.Fields(want[voxgate])}
		c.trialTiming.trial = time.Second // for a busy machine
		c.trials = 3
		if err := c.measureCells(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if err := c.writeReport(folder); err != nil {
			t.Fatal(err)
		}
		if c.Version == "" || c.SendDelay <= 0 || c.SendDelayP99 < c.SendDelay {
			t.Errorf("%s %q, late %v / %v", id, c.Version, c.SendDelay, c.SendDelayP99)
		}
		for _, f := range c.Figures {
			switch is := slices.Contains(strings.Fields(measured), f.Cell); {
			case is && (len(f.Values) == 0 || f.Median <= 0 && f.Cell != "dropped.in"): // a busy machine may miss some
				t.Errorf("%s: %+v", id, f)
			case !is && !strings.HasPrefix(f.Missing, "not comparable: "):
				t.Errorf("%s has no reason: %+v", id, f)
			}
			if f.Cell == "twice" && f.Median > 1 {
				t.Errorf("%s runs a tool %v times", id, f.Median)
			}
		}
	}
	if err := writePage(folder); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(folder, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Voxgate", "not comparable: it calls no tools", `<svg class="voxgate" role="img" aria-label="Voxgate: `} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page has no %s", want)
		}
	}
	table, err := os.ReadFile(filepath.Join(folder, "tables.md"))
	row := regexp.MustCompile(`\| From a beep to the reply, ms( \| \d+(\.\d)? / \d+(\.\d)? \((\d of )?3\)){2} \|`)
	if err != nil || !row.Match(table) {
		t.Errorf("%s %v", table, err)
	}
}

// Callers over a WebSocket, over a stream like Twilio's and over SIP get replies to their beeps, and a SIP call ends at once with its BYE.
func TestLineLatency(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	stage, err := built.startStage(t.Context(), voxgate, silence)
	if err != nil {
		t.Fatal(err)
	}
	defer stage.close()
	c := &comparison{options: built, stage: stage, trialTiming: gatewayTiming}
	c.trials, c.trialTiming.trial = 2, time.Second // for a busy machine, which may miss a beep
	stage.model.answerBeeps()
	for kind, open := range lineOpeners[voxgate] {
		begun := time.Now()
		l, err := c.measureBeeps(t.Context(), open, c.trials)
		if len(l.mouthToEar) == 0 || slices.Min(l.mouthToEar) <= 0 {
			t.Errorf("%s: %v, %v", kind, l.mouthToEar, err)
		}
		if kind != "sip" {
			continue
		}
		waitCtx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // without a BYE it takes 30 s
		defer cancel()
		for _, s := range stage.model.currentSessions() {
			if !s.began.After(begun) {
				continue
			}
			select {
			case <-s.done:
			case <-waitCtx.Done():
				t.Fatalf("the call goes on: %s", stage.newestLog())
			}
		}
	}
}

// A caller that reads slowly for the length of a reply receives all of it later, and another caller gets its replies meanwhile.
func TestSlowReader(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	c := &comparison{options: built, trialTiming: gatewayTiming, cells: strings.Fields("slow.heard slow.beside slow.memory")}
	c.trials, c.trialTiming.trial = 2, time.Second
	if err := c.measureCells(t.Context(), voxgate); err != nil {
		t.Fatal(err)
	}
	if len(c.Figures) != 3 {
		t.Fatalf("%+v", c.Figures)
	}
	heard, beside := c.Figures[0], c.Figures[1]
	if heard.Cell != "slow.heard" || heard.Median < 99 || heard.Missing != "" || beside.Cell != "slow.beside" || beside.Median <= 0 {
		t.Errorf("%+v", c.Figures)
	}
}

// A slow link becomes fast when its channel is closed.
func TestSlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		fast := make(chan struct{})
		go func() {
			far.Write(make([]byte, 2*slowRate))
			far.Close()
		}()
		link, began := slowLink{near, fast}, time.Now()
		if _, err := io.ReadFull(link, make([]byte, slowRate)); err != nil || time.Since(began).Round(100*time.Millisecond) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		close(fast)
		began = time.Now()
		if _, err := io.ReadAll(link); err != nil || time.Since(began) > frame {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// A line whose first messages cannot be sent closes its socket.
func TestLineWithoutAnswer(t *testing.T) {
	closed := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err == nil {
			_, _, err = conn.ReadMessage()
			conn.Close()
		}
		closed <- err
	}))
	defer server.Close()
	conn, err := dialSocket(t.Context(), &stage{process: &process{url: server.URL}}, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := startSocketLine(conn, modelRate, nil, nil, func() {}); err == nil { // not a valid message
		t.Error("it begins")
	}
	if _, err := withTimeout(t.Context(), 10*time.Second, func(ctx context.Context) (error, error) {
		return awaitValue(ctx, closed, func(error) bool { return true })
	}); err != nil {
		t.Error("the socket stays open")
	}
}

// Chromium's microphone gets the beeps, and its page receives the replies.
func TestChromium(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	c := &comparison{options: built, trialTiming: gatewayTiming, cells: []string{"beep.chromium"}}
	c.trials, c.trialTiming.trial = 5, time.Second
	if err := c.measureCells(t.Context(), voxgate); err != nil {
		t.Fatal(err)
	}
	if f := c.Figures[0]; len(f.Values) == 0 || f.Median <= 0 || f.Median >= inMilliseconds(c.trialTiming.trial) {
		t.Errorf("%+v", f)
	}
}

// A subject that does not start does not prevent the measurement of the next one, and the page shows why it has no figures.
func TestCompareAfterFailure(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	o := built
	o.gateway = "/bin/false"
	o.trials = 1
	err := runComparison(t.Context(), o, 1, "join.0", folder, []string{voxgate, echoing, "page"})
	if err == nil || !strings.Contains(err.Error(), "voxgate does not report its version") {
		t.Error(err)
	}
	reports, err := readReports(folder)
	if err != nil || len(reports) != 2 || len(reports[0].Figures) != 1 {
		t.Fatalf("%+v, %v", reports, err)
	}
	if !slices.ContainsFunc(reports[1].Figures, func(f figure) bool { return f.Cell == "join.0" && len(f.Values) == 1 }) {
		t.Errorf("%+v", reports[1])
	}
	page, err := os.ReadFile(filepath.Join(folder, "index.html"))
	if err != nil || !strings.Contains(string(page), "voxgate does not report its version: exit status 1") {
		t.Errorf("%s, %v", page, err)
	}
}

// Messages of the Python SDK, in snake_case and with the URL alphabet of base64, are understood like others. Numbers and strings survive
// the encoding in Protocol Buffers.
func TestProtobufFields(t *testing.T) {
	m, s := &model{}, &session{}
	var heard []int16
	m.setListener(func(_ *session, pcm []int16) { heard = append(heard, pcm...) })
	m.handleMessage(s, []byte(`{"realtime_input": {"audio": {"data": "-_8B_w==", "mimeType": "audio/pcm;rate=16000"}}}`))
	m.handleMessage(s, []byte(`{"realtimeInput": {"audio": {"data": "+/8B/w==", "mimeType": "audio/pcm;rate=16000"}}}`))
	if want := []int16{-5, -255, -5, -255}; !slices.Equal(heard, want) {
		t.Errorf("%v, want %v", heard, want)
	}
	fields := parseFields(appendBytesField(appendVarintField(appendBytesField(nil, 1, "offer"), 3, 300), 2, "sdp"))
	if n, _ := binary.Uvarint(fields[3]); string(fields[1]) != "offer" || string(fields[2]) != "sdp" || n != 300 {
		t.Errorf("%v", fields)
	}
	for _, broken := range [][]byte{{0x0a}, {0x0a, 5, 1}, {0x08}, {0x08, 0x80}, {0x0f}, {0x80}} {
		if got := parseFields(broken); len(got) > 0 {
			t.Errorf("%v of %v", got, broken)
		}
	}
}
