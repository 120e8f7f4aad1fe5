package sip_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
)

// collectConfig returns a configuration whose agents may collect a PIN, which is sent to a webhook.
func collectConfig(t *testing.T, endpoint string) string {
	return configWith(t, func(c map[string]any) {
		c["collect"] = []any{map[string]any{"name": "PIN", "min": 8, "max": 8, "url": endpoint, "secret": "s"}}
		c["agents"] = []any{map[string]any{"numbers": []string{"*"}, "greeting": "", "collect": []string{"PIN"}}}
	})
}

// Keys pressed (RFC 4733) for a collection are sent only to the operator's webhook.
func TestCollectedDigitsStaySecret(t *testing.T) {
	t.Parallel()
	const digits = "73519264"
	posted := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		posted <- string(body)
	}))
	defer server.Close()
	o := startGateway(t, collectConfig(t, server.URL))
	p := newBaresip(t, "audio_codecs=PCMU/8000/1")
	p.runCommand("dial", o.sipURI(0))
	p.awaitEvent("CALL_ESTABLISHED")
	events := o.watchEvents()
	o.sendText(`/tool collect_digits {"what":"PIN"}`)
	o.awaitLog("collecting keys")
	for _, key := range digits {
		p.runCommand("sndcode", string(key))
	}
	select {
	case body := <-posted:
		if !strings.Contains(body, `"digits":"`+digits+`"`) || !strings.Contains(body, `"door":"sip"`) {
			t.Errorf("the endpoint got %s", body)
		}
	case <-time.After(time.Minute):
		t.Fatal("the endpoint got nothing")
	}
	var all strings.Builder
	awaitEvent(t, events, func(e bridge.ToolStatus) bool {
		fmt.Fprintf(&all, "%s %s", e.Args, e.Result)
		return strings.Contains(string(e.Result), "entered, valid")
	})
	awaitEvent(t, events, func(e bridge.AssistantText) bool {
		all.WriteString(e.Text)
		return e.Final && strings.Contains(e.Text, "entered, valid")
	})
	o.awaitLogTimes("keys collected", 1)
	all.WriteString(o.logs.String())
	for at := range len(digits) - 3 {
		if strings.Contains(all.String(), `"`+digits[at:at+4]) {
			t.Errorf("%s in %s", digits[at:at+4], all.String())
		}
	}
	if strings.Contains(all.String(), "keys of the telephone") {
		t.Errorf("the model was told of keys: %s", all.String())
	}
}
