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
	amdBlock = 20 * time.Millisecond
	// amdLoud is the least loudness of a voice: -44 dBov.
	amdLoud = 200
	// amdPersonMin is the pause by which a person is known: they say a few words and wait. Machines pause for less at their beginning.
	amdPersonMin = 500 * time.Millisecond
	// amdMachineMin is how long people talk at the most before they wait. Less would take receptions for machines, and hang up on them.
	amdMachineMin = 2200 * time.Millisecond
	// amdSilence is how long somebody may say nothing.
	amdSilence = 3 * time.Second
	// amdPause is how long no packet comes from a telephone that sends none in pauses: longer than a network holds them back.
	amdPause = time.Second
	// amdToneMin is the shortest beep, and earFax the shortest tone of a fax (ITU-T T.30 has 0.5 s of 1100 Hz, and 2.6 s of 2100 Hz).
	amdToneMin = 100 * time.Millisecond
	amdFaxMin  = 300 * time.Millisecond
	// amdGapMax is how long after a tone another may begin: the three of a network's announcement have up to 30 ms between them (ITU-T E.180).
	amdGapMax = 100 * time.Millisecond
	// amdMessageEnd is the pause after which a machine without a beep is over, and earLongest how long a machine may talk.
	amdMessageEnd = 2500 * time.Millisecond
	amdMax        = time.Minute
	// amdModelTimeout is how long the model may take to judge: a sentence of a menu, and its answer.
	amdModelTimeout = 8 * time.Second
)

// failureTones is the first two of the three tones by which the network says that a call failed, in Hz (ITU-T E.180, special information
// tone). A tone may be 50 Hz off.
var failureTones = [...]float64{950, 1400}

// amdDetector finds out who answered, from the sound of the line since the answer.
type amdDetector struct {
	rate   int
	part   []int16
	now    time.Duration // that was heard
	began  time.Duration // when the first sound did
	voice  time.Duration // when the last sound ended; 0: none has come
	tone   time.Duration // how long there is a tone of hz
	hz     float64
	beeped time.Duration // when the last beep ended; 0: none has
	rising int           // how many tones of an announcement have come, one after the other
	result string        // who answered; empty: it is not known yet
	beep   bool          // there was a tone of a machine or of the network
	ready  bool          // a machine waits for the message, or has none to wait for
}

// networkFailed reports whether the network has said that the call failed: nobody takes a message.
func (e *amdDetector) networkFailed() bool { return e.rising == len(failureTones) }

// writeBlocks takes what came.
func (e *amdDetector) writeBlocks(pcm []int16) {
	if e.ready {
		return
	}
	e.part = append(e.part, pcm...)
	size := media.Samples(amdBlock, e.rate)
	for len(e.part) >= size && !e.ready {
		e.analyzeBlock(e.part[:size])
		e.part = e.part[:copy(e.part, e.part[size:])]
	}
}

func (e *amdDetector) analyzeBlock(pcm []int16) {
	e.now += amdBlock
	before := e.tone
	switch hz := pitch(pcm, e.rate); {
	case media.RMS(pcm) < amdLoud || hz == 0:
		e.tone = 0
	case e.tone > 0 && math.Abs(hz-e.hz) < 0.03*e.hz:
		e.tone += amdBlock
	default:
		e.tone, e.hz = amdBlock, hz
	}
	if before >= amdToneMin && e.tone == 0 {
		e.beeped = e.now
	}
	if !e.networkFailed() && e.tone >= amdToneMin && math.Abs(e.hz-failureTones[e.rising]) <= 50 {
		e.rising++
	}
	if media.RMS(pcm) >= amdLoud {
		if e.voice == 0 {
			e.began = e.now - amdBlock
		}
		e.voice = e.now
	}
	if e.result != "" {
		e.beep = e.beep || e.beeped > 0
		beeped := e.beeped > 0 && e.tone == 0 && e.now-e.beeped >= amdGapMax
		e.ready = e.result == ByMachine && (e.networkFailed() || beeped || e.now-e.voice >= amdMessageEnd || e.now-e.began >= amdMax)
		return
	}
	fax := math.Abs(e.hz-1100) < 40 || math.Abs(e.hz-2100) < 40
	switch {
	case e.tone >= amdFaxMin && fax:
		e.result = ByFax
	case e.tone >= amdToneMin && !fax: // a beep, or the network's tones before what it has to say
		e.result, e.beep = ByMachine, true
	case e.tone > 0: // perhaps
	case e.voice == 0 && e.now >= amdSilence:
		e.result = BySilence
	case e.voice > 0 && e.now-e.voice >= amdPersonMin:
		e.result = ByPerson
	case e.voice > 0 && e.voice-e.began >= amdMachineMin:
		e.result = ByMachine
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

// callScreen keeps the sound of the line from the model until it is known that a person is there. The zero value does nothing.
type callScreen struct {
	say       string
	ask       bool          // the model judges what may be a machine; until it is known who answered nobody hears its voice
	outcome   chan string   // gets who answered; it has room for one
	ready     chan struct{} // gets one when a machine waits for the message; it has room for that
	doubt     chan struct{} // gets one when the model is to judge; it has room for that
	lastAudio atomic.Int64  // when sound came last: Unix time in ns
	hasVoice  atomic.Bool   // some of it was a voice
	askedAt   atomic.Int64  // since when the model hears it, to judge: Unix time in ns; 0: it does not
	open      atomic.Bool   // for the model
	decided   atomic.Bool   // who answered
	machine   atomic.Bool   // it was a machine
	failed    atomic.Bool   // it was the network: nobody takes a message
	leaving   atomic.Bool   // the message is to be left
	saying    atomic.Bool   // it has begun
}

func newCallScreen(m *Machine) *callScreen {
	if m == nil {
		return &callScreen{}
	}
	return &callScreen{say: m.Say, ask: m.Ask, outcome: make(chan string, 1), ready: make(chan struct{}, 1), doubt: make(chan struct{}, 1)}
}

// startClock counts silence from now on.
func (s *callScreen) startClock() { s.lastAudio.Store(time.Now().UnixNano()) }

// checkTimeouts is called once a second: telephones that send nothing in pauses leave the ear without sound to judge.
func (s *callScreen) checkTimeouts(now time.Time) {
	if !s.isActive() {
		return
	}
	switch quiet, asked := now.Sub(time.Unix(0, s.lastAudio.Load())), s.askedAt.Load(); {
	case asked != 0 && !s.decided.Load():
		if now.Sub(time.Unix(0, asked)) >= amdModelTimeout {
			s.decide(ByMachine)
		}
	case s.machine.Load():
		if quiet >= amdMessageEnd {
			s.takesMessage()
		}
	case s.hasVoice.Load():
		if quiet >= amdPause {
			s.decide(ByPerson)
		}
	case quiet >= amdSilence:
		s.decide(BySilence)
	}
}

// takesMessage says that a machine waits for the message.
func (s *callScreen) takesMessage() { trySend(s.ready, struct{}{}) }

// isActive reports whether it is to be found out who answered.
func (s *callScreen) isActive() bool { return s.outcome != nil }

// wrapSink has the screen listen to what comes for a sink.
func (s *callScreen) wrapSink(sink media.Sink) media.Sink {
	if !s.isActive() {
		return sink
	}
	return &screenedSink{Sink: sink, screen: s, detector: amdDetector{rate: sink.Rate()}}
}

type screenedSink struct {
	media.Sink
	screen   *callScreen
	detector amdDetector
	pending  []int16 // what the model is to judge
	silence  []int16
}

// WritePCM implements [media.Sink].
func (s *screenedSink) WritePCM(pcm []int16) error {
	if s.screen.open.Load() {
		return s.Sink.WritePCM(pcm)
	}
	s.screen.startClock()
	s.detector.writeBlocks(pcm)
	s.screen.hasVoice.Store(s.detector.voice > 0)
	switch doubtful := s.detector.result == ByMachine && !s.detector.beep && s.screen.ask && !s.screen.decided.Load(); {
	case doubtful:
		heard := append(s.pending, pcm...)
		s.pending = nil
		if s.screen.askedAt.CompareAndSwap(0, time.Now().UnixNano()) {
			s.screen.doubt <- struct{}{}
		}
		return s.Sink.WritePCM(heard)
	case s.detector.result != "":
		s.screen.decide(s.detector.result)
		s.pending = nil
	case s.screen.ask && s.detector.voice > 0:
		s.pending = append(s.pending, pcm...)
	}
	if s.detector.ready && !s.screen.leaving.Load() {
		s.screen.failed.Store(s.detector.networkFailed())
		s.screen.takesMessage()
	}
	if len(s.silence) < len(pcm) {
		s.silence = make([]int16, len(pcm))
	}
	return s.Sink.WritePCM(s.silence[:len(pcm)])
}

// decide says who answered, and reports false if that was known before.
func (s *callScreen) decide(by string) bool {
	if s.decided.Swap(true) {
		return false
	}
	s.machine.Store(by == ByMachine)
	s.outcome <- by
	return true
}

// noteSpeech notes that the model has begun to speak.
func (s *callScreen) noteSpeech() { s.saying.Store(s.leaving.Load()) }

// tool is how the model says who answered.
func (s *callScreen) tool() tools.Tool {
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
func (c *call) screen() *callScreen {
	if r, ok := c.sound.(*rtpSound); ok {
		return r.screen
	}
	return &callScreen{}
}

// handleAnsweredBy acts on who answered.
func (c *call) handleAnsweredBy(s *bridge.Session, by string) error {
	c.log.Info("answered", "by", by)
	c.door.outboundCalls.changeStatus(c, func(status *CallStatus) { status.AnsweredBy = by })
	screen := c.screen()
	if screen.ask {
		s.AttachOutput(c.sound.(*rtpSound).stream.sending.Load().Sender)
	}
	switch {
	case by == ByMenu, by == ByPerson && screen.askedAt.Load() != 0: // the model was told so, and goes on
		screen.open.Store(true)
		return nil
	case by == ByPerson, by == BySilence:
		screen.open.Store(true)
		return c.greetCaller(s, false)
	case by == ByMachine && screen.say != "":
		return nil // until it is ready
	}
	return errMachine
}

// amdQuestion asks the model who answered, in the midst of what it hears: by itself it would judge when they pause.
const amdQuestion = "You hear how this call is answered. If you know by whom, call answered_by now. " +
	"If you do not, say nothing, listen on, " +
	"and call it as soon as you know."

// leaveMessage has the model leave the message, if somebody takes it.
func (c *call) leaveMessage(s *bridge.Session) error {
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
