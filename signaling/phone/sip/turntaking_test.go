package sip_test

import (
	"strings"
	"testing"

	"voxgate/internal/testkit"
	"voxgate/media"
)

// On a telephone line with G.711, a cough begins no turn, a pause ends none, a short word holds an answer, and a sentence cuts it off.
func TestTurnTaking(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute of real time")
	}
	t.Parallel()
	o := startGateway(t, strings.Replace(config, `"greeting": ""}`, `"greeting": "", "turns": `+testkit.TurnSettings+`}`, 1))
	h := startCall(t, o)
	talk, done := make(chan []int16), make(chan struct{})
	stop := make(chan struct{})
	defer func() { close(stop); <-done }()
	go func() {
		defer close(done)
		h.playPieces(talk, stop)
	}()
	testkit.CheckTurnTaking(t, o.awaitSession(), 8000, func(pcm []int16) {
		for len(pcm) > 0 {
			n := min(len(pcm), media.Samples(media.FrameDuration, 8000))
			talk <- pcm[:n]
			pcm = pcm[n:]
		}
	})
}
