package doortest

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/rtc"
	"voxgate/signaling/sideband"
)

// Locked is a gateway that requires authentication.
type Locked struct {
	*Gateway
	T     *testing.T
	Key   string // may mint tokens
	File  string
	ahead atomic.Int64 // offset of the clock, in ns
}

// Now returns the time of the gateway's clock.
func (l *Locked) Now() time.Time { return time.Now().Add(time.Duration(l.ahead.Load())) }

// Wait advances the gateway's clock.
func (l *Locked) Wait(d time.Duration) { l.ahead.Add(int64(d)) }

// Edit changes the keys file.
func (l *Locked) Edit(change func(file map[string]any)) {
	l.T.Helper()
	text, err := os.ReadFile(l.File)
	if err != nil {
		l.T.Fatal(err)
	}
	var file map[string]any
	if err := json.Unmarshal(text, &file); err != nil {
		l.T.Fatal(err)
	}
	change(file)
	if text, err = json.MarshalIndent(file, "", "   "); err != nil {
		l.T.Fatal(err)
	}
	if err := os.WriteFile(l.File, text, 0o600); err != nil {
		l.T.Fatal(err)
	}
	l.Wait(2 * time.Second) // until the file is checked again
}

// OfKey returns an edit of the first key's grants.
func OfKey(change func(key map[string]any)) func(map[string]any) {
	return func(file map[string]any) { change(file["keys"].([]any)[0].(map[string]any)) }
}

// Grants returns an edit that gives the first key these grants.
func Grants(grant map[string]any) func(map[string]any) {
	return OfKey(func(key map[string]any) { key["grant"] = grant })
}

// NewLocked returns a gateway with a key that may mint tokens; change may be nil.
func NewLocked(t *testing.T, change func(*access.Options), options ...Option) *Locked {
	t.Helper()
	l := &Locked{T: t, File: filepath.Join(t.TempDir(), "keys.json")}
	var err error
	if l.Key, err = access.NewKey(l.File, "shop", []string{access.MayMint}); err != nil {
		t.Fatal(err)
	}
	o := access.Options{Required: true, Keys: l.File, Agents: Agents, Logger: slog.New(slog.DiscardHandler), Now: l.Now}
	if change != nil {
		change(&o)
	}
	gate, err := access.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	l.Gateway = NewGateway(t, append([]Option{func(d *Doors, _ *bridge.Options) {
		d.Access = gate
		d.Add(func(host *bridge.Host, _ *rtc.API) []signaling.Endpoint {
			side := sideband.Server{Host: host, Logger: slog.New(slog.DiscardHandler)}
			return append(side.Endpoints(), signaling.Endpoint{Pattern: "POST /v1/tokens", Handler: gate})
		})
	}}, options...)...)
	return l
}

// Post requests a token with a key.
func (l *Locked) Post(key, body string) (status int, header http.Header, text string) {
	l.T.Helper()
	return l.request(http.MethodPost, "/v1/tokens", key, body)
}

// Ask sends a request with a key.
func (l *Locked) Ask(method, path, key string) (status int, body string) {
	l.T.Helper()
	status, _, body = l.request(method, path, key, "")
	return status, body
}

func (l *Locked) request(method, path, key, body string) (status int, header http.Header, text string) {
	l.T.Helper()
	r, err := http.NewRequest(method, l.HTTP+path, strings.NewReader(body))
	if err != nil {
		l.T.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		l.T.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		l.T.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(got)
}

// Mint returns a new token.
func (l *Locked) Mint(body string) string {
	l.T.Helper()
	status, _, text := l.Post(l.Key, body)
	var minted access.TokenResponse
	if err := json.Unmarshal([]byte(text), &minted); err != nil || status != http.StatusOK {
		l.T.Fatalf("%d %s", status, text)
	}
	return minted.Token
}

// Hello returns the payload of a CONNECT_GEMINI; more adds fields, for example `,"resumable":true`.
func Hello(token, more string) string {
	return fmt.Sprintf(`{"token":%q,"initialConfig":{}%s}`, token, more)
}

// Enters opens a conversation, and fails the test if it is not set up.
func Enters(t *testing.T, c *Client, payload string) (session, resumeToken string) {
	t.Helper()
	c.Send("CONNECT_GEMINI", payload)
	m := c.Expect("SETUP_COMPLETE")
	var p struct{ SessionID, ResumeToken string }
	if err := json.Unmarshal(m.Payload, &p); err != nil || !strings.Contains(string(m.Payload), `"success":true`) {
		t.Fatalf("refused: %v", m)
	}
	return p.SessionID, p.ResumeToken
}
