package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"

	"voxgate/client"
)

const (
	setupComplete = `{"type":"SETUP_COMPLETE","payload":{"success":true,"resumeToken":"r"}}`
	busy          = `{"type":"SETUP_COMPLETE","payload":{"success":false,"error":{"message":"All lines are busy.","details":{"code":"busy"}}}}`
	failure       = `{"type":"GEMINI_ERROR","payload":{"message":"Part of it was lost.","details":{"code":"audio_stream_error"}}}`
	unauthorized  = `{"type":"SETUP_COMPLETE","payload":{"success":false,"error":{"message":"Invalid token.",` +
		`"details":{"code":"unauthorized"}}}}`
	disconnected = `{"type":"GEMINI_DISCONNECTED","payload":{"reason":"The gateway is shutting down."}}`
)

// startScript starts a server with a list of messages for each client, in the order of their connections. The server
// sends a client its messages, and then closes the connection. Only the last client's connection stays open.
func startScript(t *testing.T, scripts ...[]string) (url string) {
	t.Helper()
	var clients atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(clients.Add(1))
		ws, err := new(websocket.Upgrader).Upgrade(w, r, nil)
		if err != nil || n > len(scripts) {
			return
		}
		defer ws.Close()
		_, _, err = ws.ReadMessage()
		for _, m := range scripts[n-1] {
			if err == nil {
				err = ws.WriteMessage(websocket.TextMessage, []byte(m))
			}
		}
		for err == nil && n == len(scripts) {
			_, _, err = ws.ReadMessage()
		}
	}))
	t.Cleanup(server.Close)
	return strings.Replace(server.URL, "http", "ws", 1)
}

func TestSetupThatFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script        []string
		code, message string
	}{
		"refused":              {[]string{busy}, "busy", "All lines are busy."},
		"an error and the end": {[]string{failure, disconnected}, "audio_stream_error", "Part of it was lost."},
		"the end":              {[]string{disconnected}, "", "The gateway is shutting down."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := client.Dial(t.Context(), client.Options{URL: startScript(t, test.script)})
			var refusal *client.Error
			if !errors.As(err, &refusal) || refusal.Code != test.code || err.Error() != test.message {
				t.Errorf("%#v", err)
			}
		})
	}
}

func TestErrorBeforeSetupCompleteIsAnEvent(t *testing.T) {
	t.Parallel()
	c := dial(t, client.Options{URL: startScript(t, []string{failure, setupComplete})})
	if e := awaitEvent[client.Failure](t, c, nil); e.Err.Code != "audio_stream_error" {
		t.Errorf("%+v", e.Err)
	}
}

func TestBusyGatewaysAreDialledAgain(t *testing.T) {
	t.Parallel()
	c := dial(t, client.Options{
		URL: startScript(t, []string{setupComplete}, []string{busy}, []string{disconnected}, []string{setupComplete}),
	})
	if e := awaitEvent[client.Resumed](t, c, nil); !e.IsNew {
		t.Error("the conversation of another setup is taken for a resumed one")
	}
}

func TestRefusedResumeEndsTheConversation(t *testing.T) {
	t.Parallel()
	c := dial(t, client.Options{URL: startScript(t, []string{setupComplete}, []string{unauthorized})})
	for range c.Events() { // until the end
	}
	if err := c.Err(); err == nil || err.Error() != "Invalid token." {
		t.Error(err)
	}
}

// TestCanceledDialEndsItsConversation: a gateway that has accepted the dial would otherwise keep a conversation that nothing can resume.
func TestCanceledDialEndsItsConversation(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	received := make(chan string, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(received)
		ws, err := new(websocket.Upgrader).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer ws.Close()
		for {
			var m struct{ Type string }
			if err := ws.ReadJSON(&m); err != nil {
				return
			}
			received <- m.Type
			cancel()
		}
	}))
	t.Cleanup(server.Close)
	_, err := client.Dial(ctx, client.Options{URL: strings.Replace(server.URL, "http", "ws", 1)})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Dial returned %v", err)
	}
	var all []string
	for kind := range received {
		all = append(all, kind)
	}
	if got := strings.Join(all, " "); got != "CONNECT_GEMINI DISCONNECT_GEMINI" {
		t.Errorf("the gateway received %s", got)
	}
}
