package sip_test

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/rtp"

	"voxgate/bridge"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/media/g711"
	"voxgate/signaling/phone/sip"
)

// notInService returns the network's announcement that a call failed, at 8 kHz.
func notInService() []int16 {
	var tones []int16
	for _, hz := range []float64{950, 1400, 1800} {
		tones = append(tones, mediatest.Tone(330*time.Millisecond, 8000, hz, 8000)...)
	}
	return append(tones, mediatest.SynthesizeSpeech(2*time.Second, 8000)...)
}

// amdCase is a call with answering-machine detection.
type amdCase struct {
	body, by, reason string
	says             []int16 // at 8 kHz; if nil, no packet is sent
	once             bool    // no packet follows: the phone sends none in pauses
}

// A call with answering-machine detection acts on the result: it greets people, leaves a message after a machine's beep, or hangs up.
// Before that it sends no voice.
func TestAMDBeforeGreeting(t *testing.T) {
	t.Parallel()
	const call = `{"to":"+49302","trunk":"lab","agent":{"greeting":"Say hello."},"machine":{%s}}`
	hangsUp, leavesText := fmt.Sprintf(call, ""), fmt.Sprintf(call, `"say":"Call us."`)
	beep := mediatest.Tone(time.Second, 8000, 1000, 8000)
	fax := mediatest.Tone(time.Second, 8000, 2100, 8000)
	for name, test := range map[string]amdCase{
		"a person":             {hangsUp, sip.ByPerson, "", mediatest.SynthesizeSpeech(800*time.Millisecond, 8000), false},
		"no packets in pauses": {hangsUp, sip.ByPerson, "", mediatest.SynthesizeSpeech(800*time.Millisecond, 8000), true},
		"nobody speaks":        {hangsUp, sip.BySilence, "", nil, false},
		"a machine":            {hangsUp, sip.ByMachine, "no person has answered", beep, false},
		"leaves a text":        {leavesText, sip.ByMachine, "the message was left", beep, false},
		"the network":          {leavesText, sip.ByMachine, "no person has answered", notInService(), false},
		"a fax":                {leavesText, sip.ByFax, "no person has answered", fax, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 3 { // on a busy machine, pauses in our audio may be taken for those of a person
				if test.run(t) {
					return
				}
			}
			t.Skip("this machine was too busy three times")
		})
	}
}

// run makes the call. It returns false if the verdict or the end is wrong, and this machine was too busy to judge that.
func (a *amdCase) run(t *testing.T) bool {
	t.Helper()
	told := make(chan sip.CallStatus, 64)
	var decided atomic.Int64 // Unix time in ns
	h, o := startCarrier(t, map[string]any{"nat": true}, nil, func(s sip.CallStatus) {
		if s.AnsweredBy != "" {
			decided.CompareAndSwap(0, time.Now().UnixNano())
		}
		told <- s
	})
	b := startBackend(t, o)
	var err error
	if h.audio, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	var doing sync.WaitGroup
	defer doing.Wait()
	defer h.audio.Close()
	doing.Go(func() { b.sendRequest(b.key, "POST", "/v1/calls", a.body) })
	invite := h.awaitRequest("INVITE")
	h.respond(invite, "200 OK", "a")
	h.awaitRequest("ACK")
	stop := make(chan struct{})
	defer close(stop)
	machine := mediatest.MeasureLateness(t)
	heard := make(chan int64, 1) // receives the time of the voice: Unix time in ns
	if a.says != nil {
		h.setAudioAddr(invite)
		doing.Go(func() { h.playAudio(h.gateway, media.FrameDuration, a.says, a.once, stop) })
		doing.Go(func() {
			if h.awaitVoice(time.Now().Add(2 * patience)) {
				heard <- time.Now().UnixNano()
			}
		})
	}
	speaks := func(what string) {
		t.Helper()
		select {
		case at := <-heard:
			if at < decided.Load() {
				t.Errorf("%s begins %v before it is known who answered", what, time.Duration(decided.Load()-at))
			}
			if spoke := h.spokeAt.Load(); (spoke == 0 || at < spoke) && machine.CanJudge(t, shortestPause) {
				t.Errorf("%s begins before the other side has ended", what)
			}
		case <-time.After(patience):
			t.Errorf("there is no %s", what)
		}
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
	var by string
	expect("verdict", func(s sip.CallStatus) bool { by = s.AnsweredBy; return by != "" })
	if by != a.by {
		if machine.CanJudge(t, shortestPause) {
			t.Fatalf("answered by %s, not %s", by, a.by)
		}
		return false
	}
	if a.reason == "" {
		if a.says != nil {
			speaks("greeting")
		}
		h.hangUp(invite, "a")
		expect("end", func(s sip.CallStatus) bool { return s.HungUpBy == "them" && s.AnsweredBy == a.by })
		return true
	}
	if strings.Contains(a.reason, "left") {
		speaks("message")
	}
	h.respond(h.awaitRequest("BYE"), "200 OK", "a")
	var reason string
	expect("end", func(s sip.CallStatus) bool {
		reason = s.Reason
		return s.EndedAt != nil && s.HungUpBy == "us" && s.AnsweredBy == a.by
	})
	switch isWrong := reason != a.reason; {
	case isWrong && !machine.CanJudge(t, shortestPause):
		return false
	case isWrong:
		t.Errorf("it ended by %q", reason)
	case len(heard) > 0:
		t.Error("they hear something")
	}
	return true
}

// startBackendCall returns a carrier, its gateway, and the reported statuses of a call that a backend requests. doing ends with that
// request.
func startBackendCall(t *testing.T, doing *sync.WaitGroup, call string) (*handset, *testGateway, <-chan sip.CallStatus) {
	t.Helper()
	told := make(chan sip.CallStatus, 64)
	h, o := startCarrier(t, nil, nil, func(s sip.CallStatus) { told <- s })
	b := startBackend(t, o)
	h.openAudio("0 101")
	doing.Go(func() { b.sendRequest(b.key, "POST", "/v1/calls", call) })
	return h, o, told
}

// The ringback tone of the network does not count as audio of the person who answers.
func TestAMDIgnoresRingback(t *testing.T) {
	t.Parallel()
	var doing sync.WaitGroup
	defer doing.Wait()
	h, _, told := startBackendCall(t, &doing, `{"to":"+49302","trunk":"lab","agent":{"greeting":"Hello."},"machine":{}}`)
	invite := h.awaitRequest("INVITE")
	h.setAudioAddr(invite)
	stop := make(chan struct{})
	defer close(stop)
	h.playAudio(h.gateway, time.Millisecond, mediatest.Tone(1500*time.Millisecond, 8000, 425, 8000), true, stop)
	h.respond(invite, "200 OK", "a")
	h.awaitRequest("ACK")
	machine := mediatest.MeasureLateness(t)
	doing.Go(func() {
		h.playAudio(h.gateway, media.FrameDuration, mediatest.SynthesizeSpeech(800*time.Millisecond, 8000), false, stop)
	})
	for timeout := time.After(patience); ; {
		select {
		case s := <-told:
			if s.AnsweredBy == "" {
				continue
			}
			if s.AnsweredBy == sip.ByPerson {
				h.hangUp(invite, "a")
			} else if machine.CanJudge(t, pauseOfPersons) {
				t.Errorf("answered by %s", s.AnsweredBy)
			}
			return
		case <-timeout:
			t.Fatal("no verdict")
		}
	}
}

// pauseOfPersons is the pause that identifies a person, and shortestPause the one that ends a beep. On a machine so busy that our audio
// pauses for as long, the result is not judged.
const (
	pauseOfPersons = 500 * time.Millisecond
	shortestPause  = 100 * time.Millisecond
)

// If the timing suggests a machine, the model hears the audio from its beginning, and judges. Until then the model's voice is not sent.
func TestAMDByModel(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		say, judges string // the model's judgement; empty if it does not judge
		by, reason  string
	}{
		"a menu":                      {"", sip.ByMenu, sip.ByMenu, ""},
		"a person with much to say":   {"", sip.ByPerson, sip.ByPerson, ""},
		"a machine":                   {"", sip.ByMachine, sip.ByMachine, "no person has answered"},
		"a machine takes a message":   {"Call us.", sip.ByMachine, sip.ByMachine, "the message was left"},
		"the model does not know":     {"", "", sip.ByMachine, "no person has answered"},
		"the model speaks of a robot": {"", "robot", sip.ByMachine, "no person has answered"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var doing sync.WaitGroup
			defer doing.Wait()
			h, o, told := startBackendCall(t, &doing, fmt.Sprintf(
				`{"to":"+49302","trunk":"lab","agent":{"greeting":"Say hello."},"machine":{"ask":true,"say":%q}}`, test.say))
			invite := h.awaitRequest("INVITE")
			h.respond(invite, "200 OK", "a")
			h.awaitRequest("ACK")
			h.setAudioAddr(invite)
			events := o.watchEvents()
			stop := make(chan struct{})
			defer close(stop)
			machine := mediatest.MeasureLateness(t)
			doing.Go(func() {
				h.playAudio(h.gateway, media.FrameDuration, mediatest.SynthesizeSpeech(3*time.Second, 8000), false, stop)
			})
			heard := ""
			for timeout := time.After(patience); heard == "" || len(told) > 0; {
				select {
				case s := <-told:
					if s.AnsweredBy == "" {
						continue
					}
					if machine.CanJudge(t, pauseOfPersons) { // pauses on a busy machine make us look like a person
						t.Errorf("answered by %s, before the model has judged", s.AnsweredBy)
					}
					return
				case e := <-events:
					if b, ok := e.Body.(bridge.UserText); ok && b.Final {
						heard = b.Text
					}
				case <-timeout:
					t.Fatal("the model hears nothing")
				}
			}
			var seconds float64 // about 3; only 0.8 if the model did not hear the beginning
			if _, err := fmt.Sscanf(heard, "(%f seconds", &seconds); err != nil || seconds < 2 && machine.CanJudge(t, pauseOfPersons) {
				t.Errorf("of 3 s the model hears %q", heard)
			}
			if h.awaitVoice(time.Now().Add(300 * time.Millisecond)) {
				t.Error("the voice is heard before it is known who answered")
			}
			if test.judges != "" {
				o.sendText(fmt.Sprintf(`/tool answered_by {"who":%q}`, test.judges))
			}
			var last sip.CallStatus
			for timeout := time.After(patience); last.AnsweredBy == ""; {
				select {
				case last = <-told:
				case <-timeout:
					t.Fatal("no verdict")
				}
			}
			if last.AnsweredBy != test.by {
				t.Errorf("answered by %s", last.AnsweredBy)
			}
			if test.reason == "" || test.say != "" {
				if test.say == "" {
					o.sendText("Can they hear you?")
				}
				if !h.awaitVoice(time.Now().Add(patience)) {
					t.Error("the voice is not heard")
				}
			}
			if test.reason == "" {
				h.hangUp(invite, "a")
			} else {
				h.respond(h.awaitRequest("BYE"), "200 OK", "a")
			}
			for last.EndedAt == nil {
				last = <-told
			}
			if test.reason != "" && last.Reason != test.reason {
				t.Errorf("it ended by %q", last.Reason)
			}
		})
	}
}

// playAudio sends audio in packets of 20 ms, followed by silence, or with once by nothing. It sets spoke when the audio has been sent.
func (h *handset) playAudio(to net.Addr, every time.Duration, pcm []int16, once bool, stop <-chan struct{}) {
	h.playFrames(to, every, stop, func(frame []int16) bool {
		if len(pcm) == 0 {
			h.spokeAt.CompareAndSwap(0, time.Now().UnixNano())
		}
		pcm = pcm[copy(frame, pcm):]
		return !once || len(pcm) > 0
	})
	h.spokeAt.CompareAndSwap(0, time.Now().UnixNano())
}

// playPieces sends pieces of up to 20 ms from a channel, and silence when there are none.
func (h *handset) playPieces(pieces <-chan []int16, stop <-chan struct{}) {
	h.playFrames(h.gateway, media.FrameDuration, stop, func(frame []int16) bool {
		select {
		case pcm := <-pieces:
			copy(frame, pcm)
		default:
		}
		return true
	})
}

// playFrames sends packets of 20 ms, which fill fills with audio; after the last one it returns false.
func (h *handset) playFrames(to net.Addr, every time.Duration, stop <-chan struct{}, fill func(frame []int16) (more bool)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	p := rtp.Packet{Header: rtp.Header{Version: 2, SSRC: 7}}
	for more := true; more; {
		frame := make([]int16, 160)
		more = fill(frame)
		p.Payload = g711.MuLaw.AppendEncoded(nil, frame)
		b, _ := p.Marshal()
		_, _ = h.audio.WriteTo(b, to)
		p.SequenceNumber++
		p.Timestamp += 160
		select {
		case <-tick.C:
		case <-stop:
			return
		}
	}
}
