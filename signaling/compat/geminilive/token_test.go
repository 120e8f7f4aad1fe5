package geminilive_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit"
	"voxgate/signaling/access"
	"voxgate/signaling/compat/geminilive/geminilivetest"
)

// mintAuth requests an ephemeral token like Google's SDKs, with a server key.
func mintAuth(t *testing.T, g *testkit.Gateway, key, body string) (status int, text string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, g.HTTP+"/v1alpha/auth_tokens", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Goog-Api-Key", key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// mustMintAuth returns the name of the token.
func mustMintAuth(t *testing.T, g *testkit.Gateway, key, body string) (name string) {
	t.Helper()
	status, text := mintAuth(t, g, key, body)
	var made struct {
		Name                             string
		ExpireTime, NewSessionExpireTime time.Time
	}
	if err := json.Unmarshal([]byte(text), &made); err != nil || status != http.StatusOK || !strings.HasPrefix(made.Name, "auth_tokens/") ||
		!made.ExpireTime.After(made.NewSessionExpireTime) || time.Until(made.NewSessionExpireTime) <= 0 {
		t.Fatalf("%s: %d %s, %v", body, status, text, err)
	}
	return made.Name
}

// dialWithToken opens a conversation with an ephemeral token, and waits for its setup.
func dialWithToken(t *testing.T, g *testkit.Gateway, name, setup string) *testkit.Client {
	t.Helper()
	c := geminilivetest.Dial(t, g, "?access_token="+name, nil)
	c.SendTextFrame(`{"setup":` + setup + `}`)
	c.AwaitEvent("setupComplete")
	return c
}

// awaitTokenRejection returns the reason why a conversation did not begin.
func awaitTokenRejection(t *testing.T, g *testkit.Gateway, name, setup string) websocket.CloseError {
	t.Helper()
	c := geminilivetest.Dial(t, g, "?access_token="+name, nil)
	_ = c.Conn.WriteMessage(websocket.TextMessage, []byte(`{"setup":`+setup+`}`)) // it may be rejected earlier
	return awaitClose(c)
}

// One key cannot use up the tokens of all keys.
func TestAuthTokenShares(t *testing.T) {
	t.Parallel()
	var other string
	l := testkit.StartLockedGateway(t, func(o *access.Options) {
		var err error
		if other, err = access.NewKey(o.Keys, "cafe", []string{access.MayMint}); err != nil {
			t.Fatal(err)
		}
	}, geminilivetest.Serve(t, emulator.Scenario{}, nil))
	long := `{"bidiGenerateContentSetup":{"systemInstruction":"` + strings.Repeat("x", 250_000) + `"}}`
	mint := func(key string) *http.Response {
		return testkit.PostAs(t, l.HTTP+"/v1alpha/auth_tokens", key, "application/json", strings.NewReader(long))
	}
	made := 0
	resp := mint(l.Key)
	for ; resp.StatusCode == http.StatusOK && made < 100; resp = mint(l.Key) {
		made++
	}
	// A key may use a quarter of the memory, 16 MiB. This has room for about 66 tokens. The first is valid for another 30 minutes.
	after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	if resp.StatusCode != http.StatusTooManyRequests || made < 60 || made > 67 || after < 60 || after > 1800 {
		t.Errorf("%s after %d, Retry-After %d", resp.Status, made, after)
	}
	if resp := mint(other); resp.StatusCode != http.StatusOK {
		t.Errorf("another key: %s", resp.Status)
	}
}

func TestAuthTokenUses(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil, geminilivetest.Serve(t, emulator.Scenario{}, nil))
	for body, uses := range map[string]int{`{}`: 1, ``: 1, `{"uses":2}`: 2, `{"uses":0}`: 3} {
		name := mustMintAuth(t, l.Gateway, l.Key, body)
		for range uses {
			dialWithToken(t, l.Gateway, name, `{}`)
		}
		if end := (websocket.CloseError{}); !strings.Contains(body, "0") {
			if end = awaitTokenRejection(t, l.Gateway, name, `{}`); end.Code != websocket.ClosePolicyViolation ||
				!strings.Contains(end.Text, "too many times") {
				t.Errorf("%s: closed with %v after %d uses", body, end, uses)
			}
		}
		if strings.Contains(l.Logs.String(), strings.TrimPrefix(name, "auth_tokens/")) {
			t.Error("the log has a token")
		}
	}
	if end := awaitTokenRejection(t, l.Gateway, "auth_tokens/at_another", `{}`); end.Code != websocket.ClosePolicyViolation {
		t.Errorf("an unknown token: closed with %v", end)
	}
}

// A use without a conversation is returned, and resuming a conversation is not a use.
func TestAuthTokenIsNotUsedUp(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil, geminilivetest.Serve(t, emulator.Scenario{}, nil))
	name := mustMintAuth(t, l.Gateway, l.Key, `{}`)
	if end := awaitTokenRejection(t, l.Gateway, name,
		`{"generationConfig":{"topK":"x"}}`); end.Code != websocket.CloseInvalidFramePayloadData {
		t.Fatalf("closed with %v", end)
	}
	c := dialWithToken(t, l.Gateway, name, `{"sessionResumption":{}}`)
	var update struct{ NewHandle string }
	c.AwaitEvent("sessionResumptionUpdate").DecodePayload(t, &update)
	c.Conn.Close()
	dialWithToken(t, l.Gateway, name, `{"sessionResumption":{"handle":"`+update.NewHandle+`"}}`)
}

// A setup in the token replaces the client's: as a whole, or in the fields of the mask.
func TestAuthTokenLocks(t *testing.T) {
	t.Parallel()
	setup := `"bidiGenerateContentSetup":{"model":"models/gemini-3.8-live","systemInstruction":{"parts":[{"text":"Ours."}]},
		"generation_config":{"temperature":0.5}}`
	theirs := `{"model":"models/gemini-2.5-flash-native-audio-preview-12-2025","systemInstruction":{"parts":[{"text":"Theirs."}]},
		"generationConfig":{"temperature":1.5,"topP":0.5}}`
	for _, row := range []struct{ body, says, model string }{
		{`{` + setup + `}`, "Ours.", "gemini-3.8-live"},
		{`{` + setup + `,"fieldMask":"model,generation_config.temperature"}`, "Theirs.", "gemini-3.8-live"},
		{`{` + setup + `,"fieldMask":"systemInstruction.parts"}`, "Ours.", "gemini-2.5-flash-native-audio-preview-12-2025"},
		{`{"fieldMask":"systemInstruction"}`, "", "gemini-2.5-flash-native-audio-preview-12-2025"},
		{`{}`, "Theirs.", "gemini-2.5-flash-native-audio-preview-12-2025"},
	} {
		seen := &testkit.SeenByModel{}
		l := testkit.StartLockedGateway(t, nil, geminilivetest.Serve(t, emulator.Scenario{}, seen))
		name := mustMintAuth(t, l.Gateway, l.Key, row.body)
		dialWithToken(t, l.Gateway, name, theirs)
		if opened := seen.EventsOf(emulator.EventOpened); opened[0].Text != row.says {
			t.Errorf("%s: the instruction is %q, want %q", row.body, opened[0].Text, row.says)
		}
		if sessions := l.Host.Sessions(); len(sessions) != 1 || sessions[0].Model != row.model {
			t.Errorf("%s: %v", row.body, sessions)
		}
	}
	l := testkit.StartLockedGateway(t, nil, geminilivetest.Serve(t, emulator.Scenario{}, nil))
	for _, mask := range []string{"", `,"fieldMask":"model,systemInstruction"`} {
		c := dialWithToken(t, l.Gateway, mustMintAuth(t, l.Gateway, l.Key, `{`+setup+mask+`}`), `{}`)
		c.SendTextFrame(`{"contextUpdate":{"systemInstruction":{"parts":[{"text":"Theirs."}]}}}`)
		if end := awaitClose(c); end.Code != websocket.CloseInvalidFramePayloadData || !strings.Contains(end.Text,
			"fixed by the ephemeral token") {
			t.Errorf("closed with %v", end)
		}
	}
}

// The conversation ends with the token, even if no key is required.
func TestAuthTokenEnds(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil, geminilivetest.Serve(t, emulator.Scenario{}, nil))
	gateways := map[string]*testkit.Gateway{
		"with keys": l.Gateway,
		"without":   testkit.StartGateway(t, geminilivetest.Serve(t, emulator.Scenario{}, nil)),
	}
	for name, g := range gateways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			soon := time.Now().Add(5 * time.Second).UTC().Format(time.RFC3339Nano)
			status, text := mintAuth(t, g, l.Key, `{"expireTime":"`+soon+`","uses":0}`)
			var made struct{ Name string }
			if err := json.Unmarshal([]byte(text), &made); err != nil || status != http.StatusOK {
				t.Fatal(status, text)
			}
			c := dialWithToken(t, g, made.Name, `{}`)
			if end := awaitClose(c); end.Code != websocket.CloseNormalClosure || end.Text != bridge.ErrTimeLimit.Error() {
				t.Errorf("closed with %v", end)
			}
			if end := awaitTokenRejection(t, g, made.Name, `{}`); end.Code != websocket.ClosePolicyViolation {
				t.Errorf("an old token: closed with %v", end)
			}
		})
	}
}

func TestAuthTokenIsRefused(t *testing.T) {
	t.Parallel()
	l := testkit.StartLockedGateway(t, nil, geminilivetest.Serve(t, emulator.Scenario{}, nil))
	for _, row := range []struct {
		key, body string
		status    int
		want      string
	}{
		{"", `{}`, 401, "UNAUTHENTICATED"},
		{l.MintToken(`{}`), `{}`, 401, "UNAUTHENTICATED"},
		{l.Key, `{"use":1}`, 400, `Unknown name \"use\"`},
		{l.Key, `{"uses":-1}`, 400, "uses must be"},
		{l.Key, `[`, 400, "INVALID_ARGUMENT"},
		{l.Key, `{"expireTime":"tomorrow"}`, 400, "expireTime must be a time"},
		{l.Key, `{"newSessionExpireTime":"2020-01-01T00:00:00Z"}`, 400, "newSessionExpireTime must be in the next 20 hours"},
		{l.Key, `{"bidiGenerateContentSetup":7}`, 400, "bidiGenerateContentSetup must be an object"},
		{l.Key, `{"fieldMask":["model"]}`, 400, "fieldMask must be names"},
		{l.Key, `{"bidiGenerateContentSetup":{"model":"` + strings.Repeat("x", 256<<10) + `"}}`, 400, "262144 bytes"},
	} {
		status, text := mintAuth(t, l.Gateway, row.key, row.body)
		if status != row.status || !strings.Contains(text, row.want) || !strings.Contains(text, `"error":{"code":`) {
			t.Errorf("%.80s: %d %s", row.body, status, text)
		}
	}
}
