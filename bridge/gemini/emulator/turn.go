package emulator

import (
	"math"
	"slices"
	"strings"
	"time"

	"voxgate/bridge/gemini/emulator/live"
	"voxgate/bridge/gemini/wire"
)

// script is the content of one model turn. The emulator sends it faster than real time, and completes the turn after
// the last part.
type script struct {
	steps []step
	audio time.Duration
	text  string // text of the turn in the history
	calls []*call

	// polite makes the turn wait until the user is quiet. It is not set for answers to typed text, because in a noisy room they would
	// never be sent.
	polite bool
}

// step is a part of a turn. Its field `at` is the time from the start of the turn at which the part is sent.
type step struct {
	at      time.Duration
	content live.Object   // fields of serverContent; nil sends an empty message
	voice   time.Duration // length of the voice in this step; text counts as the shortest possible voice
}

// turn is a script that is being sent.
type turn struct {
	*script
	start       time.Time
	next        int
	voice       time.Duration // length of the voice sent so far
	isGenerated bool          // generationComplete was sent
}

// unsentRest returns the part of a turn that was not sent yet, or nil if all was sent.
func (t *turn) unsentRest() *script {
	rest := *t.script
	rest.steps = nil
	for _, s := range t.steps[t.next:] {
		s.at -= t.steps[t.next].at
		rest.steps = append(rest.steps, s)
	}
	if rest.audio = t.audio - t.voice; len(rest.steps) == 0 {
		return nil
	}
	return &rest
}

// ahead is the speed at which voice is sent, as a multiple of real time. Google sends a sentence in well under half of
// its duration.
const ahead = 4

// chunks lists lengths of voice messages, which are used in turn. Google's messages have lengths from 40 to 680 ms.
var chunks = []time.Duration{
	40 * time.Millisecond, 120 * time.Millisecond, 240 * time.Millisecond, 80 * time.Millisecond, 680 * time.Millisecond,
	200 * time.Millisecond,
}

// buildSpeechScript returns a script with a voice at 24 kHz and its transcript.
func (s *session) buildSpeechScript(pcm []int16, text string) *script {
	sc := &script{audio: time.Duration(len(pcm)) * time.Second / wire.OutputRate, text: text}
	if s.setup.Text {
		parts := []live.Object{{"text": text}}
		sc.audio, sc.steps = 0, []step{{content: live.Object{"modelTurn": live.Object{"parts": parts}}, voice: 1}}
		return sc
	}
	words := strings.SplitAfter(text, " ")
	spokenChars := 0
	before := s.setup.OnePart && s.endpoint.Vertex
	if before && s.setup.OutputTranscript {
		sc.steps = transcriptSteps(words)
		spokenChars = len(words)
	}
	s.voices++
	for i := 0; len(pcm) > 0; i++ {
		length := chunks[i%len(chunks)]
		n := min(len(pcm), int(length.Seconds()*wire.OutputRate))
		if i == 0 && s.setup.OneSampleFirst && s.voices%3 == 0 {
			n = 1
		}
		parts := []live.Object{live.AudioPart(pcm[:n])}
		if i%3 == 2 && n > 480 && !s.setup.OnePart { // models of version 3 put several parts into one message
			parts = []live.Object{live.AudioPart(pcm[:n/2]), live.AudioPart(pcm[n/2 : n])}
		}
		if before { // the MIME type has no rate, because all models use the same rate
			parts[0]["inlineData"].(live.Object)["mimeType"] = "audio/pcm"
		}
		content := live.Object{"modelTurn": live.Object{"parts": parts}}
		pcm = pcm[n:]
		sent := sc.audio - time.Duration(len(pcm))*time.Second/wire.OutputRate
		at := sent - time.Duration(n)*time.Second/wire.OutputRate
		if !s.setup.RealTimeVoice {
			at /= ahead
		}
		// The transcript advances with the voice, and is complete with the last part of the voice.
		upTo := int(math.Ceil(float64(len(words)) * float64(sent) / float64(sc.audio)))
		if upTo > spokenChars && s.setup.OutputTranscript {
			transcription := live.Object{"text": strings.Join(words[spokenChars:upTo], "")}
			spokenChars = upTo
			if s.setup.OnePart {
				sc.steps = append(sc.steps, step{at: at, content: live.Object{"outputTranscription": transcription}})
			} else {
				content["outputTranscription"] = transcription
			}
		}
		if s.setup.RoleOfTurns || before {
			content["modelTurn"].(live.Object)["role"] = "model"
		}
		if s.setup.EmptyMessages {
			sc.steps = append(sc.steps, step{at: at})
			if i == 0 {
				sc.steps = append(sc.steps, step{at: at, content: live.Object{}})
			}
		}
		sc.steps = append(sc.steps, step{at: at, content: content, voice: time.Duration(n) * time.Second / wire.OutputRate})
	}
	return sc
}

// transcriptSteps returns the steps of a transcript that is sent completely before the voice, as models of version 2.5
// do on Vertex AI.
func transcriptSteps(words []string) []step {
	steps := []step{{content: live.Object{"outputTranscription": live.Object{}}}}
	for _, word := range words {
		steps = append(steps, step{content: live.Object{"outputTranscription": live.Object{"text": word}}})
	}
	return append(steps, step{content: live.Object{"outputTranscription": live.Object{"finished": true}}})
}

// maxQueue limits the queued turns, because half a minute of voice takes 2 MB. If the queue is full, the oldest turn is
// dropped.
const maxQueue = 32

// queueScript starts a turn, or queues it if another turn is running. Answers to typed text overtake queued answers to
// speech, because typed text interrupts those.
func (s *session) queueScript(sc *script) error {
	if len(s.queue) >= maxQueue {
		s.queue = s.queue[1:]
	}
	at := len(s.queue)
	if i := slices.IndexFunc(s.queue, func(q *script) bool { return q.polite }); i >= 0 && !sc.polite {
		at = i
	}
	s.queue = slices.Insert(s.queue, at, sc)
	return s.startNextTurn()
}

// startNextTurn starts the next queued turn, unless a turn is running or the model waits for the result of a call. A
// polite turn starts only while the user is quiet.
func (s *session) startNextTurn() error {
	if s.turn != nil || len(s.queue) == 0 || s.isBlocked() {
		return nil
	}
	if s.queue[0].polite && (s.talking || s.vad.speaking) {
		return nil
	}
	s.turn = &turn{script: s.queue[0], start: time.Now()}
	s.queue = s.queue[1:]
	if len(s.turn.steps) > 0 {
		s.momentCounts[OnAnswer]++
		if err := s.announceNoHandle(); err != nil {
			return err
		}
	}
	return s.sendDueSteps()
}

// sendDueSteps sends the parts of the current turn that are due.
func (s *session) sendDueSteps() error {
	t := s.turn
	if t == nil {
		return nil
	}
	now := time.Since(t.start)
	for ; t.next < len(t.steps); t.next++ {
		if wait := t.steps[t.next].at - now; wait > 0 {
			s.timer.Reset(wait)
			return nil
		}
		if content := t.steps[t.next].content; content == nil {
			if err := s.conn.send(live.Object{}); err != nil {
				return err
			}
		} else if err := s.sendContent(content); err != nil {
			return err
		}
		before := t.voice
		t.voice += t.steps[t.next].voice
		if err := s.applyVoiceFaults(before, t.voice); err != nil {
			return err
		}
	}
	if !t.isGenerated {
		t.isGenerated = true
		if err := s.finishGeneration(t); err != nil {
			return err
		}
	}
	if wait := t.audio - now; wait > 0 && !s.setup.RealTimeVoice {
		s.timer.Reset(wait)
		return nil
	}
	if s.isBlocked() {
		return nil // the turn continues after the response to its call
	}
	return s.endTurn()
}

// finishGeneration is called when the last part of a turn was sent.
func (s *session) finishGeneration(t *turn) error {
	if len(t.calls) > 0 {
		if s.setup.Blocks && s.endpoint.Vertex {
			return s.sendCallsOnVertex(t.calls)
		}
		if err := s.sendCalls(t.calls); err != nil || s.isBlocked() || s.setup.SendsIdle {
			return err
		}
		return s.sendContent(live.Object{"generationComplete": true}) // the turn with the call is generated completely
	}
	if t.text != "" {
		s.addHistory("model", t.text)
		s.report(Event{Kind: EventModelTurn, Text: t.text})
	}
	return s.sendContent(live.Object{"generationComplete": true})
}

// sendCallsOnVertex sends function calls as models of version 2.5 do on Vertex AI: between the start and the end of an
// empty transcript.
func (s *session) sendCallsOnVertex(calls []*call) error {
	transcript := func(fields live.Object) error {
		if !s.setup.OutputTranscript {
			return nil
		}
		return s.sendContent(live.Object{"outputTranscription": fields})
	}
	if err := transcript(live.Object{}); err != nil {
		return err
	}
	if err := s.sendCalls(calls); err != nil {
		return err
	}
	if err := transcript(live.Object{"finished": true}); err != nil {
		return err
	}
	return s.sendContent(live.Object{"generationComplete": true})
}

// endTurn completes the current turn and starts the next one.
func (s *session) endTurn() error {
	t := s.turn
	s.turn = nil
	s.timer.Stop()
	if err := s.sendTurnComplete(t.audio); err != nil {
		return err
	}
	return s.startNextTurn()
}

// sendTurnComplete sends turnComplete with the usage of the turn, in one message.
func (s *session) sendTurnComplete(spoken time.Duration) error {
	fields := live.Object{"turnComplete": true}
	if s.setup.SendsIdle { // this model sends turnComplete before it becomes idle
		fields["interactionStatus"] = "IDLE"
		if len(s.queue) > 0 || len(s.calls) > 0 {
			fields["interactionStatus"] = "IN_PROGRESS"
		}
	}
	if s.setup.OnePart && s.endpoint.Vertex {
		fields["groundingMetadata"] = live.Object{}
	}
	// Audio has 25 tokens a second, in both directions: https://ai.google.dev/gemini-api/docs/tokens.
	in, out := int(s.input.Seconds()*25)+len(s.history)*8, int(spoken.Seconds()*25)
	response := "response"
	if s.endpoint.Vertex {
		response = "candidates"
	}
	usage := live.Object{
		"promptTokenCount": in, response + "TokenCount": out, "totalTokenCount": in + out,
		"promptTokensDetails": []live.Object{{"modality": "AUDIO", "tokenCount": in}},
	}
	if out > 0 { // Google omits the details if they are empty
		usage[response+"TokensDetails"] = []live.Object{{"modality": "AUDIO", "tokenCount": out}}
	}
	err := s.conn.send(live.Object{"serverContent": fields, "usageMetadata": usage})
	s.appended = 0
	if err == nil {
		err = s.sendHandleAfterChange()
	}
	if err == nil {
		err = s.reachMoment(OnTurnComplete)
	}
	return err
}

// interrupt ends the current turn because the user speaks or types. Queued turns are still sent later.
func (s *session) interrupt() error {
	// Blocking calls are cancelled. Non-blocking calls continue during the user's speech.
	if err := s.cancelCalls(func(c *call) bool { return c.blocking }); err != nil {
		return err
	}
	t := s.turn
	if t == nil {
		return nil
	}
	heardDuration := min(time.Since(t.start), t.audio)
	if t.text != "" && !t.isGenerated {
		s.addHistory("model", t.text) // an interrupted turn is part of the history
	}
	s.turn = nil
	s.timer.Stop()
	if err := s.sendContent(live.Object{"interrupted": true}); err != nil {
		return err
	}
	return s.sendTurnComplete(heardDuration)
}
