package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"voxgate/tools"
)

// openingHours is a custom tool: its declaration for the model, and its function.
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
			return nil, errors.New("the shop is closed on Sundays") // the model gets the text of the error, and tells the person
		}
		return json.RawMessage(`{"from":"9:00","to":"18:00"}`), nil
	},
}

// A tool gets a JSON object that fits its parameters, and returns a JSON object.
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
