package sip

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/signaling/phone"
	"voxgate/tools"
)

// Machine has an outgoing call listen before it speaks.
type Machine struct {
	Say string `json:"say"` // the message that is left after the beep; empty: none, and the call ends
	Ask bool   `json:"ask"` // what sounds like a machine is for the model to hear and to judge
}

// Who answers an outgoing call. By its timing a menu is a machine; the model can tell them apart.
const (
	ByPerson  = "person"
	ByMachine = "machine"
	ByMenu    = "menu"
	ByFax     = "fax"
	BySilence = "silence"
)

var (
	errMachine = errors.New("no person has answered")
	errMessage = errors.New("the message was left")
)

const (
	earBlock = 20 * time.Millisecond
	// earLoud is the least loudness of a voice: -44 dBov.
	earLoud = 200
	// earPerson is the pause by which a person is known: they say a few words and wait. Machines pause for less at their beginning.
	earPerson = 500 * time.Millisecond
	// earMachine is how long people talk at the most before they wait. Less would take receptions for machines, and hang up on them.
	earMachine = 2200 * time.Millisecond
	// earSilence is how long somebody may say nothing.
	earSilence = 3 * time.Second
	// earRest is how long no packet comes from a telephone that sends none in pauses: longer than a network holds them back.
	earRest = time.Second
	// earTone is the shortest beep, and earFax the shortest tone of a fax (ITU-T T.30 has 0.5 s of 1100 Hz, and 2.6 s of 2100 Hz).
	earTone = 100 * time.Millisecond
	earFax  = 300 * time.Millisecond
	// earGap is how long after a tone another may begin: the three of a network's announcement have up to 30 ms between them (ITU-T E.180).
	earGap = 100 * time.Millisecond
	// earEnd is the pause after which a machine without a beep is over, and earLongest how long a machine may talk.
	earEnd     = 2500 * time.Millisecond
	earLongest = time.Minute
	// earAsked is how long the model may take to judge: a sentence of a menu, and its answer.
	earAsked = 8 * time.Second
)

// announcement is the first two of the three tones by which the network says that a call failed, in Hz (ITU-T E.180, special information
// tone). A tone may be 50 Hz off.
var announcement = [...]float64{950, 1400}

// ear finds out who answered, from the sound of the line since the answer.
type ear struct {
	rate   int
	part   []int16
	now    time.Duration // that was heard
	began  time.Duration // when the first sound did
	voice  time.Duration // when the last sound ended; 0: none has come
	tone   time.Duration // how long there is a tone of hz
	hz     float64
	beeped time.Duration // when the last beep ended; 0: none has
	rising int           // how many tones of an announcement have come, one after the other
	by     string        // who answered; empty: it is not known yet
	beep   bool          // there was a tone of a machine or of the network
	ready  bool          // a machine waits for the message, or has none to wait for
}

// failed reports whether the network has said that the call failed: nobody takes a message.
func (e *ear) failed() bool { return e.rising == len(announcement) }

// hear takes what came.
func (e *ear) hear(pcm []int16) {
	if e.ready {
		return
	}
	e.part = append(e.part, pcm...)
	size := media.Samples(earBlock, e.rate)
	for len(e.part) >= size && !e.ready {
		e.block(e.part[:size])
		e.part = e.part[:copy(e.part, e.part[size:])]
	}
}

func (e *ear) block(pcm []int16) {
	e.now += earBlock
	before := e.tone
	switch hz := pitch(pcm, e.rate); {
	case media.RMS(pcm) < earLoud || hz == 0:
		e.tone = 0
	case e.tone > 0 && math.Abs(hz-e.hz) < 0.03*e.hz:
		e.tone += earBlock
	default:
		e.tone, e.hz = earBlock, hz
	}
	if before >= earTone && e.tone == 0 {
		e.beeped = e.now
	}
	if !e.failed() && e.tone >= earTone && math.Abs(e.hz-announcement[e.rising]) <= 50 {
		e.rising++
	}
	if media.RMS(pcm) >= earLoud {
		if e.voice == 0 {
			e.began = e.now - earBlock
		}
		e.voice = e.now
	}
	if e.by != "" {
		e.beep = e.beep || e.beeped > 0
		beeped := e.beeped > 0 && e.tone == 0 && e.now-e.beeped >= earGap
		e.ready = e.by == ByMachine && (e.failed() || beeped || e.now-e.voice >= earEnd || e.now-e.began >= earLongest)
		return
	}
	fax := math.Abs(e.hz-1100) < 40 || math.Abs(e.hz-2100) < 40
	switch {
	case e.tone >= earFax && fax:
		e.by = ByFax
	case e.tone >= earTone && !fax: // a beep, or the network's tones before what it has to say
		e.by, e.beep = ByMachine, true
	case e.tone > 0: // perhaps
	case e.voice == 0 && e.now >= earSilence:
		e.by = BySilence
	case e.voice > 0 && e.now-e.voice >= earPerson:
		e.by = ByPerson
	case e.voice > 0 && e.voice-e.began >= earMachine:
		e.by = ByMachine
	}
}

// pitch is the frequency of a block that is a tone of 400 to 2200 Hz and little else; 0: it is none. A tone x follows from what was before
// it: x[n] = c·x[n-1] − x[n-2], with c = 2·cos ω.
func pitch(pcm []int16, rate int) float64 {
	var with, own float64
	for n := 2; n < len(pcm); n++ {
		with += float64(pcm[n-1]) * (float64(pcm[n]) + float64(pcm[n-2]))
		own += float64(pcm[n-1]) * float64(pcm[n-1])
	}
	c := with / max(own, 1)
	if c <= -2 || c >= 2 {
		return 0
	}
	hz := math.Acos(c/2) * float64(rate) / (2 * math.Pi)
	if hz < 400 || hz > 2200 || phone.ToneShare(pcm, rate, hz) < 0.9 {
		return 0
	}
	return hz
}

// screen keeps the sound of the line from the model until it is known that a person is there. The zero value does nothing.
type screen struct {
	say     string
	ask     bool          // the model judges what may be a machine; until it is known who answered nobody hears its voice
	outcome chan string   // gets who answered; it has room for one
	ready   chan struct{} // gets one when a machine waits for the message; it has room for that
	doubt   chan struct{} // gets one when the model is to judge; it has room for that
	came    atomic.Int64  // when sound came last: Unix time in ns
	spoke   atomic.Bool   // some of it was a voice
	asked   atomic.Int64  // since when the model hears it, to judge: Unix time in ns; 0: it does not
	open    atomic.Bool   // for the model
	decided atomic.Bool   // who answered
	machine atomic.Bool   // it was a machine
	failed  atomic.Bool   // it was the network: nobody takes a message
	leaving atomic.Bool   // the message is to be left
	saying  atomic.Bool   // it has begun
}

func newScreen(m *Machine) *screen {
	if m == nil {
		return &screen{}
	}
	return &screen{say: m.Say, ask: m.Ask, outcome: make(chan string, 1), ready: make(chan struct{}, 1), doubt: make(chan struct{}, 1)}
}

// begin counts silence from now on.
func (s *screen) begin() { s.came.Store(time.Now().UnixNano()) }

// check is called once a second: telephones that send nothing in pauses leave the ear without sound to judge.
func (s *screen) check(now time.Time) {
	if !s.on() {
		return
	}
	switch quiet, asked := now.Sub(time.Unix(0, s.came.Load())), s.asked.Load(); {
	case asked != 0 && !s.decided.Load():
		if now.Sub(time.Unix(0, asked)) >= earAsked {
			s.decide(ByMachine)
		}
	case s.machine.Load():
		if quiet >= earEnd {
			s.takesMessage()
		}
	case s.spoke.Load():
		if quiet >= earRest {
			s.decide(ByPerson)
		}
	case quiet >= earSilence:
		s.decide(BySilence)
	}
}

// takesMessage says that a machine waits for the message.
func (s *screen) takesMessage() { tell(s.ready, struct{}{}) }

// on reports whether it is to be found out who answered.
func (s *screen) on() bool { return s.outcome != nil }

// before has the screen listen to what comes for a sink.
func (s *screen) before(sink media.Sink) media.Sink {
	if !s.on() {
		return sink
	}
	return &screened{Sink: sink, screen: s, ear: ear{rate: sink.Rate()}}
}

type screened struct {
	media.Sink
	screen  *screen
	ear     ear
	kept    []int16 // what the model is to judge
	silence []int16
}

// WritePCM implements [media.Sink].
func (s *screened) WritePCM(pcm []int16) error {
	if s.screen.open.Load() {
		return s.Sink.WritePCM(pcm)
	}
	s.screen.begin()
	s.ear.hear(pcm)
	s.screen.spoke.Store(s.ear.voice > 0)
	switch doubtful := s.ear.by == ByMachine && !s.ear.beep && s.screen.ask && !s.screen.decided.Load(); {
	case doubtful:
		heard := append(s.kept, pcm...)
		s.kept = nil
		if s.screen.asked.CompareAndSwap(0, time.Now().UnixNano()) {
			s.screen.doubt <- struct{}{}
		}
		return s.Sink.WritePCM(heard)
	case s.ear.by != "":
		s.screen.decide(s.ear.by)
		s.kept = nil
	case s.screen.ask && s.ear.voice > 0:
		s.kept = append(s.kept, pcm...)
	}
	if s.ear.ready && !s.screen.leaving.Load() {
		s.screen.failed.Store(s.ear.failed())
		s.screen.takesMessage()
	}
	if len(s.silence) < len(pcm) {
		s.silence = make([]int16, len(pcm))
	}
	return s.Sink.WritePCM(s.silence[:len(pcm)])
}

// decide says who answered, and reports false if that was known before.
func (s *screen) decide(by string) bool {
	if s.decided.Swap(true) {
		return false
	}
	s.machine.Store(by == ByMachine)
	s.outcome <- by
	return true
}

// said notes that the model has begun to speak.
func (s *screen) said() { s.saying.Store(s.leaving.Load()) }

// tool is how the model says who answered.
func (s *screen) tool() tools.Tool {
	says := map[string]string{
		ByPerson:  "They hear you now: speak.",
		ByMenu:    "It hears you now. Say nothing until it has asked; send_dtmf presses keys.",
		ByMachine: "Say nothing.",
	}
	return tools.Tool{
		Declaration: tools.Declaration{
			Name: "answered_by", Title: "Listening…",
			Description: "Says who has answered this call: a person, an answering machine or mailbox, or a menu that asks for keys or words. " +
				"If you hear somebody speak before you were asked to speak, call this as soon as you know, and say nothing before: " +
				"nobody hears you yet.",
			Parameters: json.RawMessage(
				`{"type":"object","required":["who"],"properties":{"who":{"type":"string","enum":["person","machine","menu"]}}}`),
		},
		Run: func(_ context.Context, args json.RawMessage) (json.RawMessage, error) {
			var a struct{ Who string }
			if err := json.Unmarshal(args, &a); err != nil || says[a.Who] == "" {
				return nil, errors.New("who must be person, machine or menu")
			}
			if !s.decide(a.Who) {
				return nil, errors.New("that is known already")
			}
			return json.Marshal(map[string]string{"output": says[a.Who]})
		},
	}
}

// screen is what the call's sound passes.
func (c *call) screen() *screen {
	if r, ok := c.sound.(*rtpSound); ok {
		return r.screen
	}
	return &screen{}
}

// met acts on who answered.
func (c *call) met(s *bridge.Session, by string) error {
	c.log.Info("answered", "by", by)
	c.door.dialled.change(c, func(status *CallStatus) { status.AnsweredBy = by })
	screen := c.screen()
	if screen.ask {
		s.AttachOutput(c.sound.(*rtpSound).stream.sending.Load().Sender)
	}
	switch {
	case by == ByMenu, by == ByPerson && screen.asked.Load() != 0: // the model was told so, and goes on
		screen.open.Store(true)
		return nil
	case by == ByPerson, by == BySilence:
		screen.open.Store(true)
		return c.greet(s, false)
	case by == ByMachine && screen.say != "":
		return nil // until it is ready
	}
	return errMachine
}

// question asks the model who answered, in the midst of what it hears: by itself it would judge when they pause.
const question = "You hear how this call is answered. If you know by whom, call answered_by now. If you do not, say nothing, listen on, " +
	"and call it as soon as you know."

// leave has the model leave the message, if somebody takes it.
func (c *call) leave(s *bridge.Session) error {
	switch screen := c.screen(); {
	case screen.failed.Load():
		return errMachine
	case screen.leaving.Swap(true):
		return nil
	}
	return s.Do(bridge.Prompt{
		Instruction: "An answering machine records you. Say this message, word for word, and nothing else: " + c.screen().say,
	})
}
