package main

import (
	"os"
	"slices"
	"testing"
	"time"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
)

// TestEndOfTurnModel speaks a sentence to a gateway that detects the end of turns: it asks the model of `make turn-model`.
func TestEndOfTurnModel(t *testing.T) {
	library, model := os.Getenv("VOXGATE_ONNXRUNTIME"), os.Getenv("VOXGATE_TURN_MODEL")
	if library == "" || model == "" {
		t.Skip("VOXGATE_ONNXRUNTIME and VOXGATE_TURN_MODEL are not set (make turn-model)")
	}
	t.Parallel()
	p := startGateway(t, []string{"serve", "--addr", "127.0.0.1:0", "--private-addr", "127.0.0.1:0"},
		env("VOXGATE_ONNXRUNTIME", library, "VOXGATE_TURN_MODEL", model))
	c := p.openConversation(`{"voxgate":{"turns":{"by":"gateway"}}}`)
	defer c.Conn.Close()
	c.AwaitEvent("SETUP_COMPLETE")
	const rate = 16000
	pcm := slices.Concat(make([]int16, rate/2), mediatest.RealVoice(t, time.Second, rate), make([]int16, 3*rate))
	tick := time.NewTicker(media.FrameDuration)
	defer tick.Stop()
	for piece := range slices.Chunk(pcm, rate/50) {
		<-tick.C
		c.SendAudio(piece, rate)
	}
	c.AwaitEvent("TURN_COMPLETE")
	awaitMetric(t, p.awaitLog(`msg=private at=(\S+)`), `voxgate_turn_judge_questions_total{outcome="answered"} 1`)
}
