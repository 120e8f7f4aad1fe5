package probe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/jpeg"
	"maps"
	"slices"
	"strings"
	"time"

	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/wire"
)

// instruction is the system instruction that makes a model behave like the emulator, so that its answers are
// predictable.
const instruction = `You are a test device. Say back word for word what the user says or writes, and nothing else, with these exceptions.
When the user writes "/tool NAME JSON", call the function NAME with exactly these arguments at once; once you have its result, say it.
When the user writes "/history", say again every word that the user has told you in this conversation.
When the user writes "/said", say again what you yourself have said in your last answer before this message.`

// object is a JSON object of a setup.
type object = map[string]any

func declareLookup(name, behavior string) object {
	f := object{
		"name": name, "description": "Looks a word up.",
		"parameters": object{
			"type": "OBJECT", "properties": object{"word": object{"type": "STRING"}}, "required": []string{"word"},
		},
	}
	if behavior != "" {
		f["behavior"] = behavior
	}
	return f
}

func toolsConfig(declared ...object) object {
	return object{"tools": []any{object{"functionDeclarations": declared}}}
}

// nestedObject returns a JSON object with one value at a path: nestedObject(1, "a.b") is {"a": {"b": 1}}.
func nestedObject(value any, path string) object {
	names := strings.Split(path, ".")
	for _, name := range slices.Backward(names[1:]) {
		value = object{name: value}
	}
	return object{names[0]: value}
}

// valueAt returns the value at a path of a JSON object, or nil.
func valueAt(tree any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		fields, _ := tree.(map[string]any)
		tree = fields[name]
	}
	return tree
}

// features lists fields of a setup that not all models support, according to the gateway's table. If package liveconfig
// removes a field from a model's setup, the probe assumes that the model refuses the field.
var features = []struct {
	name, path string
	value      any
	alpha      bool
	careful    string // prefix of the names of models for which the gateway omits the field, although Google may accept it
}{
	{name: "answers in text", path: "generationConfig.responseModalities", value: []any{"TEXT"}},
	{name: "a voice", path: "generationConfig.speechConfig.voiceConfig.prebuiltVoiceConfig.voiceName", value: "Kore"},
	{name: "a temperature", path: "generationConfig.temperature", value: 0.5},
	{name: "a resolution of pictures", path: "generationConfig.mediaResolution", value: "MEDIA_RESOLUTION_LOW"},
	{name: "thinking level low", path: "generationConfig.thinkingConfig", value: object{"thinkingLevel": "LOW"}},
	{name: "thinking level minimal", path: "generationConfig.thinkingConfig", value: object{"thinkingLevel": "MINIMAL"}},
	// Google documents that models with levels also accept budgets, but that a level takes precedence
	// (ai.google.dev/gemini-api/docs/gemini-3).
	{name: "a thinking budget", path: "generationConfig.thinkingConfig", value: object{"thinkingBudget": 0}, careful: "gemini-3.1"},
	{name: "affective dialog", path: "generationConfig.enableAffectiveDialog", value: true, alpha: true},
	{name: "proactive audio", path: "proactivity.proactiveAudio", value: true, alpha: true},
	{name: "proactive audio off", path: "proactivity.proactiveAudio", value: false, alpha: true},
	{name: "compression with numbers", path: "contextWindowCompression", value: object{
		"triggerTokens": "25600", "slidingWindow": object{"targetTokens": "12800"},
	}},
	{name: "sensitivities", path: "realtimeInputConfig.automaticActivityDetection", value: object{
		"startOfSpeechSensitivity": "START_SENSITIVITY_LOW", "endOfSpeechSensitivity": "END_SENSITIVITY_HIGH",
	}},
	{name: "all input in a turn", path: "realtimeInputConfig.turnCoverage", value: "TURN_INCLUDES_ALL_INPUT"},
	{name: "the language of what is said", path: "inputAudioTranscription.languageCodes", value: []any{"en-US"}},
	{name: "words with their times", path: "inputAudioTranscription.wordTimestamp", value: true},
	{name: "search", path: "tools", value: []any{object{"googleSearch": object{}}}},
	{name: "transparent resumption", path: "sessionResumption.transparent", value: true},
	{name: "explicit signals of speech", path: "explicitVadSignal", value: true},
}

// probesOf returns the probes of a model. The first probe tests whether the model exists.
func probesOf(model string, o Options) []probe {
	if list := restProbes(model); list != nil {
		return list
	}
	plain, err := parseConfig(object{"model": model}, o.Client.Vertex)
	if err != nil {
		return []probe{{model: model, name: "exists", do: func(*talk) {}, assumed: []string{"a model of this server"}}}
	}
	list := []probe{{
		model: model, name: "speaks and writes down what it says", maxVoice: 3, do: probeTypedWordFully,
		assumed: []string{
			"answers", "says plum", "24000 Hz", "generation complete", "counts tokens", "counts them by modality", "REST knows it",
		},
	}}
	if !plain.Profile.Seeds { // only models for translation or transcription have no Seeds
		list[0] = probe{model: model, name: "hears", maxVoice: 3, do: probeSpeech, assumed: []string{"answers"}}
		return list
	}
	list = append(list, setupProbes(plain, o)...)
	list = append(list, sessionProbes(plain)...)
	list = append(list, callProbes(plain, o)...)
	if o.Long {
		list = append(list,
			probe{name: "lasts ten minutes", maxVoice: 10, do: probeConnectionEnd, assumed: []string{"announces its end", "closed with 1008"}},
			probe{name: "resumes after two minutes", maxVoice: 6, assumed: resumedFacts, do: func(t *talk) { probeResume(t, nil, 2*time.Minute) }},
		)
	}
	for i := range list {
		list[i].model = model
	}
	return list
}

func setupProbes(plain liveconfig.Config, o Options) []probe {
	list := []probe{
		{name: "a field that does not exist", raw: object{"nonsense": true}, do: probeTypedWord, assumed: refusedSetup},
		{name: "a function with an empty object", do: probeTypedWord, assumed: refusedSetup, raw: toolsConfig(object{
			"name": "empty", "description": "Does nothing.", "parameters": object{"type": "OBJECT", "properties": object{}},
		})},
		{name: "search and functions in one tool", do: probeTypedWord, assumed: []string{"refused with 1011"}, raw: object{"tools": []any{
			object{"googleSearch": object{}, "functionDeclarations": []any{declareLookup("lookup", "")}},
		}}},
		{
			name: "no thinking level", do: probeTypedWord, raw: nestedObject(nil, "generationConfig.thinkingConfig"), maxVoice: 2,
			assumed: answersFacts,
		},
	}
	if valueAt(setupFields(plain), "generationConfig.thinkingConfig") != nil { // the gateway adds it if required
		list[len(list)-1].assumed, list[len(list)-1].maxVoice = refusedSetup, 0
	}
	for _, f := range features {
		p := probe{name: f.name, raw: nestedObject(f.value, f.path), alpha: f.alpha, do: probeTypedWord, maxVoice: 1.5}
		p.assumed, p.unknown = assumedFacts(plain.Model, f.path, f.value, o)
		p.unknown = p.unknown || f.careful != "" && strings.HasPrefix(plain.Model, f.careful)
		list = append(list, p)
	}
	return list
}

var (
	answersFacts = []string{"answers"}
	refusedSetup = []string{"refused with 1007"}
)

// assumedFacts returns the facts that the gateway assumes if this field of a setup has this value. They are
// [answersFacts] if the gateway sends the value unchanged, and [refusedSetup] if it changes the value or warns.
// isUnknown is true if the gateway assumes nothing.
func assumedFacts(model, path string, value any, o Options) (assumed []string, isUnknown bool) {
	config := nestedObject(value, path)
	config["model"] = model
	c, err := parseConfig(config, o.Client.Vertex)
	name := path[strings.LastIndexByte(path, '.')+1:]
	accepted := valueAt(setupFields(c), path)
	switch {
	// The gateway removes or changes the field with a warning, so the field is assumed to be refused.
	case err != nil, accepted != nil && !bytes.Equal(mustEncodeJSON(accepted), mustEncodeJSON(value)),
		slices.ContainsFunc(c.Warnings, func(w string) bool { return strings.Contains(w, name) }):
		return refusedSetup, false
	case accepted != nil:
		return answersFacts, false
	}
	// The gateway removes the field without a warning, so nothing is assumed.
	return nil, true
}

func setupFields(c liveconfig.Config) (fields map[string]any) {
	_ = json.Unmarshal(c.Effective(), &fields) // cannot fail: Effective returns valid JSON
	return fields
}

func mustEncodeJSON(v any) json.RawMessage {
	encoded, err := json.Marshal(v)
	if err != nil {
		panic(err) // unreachable, because this package has made the value
	}
	return encoded
}

// probeTypedWord opens a session, types one word and waits for the answer. Google refuses some setups only at the first
// message.
func probeTypedWord(t *talk) {
	if !t.open("") {
		return
	}
	t.mayBeRefused = true
	t.sendText("plum", true)
	if h := t.awaitAnswer(); h.text != "" || h.voice > 0 {
		t.addFact("answers")
	}
}

// probeTypedWordFully is like probeTypedWord, but also checks details of the answer.
func probeTypedWordFully(t *talk) {
	if !t.open("") {
		return
	}
	t.sendText("plum", true)
	h := t.awaitAnswer()
	if t.isOver || h.turns == 0 {
		return
	}
	t.addFact("answers")
	t.addWordFact(h, "plum")
	t.addFact("%d Hz", h.rate)
	if h.generationCount > 0 {
		t.addFact("generation complete")
	}
	if h.tokens.Total > 0 {
		t.addFact("counts tokens")
	}
	if len(h.tokens.ResponseBy) > 0 {
		t.addFact("counts them by modality")
	}
	if err := t.client.Check(t.ctx, t.model); err != nil {
		t.addNote("%v", err)
	} else {
		t.addFact("REST knows it")
	}
}

// probeSpeech sends a spoken sentence and waits for the answer.
func probeSpeech(t *talk) { probeSpeechAt(t, speechRate, 1500*time.Millisecond) }

func probeSpeechAt(t *talk, rate int, silence time.Duration) {
	if !t.open("") {
		return
	}
	t.speak(rate, silence)
	h := t.awaitAnswer()
	if h.text != "" || h.voice > 0 {
		t.addFact("answers")
	}
	if h.question != "" {
		t.addNote("it heard: %.200s", h.question)
	}
}

// manual is the part of a config that disables the server's speech detection, so that the client marks speech.
var manual = nestedObject(true, "realtimeInputConfig.automaticActivityDetection.disabled")

func endPauseConfig(ms int) object {
	return nestedObject(ms, "realtimeInputConfig.automaticActivityDetection.silenceDurationMs")
}

// sessionProbes returns the probes of behaviour within an open session.
func sessionProbes(plain liveconfig.Config) []probe {
	list := slices.Concat(inputProbes(plain), interruptionProbes(), resumptionProbes(plain))
	if plain.Profile.Appends {
		list = append(list, probe{name: "text that wants no answer", maxVoice: 4, assumed: []string{"silent", "says plum"}, do: func(t *talk) {
			if !t.open("") {
				return
			}
			t.sendText("plum", false)
			if h := t.listenUntil(quiet, hasVoice); h.voice == 0 && !t.isOver {
				t.addFact("silent")
			}
			t.sendText("/history", true)
			t.addWordFact(t.awaitAnswer(), "plum")
		}})
	}
	return list
}

// inputProbes returns the probes of audio and video input, and of the detection of the end of a turn.
func inputProbes(plain liveconfig.Config) []probe {
	return []probe{
		{name: "hears and writes down what it heard", maxVoice: 4, assumed: []string{"answers", "transcribes"}, do: func(t *talk) {
			if !t.open("") {
				return
			}
			t.speak(2*speechRate, 1500*time.Millisecond)
			h := t.awaitAnswer()
			if h.text != "" || h.voice > 0 {
				t.addFact("answers")
			}
			if h.question += t.listenUntil(time.Second, func(h *modelOutput) bool { return h.question != "" }).question; h.question != "" {
				t.addFact("transcribes")
				t.addNote("it heard: %.200s", h.question)
			}
		}},
		{name: "hears 8 kHz", maxVoice: 4, do: probeSpeech, assumed: answersFacts},
		{name: "hears 24 kHz", maxVoice: 4, do: func(t *talk) { probeSpeechAt(t, 3*speechRate, 1500*time.Millisecond) }, assumed: answersFacts},
		{
			name: "a pause of 1 s with 2 s to wait", config: endPauseConfig(2000), maxVoice: 8, do: probeTwoSentences,
			assumed: []string{"one turn"},
		},
		{
			name: "a pause of 1 s with 0.3 s to wait", config: endPauseConfig(300), maxVoice: 8, do: probeTwoSentences,
			assumed: []string{"two turns"},
		},
		streamEndProbe(plain),
		silenceProbe(500 * time.Millisecond), silenceProbe(800 * time.Millisecond), silenceProbe(1200 * time.Millisecond),
		{name: "what the client marks", config: manual, maxVoice: 4, assumed: answersFacts, do: probeMarkedSpeech},
		{name: "an end that the client retracts", config: manual, maxVoice: 8, assumed: []string{"one turn"}, do: probeRetractedEnd},
		marksProbe(plain),
		{name: "a picture", maxVoice: 2, assumed: answersFacts, do: func(t *talk) {
			if t.open("") {
				t.send(wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{Video: greySquareJPEG()}})
				t.sendText("plum", true)
				if h := t.awaitAnswer(); h.text != "" || h.voice > 0 {
					t.addFact("answers")
				}
			}
		}},
	}
}

// Names of the probes whose findings can replace assumptions of the gateway: see [Report.Findings].
const (
	endsAtStreamEnd  = "the end of the stream ends a turn"
	remembersLong    = "resumes with an instruction of 4 KB"
	remembersResumes = "remembers what was said before the last resume but one"
)

// streamEndProbe returns a probe that tests whether audioStreamEnd ends a turn. If it does not, only silence ends
// turns.
func streamEndProbe(plain liveconfig.Config) probe {
	p := probe{name: endsAtStreamEnd, config: endPauseConfig(4000), maxVoice: 4, assumed: answersFacts, do: func(t *talk) {
		if !t.open("") {
			return
		}
		t.speak(2*speechRate, 0)
		t.send(wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{AudioStreamEnd: true}})
		t.awaitAndRecordAnswer()
	}}
	if plain.Profile.EndSilence > 0 {
		p.assumed, p.unknown = []string{"silent"}, !strings.HasPrefix(plain.Model, "gemini-3.8-live") // there are no recordings of other models
	}
	return p
}

// silenceProbe returns a probe that tests whether silence of this length after speech ends a turn, if no audio follows.
func silenceProbe(length time.Duration) probe {
	return probe{name: fmt.Sprintf("%v of silence end a turn", length), maxVoice: 4, unknown: true, do: func(t *talk) {
		if t.open("") {
			t.speak(2*speechRate, length)
			t.awaitAndRecordAnswer()
		}
	}}
}

// awaitAndRecordAnswer waits for an answer, and adds the fact "answers" or "silent".
func (t *talk) awaitAndRecordAnswer() {
	if h := t.awaitAnswer(); h.voice > 0 || h.text != "" {
		t.addFact("answers")
	}
}

// marksProbe returns a probe that sends activityStart and activityEnd although the server detects speech. The
// extended-thinking model ignores these messages (recorded). The other models are assumed to close the session.
func marksProbe(plain liveconfig.Config) probe {
	p := probe{name: "marks where the server listens for itself", maxVoice: 4, do: probeMarkedSpeech, assumed: []string{"closed with 1007"}}
	if plain.Profile.Slow {
		p.assumed, p.unknown = nil, true
	}
	return p
}

// interruptionProbes returns the probes of interruptions. Some of them test what the model remembers of an interrupted
// answer.
func interruptionProbes() []probe {
	return []probe{
		{name: "typed text interrupts", maxVoice: 10, assumed: []string{"interrupted"}, do: func(t *talk) {
			probeInterruption(t, func() { t.sendText("stop", true) })
		}},
		{name: "what it knows of an answer that was cut off", maxVoice: 10, unknown: true, do: func(t *talk) {
			probeInterruption(t, func() { t.sendText("stop", true) })
			t.listenUntil(quiet, func(*modelOutput) bool { return false })
			t.sendText("/said", true)
			t.addWordFact(t.awaitAnswer(), "nineteen")
		}},
		{name: "speech interrupts", maxVoice: 10, assumed: []string{"interrupted"}, do: func(t *talk) {
			probeInterruption(t, func() { t.speak(2*speechRate, 0) })
		}},
		{
			name: "marked speech interrupts", config: manual, maxVoice: 14, assumed: []string{"interrupted", "answers"},
			do: func(t *talk) {
				probeInterruption(t, t.sendMarkedSpeech)
				if !t.isOver {
					t.awaitAndRecordAnswer()
				}
			},
		},
		{
			name: "speech does not interrupt where it must not", maxVoice: 12, assumed: []string{"not interrupted"},
			config: nestedObject("NO_INTERRUPTION", "realtimeInputConfig.activityHandling"), do: func(t *talk) {
				probeInterruption(t, func() { t.speak(2*speechRate, 0) })
			},
		},
	}
}

// resumptionProbes returns the probes of session resumption. They test what the model remembers in a resumed session.
func resumptionProbes(plain liveconfig.Config) []probe {
	return []probe{
		{name: "resumes", maxVoice: 6, assumed: resumedFacts, do: func(t *talk) { probeResume(t, nil, 0) }},
		{name: "resumes with another voice", maxVoice: 6, assumed: resumedFacts, do: func(t *talk) {
			probeResume(t, nestedObject("Puck", "generationConfig.speechConfig.voiceConfig.prebuiltVoiceConfig.voiceName"), 0)
		}},
		secondResumeProbe(plain), longInstructionProbe(),
		{name: "a handle that is in use", maxVoice: 3, do: probeHandleInUse, assumed: []string{"gives a handle", "refused with 1011"}},
		{name: "a handle that is none", assumed: []string{"refused with 1008"}, do: func(t *talk) { t.open("no-handle-of-anybody") }},
		{name: "a history", maxVoice: 4, assumed: []string{"says plum"}, do: func(t *talk) {
			if t.open("", wire.Content{Role: "user", Parts: textParts("plum")}, wire.Content{Role: "model", Parts: textParts("plum")}) {
				t.sendText("/history", true)
				t.addWordFact(t.awaitAnswer(), "plum")
			}
		}},
	}
}

func hasVoice(h *modelOutput) bool { return h.voice > 0 }

// greySquareJPEG returns a grey square.
func greySquareJPEG() *wire.Blob {
	var b bytes.Buffer
	_ = jpeg.Encode(&b, image.NewGray(image.Rect(0, 0, 64, 64)), nil) // cannot fail: writes into memory
	return &wire.Blob{MIMEType: "image/jpeg", Data: b.Bytes()}
}

// probeTwoSentences sends a spoken sentence, a second of silence, and the same sentence again.
func probeTwoSentences(t *talk) {
	if !t.open("") {
		return
	}
	t.speak(2*speechRate, time.Second)
	t.speak(2*speechRate, 3*time.Second)
	t.awaitAndCountTurns()
}

// awaitAndCountTurns waits for answers, and adds the number of turns with an answer as a fact.
func (t *talk) awaitAndCountTurns() {
	// The server sends turnComplete when the voice of the answer would have been played, or later. A further
	// turnComplete within the next 4 s means a second turn.
	first := t.listenUntil(answerTimeout, func(h *modelOutput) bool { return h.turns > 0 })
	turns := first.turns + t.listenUntil(4*time.Second, func(*modelOutput) bool { return false }).turns
	switch {
	case t.isOver:
	case turns == 1:
		t.addFact("one turn")
	case turns == 2:
		t.addFact("two turns")
	default:
		t.addFact("%d turns", turns)
	}
}

// sendMarkedSpeech sends a spoken sentence between activityStart and activityEnd.
func (t *talk) sendMarkedSpeech() {
	t.send(wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{ActivityStart: true}})
	t.speakAndEndActivity()
}

// speakAndEndActivity sends a spoken sentence, and then activityEnd. The caller has sent activityStart.
func (t *talk) speakAndEndActivity() {
	t.speak(2*speechRate, 0)
	t.send(wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{ActivityEnd: true}})
}

func probeMarkedSpeech(t *talk) {
	if t.open("") {
		t.sendMarkedSpeech()
		t.awaitAndRecordAnswer()
	}
}

// probeRetractedEnd sends the same sentence twice, the second time before the first answer begins. The model must then
// not answer the first sentence.
func probeRetractedEnd(t *talk) {
	if !t.open("") {
		return
	}
	t.sendMarkedSpeech()
	const pause = 100 * time.Millisecond
	beforeRetraction := t.listenUntil(pause, hasVoice)
	t.send(wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{ActivityStart: true}})
	const drain = 500 * time.Millisecond // time for voice in flight, which is not an answer to the second sentence
	t.listenUntil(drain, func(h *modelOutput) bool { return h.interrupted > 0 })
	t.speakAndEndActivity()
	t.awaitAndCountTurns()
	if beforeRetraction.voice > 0 {
		t.addNote("the answer to the first sentence began within %v", pause)
	}
}

// longText is a text that takes about ten seconds to say.
const longText = "one two three four five six seven eight nine ten " +
	"eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"

// probeInterruption requests a long answer. It calls do while the model speaks that answer.
func probeInterruption(t *talk, do func()) {
	if !t.open("") {
		return
	}
	t.sendText(longText, true)
	if h := t.listenUntil(slowTimeout, hasVoice); h.voice == 0 {
		t.addFact("silent")
		return
	}
	do()
	h := t.listenUntil(answerTimeout, func(h *modelOutput) bool { return h.interrupted > 0 || h.turns > 0 })
	switch {
	case t.isOver:
	case h.interrupted > 0:
		t.addFact("interrupted")
	default:
		t.addFact("not interrupted")
	}
}

// teachWord tells the model a word, and waits for a handle that covers this turn. It returns false if no such handle
// arrives.
func teachWord(t *talk) (hasHandle bool) {
	if !t.open("") {
		return false
	}
	t.sendText("plum", true)
	t.awaitAnswer()
	t.listenUntil(quiet, func(*modelOutput) bool { return false })
	if t.isOver || t.handle == "" {
		t.addFact("gives no handle")
		return false
	}
	t.addFact("gives a handle")
	return true
}

var resumedFacts = []string{"gives a handle", "resumes", "says plum"}

// probeResume resumes the session on another connection after a delay. The new connection uses config instead of the
// probe's own config, even if config is nil.
func probeResume(t *talk, config object, delay time.Duration) {
	if !teachWord(t) {
		return
	}
	handle := t.handle
	t.close()
	select {
	case <-time.After(delay):
	case <-t.ctx.Done():
		return
	}
	t.probe.config = config
	if err := t.buildSetup(); err != nil {
		t.addNote("%v", err)
	}
	if !t.open(handle) {
		return
	}
	t.addFact("resumes")
	t.sendText("/history", true)
	t.addWordFact(t.awaitAnswer(), "plum")
}

// secondResumeProbe returns a probe that resumes a session twice, with a turn after each time. It then asks the model
// what was said before the first resumption.
func secondResumeProbe(plain liveconfig.Config) probe {
	p := probe{name: remembersResumes, maxVoice: 8, do: func(t *talk) {
		if !teachWord(t) {
			return
		}
		for range 2 {
			handle := t.handle
			t.close()
			if !t.open(handle) {
				return
			}
			t.addFact("resumes")
			t.sendText("cherry", true)
			t.awaitAnswer()
			t.listenUntil(quiet, func(*modelOutput) bool { return false })
		}
		t.sendText("/history", true)
		t.addWordFact(t.awaitAnswer(), "plum")
	}}
	p.assumed = []string{"gives a handle", "resumes", "resumes", "says plum"}
	if plain.Profile.ForgetfulHandles {
		p.assumed = []string{"gives a handle", "resumes", "resumes", "does not say plum"}
	}
	return p
}

// longInstructionProbe returns a probe that resumes a session with a system instruction of 4 KB. According to a report,
// version 3.1 then loses the conversation.
func longInstructionProbe() probe {
	lines := strings.Repeat("You are a patient listener who answers in few words and in the language of the person who speaks. ", 41)
	return probe{
		name: remembersLong, maxVoice: 6, unknown: true, config: object{"systemInstruction": lines},
		do: func(t *talk) { probeResume(t, object{"systemInstruction": lines}, 0) },
	}
}

func probeHandleInUse(t *talk) {
	if !teachWord(t) {
		return
	}
	second := &talk{run: t.run, config: t.config, object: t.object, alpha: t.alpha}
	if second.open(t.handle) {
		t.addFact("resumes")
	}
	second.close()
}

// probeConnectionEnd waits until the server closes the connection. Meanwhile it sends silence in real time, because
// Google measures the age of a connection by its audio.
func probeConnectionEnd(t *talk) {
	if !t.open("") {
		return
	}
	goAway := false
	for range int(15 * time.Minute / time.Second) {
		if err := t.conn.SendAudio(t.ctx, make([]int16, 2*speechRate), 2*speechRate); err != nil && !t.isOver {
			t.addNote("sound was not sent: %v", err)
		}
		h := t.listenUntil(time.Second, func(h *modelOutput) bool { return h.goAway && !goAway })
		if h.goAway && !goAway {
			goAway = true
			t.addFact("announces its end")
		}
		if t.isOver || t.ctx.Err() != nil {
			return
		}
	}
	t.addFact("does not end in 15 minutes")
}

// callProbes returns the probes of function calls.
func callProbes(plain liveconfig.Config, o Options) []probe {
	if !slices.Contains(slices.Collect(maps.Keys(setupFields(configWith(plain, toolsConfig(declareLookup("lookup", "")), o)))), "tools") {
		return nil // the model supports no function calls
	}
	f, _ := configWith(plain, toolsConfig(declareLookup("lookup", "NON_BLOCKING")), o).Functions.Find("lookup")
	list := []probe{
		{
			name: "calls a function", config: toolsConfig(declareLookup("lookup", "")), maxVoice: 5,
			assumed: []string{"calls lookup", "says banana"}, do: func(t *talk) { probeCallAnswer(t, "", false) },
		},
		{
			name: "an empty result", config: toolsConfig(declareLookup("lookup", "")), maxVoice: 3,
			assumed: []string{"calls lookup", "calls lookup"}, do: func(t *talk) {
				if c, ok := requestAndAwaitCall(t); ok {
					t.respondToCall(c, "{}", "", false)
					t.awaitCall()
				}
			},
		},
	}
	for _, c := range []struct{ scheduling, says string }{{"SILENT", "silent"}, {"WHEN_IDLE", "says banana"}, {"INTERRUPT", "says banana"}} {
		p := probe{
			name: "a result to be spoken of: " + c.scheduling, config: toolsConfig(declareLookup("lookup", "NON_BLOCKING")), maxVoice: 5,
			assumed: []string{"calls lookup", c.says}, do: func(t *talk) { probeCallAnswer(t, c.scheduling, false) },
		}
		if p.unknown = f.Blocking; !f.Blocking && !f.Schedules {
			p.assumed = []string{"calls lookup", "closed with 1007"}
		}
		list = append(list, p)
	}
	if f.Continues {
		list = append(list, probe{
			name: "a result before the last", config: toolsConfig(declareLookup("lookup", "NON_BLOCKING")), maxVoice: 8,
			assumed: []string{"calls lookup", "says banana"}, do: func(t *talk) { probeCallAnswer(t, "", true) },
		})
	}
	update := probe{
		name: "tools change in place", config: toolsConfig(declareLookup("lookup", "")), maxVoice: 3,
		assumed: []string{"calls second"}, do: func(t *talk) {
			if !t.open("") {
				return
			}
			next := object{"tools": []any{object{"functionDeclarations": []any{declareLookup("second", "")}}}}
			t.send(wire.ClientMessage{ContextUpdate: &wire.ContextUpdate{Tools: mustEncodeJSON(next)}})
			t.sendText(`/tool second {"word":"plum"}`, true)
			t.awaitCall()
		},
	}
	if !plain.Profile.ContextUpdate {
		update.assumed = []string{"closed with 1007"}
	}
	return append(list, update)
}

// requestAndAwaitCall makes the model call lookup, and waits for the call.
func requestAndAwaitCall(t *talk) (call wire.FunctionCall, ok bool) {
	if !t.open("") {
		return wire.FunctionCall{}, false
	}
	t.sendText(`/tool lookup {"word":"plum"}`, true)
	return t.awaitCall()
}

// probeCallAnswer makes the model call lookup, and responds to the call. If interimFirst is set, it sends an interim
// response first.
func probeCallAnswer(t *talk, scheduling string, interimFirst bool) {
	c, ok := requestAndAwaitCall(t)
	if !ok {
		return
	}
	if interimFirst {
		t.respondToCall(c, `{"progress":"half"}`, "SILENT", true)
		t.listenUntil(time.Second, func(*modelOutput) bool { return false })
	}
	t.respondToCall(c, `{"result":"banana"}`, scheduling, false)
	if scheduling == "SILENT" {
		if h := t.listenUntil(quiet, hasVoice); h.voice == 0 && !t.isOver {
			t.addFact("silent")
		} else {
			t.addWordFact(h, "banana")
		}
		return
	}
	t.addWordFact(t.awaitAnswer(), "banana")
}

// configWith returns a config with only these fields, for the same model as plain.
func configWith(plain liveconfig.Config, fields object, o Options) liveconfig.Config {
	config := maps.Clone(fields)
	config["model"] = plain.Model
	c, _ := parseConfig(config, o.Client.Vertex)
	return c
}
