package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"voxgate/tools"
)

const (
	// maxSession limits a session in JSON, in bytes. It is the length of the longest message that Chromium accepts on a
	// data channel.
	maxSession = 256 << 10
	// maxTools limits the functions of a session.
	maxTools = 128
	// minSilence is the shortest silence that may end a turn, in milliseconds. Many clients send OpenAI's default of
	// 200. With Gemini, such a short silence would end the turn of a person who only takes a breath.
	minSilence = 300
	// defaultSilence is OpenAI's default, in milliseconds.
	defaultSilence = 200
	// maxUncommitted limits the audio that waits for a commit. Beyond this limit, the oldest audio is dropped.
	maxUncommitted = 10 * time.Minute
)

// session is OpenAI's session object, which the client configures. A session.update is applied by decoding its JSON
// into the session: missing fields keep their values, and unknown fields are ignored.
type session struct {
	Type             string          `json:"type"`
	Object           string          `json:"object"`
	ID               string          `json:"id"`
	Model            string          `json:"model"`
	OutputModalities []string        `json:"output_modalities"`
	Instructions     string          `json:"instructions"`
	Tools            []tool          `json:"tools"`
	ToolChoice       json.RawMessage `json:"tool_choice"`
	MaxOutputTokens  json.RawMessage `json:"max_output_tokens"` // a number or "inf"
	Temperature      *float64        `json:"temperature,omitempty"`
	Reasoning        struct {
		Effort string `json:"effort,omitempty"`
	} `json:"reasoning,omitzero"`
	Tracing    json.RawMessage `json:"tracing"`
	Truncation json.RawMessage `json:"truncation"`
	Prompt     json.RawMessage `json:"prompt"`
	Include    json.RawMessage `json:"include"`
	Audio      audio           `json:"audio"`
}

type audio struct {
	Input struct {
		Format         format          `json:"format"`
		Transcription  *transcription  `json:"transcription"`
		NoiseReduction json.RawMessage `json:"noise_reduction"`
		TurnDetection  *turnDetection  `json:"turn_detection"`
	} `json:"input"`
	Output struct {
		Format format  `json:"format"`
		Voice  voice   `json:"voice"`
		Speed  float64 `json:"speed"`
	} `json:"output"`
}

// format is audio/pcm, audio/pcmu or audio/pcma. Only audio/pcm has a rate.
type format struct {
	Type string `json:"type"`
	Rate int    `json:"rate,omitempty"`
}

type transcription struct {
	Model    string `json:"model,omitempty"`
	Language string `json:"language,omitempty"` // ISO 639-1
	Prompt   string `json:"prompt,omitempty"`
}

// voice is the name of a voice. In JSON it may also be {"id"}, for a custom voice.
type voice string

// UnmarshalJSON implements json.Unmarshaler.
func (v *voice) UnmarshalJSON(raw []byte) error {
	var customVoice struct{ ID string }
	if err := json.Unmarshal(raw, &customVoice); err == nil {
		if customVoice.ID != "" {
			*v = voice(customVoice.ID)
		}
		return nil
	}
	return json.Unmarshal(raw, (*string)(v))
}

// turnDetection configures server_vad or semantic_vad. A session without it uses push to talk.
type turnDetection struct {
	Type              string   `json:"type"`
	Threshold         *float64 `json:"threshold,omitempty"`
	PrefixPaddingMS   *int     `json:"prefix_padding_ms,omitempty"`
	SilenceDurationMS *int     `json:"silence_duration_ms,omitempty"`
	IdleTimeoutMS     *int     `json:"idle_timeout_ms,omitempty"`
	Eagerness         string   `json:"eagerness,omitempty"`
	CreateResponse    bool     `json:"create_response"`
	InterruptResponse bool     `json:"interrupt_response"`
}

const (
	serverVAD   = "server_vad"
	semanticVAD = "semantic_vad"
)

// newDetection returns OpenAI's defaults for a type of turn detection: https://platform.openai.com/docs/api-reference/realtime-sessions.
func newDetection(kind string) turnDetection {
	d := turnDetection{Type: kind, CreateResponse: true, InterruptResponse: true}
	if kind == semanticVAD {
		d.Eagerness = "auto"
		return d
	}
	threshold, padding, silence := 0.5, 300, defaultSilence
	d.Threshold, d.PrefixPaddingMS, d.SilenceDurationMS = &threshold, &padding, &silence
	return d
}

// UnmarshalJSON implements json.Unmarshaler. If the type changes, missing fields get the defaults of the new type.
func (d *turnDetection) UnmarshalJSON(raw []byte) error {
	var kind struct{ Type string }
	if err := json.Unmarshal(raw, &kind); err != nil {
		return err
	}
	if name := cmp.Or(kind.Type, d.Type, serverVAD); name != d.Type {
		*d = newDetection(name)
	}
	type plain turnDetection // has no UnmarshalJSON, which would call itself
	return json.Unmarshal(raw, (*plain)(d))
}

func stringOrEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

var (
	auto = json.RawMessage(`"auto"`)
	inf  = json.RawMessage(`"inf"`)
)

// newSession returns the default session.
func newSession(id, model string) session {
	detection := newDetection(serverVAD)
	s := session{
		Type: "realtime", Object: "realtime.session", ID: id, Model: model, OutputModalities: []string{modalityAudio}, Tools: []tool{},
		ToolChoice: auto, MaxOutputTokens: inf, Truncation: auto,
	}
	s.Audio.Input.Format, s.Audio.Output.Format = format{formatPCM, voiceRate}, format{formatPCM, voiceRate}
	s.Audio.Input.TurnDetection = &detection
	s.Audio.Output.Voice, s.Audio.Output.Speed = defaultVoice, 1
	return s
}

// defaultVoice is the default voice. An agent's own voice takes precedence over it.
const defaultVoice = "marin"

// promptText returns a session's prompt as JSON text, or "" if the prompt is null.
func promptText(raw json.RawMessage) string {
	if string(raw) == "null" {
		return ""
	}
	return string(raw)
}

// parsePrompt parses a session's prompt. It returns the name of the agent that the prompt selects, or "", and the
// values of the agent's variables.
func parsePrompt(raw json.RawMessage) (name string, values map[string]string, err error) {
	var p struct {
		ID        string                     `json:"id"`
		Variables map[string]json.RawMessage `json:"variables"`
	}
	if len(raw) == 0 {
		return "", nil, nil
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return "", nil, wrongType(err, "session.prompt")
	}
	values = map[string]string{}
	for name, raw := range p.Variables {
		var text string
		var part struct{ Text *string }
		if json.Unmarshal(raw, &text) != nil && (json.Unmarshal(raw, &part) != nil || part.Text == nil) {
			return "", nil, invalidValue("session.prompt.variables."+name, "must be a text.")
		}
		if part.Text != nil {
			text = *part.Text
		}
		values[name] = text
	}
	return p.ID, values, nil
}

// withChange returns a copy of the session in which a change is applied. If any part of the change is invalid, it
// rejects the whole change with an [apiError].
func (s *session) withChange(raw json.RawMessage) (session, error) {
	var next session
	if err := json.Unmarshal(tools.EncodeOrEmpty(s), &next); err != nil { // makes next a deep copy of s
		return next, err
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil || fields == nil {
		return next, newError("invalid_type", "session", "session must be an object.")
	}
	if err := rejectBetaFields(fields, "session."); err != nil {
		return next, err
	}
	if err := json.Unmarshal(raw, &next); err != nil {
		return next, wrongType(err, "session")
	}
	if kind := cmp.Or(next.Type, s.Type); kind != s.Type {
		return next, newError("invalid_value", "session.type", "Sessions of the type %q are not supported; only realtime is.", clip(kind))
	}
	next.Type, next.Object, next.ID = s.Type, s.Object, s.ID
	if string(fields["instructions"]) == "null" { // null is not a string, and JSON decoding would ignore it
		next.Instructions = ""
	}
	if err := next.normalizeSession(); err != nil {
		return next, err
	}
	if len(tools.EncodeOrEmpty(next)) > maxSession {
		return next, newError("invalid_value", "session", "The session is too long: at most %d bytes are allowed.", maxSession)
	}
	return next, nil
}

// normalizeSession returns an error if the session has invalid values, and normalizes the other values.
func (s *session) normalizeSession() error {
	in := &s.Audio.Input
	err := cmp.Or(checkModalities("session", s.OutputModalities), in.Format.normalizeFormat("input"),
		s.Audio.Output.Format.normalizeFormat("output"),
		in.TurnDetection.validateTurnDetection())
	if err != nil {
		return err
	}
	if string(s.MaxOutputTokens) == "null" {
		s.MaxOutputTokens = inf
	}
	var most int
	if string(s.MaxOutputTokens) != string(inf) && (json.Unmarshal(s.MaxOutputTokens, &most) != nil || most < 1) {
		return invalidValue("session.max_output_tokens", `must be a positive number or "inf".`)
	}
	if s.Tools == nil {
		s.Tools = []tool{}
	}
	if len(s.Tools) > maxTools {
		return invalidValue("session.tools", "has %d entries; at most %d are allowed.", len(s.Tools), maxTools)
	}
	for i, t := range s.Tools {
		if t.Type == function && t.Name == "" {
			return invalidValue(fmt.Sprintf("session.tools[%d].name", i), "is missing.")
		}
	}
	return nil
}

// The output modalities.
const (
	modalityAudio = "audio"
	modalityText  = "text"
)

// checkModalities rejects unsupported output modalities. param is the path of the object that has them.
func checkModalities(param string, modalities []string) error {
	if len(modalities) == 1 && (modalities[0] == modalityAudio || modalities[0] == modalityText) {
		return nil
	}
	return invalidValue(param+".output_modalities", `must be ["audio"] or ["text"].`)
}

// normalizeFormat fills in the rate, and rejects an unsupported format. side is "input" or "output".
func (f *format) normalizeFormat(side string) error {
	param := "session.audio." + side + ".format"
	switch f.Type {
	case formatPCM:
		if f.Rate = cmp.Or(f.Rate, voiceRate); f.Rate != voiceRate {
			return invalidValue(param+".rate", "must be 24000.")
		}
	case formatMuLaw, formatALaw:
		f.Rate = 0
	default:
		return invalidValue(param+".type", "must be audio/pcm, audio/pcmu or audio/pcma.")
	}
	return nil
}

func (d *turnDetection) validateTurnDetection() error {
	const param = "session.audio.input.turn_detection."
	ms := func(n *int) bool { return n == nil || *n >= 0 && *n <= 10_000 }
	switch {
	case d == nil:
	case d.Type != serverVAD && d.Type != semanticVAD:
		return invalidValue(param+"type", "must be server_vad or semantic_vad.")
	case d.Threshold != nil && (*d.Threshold < 0 || *d.Threshold > 1):
		return invalidValue(param+"threshold", "must be between 0 and 1.")
	case !ms(d.PrefixPaddingMS):
		return invalidValue(param+"prefix_padding_ms", "must be between 0 and 10000.")
	case d.IdleTimeoutMS != nil && (*d.IdleTimeoutMS < 5000 || *d.IdleTimeoutMS > 30_000):
		return invalidValue(param+"idle_timeout_ms", "must be between 5000 and 30000.")
	case !ms(d.SilenceDurationMS):
		return invalidValue(param+"silence_duration_ms", "must be between 0 and 10000.")
	}
	return nil
}

// function is the type of tools that clients may declare. Tools of other types, such as web_search, can only be enabled
// by the operator.
const function = "function"

// tool is a tool that the client declares. raw is the whole declaration.
type tool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`

	raw json.RawMessage
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *tool) UnmarshalJSON(raw []byte) error {
	type plain tool // has no UnmarshalJSON, which would call itself
	next := plain{raw: bytes.Clone(raw)}
	err := json.Unmarshal(raw, &next)
	*t = tool(next)
	return err
}

// MarshalJSON implements json.Marshaler.
func (t tool) MarshalJSON() ([]byte, error) { return t.raw, nil }

// turnMode is a turn-taking mode.
type turnMode int

const (
	engineDetectsTurns  turnMode = iota // the engine detects the end of speech, and the model answers
	gatewayDetectsTurns                 // the gateway detects speech, and the client requests answers (create_response: false)
	clientMarksTurns                    // the client marks the end of speech (turn_detection: null)
)

func (s *session) turnMode() turnMode {
	switch d := s.Audio.Input.TurnDetection; {
	case d == nil:
		return clientMarksTurns
	case !d.CreateResponse:
		return gatewayDetectsTurns
	}
	return engineDetectsTurns
}

// turnsConfig returns the "turns" setting for the engine's config, or nil if the model detects the end of a turn
// itself.
func (d *turnDetection) turnsConfig() object {
	switch {
	case d.Type == semanticVAD:
		patience := map[string]string{"low": "patient", "high": "quick"}[d.Eagerness]
		return object{"by": "gateway", "patience": cmp.Or(patience, "normal")}
	// For another silence than OpenAI's default, the gateway detects the end of a turn, because some models ignore
	// silenceDurationMs.
	case d.SilenceDurationMS != nil && *d.SilenceDurationMS != defaultSilence:
		return object{"by": "gateway"}
	}
	return nil
}

// silenceMS returns the silence that ends a turn, in milliseconds. The silence for semantic_vad is used only in the mode
// gatewayDetectsTurns.
func (d *turnDetection) silenceMS() int {
	if d.Type == semanticVAD {
		return cmp.Or(map[string]int{"low": 1200, "high": 400}[d.Eagerness], 700)
	}
	if d.SilenceDurationMS == nil {
		return minSilence
	}
	return max(minSilence, *d.SilenceDurationMS)
}

// paddingMS returns the length of the audio before speech that belongs to the speech, in milliseconds.
func (d *turnDetection) paddingMS() int {
	if d == nil || d.PrefixPaddingMS == nil {
		return 300
	}
	return *d.PrefixPaddingMS
}

func (s *session) isText() bool { return s.OutputModalities[0] == modalityText }

// defaultModel stands for the gateway's default model. It is reported to clients that name no model.
const defaultModel = "gpt-realtime"

// voices maps OpenAI's voices to Gemini's. The mapping is that of LiteLLM, so that people who migrate from LiteLLM hear
// the same voices.
var voices = map[voice]voice{
	"alloy": "Zephyr", "ash": "Charon", "ballad": "Fenrir", "cedar": "Charon", "coral": "Aoede", "echo": "Puck", "marin": "Aoede",
	"sage": "Kore", "shimmer": "Leda", "verse": "Orus",
}

// geminiModel returns the Gemini model for a client's name of a model. For OpenAI's models it returns "", which stands for
// the operator's default.
func geminiModel(name string) (model string, ok bool) {
	bare := strings.TrimPrefix(name, "models/")
	switch {
	case name == "", strings.HasPrefix(name, "gpt-"):
		return "", true
	case strings.HasPrefix(bare, "gemini-"):
		return bare, true
	}
	return "", false
}

// checkModel rejects an unknown model; param is the client's name for the field.
func (s *session) checkModel(param string) error {
	if _, ok := geminiModel(s.Model); ok {
		return nil
	}
	return newError("invalid_model", param,
		"The model %q is unknown: use the name of a Gemini model, or for the default model a name that begins with gpt-.", clip(s.Model))
}

// engineConfig returns the session as a configuration for the engine.
func (s *session) engineConfig() json.RawMessage {
	generation := object{"responseModalities": []string{strings.ToUpper(s.OutputModalities[0])}}
	agent, _, _ := parsePrompt(s.Prompt)
	usesAgentVoice := agent != "" && s.Audio.Output.Voice == defaultVoice
	if name := cmp.Or(voices[s.Audio.Output.Voice], s.Audio.Output.Voice); name != "" && !s.isText() && !usesAgentVoice {
		generation["speechConfig"] = object{"voiceConfig": object{"prebuiltVoiceConfig": object{"voiceName": name}}}
	}
	if string(s.MaxOutputTokens) != string(inf) {
		generation["maxOutputTokens"] = s.MaxOutputTokens
	}
	if s.Temperature != nil {
		generation["temperature"] = *s.Temperature
	}
	levels := map[string]string{"minimal": "MINIMAL", "low": "LOW", "medium": "MEDIUM", "high": "HIGH", "xhigh": "HIGH"}
	if level := levels[s.Reasoning.Effort]; level != "" {
		generation["thinkingConfig"] = object{"thinkingLevel": level}
	}
	inputTranscription := object{}
	if t := s.Audio.Input.Transcription; t != nil && t.Language != "" {
		inputTranscription["languageCodes"] = []string{t.Language}
	}
	config := object{
		"generationConfig": generation, "realtimeInputConfig": s.realtimeInputConfig(), "inputAudioTranscription": inputTranscription,
		"outputAudioTranscription": object{},
	}
	if d := s.Audio.Input.TurnDetection; s.turnMode() == engineDetectsTurns {
		extension := object{}
		if turns := d.turnsConfig(); turns != nil {
			extension["turns"] = turns
		}
		if d.IdleTimeoutMS != nil && d.Type == serverVAD {
			extension["silence"] = object{"after": fmt.Sprintf("%dms", *d.IdleTimeoutMS), "times": 0}
		}
		if len(extension) > 0 {
			config["voxgate"] = extension
		}
	}
	if model, _ := geminiModel(s.Model); model != "" {
		config["model"] = model
	}
	if s.Instructions != "" {
		config["systemInstruction"] = s.Instructions
	}
	if functions := s.functionDeclarations(); len(functions) > 0 {
		config["tools"] = []object{{"functionDeclarations": functions}}
	}
	return tools.EncodeOrEmpty(config)
}

// realtimeInputConfig returns Google's configuration of speech detection.
func (s *session) realtimeInputConfig() object {
	detection, d := object{}, s.Audio.Input.TurnDetection
	input := object{"automaticActivityDetection": detection}
	if d == nil || !d.InterruptResponse { // the client decides itself when to interrupt an answer
		input["activityHandling"] = "NO_INTERRUPTION"
	}
	// For Google's speech detection, prefixPaddingMs means the duration of speech that starts a turn, so it is not set.
	// If the gateway detects speech, prefixPaddingMs means the audio before the speech that belongs to the speech, as
	// in OpenAI's API. In push to talk, it is large enough for all audio that waits for a commit.
	switch s.turnMode() {
	case clientMarksTurns:
		detection["disabled"], detection["prefixPaddingMs"] = true, maxUncommitted.Milliseconds()
		return input
	case gatewayDetectsTurns:
		detection["disabled"], detection["prefixPaddingMs"] = true, d.paddingMS()
		return input
	}
	if d.Type == semanticVAD {
		return input
	}
	detection["silenceDurationMs"] = d.silenceMS()
	switch {
	case d.Threshold == nil:
	case *d.Threshold < 0.4:
		detection["startOfSpeechSensitivity"] = "START_SENSITIVITY_HIGH"
	case *d.Threshold > 0.7:
		detection["startOfSpeechSensitivity"] = "START_SENSITIVITY_LOW"
	}
	return input
}

// functionDeclarations returns the declarations of the session's functions. The model waits for the results, as
// OpenAI's models do.
func (s *session) functionDeclarations() (list []object) {
	if string(s.ToolChoice) == `"none"` {
		return nil
	}
	for _, t := range s.Tools {
		if t.Type != function {
			continue
		}
		declared := object{"name": t.Name, "description": t.Description, "behavior": "BLOCKING"}
		if len(t.Parameters) > 0 && string(t.Parameters) != "null" {
			declared["parametersJsonSchema"] = t.Parameters
		}
		list = append(list, declared)
	}
	return list
}
