package sip_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pion/rtp"

	"voxgate/media"
	"voxgate/media/g711"
	"voxgate/media/mediatest"
)

// supervision is a caller of an office, and a supervisor whose phone rings.
type supervision struct {
	*handover // the colleague is the supervisor
	backend   *backend
	status    <-chan int
}

func supervise(t *testing.T, formats ...string) *supervision {
	t.Helper()
	s := &supervision{handover: &handover{t: t}}
	formats = append(formats, "0 101", "0 101")
	s.colleague, s.office = newCarrier(t, nil, nil)
	s.colleague.listen(formats[1])
	s.caller = newHandset(t, s.office, formats[0])
	s.events = s.office.watch()
	s.backend = newBackend(t, s.office)
	status := make(chan int, 1)
	s.status = status
	var asking sync.WaitGroup
	asking.Go(func() {
		code, _ := s.backend.ask(s.backend.key, "POST", "/v1/calls",
			fmt.Sprintf(`{"to":"+49302","trunk":"lab","supervise":%q}`, s.office.session().ID()))
		status <- code
	})
	t.Cleanup(asking.Wait)
	s.invite = s.colleague.request("INVITE sip:\\+49302@")
	s.colleague.hears(s.invite)
	return s
}

func (s *supervision) listens() *supervision {
	s.t.Helper()
	s.answered()
	s.office.logged("supervisor listens")
	return s
}

// A supervisor hears both sides of a running call, and takes it over by a key: the agent leaves, and both people hear each other.
func TestSupervising(t *testing.T) {
	t.Parallel()
	s := supervise(t).listens()
	hears := func(what string, so func(pcm []int16) bool) {
		t.Helper()
		var pcm []int16
		s.colleague.packet(func(p *rtp.Packet) bool {
			pcm = append(pcm, g711.MuLaw.Append(nil, p.Payload)...)
			pcm = pcm[max(0, len(pcm)-800):] // 100 ms
			return len(pcm) == 800 && so(pcm)
		})
		t.Log("the supervisor hears", what)
	}
	stop := s.caller.say(0, 8000, func(i int) []byte {
		tone := mediatest.Tone(media.FrameDuration*time.Duration(i%50+1), 8000, 400, 8000)
		return g711.MuLaw.AppendBytes(nil, tone[len(tone)-160:])
	})
	hears("the caller", func(pcm []int16) bool { return media.RMS(pcm) > 4000 && mediatest.ToneLevel(pcm, 8000, 400) > 0.9 })
	stop()
	hears("silence", func(pcm []int16) bool { return media.RMS(pcm) < 100 })
	s.office.types("Is anybody there?")
	hears("the agent", func(pcm []int16) bool { return media.RMS(pcm) > 500 && mediatest.ToneLevel(pcm, 8000, 400) < 0.5 })
	held := s.colleague.say(101, 0, func(int) []byte { return []byte{1, 10, 0, 160} })
	defer held()
	s.office.logged("call bridged")
	if code := <-s.status; code != 200 {
		t.Errorf("the backend gets %d", code)
	}
	if n := len(s.office.host.Sessions()); n > 0 {
		t.Errorf("%d agents stay", n)
	}
	for from, to := range map[*handset]*handset{s.caller: s.colleague, s.colleague: s.caller} {
		stop := from.say(0, 8000, numbered)
		for range 10 {
			to.packet(func(p *rtp.Packet) bool {
				if p.PayloadType == 101 {
					t.Error("the key that took the call over was passed on")
				}
				return number(p) > 0
			})
		}
		stop()
	}
	s.caller.next("BYE", 2, "")
	s.caller.answer("200")
	s.over(s.colleague)
}

// A supervisor who leaves does not affect the call. When the call ends, the supervisor's call ends too.
func TestSupervisionsEnd(t *testing.T) {
	t.Parallel()
	goes := func(s *supervision) {
		s.caller.next("BYE", 2, "")
		s.caller.answer("200")
	}
	stays := func(s *supervision) {
		s.office.loggedTimes("call ended", 1)
		s.office.types("Are you there?")
		if !s.caller.hear(time.Now().Add(patience)) {
			s.t.Error("the caller hears nothing")
		}
	}
	for name, test := range map[string]func(s *supervision){
		"the supervisor leaves": func(s *supervision) {
			s.listens().colleague.hangUp(s.invite, "a")
			stays(s)
		},
		"the supervisor is busy": func(s *supervision) {
			s.colleague.reply(s.invite, "486 Busy Here", "a")
			stays(s)
		},
		"another key": func(s *supervision) {
			s.listens().colleague.within(s.invite, "a", "INFO", 1, "application/dtmf", "2")
			s.colleague.answer("200")
			s.colleague.within(s.invite, "a", "BYE", 2, "", "")
			s.colleague.answer("200")
			stays(s)
		},
		"the caller leaves": func(s *supervision) {
			s.listens()
			goes(s)
			s.over(s.colleague)
		},
		"the caller leaves while it rings": func(s *supervision) {
			s.colleague.reply(s.invite, "180 Ringing", "a")
			<-s.status
			goes(s)
			s.colleague.reply(s.colleague.request("CANCEL"), "200 OK", "a")
			s.colleague.reply(s.invite, "487 Request Terminated", "a")
			s.over()
		},
		"the caller leaves as it is taken over": func(s *supervision) {
			s.listens().colleague.within(s.invite, "a", "INFO", 1, "application/dtmf", "1")
			goes(s)
			s.over(s.colleague)
		},
		"taken over between two codecs": func(s *supervision) {
			s.listens().colleague.within(s.invite, "a", "INFO", 1, "application/dtmf", "1")
			s.office.logged("call bridged")
			s.colleague.within(s.invite, "a", "BYE", 2, "", "")
			s.over(s.caller)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(supervise(t, "0 101", map[bool]string{true: "8", false: "0 101"}[strings.Contains(name, "codecs")]))
		})
	}
}

// Listening requires a key with that permission, and works only for phone calls.
func TestSupervisionsThatAreRefused(t *testing.T) {
	t.Parallel()
	_, o := newCarrier(t, nil, nil)
	newHandset(t, o)
	b, id := newBackend(t, o), o.session().ID()
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
		if status, text := b.ask(test.key, "POST", "/v1/calls", body); status != test.status || !strings.Contains(text, test.says) {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	status, text := b.ask(b.key, "POST", "/v1/calls", `{"to":"+49302","trunk":"lab","supervise":"nobody"}`)
	if status != 400 || !strings.Contains(text, "no call of a trunk") {
		t.Errorf("%d %s", status, text)
	}
}
