package sip

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"voxgate/bridge"
	"voxgate/signaling/phone"
	sipmedia "voxgate/signaling/phone/sip/media"
	"voxgate/signaling/phone/sip/ua"
)

// A call without packets ends while it is bridged.
func TestSilenceOfBridge(t *testing.T) {
	t.Parallel()
	ports, err := sipmedia.NewPortPool(sipmedia.RTP{Address: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	c := &call{Call: &ua.Call{}, audio: sipmedia.NewAudio(sipmedia.Options{Ports: ports}), keypad: phone.NewKeypad()}
	if err := c.audio.OpenPort(); err != nil {
		t.Fatal(err)
	}
	defer c.audio.ClosePort()
	stop, err := c.audio.StartPlayback(func([]int16) {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := c.watchBridge(t.Context(), nil); err != sipmedia.ErrSilence {
		t.Error(err)
	}
}

// A tool may run before the call has stored its session.
func TestToolBeforeSession(t *testing.T) {
	trunk := Trunk{Trunk: ua.Trunk{Name: "a", Outbound: &ua.Outbound{Server: "sip:127.0.0.1"}}}
	s := &Server{config: &Config{Trunks: []Trunk{trunk}}, account: func(string, int) bridge.Account { return bridge.Unlimited }}
	var err error
	s.phones, err = ua.New(ua.Options{Trunks: s.config.signallingTrunks(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.phones.Close(nil)
	signals, err := s.phones.NewCall(t.Context(), "a", "1", "")
	if err != nil {
		t.Fatal(err)
	}
	if c := s.newCall(signals, nil, phone.Party{}); c.line.Load() != c {
		t.Error("tools have no call yet")
	}
}

func TestEndReasons(t *testing.T) {
	for err, want := range map[error]string{nil: "cause=16", sipmedia.ErrSilence: "cause=102", ua.ErrRefresh: "cause=102"} {
		if got := reasonHeader(err); !strings.Contains(got, want) {
			t.Errorf("%v: %s", err, got)
		}
	}
	if got := reasonHeader(fmt.Errorf("x\r\ny")); strings.ContainsAny(got, "\r\n") {
		t.Errorf("%q", got)
	}
}
