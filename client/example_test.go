package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"voxgate/client"
)

// A conversation with a tool, in text. A voice app would also send its microphone by SendAudio, and play the Audio events.
func Example() {
	ctx := context.Background()
	conversation, err := client.Dial(ctx, client.Options{
		URL: "ws://localhost:3001/ws",
		Tools: []client.Tool{{
			Name: "get_price", Description: "The price of an item in the shop.",
			Parameters: json.RawMessage(`{"type":"object","properties":{"item":{"type":"string"}}}`),
			Run: func(_ context.Context, args json.RawMessage) (any, error) {
				return map[string]string{"price": "12 euros"}, nil
			},
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer conversation.Close()
	if err := conversation.SendText(ctx, "What does the bell cost?"); err != nil {
		log.Fatal(err)
	}
	for event := range conversation.Events() {
		switch e := event.(type) {
		case client.ModelText:
			fmt.Print(e.Text)
		case client.TurnComplete:
			return
		}
	}
}
