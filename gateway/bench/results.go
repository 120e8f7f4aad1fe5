package bench

import (
	"fmt"
	"io"
	"strings"
	"time"

	"voxgate/gateway/bench/harness"
)

// The targets.
const (
	targetP50 = 18 * time.Millisecond
	targetP95 = 27 * time.Millisecond
	targetCut = 25 * time.Millisecond // 95th percentile

	fewCalls     = 10
	overEcho     = 100 * time.Millisecond // beyond twice the echo's CPU time, with few calls
	mostCalls    = 100
	targetMemory = 1331 << 10 // bytes a call, with most calls: 1.3 MB
)

// targetCPU is the CPU time of a minute of a call, by the number of calls.
var targetCPU = map[int]time.Duration{50: 550 * time.Millisecond, mostCalls: 400 * time.Millisecond}

// results are everything that was measured.
type results struct {
	command string
	machine string
	began   time.Time
	options options
	latency latency
	cut     []time.Duration
	gateway []cost // by options.sessions
	echo    []cost
	codecs  []cost // with options.floor
}

// write prints the table.
func (r *results) write(w io.Writer) error {
	var b harness.Table
	fmt.Fprintf(&b, "`%s` on %s: %s.\n\n", r.command, r.began.Format(time.DateOnly), r.machine)
	b.Header("what", "measured", "target")
	l := &r.latency
	b.Row("latency, beep to reply: p50 / p95 / p99", threeOf(l.mouthToEar), fmt.Sprintf("%s / %s / –", harness.Milliseconds(targetP50), harness.Milliseconds(targetP95)))
	b.Row("of which after the beep's packet was sent: p50 / p95 / p99", threeOf(l.inside), "–")
	b.Row("from the model's “interrupted” to the last of the voice: p50 / p95 / p99", threeOf(r.cut), fmt.Sprintf("– / %s / –", harness.Milliseconds(targetCut)))
	r.writeCosts(b.Row)
	b.WriteString(`
Everything runs on this machine over the loopback: callers (Pion), gateway, and the emulator behind its WebSocket as the model.

`)
	fmt.Fprintf(&b, "- Latency: %d of %d beeps answered, each after 400 ms of quiet, their onsets spread evenly over the 20 ms of a packet. "+
		"From the moment the first sample is spoken to the arrival of the first RTP packet in which the reply can be heard. "+
		"The emulator answers the first loud 20 ms at once. The caller's encoder looks ahead 2.5 ms, a browser's 6.5 ms. "+
		"Packets were sent %s late at the median, %s at the 99th percentile.\n",
		len(l.mouthToEar), r.options.trials, harness.Milliseconds(harness.Quantile(l.late, 0.5)), harness.Milliseconds(harness.Quantile(l.late, 0.99)))
	fmt.Fprintf(&b, "- Interruption: %d answers, each cut after %v of loud voice, anywhere in the 20 ms of a packet: from the moment the model "+
		"sends `interrupted` to the arrival of the last packet in which its voice can be heard, the fade of 5 ms included.\n", len(r.cut), voiceBefore)
	fmt.Fprintf(&b, "- CPU: user and system time of the server's process alone, over %v. Every call has a data channel and 50 Opus packets a second in "+
		"each direction all the time, more than any conversation: the caller sends the noise of a room, the model talks without a pause in turns of %v "+
		"that come in bursts with transcripts. The echo server sends each packet back as it came. "+
		"Least share of its 50 packets a second that a caller got:",
		r.options.window, turnLength)
	for i, g := range r.gateway {
		fmt.Fprintf(&b, " %d calls %.1f%%, echo %.1f%%;", g.calls, 100*g.answered, 100*r.echo[i].answered)
	}
	b.WriteString(" packets sent late (p99):")
	for i, g := range r.gateway {
		fmt.Fprintf(&b, " %d calls %s, echo %s;", g.calls, harness.Milliseconds(g.late), harness.Milliseconds(r.echo[i].late))
	}
	text := strings.TrimSuffix(b.String(), ";")
	_, err := io.WriteString(w, text+".\n- Memory: resident memory of the process at its most in that time, less that before the calls, after a first one had come and gone.\n")
	return err
}

// writeCosts prints the rows of CPU and memory.
func (r *results) writeCosts(row func(...string)) {
	const bare, codecs = "the same of a bare Pion echo server, %d calls", "the same of one that decodes and encodes, %d calls"
	for i, g := range r.gateway {
		target := "–"
		switch d, ok := targetCPU[g.calls]; {
		case g.calls == fewCalls && r.echo[i].cpu > 0:
			target = fmt.Sprintf("%s (2 × echo + %s)", seconds(2*r.echo[i].cpu+overEcho), seconds(overEcho))
		case ok:
			target = seconds(d)
		}
		row(fmt.Sprintf("CPU per minute of a call, %d calls", g.calls), measuredOr(g.cpu, seconds), target)
		row(fmt.Sprintf(bare, g.calls), measuredOr(r.echo[i].cpu, seconds), "–")
		if r.options.floor {
			row(fmt.Sprintf(codecs, g.calls), measuredOr(r.codecs[i].cpu, seconds), "–")
		}
	}
	last := len(r.gateway) - 1 // with fewer calls the noise is larger than the figure
	if last < 0 {
		return
	}
	g, target := r.gateway[last], "–"
	if g.calls == mostCalls {
		target = megabytes(targetMemory)
	}
	row(fmt.Sprintf("memory per call, %d calls", g.calls), measuredOr(g.memory, megabytes), target)
	row(fmt.Sprintf(bare, g.calls), measuredOr(r.echo[last].memory, megabytes), "–")
	if r.options.floor {
		row(fmt.Sprintf(codecs, g.calls), measuredOr(r.codecs[last].memory, megabytes), "–")
	}
}

// measuredOr is a figure, or says that it is missing.
func measuredOr[T time.Duration | int64](v T, text func(T) string) string {
	if v == 0 {
		return "not measured"
	}
	return text(v)
}

func threeOf(d []time.Duration) string {
	return fmt.Sprintf("%s / %s / %s", harness.Milliseconds(harness.Quantile(d, 0.5)), harness.Milliseconds(harness.Quantile(d, 0.95)), harness.Milliseconds(harness.Quantile(d, 0.99)))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func megabytes(n int64) string { return fmt.Sprintf("%.2f MB", float64(n)/(1<<20)) }
