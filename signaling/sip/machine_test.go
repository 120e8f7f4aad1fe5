package sip_test

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pion/rtp"

	"voxgate/media"
	"voxgate/media/g711"
	"voxgate/media/mediatest"
	"voxgate/signaling/sip"
)

// A call that listens first acts on who answered: it greets people, leaves a message behind the beep of a machine, or hangs up.
func TestListeningBeforeSpeaking(t *testing.T) {
	t.Parallel()
	const beep = `{"to":"+49302","trunk":"lab","agent":{"greeting":"Say hello."},"machine":{%s}}`
	for name, test := range map[string]struct {
		body, by, reason string
		says             []int16 // at 8 kHz; nil: no packet is sent
		once             bool    // no packet follows: the telephone sends none in pauses
	}{
		"a person": {fmt.Sprintf(beep, ""), sip.ByPerson, "", mediatest.Speech(800*time.Millisecond, 8000), false},
		"no packets in pauses": {
			fmt.Sprintf(beep, ""), sip.ByPerson, "", mediatest.Speech(800*time.Millisecond, 8000), true,
		},
		"nobody speaks": {fmt.Sprintf(beep, ""), sip.BySilence, "", nil, false},
		"a machine":     {fmt.Sprintf(beep, ""), sip.ByMachine, "no person has answered", mediatest.Tone(time.Second, 8000, 1000, 8000), false},
		"leaves a text": {fmt.Sprintf(beep, `"say":"Call us."`), sip.ByMachine, "the message was left", mediatest.Tone(time.Second, 8000, 1000, 8000), false},
		"a fax":         {fmt.Sprintf(beep, `"say":"Call us."`), sip.ByFax, "no person has answered", mediatest.Tone(time.Second, 8000, 2100, 8000), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := make(chan sip.CallStatus, 64)
			h, o := newCarrier(t, map[string]any{"nat": true}, nil, func(s sip.CallStatus) { told <- s })
			b := newBackend(t, o)
			var err error
			if h.sound, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
				t.Fatal(err)
			}
			var doing sync.WaitGroup
			defer doing.Wait()
			defer h.sound.Close()
			doing.Go(func() { b.ask(b.key, "POST", "/v1/calls", test.body) })
			invite := h.request("INVITE")
			h.reply(invite, "200 OK", "a")
			h.request("ACK")
			stop := make(chan struct{})
			defer close(stop)
			if test.says != nil {
				h.hears(invite)
				doing.Go(func() { h.talks(h.gateway, media.FrameDuration, test.says, test.once, stop) })
			}
			expect := func(what string, so func(sip.CallStatus) bool) {
				t.Helper()
				for timeout := time.After(patience); ; {
					select {
					case s := <-told:
						if so(s) {
							return
						}
					case <-timeout:
						t.Fatalf("no %s", what)
					}
				}
			}
			expect("verdict", func(s sip.CallStatus) bool { return s.AnsweredBy == test.by })
			if test.reason == "" {
				if test.says != nil && !h.hear(time.Now().Add(patience)) {
					t.Error("nobody is greeted")
				}
				h.hangUp(invite, "a")
				expect("end", func(s sip.CallStatus) bool { return s.HungUpBy == "them" && s.AnsweredBy == test.by })
				return
			}
			if strings.Contains(test.reason, "left") && !h.hear(time.Now().Add(patience)) {
				t.Error("no message is left")
			}
			h.reply(h.request("BYE"), "200 OK", "a")
			expect("end", func(s sip.CallStatus) bool {
				return s.Reason == test.reason && s.HungUpBy == "us" && s.AnsweredBy == test.by
			})
		})
	}
}

// talks sends sound, a packet of 20 ms at a time, and silence behind it, or with once nothing.
func (h *handset) talks(to net.Addr, every time.Duration, pcm []int16, once bool, stop <-chan struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	p := rtp.Packet{Header: rtp.Header{Version: 2, SSRC: 7}}
	for !once || len(pcm) > 0 {
		frame := make([]int16, 160)
		pcm = pcm[copy(frame, pcm):]
		p.Payload = g711.MuLaw.AppendBytes(nil, frame)
		b, _ := p.Marshal()
		_, _ = h.sound.WriteTo(b, to)
		p.SequenceNumber++
		p.Timestamp += 160
		select {
		case <-tick.C:
		case <-stop:
			return
		}
	}
}
