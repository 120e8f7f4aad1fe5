package geminilivetest

import (
	"encoding/json"
	"net/http"
	"testing"

	"voxgate/bridge"
	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/compat/geminilive"
	"voxgate/signaling/rtc"
	"voxgate/store"

	"github.com/gorilla/websocket"
)

// Path is the path at which Google's SDKs expect the Live API.
const Path = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"

// Serve returns an option that adds the endpoint for Google's own clients, with a model that follows a scenario.
func Serve(t testing.TB, scenario emulator.Scenario, seen *testkit.SeenByModel) testkit.Option {
	t.Helper()
	o := emulator.Options{Scenario: scenario}
	if seen != nil {
		o.Observe = seen.Record
	}
	model := testkit.StartModel(t, o)
	return func(d *testkit.Endpoints, ho *bridge.Options) {
		ho.Client = model
		d.AddEndpoints(func(host *bridge.Host, api *rtc.API) []signaling.Endpoint {
			server := geminilive.Server{Host: host, Secrets: &access.Secrets{Store: store.NewMemory(), Logger: d.Logger}, Logger: d.Logger}
			return server.Endpoints()
		})
	}
}

// Dial opens a plain WebSocket of the Live API. Every message is JSON in a binary frame, as Google sends it.
func Dial(t testing.TB, g *testkit.Gateway, query string, header http.Header) *testkit.Client {
	t.Helper()
	return testkit.DialProtocol(t, g.URL+"/"+Path+query, header, func(kind int, raw []byte) testkit.Message {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(raw, &fields); err != nil || kind != websocket.BinaryMessage {
			t.Errorf("kind %d: %s", kind, raw)
		}
		for _, name := range []string{"setupComplete", "sessionResumptionUpdate", "serverContent", "toolCall"} {
			if fields[name] != nil {
				return testkit.Message{Type: name, Payload: fields[name]}
			}
		}
		return testkit.Message{}
	})
}
