package client_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/pion/webrtc/v4"

	"voxgate/bridge"
	"voxgate/internal/testkit"
	"voxgate/signaling/rtc"
)

// served returns an option that makes the gateway use these WebRTC options, for example other ports.
func served(t *testing.T, o rtc.Options) testkit.Option {
	t.Helper()
	o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	api, err := rtc.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	return func(s *testkit.Endpoints, _ *bridge.Options) { s.RTC = api }
}

func TestLinesOfTheSDPAnswer(t *testing.T) {
	t.Parallel()
	c := testkit.OpenConversation(
		t, testkit.StartGateway(t, served(t, rtc.Options{UDPAddr: "0.0.0.0:0", PublicIPs: []string{"203.0.113.7"}})), `{}`,
	)
	p := testkit.NewPhone(t, c, testkit.PhoneOptions{Channel: true})
	p.Negotiate(false)
	answer := p.PC.RemoteDescription().SDP
	for _, want := range []string{"a=max-message-size:262144", "opus/48000/2", "203.0.113.7", "a=setup:active", "transport-wide-cc"} {
		if !strings.Contains(answer, want) {
			t.Errorf("the answer lacks %s:\n%s", want, answer)
		}
	}
	last := false
	c.AwaitMatch(0, "the last candidate", func(m testkit.Message) bool {
		last = m.Type == "WEBRTC_ICE_CANDIDATE" && strings.Contains(string(m.Payload), "null")
		if m.Type == "WEBRTC_ICE_CANDIDATE" && !last {
			answer += "a=" + string(m.Payload) + "\n"
		}
		return last
	})
	for line := range strings.Lines(answer) {
		if strings.Contains(line, "candidate:") && !strings.Contains(line, "203.0.113.7") {
			t.Errorf("an inner address is announced: %s", line)
		}
	}
}

func TestWebRTCOverTCP(t *testing.T) {
	t.Parallel()
	_, p := testkit.DialPhone(
		t,
		testkit.StartGateway(t, served(t, rtc.Options{TCP: testkit.Must(net.Listen("tcp", "127.0.0.1:0"))})),
		`{}`,
		testkit.PhoneOptions{Network: func(s *webrtc.SettingEngine) { s.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeTCP4}) }},
	)
	p.CheckAudioBothWays(440)
}

// A client that sends more candidates than the gateway tries gets one warning, and connects with the first ones.
func TestTooManyCandidates(t *testing.T) {
	t.Parallel()
	c := testkit.OpenConversation(t, testkit.StartGateway(t), `{}`)
	p := testkit.NewPhone(t, c, testkit.PhoneOptions{})
	flood := func() {
		for i := range 2 * rtc.MaxCandidates {
			c.Send(
				"WEBRTC_ICE_CANDIDATE",
				fmt.Sprintf(`{"candidate":"candidate:%d 1 udp 1 198.51.100.%[1]d 9 typ host","sdpMid":"0","sdpMLineIndex":0}`, i+1),
			)
		}
	}
	p.Negotiate(false)
	p.AwaitConnected()
	flood()
	p.Negotiate(true)
	flood()
	p.CheckAudioBothWays(440)
	if n := c.CountWarnings("candidates"); n != 1 || c.CountMessages("GEMINI_ERROR") > 0 {
		t.Errorf("%d warnings: %v", n, c.Messages())
	}
}
