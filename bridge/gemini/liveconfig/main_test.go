package liveconfig_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"cloud.google.com/go/auth"
	"go.uber.org/goleak"

	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/liveconfig"
)

func TestMain(m *testing.M) {
	// A dependency of the SDK starts this goroutine at import, and never ends it.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// door returns a client of one of the two backends; it need not exist.
func door(vertex bool) *api.Client {
	if !vertex {
		return &api.Client{}
	}
	return &api.Client{Vertex: &api.Vertex{
		Project: "a-project", Location: "europe-west4",
		Fetch: func(context.Context) (*auth.Token, error) { return &auth.Token{Value: "a-token"}, nil },
	}}
}

// named returns a config for a model.
func named(model, config string) json.RawMessage {
	return json.RawMessage(strings.Replace(strings.Replace(config, "{", `{"model":"`+model+`",`, 1), ",}", "}", 1))
}

// field returns the JSON of a field by its dotted name, "" if it is absent.
func field(t *testing.T, tree json.RawMessage, name string) string {
	t.Helper()
	for part := range strings.SplitSeq(name, ".") {
		var fields map[string]json.RawMessage
		if len(tree) == 0 {
			return ""
		}
		if err := json.Unmarshal(tree, &fields); err != nil {
			t.Fatal(err)
		}
		tree = fields[part]
	}
	return string(tree)
}

func encode(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func parse(t testing.TB, client *api.Client, raw json.RawMessage) liveconfig.Config {
	t.Helper()
	config, err := liveconfig.Parse(raw, "c", liveconfig.Scope{Vertex: client.Vertex, Screen: true})
	if err != nil {
		t.Fatal(err)
	}
	return config
}
