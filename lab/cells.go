package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/pion/rtp"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
)

// recoveryTimeout limits the recovery of a subject after a fault. If the recovery takes longer, the run has no result.
const recoveryTimeout = 30 * time.Second

// startTalking sends packets in a loop until stop is called.
func (c *comparison) startTalking(ctx context.Context, to *caller, packets [][]byte) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		delays := paceFrames(ctx, frame, 1, int(time.Hour/frame), func(_, i int) { to.sendPacket(packets[i%len(packets)]) })
		c.delays = append(c.delays, delays...) // read after stop
	}()
	return sync.OnceFunc(func() { cancel(); <-done })
}

// tonePackets returns the packets of one second of a tone, which can be repeated without a break.
var tonePackets = sync.OnceValue(func() (packets [][]byte) {
	encoder := newLowDelayTalker()
	for pcm := range slices.Chunk(mediatest.Tone(time.Second, micRate, 450, 12000), media.Samples(frame, micRate)) {
		packets = append(packets, slices.Clone(encoder.encodeFrame(pcm)))
	}
	return packets
})

// withTimeout calls do with a context that ends after d.
func withTimeout[T any](ctx context.Context, d time.Duration, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d, fmt.Errorf("it did not happen within %v", d))
	defer cancel()
	return do(ctx)
}

// awaitValue returns the first value of a channel for which matches returns true.
func awaitValue[T any](ctx context.Context, values <-chan T, matches func(T) bool) (T, error) {
	for {
		select {
		case v := <-values:
			if matches(v) {
				return v, nil
			}
		case <-ctx.Done():
			var none T
			return none, context.Cause(ctx)
		}
	}
}

// measureJoins measures the time from the start of a call to the first reply, for a caller that speaks at once.
func (c *comparison) measureJoins(ctx context.Context) error {
	c.model.answerBeeps()
	for cell, trip := range map[string]time.Duration{"join.0": 0, "join.100": 100 * time.Millisecond, "join.300": 300 * time.Millisecond} {
		if !c.isSelectedCell(cell) {
			continue
		}
		var took []time.Duration
		var last error
		for range c.runs + 1 { // the first call is not counted
			d, err := withTimeout(ctx, connectTimeout, func(ctx context.Context) (time.Duration, error) { return c.measureJoin(ctx, trip/2) })
			if err != nil {
				last = err
				continue
			}
			took = append(took, d)
		}
		if len(took) < 2 {
			c.addMissing(cell, last)
			continue
		}
		c.addFigure(cell, c.runs, fmt.Sprint(last), allInMilliseconds(took[len(took)-min(len(took), c.runs):])...)
	}
	return nil
}

// measureJoin makes one call for measureJoins.
func (c *comparison) measureJoin(ctx context.Context, delay time.Duration) (time.Duration, error) {
	var sockets [2]*mediatest.Socket
	for i := range sockets {
		inner, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		sockets[i] = mediatest.NewSocket(inner, c.seed)
		defer sockets[i].Close()
		sockets[i].SetImpairments(mediatest.Impairment{Delay: delay}, mediatest.Impairment{Delay: delay})
	}
	voice := &loudness{listener: newListener(voiceRate), started: make(chan time.Time, 1)}
	start := time.Now()
	caller, err := c.placeCall(ctx, callOptions{hear: voice.hearPacket, socket: sockets[0], second: sockets[1], delay: delay})
	if err != nil {
		return 0, err
	}
	defer caller.close()
	defer c.startTalking(ctx, caller, tonePackets())()
	at, err := awaitValue(ctx, voice.started, func(time.Time) bool { return true })
	return at.Sub(start), err
}

// measureReplies measures the replies to beeps, and interruptions.
func (c *comparison) measureReplies(ctx context.Context) error {
	l, err := measureLatency(ctx, c.options, c.stage, c.trialTiming)
	c.delays = append(c.delays, l.delays...)
	if len(l.mouthToEar) > 0 && c.isSelectedCell("beep") {
		c.addFigure("beep", c.trials, "no reply", allInMilliseconds(l.mouthToEar)...)
	}
	if len(l.cut) > 0 && c.isSelectedCell("barge") {
		c.addFigure("barge", c.interruptionCount(), "the answer was not heard, or did not end", allInMilliseconds(l.cut)...)
	}
	return err
}

// measureFirstWordKept measures how much of the first word arrives if the caller speaks at once. Audio that arrives late
// is counted, too.
func (c *comparison) measureFirstWordKept(ctx context.Context) error {
	const (
		word       = 20 // frames: 400 ms
		delayLimit = 8 * time.Second
	)
	s := speech()
	var shares []float64
	for range c.runs {
		received := &recording{}
		c.model.setListener(func(_ *session, pcm []int16) { received.WritePCM(pcm) })
		caller, err := c.placeCall(ctx, callOptions{hear: (&loudness{listener: newListener(voiceRate)}).hearPacket})
		if err != nil {
			return err
		}
		encoder := newBrowserTalker()
		start := time.Now()
		send := func(_, i int) { caller.sendPacket(encoder.encodeFrame(s.micFrame(i))) }
		c.delays = append(c.delays, paceFrames(ctx, frame, 1, int(delayLimit/frame), send)...)
		caller.close()
		verdicts := judgeSpeechWithin(s, []utterance{{start, 0, word}}, received.snapshot(), delayLimit)
		shares = append(shares, presentPercentage(verdicts))
	}
	c.addFigure("first", c.runs, "", shares...)
	return nil
}

// presentPercentage returns the percentage of blocks that have arrived.
func presentPercentage(all []verdict) float64 {
	n := 0
	for _, v := range all {
		if v.present {
			n++
		}
	}
	return 100 * float64(n) / float64(max(1, len(all)))
}

// measureNetworks measures the speech in both directions over bad networks. A run is 3 s of speech.
func (c *comparison) measureNetworks(ctx context.Context) error {
	conditions := slices.DeleteFunc(slices.Clone(badNetworks), func(n condition) bool {
		return !c.isSelectedCell("up."+n.name) && !c.isSelectedCell("down."+n.name)
	})
	s := callPhases{settle: time.Second, clean: 2 * time.Second, bad: 15 * time.Second, after: time.Second}
	calls, errs := callAll(ctx, c.stage, c.seed, conditions, s)
	for i, call := range calls {
		name := conditions[i].name
		if call == nil {
			for _, way := range []string{"up.", "down.", "stretch."} {
				if cellIndex(way+name) >= 0 && c.isSelectedCell(way+name) {
					c.addMissing(way+name, errs[i])
				}
			}
			continue
		}
		c.delays = append(c.delays, call.delays...)
		if conditions[i].blackout > 0 {
			up, down := call.evaluate()
			c.addRecovery("up.dark", up)
			c.addRecovery("down.dark", down)
			continue
		}
		up := judgeSpeech(call.speech, call.userSpeech, call.model.recording.snapshot())
		down := judgeSpeech(call.speech, call.modelSpeech, call.received.snapshot())
		applyPlayout(call.modelSpeech, down)
		c.addShares("up."+name, call, up)
		c.addShares("down."+name, call, down)
		var delays []time.Duration
		for _, v := range call.duringCondition(down) {
			if v.present {
				delays = append(delays, v.delay)
			}
		}
		if cell := "stretch." + name; cellIndex(cell) >= 0 && len(delays) > 0 && c.isSelectedCell(cell) {
			c.addFigure(cell, 1, "", inMilliseconds(quantile(delays, 0.95)-quantile(delays, 0.5)))
		}
	}
	return errors.Join(errs...)
}

// addRecovery adds the recovery time after a network outage.
func (c *comparison) addRecovery(cell string, m measured) {
	if c.isSelectedCell(cell) && m.recovery < recoveryTimeout {
		c.addFigure(cell, 1, "", inMilliseconds(m.recovery))
	}
}

// duringCondition returns the verdicts on the blocks that were spoken during the condition.
func (ic *impaired) duringCondition(all []verdict) []verdict {
	return slices.DeleteFunc(slices.Clone(all), func(v verdict) bool { return v.spokenAt.Before(ic.begin) || !v.spokenAt.Before(ic.end) })
}

// addShares adds the share of speech that arrived, with one value for every 3 s of the condition.
func (c *comparison) addShares(cell string, call *impaired, all []verdict) {
	const pass = 3 * time.Second
	if !c.isSelectedCell(cell) {
		return
	}
	parts := make([][]verdict, call.bad/pass)
	for _, v := range call.duringCondition(all) {
		i := min(int(v.spokenAt.Sub(call.begin)/pass), len(parts)-1)
		parts[i] = append(parts[i], v)
	}
	var shares []float64
	for _, part := range parts {
		shares = append(shares, presentPercentage(part))
	}
	c.addFigure(cell, len(shares), "", shares...)
}

// heardFrame is a loud frame of audio that the model has received in a session.
type heardFrame struct {
	*session
	at time.Time
}

// measureDrops ends connections to the model, and measures the time until the person's voice arrives over a new connection.
func (c *comparison) measureDrops(ctx context.Context) error {
	for cell, fault := range map[string]func(context.Context, *session) (time.Time, error){
		"dropped.before": func(_ context.Context, s *session) (time.Time, error) { return time.Now(), s.conn.Close() },
		"dropped.in": func(ctx context.Context, s *session) (time.Time, error) {
			go s.sendTurn(ctx, speech().voice) // ends with the connection
			sleep(ctx, 1500*time.Millisecond)
			return time.Now(), s.conn.Close()
		},
		"dropped.after": func(ctx context.Context, s *session) (time.Time, error) {
			err := s.sendTurn(ctx, mediatest.Tone(replyLength, voiceRate, 440, 12000))
			sleep(ctx, time.Second)
			return time.Now(), errors.Join(err, s.conn.Close())
		},
		"goaway": func(ctx context.Context, s *session) (time.Time, error) {
			go s.sendTurn(ctx, slices.Concat(speech().voice, speech().voice))
			sleep(ctx, 1500*time.Millisecond)
			err := s.sendToSubject(`{"goAway":{"timeLeft":"2s"}}`)
			sleep(ctx, 2*time.Second)
			s.conn.Close() // the client may have left already
			return time.Now(), err
		},
	} {
		if !c.isSelectedCell(cell) {
			continue
		}
		if err := c.measureRuns(ctx, cell, func() (time.Duration, error) { return c.measureDrop(ctx, fault) }); err != nil {
			return err
		}
	}
	return nil
}

// measureRuns calls measure once for each run of the comparison, and records the durations together as one figure. A
// failed run adds no duration, and the figure states the last error as the reason. If ctx ends before any run succeeds,
// measureRuns returns the last error.
func (c *comparison) measureRuns(ctx context.Context, cell string, measure func() (time.Duration, error)) error {
	var took []float64
	var last error
	for range c.runs {
		d, err := measure()
		if err != nil {
			last = err
			continue
		}
		took = append(took, inMilliseconds(d))
	}
	if len(took) == 0 && ctx.Err() != nil {
		return last
	}
	c.addFigure(cell, c.runs, fmt.Sprint(last), took...)
	return nil
}

// measureDrop is one run of measureDrops.
func (c *comparison) measureDrop(ctx context.Context, fault func(context.Context, *session) (time.Time, error)) (time.Duration, error) {
	heardFrames := make(chan heardFrame, 4096)
	c.model.setListener(func(s *session, pcm []int16) {
		if isLoud(pcm) {
			select {
			case heardFrames <- heardFrame{s, time.Now()}:
			default:
			}
		}
	})
	caller, err := c.placeCall(ctx, callOptions{hear: func(time.Time, *rtp.Packet) {}})
	if err != nil {
		return 0, err
	}
	defer caller.close()
	defer c.startTalking(ctx, caller, tonePackets())()
	wait := func(good func(heardFrame) bool) (heardFrame, error) {
		return withTimeout(ctx, recoveryTimeout, func(ctx context.Context) (heardFrame, error) { return awaitValue(ctx, heardFrames, good) })
	}
	if _, err := wait(func(heardFrame) bool { return true }); err != nil {
		return 0, fmt.Errorf("the model did not hear the caller before the fault: %w", err)
	}
	sleep(ctx, time.Second) // some clients replace their first connection
	s, err := c.awaitSession(ctx, caller)
	if err != nil {
		return 0, err
	}
	before := map[*session]bool{} // sessions that existed before the fault
	for _, other := range c.model.currentSessions() {
		before[other] = true
	}
	at, err := fault(ctx, s)
	if err != nil {
		return 0, err
	}
	again, err := wait(func(h heardFrame) bool { return !before[h.session] })
	if err != nil {
		return 0, fmt.Errorf("the model does not hear the caller after the fault: %w", err)
	}
	return max(0, again.at.Sub(at)), nil
}

// sentencePackets returns a second of speech, followed by 15 s of silence. The silence is as long as a patient person
// waits for an answer.
var sentencePackets = sync.OnceValue(func() (packets [][]byte) {
	encoder, s := newBrowserTalker(), speech()
	_, words := s.clipFrames(0)
	for i := range words + int(15*time.Second/frame) {
		pcm := make([]int16, media.Samples(frame, micRate))
		if i < words {
			pcm = s.micFrame(i)
		}
		packets = append(packets, slices.Clone(encoder.encodeFrame(pcm)))
	}
	return packets
})

// measureModelSilences makes the model stop replying although its connection remains open. It measures the time from an
// unanswered sentence to the next reply.
func (c *comparison) measureModelSilences(ctx context.Context) error {
	packets := sentencePackets()
	return c.measureRuns(ctx, "silent", func() (time.Duration, error) { return c.measureModelSilence(ctx, packets) })
}

// answerSentences makes the model answer each sentence half a second after the sentence has ended. A session that is
// set to be silent only sends the transcript.
func (m *model) answerSentences() {
	const pause = 500 * time.Millisecond
	reply := voiceMessage(mediatest.Tone(replyLength, voiceRate, 440, 12000), "yes")
	m.setListener(func(s *session, pcm []int16) {
		switch now := time.Now(); {
		case isLoud(pcm):
			s.lastLoud = now
		case s.lastLoud.IsZero() || now.Sub(s.lastLoud) < pause:
		case s.silent.Load():
			s.lastLoud = time.Time{}
			s.sendToSubject(transcriptMessage)
			s.ignored <- now
		default:
			s.lastLoud = time.Time{}
			s.sendToSubject(transcriptMessage, reply, generationCompleteMessage, turnCompleteMessage)
		}
	})
}

// measureModelSilence is one run of measureModelSilences.
func (c *comparison) measureModelSilence(ctx context.Context, packets [][]byte) (time.Duration, error) {
	c.model.answerSentences()
	voice := &loudness{listener: newListener(voiceRate), started: make(chan time.Time, 1)}
	caller, err := c.placeCall(ctx, callOptions{hear: voice.hearPacket})
	if err != nil {
		return 0, err
	}
	defer caller.close()
	defer c.startTalking(ctx, caller, packets)()
	wait := func(after time.Time) (time.Time, error) {
		return withTimeout(ctx, recoveryTimeout, func(ctx context.Context) (time.Time, error) {
			return awaitValue(ctx, voice.started, func(at time.Time) bool { return at.After(after) })
		})
	}
	if _, err := wait(time.Time{}); err != nil {
		return 0, fmt.Errorf("no reply before the model fell silent: %w", err)
	}
	s, err := c.awaitSession(ctx, caller)
	if err != nil {
		return 0, err
	}
	s.silent.Store(true)
	from, err := withTimeout(ctx, recoveryTimeout, func(ctx context.Context) (time.Time, error) {
		return awaitValue(ctx, s.ignored, func(time.Time) bool { return true })
	})
	if err != nil {
		return 0, fmt.Errorf("the silent model does not hear the caller: %w", err)
	}
	at, err := wait(from)
	if err != nil {
		return 0, fmt.Errorf("no reply after the model fell silent: %w", err)
	}
	return at.Sub(from), nil
}

// toolRun is one request of the tool.
type toolRun struct {
	start, end time.Time
	cancelled  bool
}

// toolTime is the duration of a tool run.
const toolTime = 3 * time.Second

// serveTool serves a request of the tool. It answers after toolTime, unless the request is cancelled. It sends each start and each end to
// m.tools.
func (m *model) serveTool(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body) // the server notices that the client has gone only after it has read the body
	run := toolRun{start: time.Now()}
	m.tools <- run
	run.cancelled = sleep(r.Context(), toolTime) != nil
	run.end = time.Now()
	m.tools <- run
	w.Header().Set("Content-Type", "application/json")
	w.Write([]byte(`{"found":true}`))
}

// measureToolCalls tests two cases: the model calls a tool and cancels the call, and the model calls the tool twice
// with the same ID.
func (c *comparison) measureToolCalls(ctx context.Context) error {
	var took, times []float64
	var last error
	for i := range c.runs {
		d, n, err := c.measureToolCall(ctx, i)
		if err != nil {
			last = err
		}
		if d > 0 {
			took = append(took, inMilliseconds(d))
		}
		if n > 0 {
			times = append(times, float64(n))
		}
	}
	if len(times) == 0 {
		return last
	}
	if c.isSelectedCell("cancelled") {
		c.addFigure("cancelled", c.runs, "it runs to its end", took...)
	}
	if c.isSelectedCell("twice") {
		c.addFigure("twice", c.runs, fmt.Sprint(last), times...)
	}
	return nil
}

// measureToolCall is one run of measureToolCalls. took is the time from the cancellation to the end of the tool's run,
// or 0 if the run was not cancelled. times is how often the tool has run for two calls with the same ID.
func (c *comparison) measureToolCall(ctx context.Context, i int) (took time.Duration, times int, err error) {
	c.model.setListener(func(*session, []int16) {})
	caller, err := c.placeCall(ctx, callOptions{hear: func(time.Time, *rtp.Packet) {}})
	if err != nil {
		return 0, 0, err
	}
	defer caller.close()
	defer c.startTalking(ctx, caller, roomNoisePackets())()
	if err := sleep(ctx, time.Second); err != nil { // until the subject has decided which connection it keeps
		return 0, 0, err
	}
	s, err := c.awaitSession(ctx, caller)
	if err != nil {
		return 0, 0, err
	}
	next := func(good func(toolRun) bool) (toolRun, error) {
		return withTimeout(ctx, 2*toolTime, func(ctx context.Context) (toolRun, error) { return awaitValue(ctx, c.model.tools, good) })
	}
	isStart := func(r toolRun) bool { return r.end.IsZero() }
	isEnd := func(r toolRun) bool { return !r.end.IsZero() }
	tool := func(id string) string {
		return fmt.Sprintf(`{"toolCall":{"functionCalls":[{"id":%q,"name":"lookup","args":{}}]}}`, id)
	}
	id := fmt.Sprintf("cancelled-%d", i)
	s.sendToSubject(tool(id))
	if _, err := next(isStart); err != nil {
		return 0, 0, fmt.Errorf("the tool does not run: %w", err)
	}
	at := time.Now()
	s.sendToSubject(fmt.Sprintf(`{"toolCallCancellation":{"ids":[%q]}}`, id))
	run, err := next(isEnd)
	if err != nil {
		return 0, 0, err
	}
	if run.cancelled {
		took = run.end.Sub(at)
	}
	id = fmt.Sprintf("twice-%d", i)
	s.sendToSubject(tool(id))
	if _, err := next(isStart); err != nil {
		return took, 0, fmt.Errorf("the tool does not run: %w", err)
	}
	s.sendToSubject(tool(id))
	times = 1
	for open := 1; open > 0; {
		run, err := next(func(toolRun) bool { return true })
		if err != nil {
			return took, times, err
		}
		if run.end.IsZero() {
			open, times = open+1, times+1
		} else {
			open--
		}
	}
	return took, times, nil
}

// measureLoads measures CPU time and memory with 1, 10 and 100 calls, each time with a newly started server.
func (c *comparison) measureLoads(ctx context.Context) error {
	for _, n := range []int{1, 10, 100} {
		cpu, memory := fmt.Sprint("cpu.", n), fmt.Sprint("memory.", n)
		if !c.isSelectedCell(cpu) && !c.isSelectedCell(memory) {
			continue
		}
		stage, err := c.options.startStage(ctx, c.id, silence, echoVoice)
		if err != nil {
			return err
		}
		w, err := measureLoad(ctx, c.options, stage, n)
		stage.close()
		if err != nil {
			return fmt.Errorf("%d calls: %w", n, err)
		}
		c.addFigure(cpu, 1, "", 100*w.cores/float64(n))
		c.addFigure(memory, 1, "", float64(max(0, w.memory))/(1<<20)) // the memory may have shrunk
	}
	return nil
}
