package api_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"voxgate/bridge/gemini/api"
)

const testKey = "AIza-do-not-print-this"

func TestSecretDoesNotPrint(t *testing.T) {
	client := api.Client{APIKey: testKey}
	encoded, err := json.Marshal(client.APIKey)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "key", client.APIKey, "client", slog.AnyValue(map[string]any{"k": client.APIKey}))
	for _, text := range []string{
		fmt.Sprint(client.APIKey), fmt.Sprintf("%v %+v %#v %s %q %x %d", client, &client, client, client.APIKey, client.APIKey, client.APIKey,
			client.APIKey),
		string(encoded), log.String(),
	} {
		if strings.Contains(text, testKey) || strings.Contains(text, fmt.Sprintf("%x", testKey)) {
			t.Errorf("printed in %s", text)
		}
	}
}
