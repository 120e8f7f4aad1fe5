package telemetry

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"voxgate/bridge"
	"voxgate/internal/crash"
	"voxgate/media/smartturn"
	"voxgate/signaling/phone/sip"
	"voxgate/signaling/rtc"
)

// metrics holds the Prometheus metrics (docs/operating.md). Labels never name callers or conversations. A
// conversation's counts are added at its end, off the audio path.
type metrics struct {
	registry *prometheus.Registry

	sessionsBegun     *prometheus.CounterVec
	sessionsEnded     *prometheus.CounterVec
	duration          prometheus.Histogram
	turns             *prometheus.CounterVec
	answer            prometheus.Histogram
	answerPart        *prometheus.HistogramVec
	bargeIn           prometheus.Histogram
	turnTaking        *prometheus.CounterVec
	calls             *prometheus.HistogramVec
	tokens            *prometheus.CounterVec
	dollars           *prometheus.CounterVec
	recordingFailures prometheus.Counter
	callFileFailures  prometheus.Counter
	refusals          *prometheus.CounterVec
	callsOut          *prometheus.CounterVec
	dials             *prometheus.CounterVec
	connectionsEnded  *prometheus.CounterVec
	stalls            *prometheus.CounterVec
	emptyTurns        *prometheus.CounterVec

	frames, framesLate, framesDropped *prometheus.CounterVec

	packets, packetsLost *prometheus.CounterVec
	jitter               *prometheus.HistogramVec
	concealed            prometheus.Counter

	dayCounter dailyCounter
}

// answerBuckets are the buckets for latencies, in seconds. They reach from the gateway's own delay of a few ms to the
// 10 s that a thinking model may take.
var answerBuckets = []float64{.001, .0025, .005, .01, .02, .04, .08, .16, .32, .64, 1, 1.5, 2.5, 5, 10}

// newMetrics registers all metrics except those of the host. buildLabels contains the versions of this build.
func newMetrics(buildLabels map[string]string) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "voxgate_" + name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "voxgate_" + name, Help: help, Buckets: buckets}, labels)
		m.registry.MustRegister(h)
		return h
	}
	m.sessionsBegun = counter("sessions_begun_total", "Conversations that began, by endpoint.", "door")
	m.sessionsEnded = counter("sessions_ended_total", "Conversations that ended, by endpoint and reason.", "door", "reason")
	// The buckets reach from 5 s (a wrong number) to 2 h (a long meeting).
	m.duration = histogram("session_seconds", "Duration of conversations.",
		[]float64{5, 15, 60, 180, 600, 1800, 3600, 7200}).WithLabelValues().(prometheus.Histogram)
	m.turns = counter(
		"turns_total",
		"Answers of the model, by what interrupted them: voice, text, client, clear, link (to the model), end, or nothing.",
		"cut",
	)
	m.answer = histogram("answer_seconds", "From the end of a person's speech to the answer.", answerBuckets).
		WithLabelValues().(prometheus.Histogram)
	m.answerPart = histogram("answer_part_seconds",
		"Parts of answer_seconds: model (to its first audio), gateway (to the first frame sent), roundtrip (to the client).",
		answerBuckets, "part")
	m.bargeIn = histogram("barge_in_seconds", "From the onset of speech over an answer to the last frame of that answer.",
		[]float64{.1, .15, .2, .3, .4, .5, .75, 1, 1.5, 2.5, 5}).WithLabelValues().(prometheus.Histogram)
	m.turnTaking = counter("turn_taking_total",
		"Decisions of the gateway about turns: ended, retracted (the person went on), held (an answer, by a sound), resumed, cut.", "decision")
	// The buckets reach from ms (tools in the gateway) to 5 min (questions that a person must answer).
	m.calls = histogram("tool_call_seconds",
		"Tool calls by where they ran (client, gateway, canvas) and how they ended (done, failed, timeout, cancelled).",
		[]float64{.005, .02, .08, .32, 1, 2.5, 5, 10, 30, 60, 300}, "where", "outcome")
	m.recordingFailures = counter("recordings_failed_total", "Recordings that could not be written, or not completely.").
		WithLabelValues()
	m.callFileFailures = counter("call_files_failed_total", "Call files that could not be written.").WithLabelValues()
	m.tokens = counter(
		"tokens_total",
		"Tokens of Gemini, counted at the end of each turn, by direction (in, out, unknown), modality and server key.",
		"direction",
		"modality",
		"key",
	)
	m.dollars = counter("dollars_total", "Cost of those tokens in US dollars, by the price table and by server key.", "key")
	m.refusals = counter("refusals_total", "Rejected clients, by rule.", "rule")
	m.callsOut = counter("sip_calls_out_total",
		"Outgoing SIP calls that have ended: answered, busy, no-answer, canceled, failed.", "outcome")
	m.dials = counter(
		"model_dials_total",
		"Dials of the model, by kind (first, resume, fresh) and outcome (ok, lost, stale_handle, quota, fatal, auth).",
		"kind",
		"outcome",
	)
	m.connectionsEnded = counter("model_links_ended_total",
		"Connections to the model that ended, by cause: lost, stale_handle, quota, fatal, auth, or planned.", "cause")
	m.stalls = counter("model_stalls_total",
		"Stalls of the model when an answer was due, by remedy: nudge, resume, fresh, again.", "remedy")
	m.emptyTurns = counter("model_empty_turns_total",
		"Turns of the model that ended without the answer that was due, by reason: none, text_only, or Google's turnCompleteReason.", "reason")
	m.registerMediaMetrics(counter, histogram)
	built := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "voxgate_build_info", Help: "1, with the versions of this build as labels.", ConstLabels: buildLabels,
	})
	built.Set(1)
	m.registry.MustRegister(built)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.createSeries()
	return m
}

// registerMediaMetrics registers the metrics of audio: frames in queues, and RTP statistics.
func (m *metrics) registerMediaMetrics(
	counter func(name, help string, labels ...string) *prometheus.CounterVec,
	histogram func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec,
) {
	m.frames = counter("frames_total", "Frames of 20 ms that passed a queue: uplink (to the model), playout (to clients).", "queue")
	m.framesLate = counter("frames_late_total",
		"Frames that were late, by queue: microphone (from clients), model (underruns of its voice).", "queue")
	m.framesDropped = counter(
		"frames_dropped_total",
		"Dropped frames, by queue: uplink (over 10 s queued), gate (the model waits for a tool), "+
			"playout (over 2 min queued), output (the client accepted none).",
		"queue",
	)
	m.packets = counter("rtp_packets_total", "RTP packets of sound, by direction: up (from clients), down (as clients report).", "direction")
	m.packetsLost = counter("rtp_packets_lost_total", "RTP packets that were lost, by direction.", "direction")
	m.jitter = histogram("rtp_jitter_seconds", "Mean jitter of a stream, by direction.",
		[]float64{.001, .0025, .005, .01, .02, .04, .08, .16, .32}, "direction")
	m.concealed = counter("rtp_concealed_seconds_total", "Concealed audio in place of lost packets of microphones.").WithLabelValues()
}

// createSeries creates the series whose labels are known in advance. Otherwise the rate of such a series would be
// missing before the first event, instead of 0.
func (m *metrics) createSeries() {
	for _, part := range []string{"model", "gateway", "roundtrip"} {
		m.answerPart.WithLabelValues(part)
	}
	for _, remedy := range []string{"nudge", "resume", "fresh", "again"} {
		m.stalls.WithLabelValues(remedy)
	}
	for _, reason := range []string{endReasonLabel(""), endReasonLabel("TEXT_ONLY")} {
		m.emptyTurns.WithLabelValues(reason)
	}
	for _, what := range []bridge.TurnChange{
		bridge.TurnEnded, bridge.TurnRetracted, bridge.TurnHeld, bridge.TurnResumed, bridge.TurnCut,
	} {
		m.turnTaking.WithLabelValues(string(what))
	}
	for _, queue := range []string{"uplink", "playout"} {
		m.frames.WithLabelValues(queue)
	}
	for _, queue := range []string{"microphone", "model"} {
		m.framesLate.WithLabelValues(queue)
	}
	for _, queue := range []string{"uplink", "gate", "playout", "output"} {
		m.framesDropped.WithLabelValues(queue)
	}
	for _, direction := range []string{"up", "down"} {
		m.packets.WithLabelValues(direction)
		m.packetsLost.WithLabelValues(direction)
		m.jitter.WithLabelValues(direction)
	}
	for _, outcome := range []string{sip.StateAnswered, sip.StateBusy, sip.StateNoAnswer, sip.StateCanceled, sip.StateFailed} {
		m.callsOut.WithLabelValues(outcome)
	}
	for _, where := range []string{"client", "gateway", "canvas"} {
		m.calls.WithLabelValues(where, "done")
	}
}

// registerHostMetrics registers the metrics whose values are computed on each scrape, from the host and from the state
// of the shared store.
func (m *metrics) registerHostMetrics(host *bridge.Host, isStoreDown func() bool) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "voxgate_store_down", Help: "1 while the Redis that gateways share does not answer.",
	}, func() float64 {
		if isStoreDown() {
			return 1
		}
		return 0
	}))
	m.registry.MustRegister(sessionCollector{host}, prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "voxgate_playout_late_frames_total",
		Help: "Frames that were sent 20 ms or more after their time, because this machine was busy.",
	}, func() float64 { return float64(host.LateFrames()) }))
	for _, place := range crash.Places {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "voxgate_panics_total", Help: "Recovered panics, each of which ended one call, by the kind of goroutine.",
			ConstLabels: prometheus.Labels{"place": place},
		}, func() float64 { return float64(crash.PanicCount(place)) }))
	}
}

// sessionCollector counts the conversations of a host on each scrape.
type sessionCollector struct{ host *bridge.Host }

var sessionsDesc = prometheus.NewDesc("voxgate_sessions", "Conversations in progress, by endpoint and state.",
	[]string{"door", "state"}, nil)

// Describe implements prometheus.Collector.
func (sessionCollector) Describe(to chan<- *prometheus.Desc) { to <- sessionsDesc }

// Collect implements prometheus.Collector.
func (sc sessionCollector) Collect(to chan<- prometheus.Metric) {
	type series struct{ door, state string }
	counts := map[series]int{{"web", string(bridge.StateLive)}: 0}
	for _, i := range sc.host.Sessions() {
		counts[series{i.Protocol, string(i.State)}]++
	}
	for s, n := range counts {
		to <- prometheus.MustNewConstMetric(sessionsDesc, prometheus.GaugeValue, float64(n), s.door, s.state)
	}
}

// judgeCollector reads the counts of the end-of-turn model on each scrape. Without a model all counts are 0.
type judgeCollector struct{ stats func() smartturn.Stats }

var (
	judgeQuestionsDesc = prometheus.NewDesc("voxgate_turn_judge_questions_total",
		"Questions to the end-of-turn model, by outcome: answered, late, over_budget, failed.", []string{"outcome"}, nil)
	judgeLatencyDesc = prometheus.NewDesc("voxgate_turn_judge_seconds", "From questions to the end-of-turn model to its answers.", nil, nil)
	judgeCPUDesc     = prometheus.NewDesc("voxgate_turn_judge_cpu_seconds_total", "CPU time of questions to the end-of-turn model.", nil, nil)
)

// Describe implements prometheus.Collector.
func (judgeCollector) Describe(to chan<- *prometheus.Desc) {
	to <- judgeQuestionsDesc
	to <- judgeLatencyDesc
	to <- judgeCPUDesc
}

// Collect implements prometheus.Collector.
func (c judgeCollector) Collect(to chan<- prometheus.Metric) {
	s := c.stats()
	for outcome, n := range map[string]int64{
		"answered": s.Answers, "late": s.TooLate, "over_budget": s.OverBudget, "failed": s.Failures,
	} {
		to <- prometheus.MustNewConstMetric(judgeQuestionsDesc, prometheus.CounterValue, float64(n), outcome)
	}
	buckets := map[float64]uint64{}
	sum := uint64(0)
	for i, limit := range smartturn.LatencyBuckets {
		sum += uint64(s.Latencies[i])
		buckets[limit.Seconds()] = sum
	}
	to <- prometheus.MustNewConstHistogram(judgeLatencyDesc, uint64(s.Answers), s.Latency.Seconds(), buckets)
	to <- prometheus.MustNewConstMetric(judgeCPUDesc, prometheus.CounterValue, s.CPU.Seconds())
}

// countCallFileFailure counts a conversation whose file was not written. m may be nil.
func (m *metrics) countCallFileFailure() {
	if m != nil {
		m.callFileFailures.Inc()
	}
}

// countCallEnd counts an outgoing call that has ended.
func (m *metrics) countCallEnd(c sip.CallStatus) {
	if c.EndedAt == nil {
		return
	}
	outcome := c.State
	if outcome == sip.StateEnded {
		outcome = sip.StateAnswered
	}
	m.callsOut.WithLabelValues(outcome).Inc()
}

// observe counts an observation of a conversation.
func (m *metrics) observe(_ string, o bridge.Observation) {
	m.dayCounter.observe(o)
	switch o := o.(type) {
	case bridge.SessionStarted:
		m.sessionsBegun.WithLabelValues(o.Protocol).Inc()
	case bridge.TurnEnd:
		cut := string(o.InterruptedBy)
		if cut == "" {
			cut = "nothing"
		}
		m.turns.WithLabelValues(cut).Inc()
		if o.Latency != (bridge.Latency{}) {
			m.observeLatency(o.Latency)
		}
	case bridge.EmptyTurn:
		m.emptyTurns.WithLabelValues(endReasonLabel(o.Reason)).Inc()
	case bridge.BargeIn:
		m.bargeIn.Observe(o.Latency.Seconds())
	case bridge.TurnTaking:
		m.turnTaking.WithLabelValues(string(o.Change)).Inc()
	case bridge.CallEnd:
		m.calls.WithLabelValues(o.Where, o.Outcome).Observe(o.Took.Seconds())
	case bridge.DialOutcome:
		m.dials.WithLabelValues(string(o.Kind), causeLabel(o.Cause, "ok")).Inc()
	case bridge.ConnectionEnd:
		m.connectionsEnded.WithLabelValues(causeLabel(o.Cause, "planned")).Inc()
	case bridge.RecordingFailed:
		m.recordingFailures.Inc()
	case bridge.SpendingReport:
		for of, n := range o.Tokens {
			m.tokens.WithLabelValues(of[0], modalityLabel(of[1]), o.Key).Add(float64(n))
		}
		m.dollars.WithLabelValues(o.Key).Add(max(0, o.Dollars))
	case bridge.SessionEnded:
		m.countEndedSession(o)
	case sip.CallStatus:
		m.countCallEnd(o)
	}
}

// endReasons lists the reasons for the end of a turn that become labels: https://ai.google.dev/api/live#TurnCompleteReason.
var endReasons = []string{
	"text_only", "response_rejected", "malformed_function_call",
	"prohibited_input_content", "image_prohibited_content", "input_text_contain_prohibited_content",
}

// endReasonLabel returns the label for the reason of a turn's end.
func endReasonLabel(reason string) string {
	switch label := strings.ToLower(reason); {
	case reason == "":
		return "none"
	case slices.Contains(endReasons, label):
		return label
	}
	return "other"
}

// causeLabel returns a label for the cause of an event: the text with underscores instead of spaces. For an empty text
// it returns emptyLabel.
func causeLabel(text, emptyLabel string) string {
	if text == "" {
		return emptyLabel
	}
	return strings.ReplaceAll(text, " ", "_")
}

// observeLatency observes the latency of an answer and of its parts.
func (m *metrics) observeLatency(l bridge.Latency) {
	m.answer.Observe(l.Total().Seconds())
	m.answerPart.WithLabelValues("model").Observe(l.Model.Seconds())
	m.answerPart.WithLabelValues("gateway").Observe(l.Gateway.Seconds())
	if l.RoundTrip > 0 {
		m.answerPart.WithLabelValues("roundtrip").Observe(l.RoundTrip.Seconds())
	}
}

// countEndedSession adds the counts of a conversation that has ended.
func (m *metrics) countEndedSession(e bridge.SessionEnded) {
	m.sessionsEnded.WithLabelValues(e.Protocol, e.Code()).Inc()
	m.duration.Observe(e.At.Sub(e.Started).Seconds())
	c := e.Counts
	m.stalls.WithLabelValues("nudge").Add(float64(c.Connections.Nudges))
	m.stalls.WithLabelValues("resume").Add(float64(c.Connections.Resumes))
	m.stalls.WithLabelValues("fresh").Add(float64(c.Connections.Restarts))
	m.stalls.WithLabelValues("again").Add(float64(c.Connections.Repeats))
	m.frames.WithLabelValues("uplink").Add(float64(c.Up.Sent))
	m.frames.WithLabelValues("playout").Add(float64(c.Voice.Frames))
	m.framesLate.WithLabelValues("model").Add(float64(c.Voice.Underruns))
	m.framesDropped.WithLabelValues("uplink").Add(float64(c.Up.Dropped))
	m.framesDropped.WithLabelValues("gate").Add(float64(c.Up.Gated))
	m.framesDropped.WithLabelValues("playout").Add(float64(c.Voice.Dropped / (20 * time.Millisecond)))
	m.framesDropped.WithLabelValues("output").Add(float64(c.Voice.WriteErrors))
}

// modalityLabel returns the label for one of Google's modalities (https://ai.google.dev/api/live, Modality), or
// "other". All unknown modalities share one label, so that the number of series is limited.
func modalityLabel(name string) string {
	switch name {
	case "TEXT", "AUDIO", "IMAGE", "VIDEO", "DOCUMENT", "unknown":
		return strings.ToLower(name)
	}
	return "other"
}

// observeQuality adds the packet counts, losses and jitter of a stream.
func (m *metrics) observeQuality(q rtc.Quality) {
	direction := "down"
	if q.Up {
		direction = "up"
		m.framesLate.WithLabelValues("microphone").Add(float64(q.LatePackets))
		m.concealed.Add(q.Concealed.Seconds())
	}
	m.packets.WithLabelValues(direction).Add(float64(q.Packets))
	m.packetsLost.WithLabelValues(direction).Add(float64(q.LostPackets))
	m.jitter.WithLabelValues(direction).Observe(q.Jitter.Seconds())
}
