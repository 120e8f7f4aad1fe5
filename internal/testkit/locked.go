package testkit

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
	"voxgate/signaling/backend"
	"voxgate/signaling/rtc"
)

// LockedGateway is a gateway that requires authentication.
type LockedGateway struct {
	*Gateway
	T     *testing.T
	Key   string // may mint tokens
	File  string
	ahead atomic.Int64 // offset of the clock, in ns
}

// Now returns the time of the gateway's clock.
func (l *LockedGateway) Now() time.Time { return time.Now().Add(time.Duration(l.ahead.Load())) }

// AdvanceClock advances the gateway's clock.
func (l *LockedGateway) AdvanceClock(d time.Duration) { l.ahead.Add(int64(d)) }

// EditKeys changes the keys file.
func (l *LockedGateway) EditKeys(change func(file map[string]any)) {
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
	l.AdvanceClock(2 * time.Second) // so that the gateway checks the file again
}

// EditFirstKey returns an edit for EditKeys that applies change to the first key.
func EditFirstKey(change func(key map[string]any)) func(map[string]any) {
	return func(file map[string]any) { change(file["keys"].([]any)[0].(map[string]any)) }
}

// SetGrants returns an edit for EditKeys that gives the first key these grants.
func SetGrants(grant map[string]any) func(map[string]any) {
	return EditFirstKey(func(key map[string]any) { key["grant"] = grant })
}

// StartLockedGateway returns a gateway with a key that may mint tokens; change may be nil.
func StartLockedGateway(t *testing.T, change func(*access.Options), options ...Option) *LockedGateway {
	t.Helper()
	l := &LockedGateway{T: t, File: filepath.Join(t.TempDir(), "keys.json")}
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
	l.Gateway = StartGateway(t, append([]Option{func(d *Endpoints, _ *bridge.Options) {
		d.Access = gate
		d.AddEndpoints(func(host *bridge.Host, _ *rtc.API) []signaling.Endpoint {
			side := backend.Server{Host: host, Logger: slog.New(slog.DiscardHandler)}
			return append(side.Endpoints(), signaling.Endpoint{Pattern: "POST /v1/tokens", Handler: gate})
		})
	}}, options...)...)
	return l
}

// RequestToken requests an access token with a server key.
func (l *LockedGateway) RequestToken(key, body string) (status int, header http.Header, text string) {
	l.T.Helper()
	return l.sendWithKey(http.MethodPost, "/v1/tokens", key, body)
}

// SendRequest sends a request with a key.
func (l *LockedGateway) SendRequest(method, path, key string) (status int, body string) {
	l.T.Helper()
	status, _, body = l.sendWithKey(method, path, key, "")
	return status, body
}

func (l *LockedGateway) sendWithKey(method, path, key, body string) (status int, header http.Header, text string) {
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

// MintToken returns a new token.
func (l *LockedGateway) MintToken(body string) string {
	l.T.Helper()
	status, _, text := l.RequestToken(l.Key, body)
	var minted access.TokenResponse
	if err := json.Unmarshal([]byte(text), &minted); err != nil || status != http.StatusOK {
		l.T.Fatalf("%d %s", status, text)
	}
	return minted.Token
}

// ConnectPayload returns the payload of a CONNECT_GEMINI; moreFields is added to the fields, for example
// `,"resumable":true`.
func ConnectPayload(token, moreFields string) string {
	return fmt.Sprintf(`{"token":%q,"initialConfig":{}%s}`, token, moreFields)
}

// EnterConversation opens a conversation, and fails the test if it is not set up.
func EnterConversation(t *testing.T, c *Client, payload string) (session, resumeToken string) {
	t.Helper()
	c.Send("CONNECT_GEMINI", payload)
	m := c.AwaitEvent("SETUP_COMPLETE")
	var p struct{ SessionID, ResumeToken string }
	if err := json.Unmarshal(m.Payload, &p); err != nil || !strings.Contains(string(m.Payload), `"success":true`) {
		t.Fatalf("refused: %v", m)
	}
	return p.SessionID, p.ResumeToken
}
