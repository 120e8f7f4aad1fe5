package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"time"
)

// pageText is the template of a page without scripts and external resources.
//
//go:embed compare/page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// charts holds the content of the page: a bar chart for each cell.
type charts struct {
	Reports []report
	Charts  []chart
}

type chart struct {
	ID, Title, Unit string
	Most            bool
	Bars            []bar
}

// bar shows the figure of a subject: a bar as long as the median, and a line to the 95th percentile. In cells where a
// higher value is better, the line goes to the 5th percentile.
type bar struct {
	Name, Subject    string
	figure           figure
	Width, From, End float64 // in percent of the chart: length of the bar, start and end of the line
	unit             string
}

// newCharts groups the figures of the reports by cell.
func newCharts(reports []report) charts {
	all := charts{Reports: reports}
	for _, cell := range cells {
		c := chart{ID: cell.id, Title: cell.title, Unit: cell.unit, Most: cell.moreIsBetter}
		top := 0.0
		for _, r := range reports {
			b := bar{Name: r.Name, Subject: r.Subject, figure: figure{Missing: "not measured"}, unit: cell.unit}
			if i := slices.IndexFunc(r.Figures, func(f figure) bool { return f.Cell == cell.id }); i >= 0 {
				b.figure = r.Figures[i]
			}
			top = max(top, b.figure.Median, b.figure.P95)
			c.Bars = append(c.Bars, b)
		}
		for i := range c.Bars {
			b := &c.Bars[i]
			scale := 100 / cmp.Or(top, 1)
			b.Width = scale * b.figure.Median
			b.From = scale * min(b.figure.Median, b.figure.P95)
			b.End = scale * max(b.figure.Median, b.figure.P95)
		}
		all.Charts = append(all.Charts, c)
	}
	return all
}

// HasValue reports whether the figure has a value.
func (b bar) HasValue() bool { return len(b.figure.Values) > 0 }

// MissingReason returns the reason for a missing value, or describes the runs that gave no value.
func (b bar) MissingReason() string { return b.figure.Missing }

// Text returns the figure for the page.
func (b bar) Text() string {
	if b.figure.Runs == 1 {
		return fmt.Sprintf("%s %s, once", formatNumber(b.figure.Median), b.unit)
	}
	return fmt.Sprintf("%s / %s %s, %d runs", formatNumber(b.figure.Median), formatNumber(b.figure.P95), b.unit, b.figure.Runs)
}

// TableText returns the figure for a table: median / 95th percentile (runs).
func (b bar) TableText() string {
	missing := len(b.figure.Values) < b.figure.Runs
	switch {
	case !b.HasValue() && b.figure.Runs > 0:
		return fmt.Sprintf("never (%d)", b.figure.Runs)
	case !b.HasValue():
		return "–"
	case b.figure.Runs == 1:
		return formatNumber(b.figure.Median)
	case missing:
		return fmt.Sprintf("%s / %s (%d of %d)", formatNumber(b.figure.Median), formatNumber(b.figure.P95), len(b.figure.Values), b.figure.Runs)
	}
	return fmt.Sprintf("%s / %s (%d)", formatNumber(b.figure.Median), formatNumber(b.figure.P95), b.figure.Runs)
}

// formatNumber formats a number with one decimal, or without decimals from 100 on.
func formatNumber(x float64) string {
	digits := 1
	if x >= 100 {
		digits = 0
	}
	return strconv.FormatFloat(x, 'f', digits, 64)
}

// Day returns the date of the measurement.
func (r report) Day() string { return r.Began.Format(time.DateOnly) }

// Took returns the duration of the measurement.
func (r report) Took() time.Duration {
	return time.Duration(r.Seconds * float64(time.Second)).Round(time.Second)
}
