package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"voxgate/bridge"
	"voxgate/crash"
	"voxgate/signaling"
	"voxgate/signaling/rtc"
	"voxgate/signaling/sip"
)

// metrics are what Prometheus reads: docs/operating.md. Labels are doors, states, kinds and the operator's names of keys: never callers or
// conversations. The counts of a conversation are added when it is over, so that they cost its audio nothing.
type metrics struct {
	registry *prometheus.Registry

	begun      *prometheus.CounterVec
	ended      *prometheus.CounterVec
	duration   prometheus.Histogram
	turns      *prometheus.CounterVec
	answer     prometheus.Histogram
	answerPart *prometheus.HistogramVec
	bargeIn    prometheus.Histogram
	calls      *prometheus.HistogramVec
	tokens     *prometheus.CounterVec
	dollars    *prometheus.CounterVec
	unrecorded prometheus.Counter
	callFiles  prometheus.Counter // that were not written
	refusals   *prometheus.CounterVec
	callsOut   *prometheus.CounterVec
	dials      *prometheus.CounterVec
	lost       *prometheus.CounterVec
	stalls     *prometheus.CounterVec
	emptyTurns *prometheus.CounterVec

	frames, framesLate, framesDropped *prometheus.CounterVec

	packets, packetsLost *prometheus.CounterVec
	jitter               *prometheus.HistogramVec
	concealed            prometheus.Counter

	today today
}

// seconds from what the gateway adds (ms) to what a thinking model takes (10 s).
var answerBuckets = []float64{.001, .0025, .005, .01, .02, .04, .08, .16, .32, .64, 1, 1.5, 2.5, 5, 10}

func newMetrics() *metrics {
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
	m.begun = counter("sessions_begun_total", "Conversations that have begun, by door.", "door")
	m.ended = counter("sessions_ended_total", "Conversations that are over, by door and reason.", "door", "reason")
	// From a wrong number to a long meeting.
	m.duration = histogram("session_seconds", "How long conversations were.",
		[]float64{5, 15, 60, 180, 600, 1800, 3600, 7200}).WithLabelValues().(prometheus.Histogram)
	m.turns = counter(
		"turns_total",
		"Answers of the model, by what has cut them off: voice, text, client, clear, link (to the model), end, or nothing.",
		"cut",
	)
	m.answer = histogram("answer_seconds", "From the end of what a person said to the answer.", answerBuckets).
		WithLabelValues().(prometheus.Histogram)
	m.answerPart = histogram("answer_part_seconds",
		"Its parts: model (to its first audio), gateway (to the first frame sent), roundtrip (the client's).", answerBuckets, "part")
	m.bargeIn = histogram("barge_in_seconds", "From the voice of a person who speaks over an answer to the last frame of it.",
		[]float64{.1, .15, .2, .3, .4, .5, .75, 1, 1.5, 2.5, 5}).WithLabelValues().(prometheus.Histogram)
	// From what the gateway does itself (ms) to a person who is asked (5 min).
	m.calls = histogram("tool_call_seconds",
		"Tool calls by where they ran (client, gateway, canvas) and how they ended (done, failed, timeout, cancelled).",
		[]float64{.005, .02, .08, .32, 1, 2.5, 5, 10, 30, 60, 300}, "where", "outcome")
	m.unrecorded = counter("recordings_failed_total", "Recordings that the disk has refused, at their begin or later.").
		WithLabelValues()
	m.callFiles = counter("call_files_failed_total", "Files of conversations that the disk has refused.").WithLabelValues()
	m.tokens = counter(
		"tokens_total",
		"Tokens of Gemini, counted at the end of each turn, by direction (in, out, unknown), modality and server key.",
		"direction",
		"modality",
		"key",
	)
	m.dollars = counter("dollars_total", "US dollars that those tokens cost, by the table of prices and by server key.", "key")
	m.refusals = counter("refusals_total", "Whoever was not let in, by rule.", "rule")
	m.callsOut = counter("sip_calls_out_total",
		"Calls by SIP that the gateway has made and that have ended: answered, busy, no-answer, canceled, failed.", "outcome")
	m.dials = counter(
		"model_dials_total",
		"Dials of the model, by kind (first, resume, fresh) and outcome (ok, lost, stale_handle, quota, fatal, auth).",
		"kind",
		"outcome",
	)
	m.lost = counter("model_links_ended_total",
		"Connections to the model that are over, by cause: lost, stale_handle, quota, fatal, auth, or planned.", "cause")
	m.stalls = counter("model_stalls_total",
		"Silences of the model where an answer was due, by what was tried: nudge, resume, fresh, again.", "remedy")
	m.emptyTurns = counter("model_empty_turns_total",
		"Turns of the model that ended without the answer that was due, by reason: none, text_only, or Google's turnCompleteReason.", "reason")
	m.frames = counter("frames_total", "Frames of 20 ms that went through a queue: uplink (to the model), playout (to clients).", "queue")
	m.framesLate = counter("frames_late_total",
		"Frames that came too late for their time, by queue: microphone (from clients), model (its voice ran dry).", "queue")
	m.framesDropped = counter(
		"frames_dropped_total",
		"Frames that were dropped, by queue: uplink (10 s waited), gate (the model waits for a tool), "+
			"playout (2 min waited), output (the client took none).",
		"queue",
	)
	m.packets = counter("rtp_packets_total", "RTP packets of sound, by direction: up (from clients), down (as clients report).", "direction")
	m.packetsLost = counter("rtp_packets_lost_total", "Those of them that were lost.", "direction")
	m.jitter = histogram("rtp_jitter_seconds", "Mean jitter of a stream, by direction.",
		[]float64{.001, .0025, .005, .01, .02, .04, .08, .16, .32}, "direction")
	m.concealed = counter("rtp_concealed_seconds_total", "Sound made up for what was lost of clients' microphones.").WithLabelValues()
	built := prometheus.NewGauge(prometheus.GaugeOpts{Name: "voxgate_build_info", Help: "1, for what was built.", ConstLabels: buildLabels()})
	built.Set(1)
	m.registry.MustRegister(built)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.begin()
	return m
}

// begin creates the series whose labels are known: the rate of what was never counted is then 0, and not absent.
func (m *metrics) begin() {
	for _, part := range []string{"model", "gateway", "roundtrip"} {
		m.answerPart.WithLabelValues(part)
	}
	for _, remedy := range []string{"nudge", "resume", "fresh", "again"} {
		m.stalls.WithLabelValues(remedy)
	}
	for _, reason := range []string{endReason(""), endReason("TEXT_ONLY")} {
		m.emptyTurns.WithLabelValues(reason)
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

// ask adds the metrics that are read from the host on each scrape.
func (m *metrics) ask(host *bridge.Host) {
	m.registry.MustRegister(running{host}, prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "voxgate_playout_late_frames_total",
		Help: "Frames that were handed over 20 ms and more after their time, because this machine was busy.",
	}, func() float64 { return float64(host.LateFrames()) }))
	for _, place := range crash.Places {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "voxgate_panics_total", Help: "Panics, each of which has ended one call, by the kind of goroutine.",
			ConstLabels: prometheus.Labels{"place": place},
		}, func() float64 { return float64(crash.Count(place)) }))
	}
}

// running are the conversations of a host, as Prometheus asks for them.
type running struct{ host *bridge.Host }

var sessions = prometheus.NewDesc("voxgate_sessions", "Conversations that there are, by door and state.", []string{"door", "state"}, nil)

// Describe implements prometheus.Collector.
func (running) Describe(to chan<- *prometheus.Desc) { to <- sessions }

// Collect implements prometheus.Collector.
func (r running) Collect(to chan<- prometheus.Metric) {
	type series struct{ door, state string }
	counts := map[series]int{{"web", string(bridge.StateLive)}: 0}
	for _, i := range r.host.Sessions() {
		counts[series{i.Protocol, string(i.State)}]++
	}
	for s, n := range counts {
		to <- prometheus.MustNewConstMetric(sessions, prometheus.GaugeValue, float64(n), s.door, s.state)
	}
}

// unwritten counts a conversation whose file was not written; a nil m does not.
func (m *metrics) unwritten() {
	if m != nil {
		m.callFiles.Inc()
	}
}

// refused counts a refusal.
func (m *metrics) refused(rule string) { m.refusals.WithLabelValues(rule).Inc() }

// serve answers at the private address, for the operator, until stop is called. A nil m serves nothing.
func (m *metrics) serve(s settings, admission signaling.Options, host *bridge.Host, h health, log *slog.Logger) (
	stop func(context.Context) error, err error,
) {
	if m == nil {
		return func(context.Context) error { return nil }, nil
	}
	m.ask(host)
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "voxgate_store_down", Help: "1 while the Redis that gateways share does not answer.",
	}, func() float64 {
		if h.degraded() {
			return 1
		}
		return 0
	}))
	o := &operator{settings: s, registry: m.registry, host: host, health: h, today: &m.today, started: time.Now()}
	page, leave, err := o.open(admission, log)
	if err != nil {
		return nil, err
	}
	url, end, err := servePrivate(s.privateAddr, admission.Hosts, promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}), page, h)
	if err != nil {
		return nil, err
	}
	log.Info("private", "at", url)
	return func(ctx context.Context) error {
		defer end()
		return leave(ctx)
	}, nil
}

// admitting counts the callers that admit refuses; a nil m does not.
func (m *metrics) admitting(admit func(context.Context, string, *bridge.SessionRequest) error) func(context.Context, string,
	*bridge.SessionRequest) error {
	if m == nil {
		return admit
	}
	return func(ctx context.Context, id string, o *bridge.SessionRequest) error {
		err := admit(ctx, id, o)
		if err != nil {
			m.refused("session webhook")
		}
		return err
	}
}

// dialling counts the calls whose status tell gets, each when it has ended; a nil m does not.
func (m *metrics) dialling(tell func(sip.CallStatus)) func(sip.CallStatus) {
	if m == nil {
		return tell
	}
	return func(c sip.CallStatus) {
		if c.EndedAt != nil {
			outcome := c.State
			if outcome == sip.StateEnded {
				outcome = sip.StateAnswered
			}
			m.callsOut.WithLabelValues(outcome).Inc()
		}
		tell(c)
	}
}

// observe takes what happens in a conversation.
func (m *metrics) observe(_ string, o bridge.Observation) {
	m.today.observe(o)
	switch o := o.(type) {
	case bridge.SessionStarted:
		m.begun.WithLabelValues(o.Protocol).Inc()
	case bridge.TurnEnd:
		cut := string(o.InterruptedBy)
		if cut == "" {
			cut = "nothing"
		}
		m.turns.WithLabelValues(cut).Inc()
		if o.Latency != (bridge.Latency{}) {
			m.answered(o.Latency)
		}
	case bridge.EmptyTurn:
		m.emptyTurns.WithLabelValues(endReason(o.Reason)).Inc()
	case bridge.BargeIn:
		m.bargeIn.Observe(o.Latency.Seconds())
	case bridge.CallEnd:
		m.calls.WithLabelValues(o.Where, o.Outcome).Observe(o.Took.Seconds())
	case bridge.DialOutcome:
		m.dials.WithLabelValues(string(o.Kind), cause(o.Cause, "ok")).Inc()
	case bridge.ConnectionEnd:
		m.lost.WithLabelValues(cause(o.Cause, "planned")).Inc()
	case bridge.RecordingFailed:
		m.unrecorded.Inc()
	case bridge.SpendingReport:
		for of, n := range o.Tokens {
			m.tokens.WithLabelValues(of[0], modalityOf(of[1]), o.Key).Add(float64(n))
		}
		m.dollars.WithLabelValues(o.Key).Add(max(0, o.Dollars))
	case bridge.SessionEnded:
		m.conversationEnded(o)
	}
}

// endReasons are the reasons for the end of a turn that are labels: https://ai.google.dev/api/live#TurnCompleteReason.
var endReasons = []string{
	"text_only", "response_rejected", "malformed_function_call",
	"prohibited_input_content", "image_prohibited_content", "input_text_contain_prohibited_content",
}

// endReason is the reason for the end of a turn as a label.
func endReason(reason string) string {
	switch label := strings.ToLower(reason); {
	case reason == "":
		return "none"
	case slices.Contains(endReasons, label):
		return label
	}
	return "other"
}

// cause is a cause as a label; none is that of what has not failed.
func cause(text, none string) string {
	if text == "" {
		return none
	}
	return strings.ReplaceAll(text, " ", "_")
}

// answered takes the latency of an answer.
func (m *metrics) answered(l bridge.Latency) {
	m.answer.Observe(l.Total().Seconds())
	m.answerPart.WithLabelValues("model").Observe(l.Model.Seconds())
	m.answerPart.WithLabelValues("gateway").Observe(l.Gateway.Seconds())
	if l.RoundTrip > 0 {
		m.answerPart.WithLabelValues("roundtrip").Observe(l.RoundTrip.Seconds())
	}
}

// conversationEnded takes what a conversation has counted.
func (m *metrics) conversationEnded(e bridge.SessionEnded) {
	m.ended.WithLabelValues(e.Protocol, e.Code()).Inc()
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

// modalityOf is one of Google's modalities (https://ai.google.dev/api/live, Modality): a server that invents others must not create series.
func modalityOf(name string) string {
	switch name {
	case "TEXT", "AUDIO", "IMAGE", "VIDEO", "DOCUMENT", "unknown":
		return strings.ToLower(name)
	}
	return "other"
}

// heard counts how well sound came through.
func (m *metrics) heard(q rtc.Quality) {
	direction := "down"
	if q.Up {
		direction = "up"
		m.framesLate.WithLabelValues("microphone").Add(float64(q.Late))
		m.concealed.Add(q.Concealed.Seconds())
	}
	m.packets.WithLabelValues(direction).Add(float64(q.Packets))
	m.packetsLost.WithLabelValues(direction).Add(float64(q.Lost))
	m.jitter.WithLabelValues(direction).Observe(q.Jitter.Seconds())
}
