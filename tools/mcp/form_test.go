package mcp

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"voxgate/tools"
)

// TestElicitedNumbers: a client may send a number as text or as a JSON number, and no digit is lost.
func TestElicitedNumbers(t *testing.T) {
	for put, want := range map[string]string{
		`"1000000"`:          `{"n":1000000}`,
		`1000000`:            `{"n":1000000}`,
		`"9007199254740993"`: `{"n":9007199254740993}`,
		`9007199254740993`:   `{"n":9007199254740993}`,
	} {
		questions := 0
		env := &tools.Env{AskPerson: func(context.Context, json.RawMessage) (json.RawMessage, error) {
			questions++
			return json.RawMessage(`{"value-0":` + put + `,"action":"submit"}`), nil
		}}
		result, err := elicit(tools.WithEnv(t.Context(), env), &mcp.ElicitParams{
			RequestedSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(result.Content)
		if err != nil || string(got) != want || result.Action != "accept" || questions != 1 {
			t.Errorf("%s: %s %s after %d questions, %v; want %s", put, result.Action, got, questions, err, want)
		}
	}
}
