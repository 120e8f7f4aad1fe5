package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// quantile returns the q-quantile of the values (nearest rank), or 0 if values is empty.
func quantile[T cmp.Ordered](values []T, q float64) (value T) {
	if len(values) == 0 {
		return value
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

func formatMilliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }

func formatSeconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func formatMegabytes(n int64) string { return fmt.Sprintf("%.2f MB", float64(n)/(1<<20)) }

func formatPercent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// table is a table in Markdown.
type table struct{ rows strings.Builder }

// newTable returns a table with these column names.
func newTable(columns ...string) *table {
	t := &table{}
	t.addRow(columns...)
	t.addRow(slices.Repeat([]string{"---"}, len(columns))...)
	return t
}

func (t *table) addRow(cells ...string) {
	t.rows.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

// writeMarkdown prints the table, with date, duration and machine above, and notes below it.
func (t *table) writeMarkdown(w io.Writer, began time.Time, notes ...string) error {
	_, err := fmt.Fprintf(w, "%s, %v: %d cores, %s.\n\n%s\n%s\n", began.Format(time.DateOnly),
		time.Since(began).Round(time.Second), runtime.NumCPU(), runtime.Version(), t.rows.String(), strings.Join(notes, "\n"))
	return err
}

// paceFrames calls speak once per period for each of n callers, until ctx is done or all frames were sent. The calls of
// different callers are spread evenly over the period. It returns the delay of each call.
func paceFrames(ctx context.Context, period time.Duration, n, frames int, speak func(caller, frame int)) (delays []time.Duration) {
	began := time.Now()
	for i := 0; i < n*frames; i++ {
		due := began.Add(time.Duration(i) * period / time.Duration(n))
		if sleep(ctx, time.Until(due)) != nil {
			break
		}
		delays = append(delays, time.Since(due))
		speak(i%n, i/n)
	}
	return delays
}

// runConcurrently calls do for each number below n, with at most limit concurrent calls, and returns when all have ended.
func runConcurrently(limit, n int, do func(i int)) {
	var work errgroup.Group
	work.SetLimit(limit)
	for i := range n {
		work.Go(func() error { do(i); return nil })
	}
	work.Wait()
}

// sleep waits for d. If ctx ends first, it returns [context.Cause] of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
