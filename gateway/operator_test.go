package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"voxgate/signaling/access"
)

// requestJSON sends a request to the private address with this Origin header. It returns the status, the JSON body, and the
// Content-Security-Policy of the answer.
func requestJSON(t *testing.T, method, url, key, origin string) (status int, answer map[string]any, policy string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_ = json.NewDecoder(resp.Body).Decode(&answer) // nil if the body is a page or an error text
	return resp.StatusCode, answer, resp.Header.Get("Content-Security-Policy")
}

// Everyone who can reach the operator's page sees its numbers. Conversations require a key, and pages of other origins get
// nothing.
func TestTheOperatorsPage(t *testing.T) {
	t.Parallel()
	agents := t.TempDir()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(agents, "desk.md"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("You are the front desk.")
	keys := filepath.Join(t.TempDir(), "keys.json")
	key, err := access.NewKey(keys, "support", []string{access.MayWatchAll})
	if err != nil {
		t.Fatal(err)
	}
	p := startGateway(t, []string{
		"serve", "--addr", "127.0.0.1:0", "--private-addr", "127.0.0.1:0",
		"--keys", keys, "--auth", "off", "--agents", agents, "--calls", t.TempDir(),
	}, env())
	private := p.awaitLog(`msg=private at=(\S+)`)
	c := p.openConversation(`{}`)
	c.AwaitEvent("SETUP_COMPLETE")
	c.SendText("hello")
	c.AwaitEvent("TURN_COMPLETE")
	if status, _, policy := requestJSON(t, "GET", private+"/", "", ""); status != http.StatusOK || !strings.Contains(policy,
		"default-src 'none'") {
		t.Errorf("the page: %d %s", status, policy)
	}
	status, now, _ := requestJSON(t, "GET", private+"/status", "", "")
	if dials, _ := now["dials"].(map[string]any); status != http.StatusOK ||
		now["now"] != 1.0 || now["ended"] != 0.0 || now["ready"] != true || now["keyed"] != true || now["backend"] != "emulator" ||
		dials["ok"] != 1.0 || !(now["dollars"].(float64) > 0) || !strings.HasPrefix(now["page"].(string), p.url) ||
		now["today"].(map[string]any)["begun"] != 1.0 || now["today"].(map[string]any)["dollars"] != now["dollars"] ||
		!(now["disks"].([]any)[0].(map[string]any)["free"].(float64) > 0) {
		t.Errorf("%d %v", status, now)
	}
	sessions := private + "/v1/sessions"
	for _, test := range []struct {
		method, url, key, origin string
		status                   int
	}{
		{"GET", sessions, "", "", http.StatusUnauthorized},
		{"GET", sessions, key, "", http.StatusOK},
		{"GET", sessions, key, private, http.StatusOK},
		{"GET", sessions, key, "https://evil.com", http.StatusForbidden},
		{"GET", private + "/status", "", "https://evil.com", http.StatusForbidden},
		{"DELETE", sessions + "/unknown", key, "null", http.StatusForbidden},
		{"DELETE", sessions + "/unknown", key, private, http.StatusNotFound},
		{"GET", private + "/listen/forged", "", "", http.StatusForbidden},
		{"POST", private + "/v1/tokens", key, "", http.StatusMethodNotAllowed},
	} {
		if status, answer, _ := requestJSON(t, test.method, test.url, test.key, test.origin); status != test.status {
			t.Errorf("%+v: %d %v", test, status, answer)
		}
	}
	_, paper, _ := requestJSON(t, "GET", sessions+"/unknown/ticket", key, "") // a ticket does not let a key listen that may not
	if status, answer, _ := requestJSON(t, "GET", private+"/listen/"+paper["ticket"].(string), "", ""); status != http.StatusForbidden ||
		!strings.Contains(answer["error"].(map[string]any)["message"].(string), "listen") {
		t.Errorf("%d %v", status, answer)
	}

	write("---\nvoice: [\n---\nYou are the front desk.")
	p.awaitCondition(func() bool {
		_, now, _ = requestJSON(t, "GET", private+"/status", "", "")
		desk := now["agents"].([]any)[0].(map[string]any)
		problem, _ := desk["problem"].(string)
		return desk["name"] == "desk" && strings.Contains(problem, "desk.md:")
	})
	c.Send("DISCONNECT_GEMINI", "")
	c.AwaitEvent("GEMINI_DISCONNECTED")
	p.awaitCondition(func() bool {
		_, now, _ = requestJSON(t, "GET", private+"/status", "", "")
		return now["now"] == 0.0 && now["ended"] == 1.0
	})
}

// The operator's page has at most 1,500 lines of its own. Its styles and helpers are those of the product's page.
func TestTheOperatorsPageIsSmall(t *testing.T) {
	lines := 0
	for _, name := range listFileNames(t, "../web/operator") {
		lines += strings.Count(readFile(t, filepath.Join("../web/operator", name)), "\n")
	}
	if lines == 0 || lines > 1500 {
		t.Errorf("%d lines", lines)
	}
}
