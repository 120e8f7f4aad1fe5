package access_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"voxgate/bridge"
	"voxgate/internal/testkit/mediatest"
	"voxgate/signaling/access"
)

// openKeys opens a gate with a keys file, and closes it at the end of the test. wait advances the gate's clock,
// because a changed file is detected only after a second.
func openKeys(t *testing.T, file string, log slog.Handler) (gate *access.Gate, wait func(time.Duration)) {
	t.Helper()
	var later atomic.Int64
	gate, err := access.New(access.Options{
		Required: true, Keys: file, Logger: slog.New(log),
		Now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	return gate, func(d time.Duration) { later.Add(int64(d)) }
}

// A keys file that names a protocol of an earlier version is read with a warning.
func TestUnknownProtocolsInTheKeysFileAreLogged(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.json")
	key := must(access.NewKey(file, "shop", []string{access.MayTalk}))
	changed := strings.Replace(string(must(os.ReadFile(file))), `"grant": {}`, `"grant": {"doors": ["web", "sip"]}`, 1)
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	gate, _ := openKeys(t, file, slog.NewTextHandler(&log, nil))
	if got := log.String(); !strings.Contains(got, `level=WARN`) || !strings.Contains(got, `at=keys[0].grant.doors[1] protocol=sip`) ||
		strings.Contains(got, "protocol=web") {
		t.Errorf("logged %s of %s", got, changed)
	}
	request := &bridge.SessionRequest{Origin: bridge.Origin{Protocol: "web"}}
	if err := access.From(gate.WithClient(&http.Request{})).Authorize(request, key); err != nil {
		t.Error(err)
	}
}

// An issuer that does not answer after a change of the keys file delays only the request that has detected the
// change.
func TestAnIssuerThatHangs(t *testing.T) {
	others := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, others) })
	asked, hang := make(chan struct{}, 8), make(chan struct{})
	issuer := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-hang
	}))
	defer issuer.Close()
	defer http.DefaultClient.CloseIdleConnections()
	file := filepath.Join(t.TempDir(), "keys.json")
	key, err := access.NewKey(file, "shop", []string{access.MayTalk})
	if err != nil {
		t.Fatal(err)
	}
	gate, wait := openKeys(t, file, slog.DiscardHandler)
	talk := func() {
		if err := access.From(gate.WithClient(&http.Request{})).Authorize(&bridge.SessionRequest{}, key); err != nil {
			t.Error(err)
		}
	}
	var keys map[string]any
	text, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(text, &keys) != nil {
		t.Fatal(err)
	}
	keys["issuers"] = []any{
		map[string]any{"name": "slow", "algorithm": "RS256", "jwks": issuer.URL, "audience": "voxgate", "grant": map[string]any{}},
	}
	text, err = json.Marshal(keys)
	if err != nil || os.WriteFile(file, text, 0o600) != nil {
		t.Fatal(err)
	}
	wait(2 * time.Second)
	noticed := make(chan struct{})
	go func() {
		defer close(noticed)
		talk()
	}()
	<-asked
	const most = 4 * time.Second
	machine, began := mediatest.MeasureLateness(t), time.Now()
	talk()
	if waited := time.Since(began); waited > most && machine.CanJudge(t, most) { // the limit for an issuer is 5
		t.Errorf("somebody else waited %v", waited)
	}
	close(hang)
	<-noticed
}

// Errors of the library about a failing issuer go to the gateway's log, in its format.
func TestAnIssuerThatFailsIsLogged(t *testing.T) {
	issuer := httptest.NewServer(http.NotFoundHandler())
	defer issuer.Close()
	defer http.DefaultClient.CloseIdleConnections()
	file := filepath.Join(t.TempDir(), "keys.json")
	text := `{"secret":"` + strings.Repeat(
		"A",
		43,
	) + `","issuers":[{"name":"shop","algorithm":"RS256","jwks":"` + issuer.URL + `","audience":"voxgate","grant":{}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	lines, log := io.Pipe()
	defer lines.Close()
	go func() {
		gate, err := access.New(access.Options{Required: true, Keys: file, Logger: slog.New(slog.NewJSONHandler(log, nil))})
		if err != nil {
			t.Error(err)
		} else {
			gate.Close()
		}
		log.Close()
	}()
	var line struct{ Level, Msg, Issuer string }
	if err := json.NewDecoder(lines).Decode(&line); err != nil || line.Level != "ERROR" || line.Issuer != "shop" {
		t.Errorf("logged %+v, %v", line, err)
	}
	_, _ = io.Copy(io.Discard, lines)
}
