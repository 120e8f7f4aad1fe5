// Command openai_go tests the gateway at a URL with OpenAI's SDK for Go: openai_go URL. It prints the words of the answer.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/realtime"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	client := openai.NewClient(option.WithBaseURL(os.Args[1]+"/v1/"), option.WithAPIKey("anything"), option.WithUnsafeAllowHTTP())
	conn, err := client.Realtime.Connect(ctx, realtime.RealtimeConnectionOptions{}, option.WithQuery("model", "gpt-realtime"))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	for _, event := range []string{
		`{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{"type":"input_text","text":"Hello"}]}}`,
		`{"type":"response.create"}`,
	} {
		if err := conn.SendRaw(ctx, []byte(event)); err != nil {
			log.Fatal(err)
		}
	}
	for {
		event, err := conn.Recv(ctx)
		if err != nil {
			log.Fatal(err)
		}
		switch event.Type {
		case "error":
			log.Fatal(event.RawJSON())
		case "response.output_audio_transcript.done":
			fmt.Println(event.AsResponseAudioTranscriptDoneEvent().Transcript)
		case "response.done":
			return
		}
	}
}
