package signaling_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/pion/webrtc/v4"

	"voxgate/bridge"
	"voxgate/signaling/rtc"
)

// served is a gateway option: WebRTC on other ports.
func served(t *testing.T, o rtc.Options) option {
	t.Helper()
	o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	api, err := rtc.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	return func(s *doors, _ *bridge.Options) { s.RTC = api }
}

func TestTheAnswer(t *testing.T) {
	t.Parallel()
	c := connect(t, newGateway(t, served(t, rtc.Options{UDPAddr: "0.0.0.0:0", PublicIPs: []string{"203.0.113.7"}})), `{}`)
	p := newPhone(t, c, phoneOptions{channel: true})
	p.offer(false)
	answer := p.pc.RemoteDescription().SDP
	for _, want := range []string{"a=max-message-size:262144", "opus/48000/2", "203.0.113.7", "a=setup:active", "transport-wide-cc"} {
		if !strings.Contains(answer, want) {
			t.Errorf("the answer lacks %s:\n%s", want, answer)
		}
	}
	last := false
	c.wait(0, "the last candidate", func(m message) bool {
		last = m.Type == "WEBRTC_ICE_CANDIDATE" && strings.Contains(string(m.Payload), "null")
		if m.Type == "WEBRTC_ICE_CANDIDATE" && !last {
			answer += "a=" + string(m.Payload) + "\n"
		}
		return last
	})
	for line := range strings.Lines(answer) {
		if strings.Contains(line, "candidate:") && !strings.Contains(line, "203.0.113.7") {
			t.Errorf("an inner address is told: %s", line)
		}
	}
}

func TestWebRTCOverTCP(t *testing.T) {
	t.Parallel()
	_, p := call(t, newGateway(t, served(t, rtc.Options{TCP: must(net.Listen("tcp", "127.0.0.1:0"))})), `{}`, phoneOptions{network: func(s *webrtc.SettingEngine) { s.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeTCP4}) }})
	p.talks(440)
}

// A client that names more candidates than are tried is told so once, and is served by the first ones.
func TestTooManyCandidates(t *testing.T) {
	t.Parallel()
	c := connect(t, newGateway(t), `{}`)
	p := newPhone(t, c, phoneOptions{})
	flood := func() {
		for i := range 2 * rtc.MaxCandidates {
			c.send("WEBRTC_ICE_CANDIDATE", fmt.Sprintf(`{"candidate":"candidate:%d 1 udp 1 198.51.100.%[1]d 9 typ host","sdpMid":"0","sdpMLineIndex":0}`, i+1))
		}
	}
	p.offer(false)
	p.connected()
	flood()
	p.offer(true)
	flood()
	p.talks(440)
	if n := c.warned("candidates"); n != 1 || c.count("GEMINI_ERROR") > 0 {
		t.Errorf("%d warnings: %v", n, c.all())
	}
}
