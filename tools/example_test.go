package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"voxgate/tools"
)

// openingHours is a tool of one's own: what the model reads of it, and the function.
var openingHours = tools.Tool{
	Declaration: tools.Declaration{
		Name:        "opening_hours",
		Description: "When the shop is open on a day.",
		Parameters:  json.RawMessage(`{"type":"object","required":["day"],"properties":{"day":{"type":"string","enum":["saturday","sunday"]}}}`),
	},
	Run: func(_ context.Context, args json.RawMessage) (json.RawMessage, error) {
		var a struct{ Day string }
		if err := json.Unmarshal(args, &a); err != nil {
			return nil, err
		}
		if a.Day == "sunday" {
			return nil, errors.New("the shop is closed on Sundays") // the model reads it, and says so in its own words
		}
		return json.RawMessage(`{"from":"9:00","to":"18:00"}`), nil
	},
}

// A tool gets a JSON object that fits its parameters and returns one. Give it to conversations as bridge.Open.Tools.
func Example() {
	for _, args := range []string{`{"day":"saturday"}`, `{"day":"sunday"}`} {
		outcome, _ := tools.Run(context.Background(), openingHours.Run, tools.Call{Name: "opening_hours", Args: json.RawMessage(args)},
			tools.Timeout)
		fmt.Println(string(outcome.Response))
	}
	// Output:
	// {"from":"9:00","to":"18:00"}
	// {"error":"the shop is closed on Sundays"}
}
