package geminirest_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"voxgate/internal/testkit/mediatest"
)

// TestEmulatorIsBounded sends requests that would once have used up the memory or the CPU of a gateway that runs
// without a key.
func TestEmulatorIsBounded(t *testing.T) {
	const (
		mostCPU   = 3 * time.Second // includes the race detector and a slow machine; a schema of 4,000 levels took 14.6 s
		mostBytes = 256 << 20       // all allocations
	)
	url := startEmulatedGateway(t) + "/v1beta/models/gemini-embedding-001:"
	text := func(s string) string { return `{"parts":[{"text":"` + s + `"}]}` }
	schema := func(open, end string, levels int) string {
		return `{"contents":[` + text("x") + `],"generationConfig":{"responseMimeType":"application/json","responseJsonSchema":` +
			strings.Repeat(open, levels) + `{"type":"string"}` + strings.Repeat(end, levels) + `}}`
	}
	embed := func(numbers string) string {
		return `{"content":` + text("x") + `,"outputDimensionality":` + numbers + `}`
	}
	long := func(one string) string { return `{"x":[` + strings.Repeat(one+",", 19<<20/(len(one)+1)) + one + `]}` }
	for _, row := range []struct {
		name, method, body string
		status             int
		want               string
	}{
		{"a batch of 101", "batchEmbedContents", `{"requests":[` + strings.Repeat("{},", 100) + `{}]}`, 400, "at most 100"},
		{"4,000 levels of objects", "generateContent", schema(`{"type":"object","properties":{"a":`, `}}`, 4000), 200, "{}"},
		{"4,000 levels of arrays", "generateContent", schema(`{"type":"array","items":`, `}`, 4000), 200, "[]"},
		{"4,000 levels of choices", "generateContent", schema(`{"anyOf":[`, `]}`, 4000), 200, "{}"},
		{"an embedding of 2^40 numbers", "embedContent", embed("1099511627776"), 200, `"values"`},
		{"one of 10^9", "embedContent", embed("1000000000"), 200, `"values"`},
		{"one of -5", "embedContent", embed("-5"), 200, `"values"`},
		{"19 MB of empty objects", "countTokens", long("{}"), 400, "at most 100000 values"},
		{"19 MB of zeros", "generateContent", long("0"), 400, "at most 100000 values"},
		{"a long echo, streamed", "streamGenerateContent", `{"contents":[` + text(strings.Repeat("a ", 1<<20)) + `]}`, 200, "STOP"},
	} {
		t.Run(row.name, func(t *testing.T) {
			cpu, allocated := cpuAndMemory(t)
			status, answer := postJSON(t, url+row.method, row.body)
			cpuAfter, allocatedAfter := cpuAndMemory(t)
			if status != row.status || !strings.Contains(answer, row.want) {
				t.Errorf("answered %d %.200s, want %d with %q", status, answer, row.status, row.want)
			}
			if took := cpuAfter - cpu; took > mostCPU {
				t.Errorf("took %v of processor time", took)
			}
			if took := allocatedAfter - allocated; took > mostBytes {
				t.Errorf("allocated %d MB", took>>20)
			}
		})
	}
}

// cpuAndMemory returns the processor time that this process has used and the bytes that it has allocated.
func cpuAndMemory(t *testing.T) (time.Duration, uint64) {
	t.Helper()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return mediatest.CPUTime(t), memory.TotalAlloc
}
