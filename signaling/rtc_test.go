package signaling_test

import (
	"io"
	"log/slog"
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
	c := connect(t, newGateway(t, served(t, rtc.Options{UDPAddr: "127.0.0.1:0", PublicIPs: []string{"203.0.113.7"}})), `{}`)
	p := newPhone(t, c, phoneOptions{channel: true})
	p.offer(false)
	answer := p.pc.RemoteDescription().SDP
	for _, want := range []string{"a=max-message-size:262144", "opus/48000/2", "203.0.113.7", "a=setup:active", "transport-wide-cc"} {
		if !strings.Contains(answer, want) {
			t.Errorf("the answer lacks %s:\n%s", want, answer)
		}
	}
	if strings.Contains(answer, "127.0.0.1") {
		t.Errorf("the answer has our own address:\n%s", answer)
	}
}

func TestWebRTCOverTCP(t *testing.T) {
	t.Parallel()
	_, p := call(t, newGateway(t, served(t, rtc.Options{TCPAddr: "127.0.0.1:0"})), `{}`, phoneOptions{network: func(s *webrtc.SettingEngine) { s.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeTCP4}) }})
	p.talks(440)
}
