package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The operator's endpoint decides about each conversation and its agent. It gets a report of each end, which is repeated if
// the endpoint fails.
func TestSessionWebhook(t *testing.T) {
	t.Parallel()
	type message struct {
		Type    string
		Session struct{ ID, Door string }
		Turns   int
		Tokens  int
		Dollars float64

		Transcript []struct{ Role, Text string }
		Reason     string
		EndedAt    time.Time
	}
	ends := make(chan message, 8)
	var answer atomic.Value
	var down atomic.Bool
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mac := hmac.New(sha256.New, []byte("top-secret"))
		mac.Write([]byte(r.Header.Get("Webhook-Id") + "." + r.Header.Get("Webhook-Timestamp") + "." + string(body)))
		if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); r.Header.Get("Webhook-Signature") != want {
			t.Errorf("signed %q, want %q", r.Header.Get("Webhook-Signature"), want)
		}
		var m message
		if err := json.Unmarshal(body, &m); err != nil {
			t.Error(err)
		}
		switch {
		case down.Load():
			w.WriteHeader(http.StatusBadGateway)
		case m.Type == "session.end":
			ends <- m
		default:
			status, text, _ := strings.Cut(answer.Load().(string), " ")
			if status == "403" {
				w.WriteHeader(http.StatusForbidden)
			}
			io.WriteString(w, text)
		}
	}))
	defer endpoint.Close()
	p := startGateway(
		t,
		[]string{"serve"},
		env("VOXGATE_ADDR", "127.0.0.1:0", "VOXGATE_SESSION_WEBHOOK", endpoint.URL, "VOXGATE_WEBHOOK_SECRET", "top-secret",
			"VOXGATE_PRIVATE_ADDR", "127.0.0.1:0"),
	)
	for given, says := range map[string]string{
		`200 `: `"success":true`,
		`200 {"agent":{"prompt":"You sell shoes.","voice":"Puck"}}`: "You sell shoes.",
		`403 {"message":"We are closed."}`:                          "We are closed.",
		`403 `:                                                      "was rejected",
		`200 nonsense`:                                              "cannot take calls just now",
	} {
		answer.Store(given)
		if got := p.askOnce(`{}`); !strings.Contains(got, says) {
			t.Errorf("%s: the client got %.1500s, want %s", given, got, says)
		}
	}
	for range 2 {
		if m := <-ends; m.Session.ID == "" || m.Session.Door != "web" || m.EndedAt.IsZero() ||
			m.Turns != 1 || m.Tokens == 0 || m.Dollars == 0 || len(m.Transcript) != 2 {
			t.Errorf("the end is reported as %+v", m)
		}
	}
	down.Store(true)
	if got := p.askOnce(`{}`); !strings.Contains(got, `"code":"busy"`) {
		t.Errorf("while the endpoint is down the client got %.1500s", got)
	}
	awaitMetric(t, p.awaitLog(`msg=private at=(\S+)`), `voxgate_refusals_total{rule="session webhook"} 4`)
	if logged := p.logged(); strings.Contains(logged, "top-secret") {
		t.Error("the secret is in the log")
	}
}
