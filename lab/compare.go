package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// compareCommand is the argument that makes this program measure subjects, or write the page.
const compareCommand = "compare"

// cell describes one row of the comparison. Each subject has a figure in it, or a reason why it has none.
type cell struct {
	id, title, unit string
	moreIsBetter    bool
}

// cells lists all cells in the order of the page.
var cells = []cell{
	{id: "beep", title: "From a beep to the reply", unit: "ms"},
	{id: "beep.chromium", title: "The same for Chromium, as its page hears both", unit: "ms"},
	{id: "beep.websocket", title: "The same for a caller by WebSocket", unit: "ms"},
	{id: "beep.twilio", title: "The same for a telephone by a stream like Twilio's", unit: "ms"},
	{id: "beep.sip", title: "The same for a telephone by SIP (sipp)", unit: "ms"},
	{id: "barge", title: "From Gemini's “interrupted” to silence", unit: "ms"},
	{id: "join.0", title: "From the call to the first reply that is heard", unit: "ms"},
	{id: "join.100", title: "The same with a round trip of 100 ms", unit: "ms"},
	{id: "join.300", title: "The same with a round trip of 300 ms", unit: "ms"},
	{id: "first", title: "The first word's share that reaches Gemini, spoken once the call is connected", unit: "%", moreIsBetter: true},
	{id: "up.0", title: "Speech that reaches Gemini, without loss", unit: "%", moreIsBetter: true},
	{id: "up.5", title: "Speech that reaches Gemini, 5 % of the packets lost", unit: "%", moreIsBetter: true},
	{id: "up.10", title: "Speech that reaches Gemini, 10 % lost", unit: "%", moreIsBetter: true},
	{id: "up.20", title: "Speech that reaches Gemini, 20 % lost", unit: "%", moreIsBetter: true},
	{id: "up.30", title: "Speech that reaches Gemini, 30 % lost", unit: "%", moreIsBetter: true},
	{id: "down.0", title: "Replies that reach the person, without loss", unit: "%", moreIsBetter: true},
	{id: "down.5", title: "Replies that reach the person, 5 % lost", unit: "%", moreIsBetter: true},
	{id: "down.10", title: "Replies that reach the person, 10 % lost", unit: "%", moreIsBetter: true},
	{id: "down.20", title: "Replies that reach the person, 20 % lost", unit: "%", moreIsBetter: true},
	{id: "down.30", title: "Replies that reach the person, 30 % lost", unit: "%", moreIsBetter: true},
	{id: "up.burst", title: "Speech that reaches Gemini, 7 % lost in bursts of 4", unit: "%", moreIsBetter: true},
	{id: "down.burst", title: "Replies that reach the person, 7 % lost in bursts of 4", unit: "%", moreIsBetter: true},
	{id: "up.jitter", title: "Speech that reaches Gemini, packets late by up to 100 ms and out of order", unit: "%", moreIsBetter: true},
	{id: "down.jitter", title: "Replies that reach the person, packets late by up to 100 ms and out of order", unit: "%", moreIsBetter: true},
	{id: "up.dark", title: "After 2 s without a network: until Gemini hears the person again", unit: "ms"},
	{id: "down.dark", title: "After 2 s without a network: until the person hears the model again", unit: "ms"},
	{id: "stretch.0", title: "Replies stretched: delay that 5 % of a reply gain over its median, without loss", unit: "ms"},
	{id: "stretch.10", title: "Replies stretched: the same, 10 % lost", unit: "ms"},
	{id: "stretch.20", title: "Replies stretched: the same, 20 % lost", unit: "ms"},
	{id: "stretch.jitter", title: "Replies stretched: the same, packets late by up to 100 ms and out of order", unit: "ms"},
	{id: "goaway", title: "After goAway in mid-answer and the end of that connection: until Gemini hears the person again", unit: "ms"},
	{id: "dropped.before", title: "Gemini's connection breaks before an answer: until Gemini hears the person again", unit: "ms"},
	{id: "dropped.in", title: "It breaks in an answer", unit: "ms"},
	{id: "dropped.after", title: "It breaks after an answer", unit: "ms"},
	{id: "silent", title: "Gemini falls silent: until a sentence has a reply again", unit: "ms"},
	{id: "cancelled", title: "Gemini takes the call of a tool back: until the tool's request ends", unit: "ms"},
	{id: "twice", title: "The same call twice: how often the tool runs", unit: "times"},
	{id: "slow.heard", title: "A reply of 15 s by WebSocket, at first over 64 kbit/s: share that is heard", unit: "%", moreIsBetter: true},
	{id: "slow.beside", title: "From a beep to the reply for a caller beside it", unit: "ms"},
	{id: "slow.memory", title: "Memory that both take", unit: "MB"},
	{id: "cpu.1", title: "CPU of a call, with 1 call", unit: "% of a core"},
	{id: "cpu.10", title: "CPU of a call, with 10 calls", unit: "% of a core"},
	{id: "cpu.100", title: "CPU of a call, with 100 calls", unit: "% of a core"},
	{id: "memory.1", title: "Memory of a call, with 1 call", unit: "MB"},
	{id: "memory.10", title: "Memory of a call, with 10 calls", unit: "MB"},
	{id: "memory.100", title: "Memory of a call, with 100 calls", unit: "MB"},
}

// figure is the result of one subject in a cell.
type figure struct {
	Cell    string    `json:"cell"`
	Values  []float64 `json:"values,omitempty"`  // one for each run, in the cell's unit
	Median  float64   `json:"median,omitempty"`  // median of Values
	P95     float64   `json:"p95,omitempty"`     // 95th percentile of Values, or the 5th if more is better
	Runs    int       `json:"runs,omitempty"`    // number of runs, including those without a value
	Missing string    `json:"missing,omitempty"` // reason for the missing value, or what happened in the runs without one
}

// report holds the stored results of a subject.
type report struct {
	Subject      string    `json:"subject"`
	Name         string    `json:"name"`
	Version      string    `json:"version"`
	Began        time.Time `json:"began"`
	Seconds      float64   `json:"seconds"`
	Machine      string    `json:"machine"`
	SendDelay    float64   `json:"late"` // median delay with which this program sent its own packets, in ms
	SendDelayP99 float64   `json:"lateP99"`
	Figures      []figure  `json:"figures"`
}

// comparison measures one subject: a program that is compared with others.
type comparison struct {
	options
	*stage
	report
	trialTiming trialTiming
	runs        int // number of repetitions of each fault
	delays      []time.Duration
	cells       []string // names of the cells to measure; empty means all
}

// subjectTimeout limits the time for the measurements of a subject. Cells that are not measured by then are missing.
const subjectTimeout = 15 * time.Minute

var errSubjectTimeout = fmt.Errorf("the subject's %v were over", subjectTimeout)

// runComparison implements the command compare.
func runComparison(ctx context.Context, o options, runs int, only, out string, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("compare what? %s, or page", strings.Join(subjectIDs(), ", "))
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	var failed error
	for _, id := range args {
		if id == "page" {
			failed = errors.Join(failed, writePage(out))
			continue
		}
		c := &comparison{options: o, trialTiming: slowTrialTiming, runs: runs}
		if only != "" {
			c.cells = strings.Split(only, ",")
		}
		err := c.measureCells(ctx, id)
		if len(c.Figures) > 0 {
			err = errors.Join(err, c.writeReport(out))
		}
		if err != nil { // the other subjects can still be measured
			logProgress("%s: %v", id, err)
			failed = errors.Join(failed, fmt.Errorf("%s: %w", id, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return failed
}

// writeReport stores the report in a folder.
func (c *comparison) writeReport(folder string) error {
	raw, err := json.MarshalIndent(c.report, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, c.Subject+".json"), append(raw, '\n'), 0o644)
}

// measureCells measures all selected cells of a subject. A cell that cannot be measured gets a reason instead of a value. If
// the subject does not start, all cells get this reason.
func (c *comparison) measureCells(ctx context.Context, id string) error {
	subject, err := newSubject(id)
	if err != nil {
		return err
	}
	c.report = report{
		Subject: id, Name: subject.name, Began: time.Now().UTC().Truncate(time.Second),
		Machine: fmt.Sprintf("%d cores, %s", runtime.NumCPU(), runtime.Version()),
	}
	started, err := c.options.startStage(ctx, id)
	if err != nil {
		c.stage = &stage{subject: subject}
		for _, cell := range cells {
			c.addMissing(cell.id, err)
		}
		return err
	}
	defer started.close()
	c.stage, c.Version = started, started.version
	ctx, cancel := context.WithTimeoutCause(ctx, subjectTimeout, errSubjectTimeout)
	defer cancel()
	for _, part := range []struct {
		cells   string
		measure func(context.Context) error
	}{
		{"join.0 join.100 join.300", c.measureJoins},
		{"beep barge", c.measureReplies},
		{"beep.chromium", c.measureChromium},
		{"beep.websocket beep.twilio beep.sip", c.measureLines},
		{"first", c.measureFirstWordKept},
		{
			"up.0 up.5 up.10 up.20 up.30 up.burst up.jitter up.dark down.0 down.5 down.10 down.20 down.30 down.burst down.jitter down.dark " +
				"stretch.0 stretch.10 stretch.20 stretch.jitter", c.measureNetworks,
		},
		{"dropped.before dropped.in dropped.after goaway", c.measureDrops},
		{"cancelled twice", c.measureToolCalls},
		{"slow.heard slow.beside slow.memory", c.measureSlowReader},
		{"cpu.1 memory.1 cpu.10 memory.10 cpu.100 memory.100", c.measureLoads},
		{"silent", c.measureModelSilences}, // takes 4 minutes with a subject that does not detect the silence
	} {
		cellIDs, err := strings.Fields(part.cells), error(nil)
		switch {
		case !slices.ContainsFunc(cellIDs, c.isSelectedCell):
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		default:
			logProgress("%s: %s", id, part.cells)
			if err = part.measure(ctx); err != nil {
				logProgress("%v\n%s", err, c.newestLog())
			}
		}
		for _, cell := range cellIDs {
			if !slices.ContainsFunc(c.Figures, func(f figure) bool { return f.Cell == cell }) {
				c.addMissing(cell, err)
			}
		}
	}
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errSubjectTimeout) {
		return context.Cause(ctx)
	}
	c.Seconds = time.Since(c.Began).Seconds()
	c.SendDelay, c.SendDelayP99 = inMilliseconds(quantile(c.delays, 0.5)), inMilliseconds(quantile(c.delays, 0.99))
	slices.SortFunc(c.Figures, func(a, b figure) int { return cellIndex(a.Cell) - cellIndex(b.Cell) })
	return nil
}

func cellIndex(id string) int {
	return slices.IndexFunc(cells, func(c cell) bool { return c.id == id })
}

// isSelectedCell reports whether a cell is to be measured: the subject supports it, and the flag -only does not exclude it.
func (c *comparison) isSelectedCell(cell string) bool {
	return c.cannot[cell] == "" && (len(c.cells) == 0 || slices.Contains(c.cells, cell))
}

// addMissing records why a cell has no figure.
func (c *comparison) addMissing(cell string, err error) {
	f := figure{Cell: cell}
	switch {
	case c.cannot[cell] != "":
		f.Missing = "not comparable: " + c.cannot[cell]
	case len(c.cells) > 0 && !slices.Contains(c.cells, cell):
		return
	case err != nil:
		f.Missing, _, _ = strings.Cut(err.Error(), "\n") // further lines are the subject's log
		logProgress("%s: %s", cell, f.Missing)
	default:
		f.Missing = "not measured"
	}
	c.Figures = append(c.Figures, f)
}

// addFigure adds a figure to the report. missingReason describes what happened in the runs without a value.
func (c *comparison) addFigure(cell string, runs int, missingReason string, values ...float64) {
	f := figure{Cell: cell, Values: values, Runs: runs}
	if runs > len(values) {
		f.Missing = fmt.Sprintf("in %d of %d runs: %s", runs-len(values), runs, missingReason)
	}
	worse := 0.95
	if cells[cellIndex(cell)].moreIsBetter {
		worse = 0.05
	}
	f.Median, f.P95 = quantile(values, 0.5), quantile(values, worse)
	c.Figures = append(c.Figures, f)
	logProgress("%s: median %.1f, 95th (or 5th) percentile %.1f of %d runs %s", cell, f.Median, f.P95, runs, f.Missing)
}

func inMilliseconds(d time.Duration) float64 { return float64(d) / 1e6 }

func allInMilliseconds(all []time.Duration) (values []float64) {
	for _, d := range all {
		values = append(values, inMilliseconds(d))
	}
	return values
}

// readReports reads the reports of a folder, Voxgate first, and the others by id.
func readReports(folder string) (reports []report, err error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var r report
		if err := json.Unmarshal(raw, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		reports = append(reports, r)
	}
	if len(reports) == 0 {
		return nil, fmt.Errorf("no reports in %s", folder)
	}
	slices.SortStableFunc(reports, func(a, b report) int {
		if a.Subject == voxgate {
			return -1
		}
		if b.Subject == voxgate {
			return 1
		}
		return strings.Compare(a.Subject, b.Subject)
	})
	return reports, nil
}

// writePage writes index.html and the tables of docs/compare.md into a folder of reports.
func writePage(folder string) error {
	reports, err := readReports(folder)
	if err != nil {
		return err
	}
	page, err := os.Create(filepath.Join(folder, "index.html"))
	if err != nil {
		return err
	}
	defer page.Close()
	if err := pageTemplate.Execute(page, newCharts(reports)); err != nil {
		return err
	}
	table, err := os.Create(filepath.Join(folder, "tables.md"))
	if err != nil {
		return err
	}
	defer table.Close()
	return writeTables(table, reports)
}

// writeTables writes the tables of docs/compare.md, in Markdown.
func writeTables(w io.Writer, reports []report) error {
	columns := []string{"what, and its unit"}
	for _, r := range reports {
		columns = append(columns, r.Name)
	}
	t := newTable(columns...)
	for _, chart := range newCharts(reports).Charts {
		row := []string{chart.Title + ", " + chart.Unit}
		for _, bar := range chart.Bars {
			row = append(row, bar.TableText())
		}
		t.addRow(row...)
	}
	_, err := io.WriteString(w, t.rows.String())
	return err
}
