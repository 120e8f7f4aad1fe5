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

// Machine enables answering-machine detection on an outgoing call.
type Machine struct {
	Say string `json:"say"` // message to leave after the beep; if empty, the call ends
	Ask bool   `json:"ask"` // if the answer sounds like a machine, the model decides whether it is one
}

// The parties that may answer an outgoing call. The timing of a phone menu is similar to that of an answering machine,
// so only the model can tell them apart.
const (
	ByPerson  = "person"
	ByMachine = "machine"
	ByMenu    = "menu"
	ByFax     = "fax"
	BySilence = "silence"
)

const (
	amdBlock = 20 * time.Millisecond
	// amdLoud is the minimum level of a voice, as RMS of 16-bit samples: -44 dBov.
	amdLoud = 200
	// amdPersonMin is the minimum pause after a person's greeting: a person says a few words and waits. The first
	// pauses of machines are shorter.
	amdPersonMin = 500 * time.Millisecond
	// amdPersonMax is the maximum length of a person's greeting. Receptionists have long greetings. With a lower limit,
	// the gateway would take them for machines and hang up.
	amdPersonMax = 2200 * time.Millisecond
	// amdSilence is the time without a voice after which the answer counts as silence.
	amdSilence = 3 * time.Second
	// amdPause is the time without packets that counts as a pause, because some phones send no packets in pauses. It is
	// longer than network jitter.
	amdPause = time.Second
	// amdToneMin is the minimum length of a beep, and amdFaxMin the minimum length of a fax tone. In ITU-T T.30, fax
	// tones last 0.5 s (1100 Hz) or 2.6 s (2100 Hz).
	amdToneMin = 100 * time.Millisecond
	amdFaxMin  = 300 * time.Millisecond
	// amdGapMax is the maximum gap between two tones of one sequence. The three tones before a network announcement
	// have gaps of up to 30 ms (ITU-T E.180).
	amdGapMax = 100 * time.Millisecond
	// amdMessageEnd is the length of the pause that ends a machine's greeting without a beep. amdMax is the maximum
	// length of a greeting.
	amdMessageEnd = 2500 * time.Millisecond
	amdMax        = time.Minute
	// amdModelTimeout limits how long the model may take to decide. In this time, a menu must be able to say one
	// sentence, and the model to respond.
	amdModelTimeout = 8 * time.Second
)

// failureTones are the frequencies, in Hz, of the first two of the three tones that networks play before they announce
// that a call has failed (ITU-T E.180, special information tone). They may be 50 Hz off.
var failureTones = [...]float64{950, 1400}

// amdDetector classifies who answered, from the audio since the answer.
type amdDetector struct {
	rate   int
	part   []int16
	now    time.Duration // length of the audio so far
	began  time.Duration // start of the first sound
	voice  time.Duration // end of the last sound; 0 before the first sound
	tone   time.Duration // length of the current tone so far, whose frequency is hz
	hz     float64
	beeped time.Duration // end of the last beep; 0 before the first beep
	rising int           // number of failureTones that were detected so far
	result string        // who answered; empty until known
	beep   bool          // a tone of a machine or of the network was detected
	ready  bool          // the machine's greeting is over or too long, or the network announced a failure
}

// hasFailureTones reports whether the network's tones for a failed call were detected. In that case no message can be
// left.
func (a *amdDetector) hasFailureTones() bool { return a.rising == len(failureTones) }

// analyzePCM analyzes received audio.
func (a *amdDetector) analyzePCM(pcm []int16) {
	if a.ready {
		return
	}
	a.part = append(a.part, pcm...)
	size := media.Samples(amdBlock, a.rate)
	for len(a.part) >= size && !a.ready {
		a.analyzeBlock(a.part[:size])
		a.part = a.part[:copy(a.part, a.part[size:])]
	}
}

func (a *amdDetector) analyzeBlock(pcm []int16) {
	a.now += amdBlock
	before := a.tone
	switch hz, isTone := tonePitch(pcm, a.rate); {
	case media.RMS(pcm) < amdLoud || !isTone:
		a.tone = 0
	case a.tone > 0 && math.Abs(hz-a.hz) < 0.03*a.hz:
		a.tone += amdBlock
	default:
		a.tone, a.hz = amdBlock, hz
	}
	if before >= amdToneMin && a.tone == 0 {
		a.beeped = a.now
	}
	if !a.hasFailureTones() && a.tone >= amdToneMin && math.Abs(a.hz-failureTones[a.rising]) <= 50 {
		a.rising++
	}
	if media.RMS(pcm) >= amdLoud {
		if a.voice == 0 {
			a.began = a.now - amdBlock
		}
		a.voice = a.now
	}
	if a.result != "" {
		a.beep = a.beep || a.beeped > 0
		beeped := a.beeped > 0 && a.tone == 0 && a.now-a.beeped >= amdGapMax
		a.ready = a.result == ByMachine && (a.hasFailureTones() || beeped || a.now-a.voice >= amdMessageEnd || a.now-a.began >= amdMax)
		return
	}
	fax := math.Abs(a.hz-1100) < 40 || math.Abs(a.hz-2100) < 40
	switch {
	case a.tone >= amdFaxMin && fax:
		a.result = ByFax
	case a.tone >= amdToneMin && !fax: // the tone is a beep, or precedes a network announcement
		a.result, a.beep = ByMachine, true
	case a.tone > 0: // the tone is still too short to decide
	case a.voice == 0 && a.now >= amdSilence:
		a.result = BySilence
	case a.voice > 0 && a.now-a.voice >= amdPersonMin:
		a.result = ByPerson
	case a.voice > 0 && a.voice-a.began >= amdPersonMax:
		a.result = ByMachine
	}
}

// tonePitch returns the frequency in Hz if the audio is a nearly pure tone of 400 to 2200 Hz. A tone satisfies
// x[n] = c·x[n-1] − x[n-2], with c = 2·cos ω.
func tonePitch(pcm []int16, rate int) (hz float64, isTone bool) {
	var correlation, energy float64
	for n := 2; n < len(pcm); n++ {
		correlation += float64(pcm[n-1]) * (float64(pcm[n]) + float64(pcm[n-2]))
		energy += float64(pcm[n-1]) * float64(pcm[n-1])
	}
	c := correlation / max(energy, 1)
	if c <= -2 || c >= 2 {
		return 0, false
	}
	hz = math.Acos(c/2) * float64(rate) / (2 * math.Pi)
	if hz < 400 || hz > 2200 || phone.ToneShare(pcm, rate, hz) < 0.9 {
		return 0, false
	}
	return hz, true
}

// callScreen withholds the audio of an outgoing call from the model until answering-machine detection (AMD) has decided
// who answered. With Machine.Ask, if the audio sounds like a machine, the model receives it and decides. The zero
// callScreen passes all audio.
type callScreen struct {
	say       string
	ask       bool                         // the model decides about doubtful audio; its voice is not sent before the result is known
	outcome   chan string                  // receives who answered; room for one
	ready     chan struct{}                // signals that the message can be left now; room for one
	doubt     chan struct{}                // signals that the model has to decide; room for one
	lastAudio atomic.Int64                 // time of the last audio: Unix time in ns
	hasVoice  atomic.Bool                  // a voice was detected
	askedAt   atomic.Int64                 // when the model was asked to decide: Unix time in ns; 0 if it was not asked
	open      atomic.Bool                  // all audio is passed to the model
	decided   atomic.Bool                  // the result is known
	machine   atomic.Bool                  // the result is a machine
	failed    atomic.Bool                  // the network announced a failure
	leaving   atomic.Bool                  // the message is being left
	saying    atomic.Bool                  // the model has begun to say the message
	output    atomic.Pointer[media.Output] // plays the model's voice to the other side
}

func newCallScreen(m *Machine) *callScreen {
	if m == nil {
		return &callScreen{}
	}
	return &callScreen{say: m.Say, ask: m.Ask, outcome: make(chan string, 1), ready: make(chan struct{}, 1), doubt: make(chan struct{}, 1)}
}

// restartSilenceClock restarts the measurement of the time without audio.
func (s *callScreen) restartSilenceClock() { s.lastAudio.Store(time.Now().UnixNano()) }

// checkTimeouts sets the result after some time without audio, because some phones send no packets in pauses. It also
// sets the result if the model takes too long to decide. It is called once a second.
func (s *callScreen) checkTimeouts(now time.Time) {
	if !s.isActive() {
		return
	}
	switch quiet, asked := now.Sub(time.Unix(0, s.lastAudio.Load())), s.askedAt.Load(); {
	case asked != 0 && !s.decided.Load():
		if now.Sub(time.Unix(0, asked)) >= amdModelTimeout {
			s.recordOutcome(ByMachine)
		}
	case s.machine.Load():
		if quiet >= amdMessageEnd {
			s.signalMessageReady()
		}
	case s.hasVoice.Load():
		if quiet >= amdPause {
			s.recordOutcome(ByPerson)
		}
	case quiet >= amdSilence:
		s.recordOutcome(BySilence)
	}
}

// signalMessageReady signals that the message can be left now.
func (s *callScreen) signalMessageReady() { phone.TrySend(s.ready, struct{}{}) }

// isActive reports whether answering-machine detection is enabled.
func (s *callScreen) isActive() bool { return s.outcome != nil }

// gateSink returns a sink that passes audio through the call screen.
func (s *callScreen) gateSink(sink media.Sink) media.Sink {
	if !s.isActive() {
		return sink
	}
	return &screenedSink{Sink: sink, screen: s, detector: amdDetector{rate: sink.Rate()}}
}

type screenedSink struct {
	media.Sink
	screen   *callScreen
	detector amdDetector
	pending  []int16 // audio that the model receives if it has to decide
	silence  []int16
}

// WritePCM implements [media.Sink].
func (s *screenedSink) WritePCM(pcm []int16) error {
	if s.screen.open.Load() {
		return s.Sink.WritePCM(pcm)
	}
	s.screen.restartSilenceClock()
	s.detector.analyzePCM(pcm)
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
		s.screen.recordOutcome(s.detector.result)
		s.pending = nil
	case s.screen.ask && s.detector.voice > 0:
		s.pending = append(s.pending, pcm...)
	}
	if s.detector.ready && !s.screen.leaving.Load() {
		s.screen.failed.Store(s.detector.hasFailureTones())
		s.screen.signalMessageReady()
	}
	if len(s.silence) < len(pcm) {
		s.silence = make([]int16, len(pcm))
	}
	return s.Sink.WritePCM(s.silence[:len(pcm)])
}

// recordOutcome sets who answered, unless that is known already. isFirst reports whether it was set.
func (s *callScreen) recordOutcome(answeredBy string) (isFirst bool) {
	if s.decided.Swap(true) {
		return false
	}
	s.machine.Store(answeredBy == ByMachine)
	s.outcome <- answeredBy
	return true
}

// recordModelSpeech records that the model begins to speak. If that happens while a message is being left, the model
// says the message.
func (s *callScreen) recordModelSpeech() { s.saying.Store(s.leaving.Load()) }

// answeredByTool returns the tool with which the model reports who answered.
func (s *callScreen) answeredByTool() tools.Tool {
	results := map[string]string{
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
			if err := json.Unmarshal(args, &a); err != nil || results[a.Who] == "" {
				return nil, errors.New("who must be person, machine or menu")
			}
			if !s.recordOutcome(a.Who) {
				return nil, errors.New("that is known already")
			}
			return json.Marshal(map[string]string{"output": results[a.Who]})
		},
	}
}

// attachOutput attaches the output of a conversation. If the model has to decide who answered, it only stores the
// output, which is attached once the result is known.
func (s *callScreen) attachOutput(session *bridge.Session, out media.Output) {
	s.output.Store(&out)
	if !s.ask || s.decided.Load() {
		session.AttachOutput(out)
	}
}

// amdQuestion asks the model to decide while the other side still speaks. Without this prompt, the model would wait for
// a pause.
const amdQuestion = "You hear how this call is answered. If you know by whom, call answered_by now. " +
	"If you do not, say nothing, listen on, " +
	"and call it as soon as you know."
