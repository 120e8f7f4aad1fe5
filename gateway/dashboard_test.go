package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"voxgate/signaling/access"
)

// A gateway that has held one conversation and rejected one exports every metric of the dashboard and the documentation.
// The labels in the dashboard's expressions exist in the metric.
func TestTheDashboardShowsWhatThereIs(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys.json")
	key, err := access.NewKey(keys, "shop", []string{access.MayTalk})
	if err != nil {
		t.Fatal(err)
	}
	p := startGateway(t, []string{"serve", "--addr", "127.0.0.1:0", "--private-addr", "127.0.0.1:0", "--keys", keys}, env())
	private := p.awaitLog(`msg=private at=(\S+)`)
	if got := p.askOnce(`{}`); !strings.Contains(got, "unauthorized") {
		t.Errorf("without a token: %.500s", got)
	}
	stranger, err := http.NewRequest(http.MethodGet, p.url+"/v1/sessions", nil)
	if err != nil {
		t.Fatal(err)
	}
	stranger.Header.Set("Origin", "https://evil.example")
	if resp, err := http.DefaultClient.Do(stranger); err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("a page of a stranger: %v, %v", resp, err)
	}
	c := p.openConversation(fmt.Sprintf(`{},"token":%q`, key))
	defer c.Conn.Close()
	c.AwaitEvent("SETUP_COMPLETE")
	c.SendText("hello")
	c.AwaitEvent("TURN_COMPLETE")
	c.Send("DISCONNECT_GEMINI", "")
	c.AwaitEvent("GEMINI_DISCONNECTED")
	metrics := awaitMetric(t, private, `voxgate_sessions_ended_total{door="web",reason="goodbye"}`)
	for _, want := range []string{
		`voxgate_refusals_total{rule="no token"} 1`, `voxgate_refusals_total{rule="origin"} 1`,
		`voxgate_tokens_total{direction="out",key="shop",modality="audio"}`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s:\n%s", want, filterMetrics(metrics))
		}
	}

	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(readFile(t, "../docs/grafana.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	word := regexp.MustCompile(`\b(?:voxgate|go|process)_\w+`)
	grouped := regexp.MustCompile(`by \(([^)]*)\)`)
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			names := word.FindAllString(target.Expr, -1)
			if len(names) == 0 {
				t.Errorf("%s shows no metric: %s", panel.Title, target.Expr)
			}
			for _, name := range names {
				shown[base(name)] = true
				if !strings.Contains(metrics, "\n"+name+"{") && !strings.Contains(metrics, "\n"+name+" ") {
					t.Errorf("%s shows %s, which there is not", panel.Title, name)
				}
				for _, by := range grouped.FindAllStringSubmatch(target.Expr, -1) {
					for label := range strings.SplitSeq(by[1], ", ") {
						if !regexp.MustCompile(`(?m)^` + name + `\{[^}]*\b` + label + `="`).MatchString(metrics) {
							t.Errorf("%s asks for %s by %s, which it has not", panel.Title, name, label)
						}
					}
				}
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^ +expr: (.*)$`).FindAllStringSubmatch(readFile(t, "../deploy/alerts.yml"), -1) {
		for _, name := range word.FindAllString(m[1], -1) {
			if !strings.Contains(metrics, "\n"+name+"{") && !strings.Contains(metrics, "\n"+name+" ") {
				t.Errorf("an alert looks at %s, which there is not", name)
			}
		}
	}
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(voxgate_\\w+)`").FindAllStringSubmatch(readFile(t, "../docs/operating.md"), -1) {
		documented[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (voxgate_\w+)`).FindAllStringSubmatch(metrics, -1) {
		if !shown[m[1]] {
			t.Errorf("the dashboard does not show %s", m[1])
		}
		if !documented[m[1]] {
			t.Errorf("docs/operating.md does not describe %s", m[1])
		}
		delete(documented, m[1])
	}
	for name := range documented {
		t.Errorf("docs/operating.md describes %s, which there is not", name)
	}
}

// base returns the name of a metric without the suffix of a histogram's series.
func base(name string) string {
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}
