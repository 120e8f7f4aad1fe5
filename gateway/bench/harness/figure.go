package harness

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Quantile returns the value below or at which a share q of the values lies (nearest rank); 0 if there are none. It sorts
// values.
func Quantile(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[max(0, int(math.Ceil(q*float64(len(values))))-1)]
}

// Milliseconds shows tenths of a millisecond.
func Milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// Machine says what the figures are made on.
func Machine() string {
	m := fmt.Sprintf("%d cores", runtime.NumCPU())
	if model := cpuModel(); model != "" {
		m += " (" + model + ")"
	}
	return fmt.Sprintf("%s, %s, %s/%s", m, strings.Replace(runtime.Version(), "go", "Go ", 1), runtime.GOOS, runtime.GOARCH)
}

// MachineUse is the state of all cores together, as shares of their time, from 0 to 1.
type MachineUse struct {
	Busy  float64
	Steal float64 // taken by the host of a virtual machine
}

// Table is a text with tables in Markdown.
type Table struct{ strings.Builder }

// Header begins a table.
func (t *Table) Header(cells ...string) {
	t.Row(cells...)
	t.Row(slices.Repeat([]string{"---"}, len(cells))...)
}

// Row adds a row.
func (t *Table) Row(cells ...string) { t.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
