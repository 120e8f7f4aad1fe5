package testkit_test

import (
	"log/slog"
	"strings"
	"testing"

	"voxgate/bridge"
	"voxgate/internal/testkit"
	"voxgate/internal/testkit/rtctest"
	"voxgate/signaling/access"
)

// TestEveryEndpointAnswersByTheRules posts each odd offer to each endpoint for offers. The answer follows the rules of SDP and
// accepts the audio, or the offer is rejected in the format of the endpoint.
func TestEveryEndpointAnswersByTheRules(t *testing.T) {
	t.Parallel()
	limits := access.Limits{SessionsPerAddress: -1, NewPerSecond: -1, NewPerMinute: -1}
	gate := testkit.Must(access.New(access.Options{Limits: limits, Agents: testkit.Agents, Logger: slog.New(slog.DiscardHandler)}))
	t.Cleanup(gate.Close)
	g := testkit.StartGateway(t, append(serveAll(t), func(d *testkit.Endpoints, _ *bridge.Options) { d.Access = gate })...)
	for _, p := range protocols {
		if p.PostOffer == nil {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			for _, o := range rtctest.OddOffers {
				text, ok := p.PostOffer(t, g, o.Offer)
				hasSound := strings.Contains(text, "m=audio 9")
				switch {
				case ok:
					if err := rtctest.CheckAnswer(o.Offer, text); err != nil {
						t.Errorf("%s: %v\n%s", o.Name, err, text)
					}
					if p.NeedsAudio && !hasSound {
						t.Errorf("%s: there is no sound\n%s", o.Name, text)
					}
				case !p.NeedsAudio || text == "" || strings.Contains(o.Offer, "m=audio 9") && !strings.Contains(o.Offer, "inactive"):
					t.Errorf("%s is refused: %s", o.Name, text)
				}
			}
		})
	}
}
