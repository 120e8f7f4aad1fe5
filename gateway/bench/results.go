package bench

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"
)

// The targets.
const (
	targetP50    = 20 * time.Millisecond
	targetP95    = 30 * time.Millisecond
	fewCalls     = 10
	manyCalls    = 50
	overEcho     = 100 * time.Millisecond // beyond twice the echo's CPU time, with few calls
	targetCPU    = 700 * time.Millisecond // with many calls
	targetMemory = 1800 << 10             // bytes, with many calls
)

// results are everything that was measured.
type results struct {
	command string
	machine string
	began   time.Time
	options options
	latency latency
	gateway []cost // by options.sessions
	echo    []cost
}

// machine says what the figures were made on.
func machine() string {
	m := fmt.Sprintf("%d cores", runtime.NumCPU())
	if model := cpuModel(); model != "" {
		m += " (" + model + ")"
	}
	return fmt.Sprintf("%s, %s, %s/%s", m, strings.Replace(runtime.Version(), "go", "Go ", 1), runtime.GOOS, runtime.GOARCH)
}

// write prints the table.
func (r *results) write(w io.Writer) error {
	var b strings.Builder
	row := func(cells ...string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	fmt.Fprintf(&b, "`%s` on %s: %s.\n\n", r.command, r.began.Format(time.DateOnly), r.machine)
	row("what", "measured", "target")
	row("---", "---", "---")
	l := &r.latency
	row("latency, beep to reply: p50 / p95 / p99", threeOf(l.mouthToEar), fmt.Sprintf("%s / %s / –", ms(targetP50), ms(targetP95)))
	row("of which after the beep's packet was sent: p50 / p95 / p99", threeOf(l.inside), "–")
	for i, g := range r.gateway {
		e, target := r.echo[i], "–"
		switch g.calls {
		case fewCalls:
			target = fmt.Sprintf("%s (2 × echo + %s)", seconds(2*e.cpu+overEcho), seconds(overEcho))
		case manyCalls:
			target = seconds(targetCPU)
		}
		row(fmt.Sprintf("CPU per minute of a call, %d calls", g.calls), seconds(g.cpu), target)
		row(fmt.Sprintf("the same of a bare Pion echo server, %d calls", e.calls), seconds(e.cpu), "–")
	}
	for i, g := range r.gateway {
		if i < len(r.gateway)-1 {
			continue // with few calls the noise is larger than the figure
		}
		target := "–"
		if g.calls == manyCalls {
			target = megabytes(targetMemory)
		}
		row(fmt.Sprintf("memory per call, %d calls", g.calls), megabytes(g.memory), target)
		row(fmt.Sprintf("the same of a bare Pion echo server, %d calls", g.calls), megabytes(r.echo[i].memory), "–")
	}
	b.WriteString(`
Everything runs on this machine over the loopback: callers (Pion), gateway, and the emulator behind its WebSocket as the model.

`)
	fmt.Fprintf(&b, "- Latency: %d of %d beeps answered, each after 400 ms of quiet, their onsets spread evenly over the 20 ms of a packet. "+
		"From the moment the first sample is spoken to the arrival of the first RTP packet in which the reply can be heard. "+
		"The emulator answers the first loud 20 ms at once. The caller's encoder looks ahead 2.5 ms, a browser's 6.5 ms. "+
		"Packets were sent %s late at the median, %s at the 99th percentile.\n",
		len(l.mouthToEar), r.options.trials, ms(quantile(l.late, 0.5)), ms(quantile(l.late, 0.99)))
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
		fmt.Fprintf(&b, " %d calls %s, echo %s;", g.calls, ms(g.late), ms(r.echo[i].late))
	}
	text := strings.TrimSuffix(b.String(), ";")
	_, err := io.WriteString(w, text+".\n- Memory: resident memory of the process at its most in that time, less that before the calls, after a first one had come and gone.\n")
	return err
}

func threeOf(d []time.Duration) string {
	return fmt.Sprintf("%s / %s / %s", ms(quantile(d, 0.5)), ms(quantile(d, 0.95)), ms(quantile(d, 0.99)))
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond)) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func megabytes(n int64) string { return fmt.Sprintf("%.2f MB", float64(n)/(1<<20)) }
