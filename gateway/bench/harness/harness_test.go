package harness

import (
	"slices"
	"testing"
	"time"
)

func TestLoggedURL(t *testing.T) {
	for line, want := range map[string]string{
		`time=2026-01-02T03:04:05Z level=INFO msg=listening url=http://localhost:3001/`:                "http://localhost:3001",
		`time=2026-01-02T03:04:05Z level=INFO msg="emulator listening" url="http://127.0.0.1:1" use=X`: "http://127.0.0.1:1",
		`time=2026-01-02T03:04:05Z level=INFO msg="no url"`:                                            "",
	} {
		if got := loggedURL(line); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func TestInherited(t *testing.T) {
	got := inherited([]string{"PATH=/bin", "VOXGATE_ADDR=:1", "GEMINI_API_KEY=x", "GOOGLE_API_KEY=x", "HOME=/"})
	if want := []string{"PATH=/bin", "HOME=/"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestQuantile(t *testing.T) {
	values := []time.Duration{5, 1, 4, 2, 3}
	for q, want := range map[float64]time.Duration{0: 1, 0.2: 1, 0.5: 3, 0.95: 5, 1: 5} {
		if got := Quantile(values, q); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
}
