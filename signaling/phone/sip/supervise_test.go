package sip_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pion/rtp"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/media/g711"
)

// supervisionTest is a caller of a gateway, and a supervisor whose phone rings.
type supervisionTest struct {
	*transferTest // the colleague is the supervisor
	backend       *backend
	status        <-chan int
}

func startSupervision(t *testing.T, formats ...string) *supervisionTest {
	t.Helper()
	s := &supervisionTest{transferTest: &transferTest{t: t}}
	formats = append(formats, "0 101", "0 101")
	s.colleague, s.gateway = startCarrier(t, nil, nil)
	s.colleague.openAudio(formats[1])
	s.caller = startCall(t, s.gateway, formats[0])
	s.events = s.gateway.watchEvents()
	s.backend = startBackend(t, s.gateway)
	status := make(chan int, 1)
	s.status = status
	var asking sync.WaitGroup
	asking.Go(func() {
		code, _ := s.backend.sendRequest(s.backend.key, "POST", "/v1/calls",
			fmt.Sprintf(`{"to":"+49302","trunk":"lab","supervise":%q}`, s.gateway.awaitSession().ID()))
		status <- code
	})
	t.Cleanup(asking.Wait)
	s.invite = s.colleague.awaitRequest("INVITE sip:\\+49302@")
	s.colleague.setAudioAddr(s.invite)
	return s
}

func (s *supervisionTest) awaitListening() *supervisionTest {
	s.t.Helper()
	s.answerCall()
	s.gateway.awaitLog("supervisor listens")
	return s
}

// A supervisor hears both sides of a running call, and takes it over by a key: the agent leaves, and both people hear each other.
func TestSupervision(t *testing.T) {
	t.Parallel()
	s := startSupervision(t).awaitListening()
	hears := func(what string, so func(pcm []int16) bool) {
		t.Helper()
		var pcm []int16
		s.colleague.awaitPacket(func(p *rtp.Packet) bool {
			pcm = append(pcm, g711.MuLaw.AppendDecoded(nil, p.Payload)...)
			pcm = pcm[max(0, len(pcm)-800):] // 100 ms
			return len(pcm) == 800 && so(pcm)
		})
		t.Log("the supervisor hears", what)
	}
	stop := s.caller.sendPackets(0, 8000, func(i int) []byte {
		tone := mediatest.Tone(media.FrameDuration*time.Duration(i%50+1), 8000, 400, 8000)
		return g711.MuLaw.AppendEncoded(nil, tone[len(tone)-160:])
	})
	hears("the caller", func(pcm []int16) bool { return media.RMS(pcm) > 4000 && mediatest.ToneLevel(pcm, 8000, 400) > 0.9 })
	stop()
	hears("silence", func(pcm []int16) bool { return media.RMS(pcm) < 100 })
	s.gateway.sendText("Is anybody there?")
	hears("the agent", func(pcm []int16) bool { return media.RMS(pcm) > 500 && mediatest.ToneLevel(pcm, 8000, 400) < 0.5 })
	held := s.colleague.sendPackets(101, 0, func(int) []byte { return []byte{1, 10, 0, 160} })
	defer held()
	s.gateway.awaitLog("call bridged")
	if code := <-s.status; code != 200 {
		t.Errorf("the backend gets %d", code)
	}
	if n := len(s.gateway.host.Sessions()); n > 0 {
		t.Errorf("%d agents stay", n)
	}
	for from, to := range map[*handset]*handset{s.caller: s.colleague, s.colleague: s.caller} {
		stop := from.sendPackets(0, 8000, numberedPayload)
		for range 10 {
			to.awaitPacket(func(p *rtp.Packet) bool {
				if p.PayloadType == 101 {
					t.Error("the key that took the call over was passed on")
				}
				return payloadNumber(p) > 0
			})
		}
		stop()
	}
	s.caller.sendRequest("BYE", 2, "")
	s.caller.awaitResponse("200")
	s.awaitCallsEnd(s.colleague)
}

// A supervisor who leaves does not affect the call. When the call ends, the supervisor's call ends too.
func TestSupervisionEnds(t *testing.T) {
	t.Parallel()
	goes := func(s *supervisionTest) {
		s.caller.sendRequest("BYE", 2, "")
		s.caller.awaitResponse("200")
	}
	stays := func(s *supervisionTest) {
		s.gateway.awaitLogTimes("call ended", 1)
		s.gateway.sendText("Are you there?")
		if !s.caller.awaitVoice(time.Now().Add(patience)) {
			s.t.Error("the caller hears nothing")
		}
	}
	for name, test := range map[string]func(s *supervisionTest){
		"the supervisor leaves": func(s *supervisionTest) {
			s.awaitListening().colleague.hangUp(s.invite, "a")
			stays(s)
		},
		"the supervisor is busy": func(s *supervisionTest) {
			s.colleague.respond(s.invite, "486 Busy Here", "a")
			stays(s)
		},
		"another key": func(s *supervisionTest) {
			s.awaitListening().colleague.sendInDialog(s.invite, "a", "INFO", 1, "application/dtmf", "2")
			s.colleague.awaitResponse("200")
			s.colleague.sendInDialog(s.invite, "a", "BYE", 2, "", "")
			s.colleague.awaitResponse("200")
			stays(s)
		},
		"the caller leaves": func(s *supervisionTest) {
			s.awaitListening()
			goes(s)
			s.awaitCallsEnd(s.colleague)
		},
		"the caller leaves while it rings": func(s *supervisionTest) {
			s.colleague.respond(s.invite, "180 Ringing", "a")
			<-s.status
			goes(s)
			s.colleague.respond(s.colleague.awaitRequest("CANCEL"), "200 OK", "a")
			s.colleague.respond(s.invite, "487 Request Terminated", "a")
			s.awaitCallsEnd()
		},
		"the caller leaves as it is taken over": func(s *supervisionTest) {
			s.awaitListening().colleague.sendInDialog(s.invite, "a", "INFO", 1, "application/dtmf", "1")
			goes(s)
			s.awaitCallsEnd(s.colleague)
		},
		"taken over between two codecs": func(s *supervisionTest) {
			s.awaitListening().colleague.sendInDialog(s.invite, "a", "INFO", 1, "application/dtmf", "1")
			s.gateway.awaitLog("call bridged")
			s.colleague.sendInDialog(s.invite, "a", "BYE", 2, "", "")
			s.awaitCallsEnd(s.caller)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(startSupervision(t, "0 101", map[bool]string{true: "8", false: "0 101"}[strings.Contains(name, "codecs")]))
		})
	}
}

// Listening requires a key with that permission, and works only for phone calls.
func TestSupervisionRefused(t *testing.T) {
	t.Parallel()
	_, o := startCarrier(t, nil, nil)
	startCall(t, o)
	b, id := startBackend(t, o), o.awaitSession().ID()
	for _, test := range []struct {
		key, more string
		status    int
		says      string
	}{
		{b.stranger, "", 403, "calls"},
		{b.mate, "", 403, "listen"},
		{b.key, `,"machine":{}`, 400, "leave out agent"},
		{b.key, `,"agent":"desk"`, 400, "leave out agent"},
	} {
		body := fmt.Sprintf(`{"to":"+49302","trunk":"lab","supervise":%q%s}`, id, test.more)
		if status, text := b.sendRequest(test.key, "POST", "/v1/calls", body); status != test.status || !strings.Contains(text, test.says) {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	status, text := b.sendRequest(b.key, "POST", "/v1/calls", `{"to":"+49302","trunk":"lab","supervise":"nobody"}`)
	if status != 400 || !strings.Contains(text, "no call of a trunk") {
		t.Errorf("%d %s", status, text)
	}
}
