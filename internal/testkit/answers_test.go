package testkit_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"voxgate/bridge"
	"voxgate/internal/testkit"
	"voxgate/signaling/access"
	"voxgate/signaling/rtc/rtctest"
)

// TestEveryEndpointAnswersByTheRules posts each odd offer to each endpoint that takes offers: the answer keeps the rules of SDP and takes
// the sound, or the offer is refused in the endpoint's own shape.
func TestEveryEndpointAnswersByTheRules(t *testing.T) {
	t.Parallel()
	limits := access.Limits{SessionsPerAddress: -1, NewPerSecond: -1, NewPerMinute: -1}
	gate := testkit.Must(access.New(access.Options{Limits: limits, Agents: testkit.Agents, Logger: slog.New(slog.DiscardHandler)}))
	t.Cleanup(gate.Close)
	g := testkit.StartGateway(t, testkit.WithOpenAI, testkit.WithWHIP, testkit.WithRTVI, func(d *testkit.Endpoints, _ *bridge.Options) {
		d.Access = gate
	})
	post := func(path, kind, body string) (string, bool) {
		resp, text := testkit.WhipRequest(t, http.MethodPost, g.HTTP+path, body, "Content-Type", kind, "Authorization", "Bearer x")
		if resp.StatusCode >= http.StatusInternalServerError {
			t.Errorf("%s: %s %s", path, resp.Status, text)
		}
		if at := resp.Header.Get("Location"); strings.HasPrefix(at, "/whip/") {
			testkit.WhipRequest(t, http.MethodDelete, g.HTTP+at, "")
		} else if at != "" {
			testkit.WhipRequest(t, http.MethodPost, g.HTTP+at+"/hangup", "", "Authorization", "Bearer x")
		}
		return text, resp.StatusCode < 300
	}
	for _, endpoint := range []struct {
		name   string
		needs  string // what of sound it needs: "" none
		answer func(t *testing.T, offer string) (text string, ok bool)
	}{
		{"/ws", "", func(t *testing.T, offer string) (string, bool) {
			c := testkit.OpenConversation(t, g, `{}`)
			defer testkit.DropConnection(c)
			c.Send("WEBRTC_OFFER", string(testkit.Must(json.Marshal(map[string]string{"sdp": offer}))))
			m, _ := c.AwaitMatch(0, "an answer", func(m testkit.Message) bool { return m.Type == "WEBRTC_ANSWER" || m.Type == "GEMINI_ERROR" })
			var answer struct{ SDP, Message string }
			m.DecodePayload(t, &answer)
			return answer.SDP + answer.Message, answer.SDP != ""
		}},
		{"OpenAI", "some", func(_ *testing.T, offer string) (string, bool) {
			return post("/v1/realtime/calls", "application/sdp", offer)
		}},
		{"WHIP", "sends", func(_ *testing.T, offer string) (string, bool) { return post("/whip/desk", "application/sdp", offer) }},
		{"RTVI", "some", func(t *testing.T, offer string) (string, bool) {
			text, ok := post("/api/offer", "application/json", string(testkit.Must(json.Marshal(map[string]string{
				"sdp":  offer,
				"type": "offer",
			}))))
			var answer struct{ SDP string }
			if err := json.Unmarshal([]byte(text), &answer); err != nil {
				t.Error(err)
			}
			if !ok {
				return text, false
			}
			return answer.SDP, true
		}},
	} {
		t.Run(endpoint.name, func(t *testing.T) {
			t.Parallel()
			for _, o := range rtctest.OddOffers {
				text, ok := endpoint.answer(t, o.Offer)
				hasSound := strings.Contains(text, "m=audio 9")
				switch {
				case ok:
					if err := rtctest.CheckAnswer(o.Offer, text); err != nil {
						t.Errorf("%s: %v\n%s", o.Name, err, text)
					}
					if endpoint.needs != "" && !hasSound {
						t.Errorf("%s: there is no sound\n%s", o.Name, text)
					}
				case endpoint.needs == "" || text == "" || strings.Contains(o.Offer, "m=audio 9") && !strings.Contains(o.Offer, "inactive"):
					t.Errorf("%s is refused: %s", o.Name, text)
				}
			}
		})
	}
}
