package testkit_test

import (
	"encoding/base64"
	"slices"
	"testing"
	"time"

	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
)

// gatewayTurns is the body of a token request. With its grant, the gateway decides about turns in every protocol.
const gatewayTurns = `{"grant":{"agent":{"turns":` + testkit.TurnSettings + `}}}`

// If the gateway decides about turns, a cough does not begin a turn and a pause does not end one, in every protocol with
// speech.
func TestAPauseDoesNotEndATurn(t *testing.T) {
	t.Parallel()
	for name, client := range soundClients() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			machine := mediatest.MeasureLateness(t)
			seen := &testkit.SeenByModel{}
			l := startTalkativeGatewayWith(t, seen)
			call := client.Begin(t, l, l.MintToken(gatewayTurns))
			quiet := func(d time.Duration) []int16 { return testkit.MakeSilence(d, call.Rate) }
			voice := mediatest.RealVoice(t, 900*time.Millisecond, call.Rate)
			pcm := append(quiet(300*time.Millisecond), mediatest.Cough(300*time.Millisecond, call.Rate)...)
			pcm = append(append(pcm, quiet(time.Second)...), voice...)
			pcm = append(append(pcm, quiet(240*time.Millisecond)...), voice...)
			call.Press = nil
			call.Say(append(pcm, quiet(2*time.Second)...))
			testkit.Eventually(t, "speech at the model", func() bool { return len(seen.EventsOf(emulator.EventUserTurn)) > 0 })
			testkit.PollUntil(time.Second, func() bool { return len(seen.EventsOf(emulator.EventUserTurn)) > 1 })
			heard := seen.EventsOf(emulator.EventUserTurn)
			d := media.Duration(len(heard[0].PCM), heard[0].Rate)
			isWrong := len(heard) > 1 || d < 2*time.Second || d > 5500*time.Millisecond
			if isWrong && machine.CanJudge(t, testkit.ShortestJudged) {
				t.Errorf("the model heard %d turns, the first of %v", len(heard), d)
			}
		})
	}
}

// Over a WebSocket and over WebRTC, a word of the person pauses the answer, and a sentence interrupts it. Package sip has the
// same test.
func TestTurnTaking(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute of real time")
	}
	t.Parallel()
	for _, name := range []string{"web", "web by WebRTC"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := startTalkativeGateway(t)
			call := soundClients()[name].Begin(t, l, l.MintToken(gatewayTurns))
			var id string
			testkit.Eventually(t, "a conversation", func() bool {
				for _, s := range l.Host.Sessions() {
					id = s.ID
				}
				return id != ""
			})
			testkit.CheckTurnTaking(t, l.Host.Session(id), call.Rate, func(pcm []int16) {
				if call.Phone != nil {
					call.Phone.SpeakAudio(pcm)
					return
				}
				tick := time.NewTicker(media.FrameDuration)
				defer tick.Stop()
				for piece := range slices.Chunk(pcm, media.Samples(media.FrameDuration, call.Rate)) {
					<-tick.C
					call.Send(media.AppendBytes(nil, piece), base64.StdEncoding.EncodeToString)
				}
			})
		})
	}
}
