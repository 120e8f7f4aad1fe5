package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"voxgate/internal/testkit/mediatest"
	"voxgate/signaling/access"
)

// startLog cancels a context when the gateway listens.
type startLog struct {
	stop context.CancelFunc

	mu      sync.Mutex
	b       bytes.Buffer
	listens bool
}

func (l *startLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if bytes.Contains(p, []byte("msg=listening")) || bytes.Contains(p, []byte(`"msg":"listening"`)) {
		l.listens = true
		l.stop()
	}
	return l.b.Write(p)
}

// tryStart runs serve with these settings until it listens. ok reports whether it does, says is its log, and err is the
// reason if it does not start.
func tryStart(t *testing.T, settings variables) (ok bool, says string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	l := &startLog{stop: cancel}
	err = runCommand(ctx, []string{"serve"}, settings, l, l)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.listens && err == nil, l.b.String(), err
}

// oddValues lists odd spellings of a value, by description. %s stands for the value.
var oddValues = map[string]string{
	"nothing": "", "blanks": "  ", "a blank before": " %s", "a newline behind": "%s\n", "CRLF behind": "%s\r\n", "a comma behind": "%s,",
	"in quotes": `"%s"`, "in single quotes": "'%s'", "a byte order mark before": "\ufeff%s", "a newline within": "%s\n%s",
	"a NUL within": "%s\x00",
	"twice":        "%s,%s", "a semicolon behind": "%s;", "a comment behind": "%s # this",
}

// oddSettings returns values to test for each setting; the first is also tested in the spellings of oddValues. Addresses of
// other machines are left out, because check-config may run elsewhere.
func oddSettings(t *testing.T, folder, keys, full string) map[string][]string {
	return map[string][]string{
		"VOXGATE_ADDR": {
			"127.0.0.1:0", "[::1]:0", "::1:0", "localhost:0", "127.0.0.1", "127.0.0.1:-1", "127.0.0.1:http", "999.0.0.1:0",
			":0", "http://127.0.0.1:0",
		},
		"VOXGATE_WEBRTC_HOST": {"127.0.0.1", "::1", "[::1]", "127.0.0.1:5"},
		"VOXGATE_UDP_PORT":    {"0", "-1", "65536", "99999999999999999999", "1e3", "0x10"},
		"VOXGATE_TCP_PORT":    {"0", "-1", "65536"},
		"VOXGATE_PUBLIC_IP":   {"192.0.2.1", "192.0.2.1,2001:db8::1", "192.0.2.1/32", "example.com"},
		"VOXGATE_ICE_SERVERS": {
			"stun:a:1", "stun:a:1,", "stun:", "stuns:a", "[]", "[{}]", `[{"urls":"stun:a"}]`, `[{"urls":"stun:a"},]`,
			"turn:b?transport=tls",
		},
		"VOXGATE_TLS_CERT":    {full, "/no/such/file", folder},
		"VOXGATE_ACME_DOMAIN": {"a.example", "*.example", "127.0.0.1"},
		"VOXGATE_ACME_CACHE":  {folder, full},
		"VOXGATE_ORIGINS": {
			"https://a", "https://a,", "https://a/", "https://a/x", "*", "null", "https://*.a",
		},
		"VOXGATE_HOSTS": {"a", "a,", "a:3001", "*", "*.a", "https://a", "[::1]"},
		"VOXGATE_AUTH":  {"off", "token", "OFF", "none"},
		"VOXGATE_KEYS": {
			keys, folder, "/no/such/file", full, writeTempFile(t, ""), writeTempFile(t, "{}"), writeTempFile(t, "[]"),
			writeTempFile(t, "{\"keys\":"),
		},
		"VOXGATE_LIMITS": {
			"sessions=5", "sessions=5,", "sessions", "sessions=", "sessions=-1", "sessions=1e9", "sesions=5",
			"sessions=99999999999999999999",
		},
		"VOXGATE_TRUSTED_PROXIES": {
			"10.0.0.0/8", "10.0.0.1", "10.0.0.0/33", "localhost", "10.0.0.0/8,", "10.0.0.1/8",
		},
		"VOXGATE_IDENTITY_HEADER": {"X-User"},
		"VOXGATE_SESSION_WEBHOOK": {"https://a.example/", "ftp://a", "https://", "/x"},
		"VOXGATE_WEBHOOK_SECRET":  {"secret", "x"},
		"VOXGATE_INSECURE":        {"1", "true", "yes", "on", "0", "TRUE", "2"},
		"VOXGATE_PARK": {
			"0", "5s", "5", "-5s", "9999999h", "5 s", "5S", "1.5m", "5sec", "99999999999999h", "1d",
		},
		"VOXGATE_DRAIN":              {"0", "5s", "-1s", "9999999h"},
		"VOXGATE_STALL":              {"0", "1s", "1ms", "-1s", "9999999h"},
		"VOXGATE_MAX_SESSION_TOKENS": {"0", "5", "-5", "1e6", "1_000", "1,000", "99999999999999999999"},
		"VOXGATE_RECORDINGS": {
			folder, filepath.Join(folder, "new", "er"), full, "/proc/nothing", "/no/such/folder",
		},
		"VOXGATE_RECORD_ALL":   {"true", "yes"},
		"VOXGATE_CALLS":        {folder, filepath.Join(folder, "calls"), full, "/proc/nothing"},
		"VOXGATE_KEEP":         {"0", "5", "-1", "999999999", "99999999999999999999", "5d"},
		"VOXGATE_PRIVATE_ADDR": {"127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "127.0.0.1:99999"},
		"VOXGATE_REST_ADDR":    {"127.0.0.1:0", "0.0.0.0:0"},
		"VOXGATE_REDIS": {
			"redis://127.0.0.1:1", "127.0.0.1:1", "http://127.0.0.1:1", "redis://", "rediss://127.0.0.1:1/x",
			"redis://127.0.0.1:1/99999999999",
		},
		"VOXGATE_REDIS_SECRET": {"x", strings.Repeat("x", 40)},
		"VOXGATE_NODE_URL": {
			"http://10.0.0.5:3001", "http://10.0.0.5:3001/", "10.0.0.5:3001", "http://", "http://10.0.0.5:99999",
		},
		"VOXGATE_LOG":          {"text", "json", "text,debug", "TEXT", "text,"},
		"VOXGATE_APP_MODEL":    {"gemini-3.8-flash", "x"},
		"VOXGATE_TURN_CPU":     {"0.5", "0", "-1", "NaN", "1,5", "1.5"},
		"VOXGATE_OPUS_DECODER": {"libopus", "pion", "Pion"},
		"VOXGATE_TURN_SECRET":  {"s", "a b"},
		"GEMINI_API_KEY":       {"AIza-x", "a b", "your-key-here"},
		"GOOGLE_GEMINI_BASE_URL": {
			"http://127.0.0.1:1", "127.0.0.1:1", "ftp://x", "http://127.0.0.1:99999", "://",
		},
		"GOOGLE_GENAI_USE_VERTEXAI": {"1", "yes", "false"},
		"VOXGATE_AGNETS":            {"x"},
		"VOXGATE_OTHERWISE":         {"x", ""},
	}
}

// oddFiles returns such values for the settings that name files and folders.
func oddFiles(t *testing.T, folder, full string) map[string][]string {
	desk := func(text string) string { return writeAgents(t, map[string]string{"desk": text}) }
	return map[string][]string{
		"VOXGATE_MODELS": {
			full, writeTempFile(t, `{"models":[]}`), folder, "/no/such/file", writeTempFile(t, `{"models":[{}]}`),
		},
		"VOXGATE_TURN_MODEL":    {full, folder, "/no/such/file"},
		"VOXGATE_PRICES":        {full, folder, "/no/such/file", writeTempFile(t, "{}"), writeTempFile(t, `{"models":[]}`)},
		"VOXGATE_GOOGLE_REPORT": {full, folder, "/no/such/file", writeTempFile(t, "{}")},
		"VOXGATE_WORKSPACE":     {filepath.Join(folder, "work"), filepath.Join(folder, "a", "b"), full, "/proc/nothing"},
		"VOXGATE_TOOLS": {
			full, folder, "/no/such/file", writeTempFile(t, "{}"), writeTempFile(t, `{"builtin":["nothing"]}`),
			writeTempFile(t, `{"builtin":["get_time"],}`), writeTempFile(t, "\ufeff{}"),
		},
		"VOXGATE_AGENTS": {
			desk("---\nvoice: Kore\n---\nBe brief."), full, folder, "/no/such/folder", desk("---\nvoice: Kore\nBe brief."),
			desk("\ufeff---\r\nvoice: Kore\r\n---\r\nBe brief."), desk("---\nvoice: [\n---\n"), desk(""), desk("---\n---\n"),
			desk("---\nvoice: Kore\nvoice: Puck\n---\n"), desk("---\nmaxDuration: -5s\n---\n"), desk("---\n\tvoice: Kore\n---\n"),
			writeAgents(t, map[string]string{"desk": "---\nnumbers: ['*']\n---", "b": "---\nnumbers: ['*']\n---"}),
		},
		"VOXGATE_TELEPHONY": {
			full, folder, "/no/such/file", writeTempFile(t, "{}"), writeTempFile(t, `{"providers":[]}`),
			writeTempFile(t, `{"providers":[{"profile":"jambonz"}]}`),
			writeTempFile(t, `{"providers":[{"profile":"jambonz","password":"x"},{"profile":"jambonz","password":"x"}]}`),
		},
		"VOXGATE_SIP": {
			full, folder, "/no/such/file", writeTempFile(t, "{}"),
			writeTempFile(t, `{"listen":[{"transport":"udp","address":"127.0.0.1:0"}]}`),
			writeTempFile(t, `{"listen":[{"transport":"udp","address":"127.0.0.1:0"}],"trunks":[{"name":"a","from":["192.0.2.1"]}]}`),
			writeTempFile(t, `{"listen":[{"transport":"tls","address":"127.0.0.1:0"}],"trunks":[{"name":"a","from":["192.0.2.1"]}]}`),
			writeTempFile(t, `{"listen":[{"transport":"udp","address":"127.0.0.1"}],"trunks":[{"name":"a","from":["x"]}]}`),
		},
	}
}

// TestCheckConfigAndServeAgree tests odd spellings and values of settings. check-config must accept exactly those with which
// serve starts without a warning.
func TestCheckConfigAndServeAgree(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	folder := t.TempDir()
	keys := filepath.Join(folder, "keys.json")
	if _, err := access.NewKey(keys, "shop", []string{access.MayTalk}); err != nil {
		t.Fatal(err)
	}
	full := writeTempFile(t, "x")
	secret := strings.Repeat("x", 40)
	base := map[string]variables{
		"VOXGATE_AUTH": env("VOXGATE_KEYS", keys), "VOXGATE_IDENTITY_HEADER": env("VOXGATE_TRUSTED_PROXIES", "10.0.0.0/8"),
		"VOXGATE_SESSION_WEBHOOK": env("VOXGATE_WEBHOOK_SECRET", "s"), "VOXGATE_TLS_CERT": env("VOXGATE_TLS_KEY", full),
		"VOXGATE_ACME_DOMAIN": env("VOXGATE_ACME_CACHE", folder), "VOXGATE_ACME_CACHE": env("VOXGATE_ACME_DOMAIN", "a.example"),
		"VOXGATE_REDIS_SECRET": env("VOXGATE_REDIS", "redis://127.0.0.1:1"), "VOXGATE_REDIS": env("VOXGATE_REDIS_SECRET", secret),
		"VOXGATE_RECORD_ALL": env("VOXGATE_RECORDINGS", folder), "VOXGATE_KEEP": env("VOXGATE_RECORDINGS", folder),
		"VOXGATE_TURN_MODEL": env("VOXGATE_ONNXRUNTIME", full),
	}
	port := strconv.Itoa(mediatest.FreePort(t))
	address := "127.0.0.1:" + port
	try := func(name, value string) {
		t.Run(fmt.Sprintf("%s=%q", name, value), func(t *testing.T) {
			settings := env("VOXGATE_ADDR", "127.0.0.1:0")
			maps.Copy(settings, base[name])
			settings[name] = value
			var out bytes.Buffer
			checked := runCommand(t.Context(), []string{"check-config"}, settings, &out, &out)
			ok, says, err := tryStart(t, settings)
			warns := slices.ContainsFunc([]string{"unknown setting", "no agents: the folder has no files", "tool of an agent does not exist"},
				func(warning string) bool { return strings.Contains(says, warning) })
			if (checked == nil) != (ok && !warns) {
				t.Errorf("check-config: %v; serve starts: %v, %v", checked, ok, err)
			}
		})
	}
	all := oddSettings(t, folder, keys, full)
	maps.Copy(all, oddFiles(t, folder, full))
	for name, list := range all {
		for _, value := range list {
			try(name, value)
		}
		for _, form := range oddValues {
			try(name, strings.ReplaceAll(form, "%s", list[0]))
		}
	}
	for _, name := range []string{"VOXGATE_PRIVATE_ADDR", "VOXGATE_REST_ADDR", "VOXGATE_TCP_PORT"} {
		base[name] = env("VOXGATE_ADDR", address)
	}
	for _, value := range []string{address, "localhost:" + port, "127.0.0.2:" + port, ":" + port, "0.0.0.0:" + port, "[::1]:" + port} {
		try("VOXGATE_PRIVATE_ADDR", value)
	}
	try("VOXGATE_REST_ADDR", address)
	try("VOXGATE_TCP_PORT", port)
}
