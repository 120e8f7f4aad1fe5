package liveconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"voxgate/bridge/turns"
	"voxgate/tools"
)

// Options holds the gateway's session options, from the `voxgate` object of a config.
type Options struct {
	// Resumption is true unless the client sets enableResumption to false. Without resumption, the gateway requests no
	// handles, and the conversation ends when the client is lost.
	Resumption bool

	// MaxDuration limits the conversation; 0 means no limit.
	MaxDuration time.Duration

	// Manual is set if the model does not detect speech. Then the client marks speech with activityStart and
	// activityEnd, or the gateway does.
	Manual bool

	// Turns configures how the gateway detects turns. It is zero if the gateway does not detect them.
	Turns turns.Settings

	// Ducking lowers the model's volume while the user speaks over it.
	Ducking bool

	// Record requests a recording of the conversation.
	Record bool

	// Silence configures what happens if the user says nothing.
	Silence Silence

	// Waiting configures what the user hears during a slow tool call.
	Waiting Waiting

	// Canvas is set if the client can show a canvas.
	Canvas bool

	// History is a conversation from earlier sessions, oldest turn first.
	History []HistoryTurn

	// EndPause is the pause after which the model ends the user's turn (silenceDurationMs), or 0 for the model's
	// default.
	EndPause time.Duration

	// PreRoll is the length of audio from before an activityStart that is sent with the speech. It applies only if
	// Manual is set.
	PreRoll time.Duration
}

// Silence makes the model speak when the user has said nothing for a while after an answer.
type Silence struct {
	After time.Duration // silence after which the model speaks; 0 disables it
	Say   string        // the instruction for the model to speak
	Times int           // how often the model speaks in one silence before the conversation ends; 0 means no limit
}

// Waiting configures what the user hears during a slow tool call. With the zero value the user hears nothing.
type Waiting struct {
	Sound bool   // whether a soft tone is played from time to time
	Say   string // the instruction for the model to speak once, if the model does not wait for the tool
}

const (
	// shortestSilence and longestSilence limit Silence.After. The minimum is 2 s, because people often think for almost
	// as long before they answer. The maximum of 10 min is practically unlimited.
	shortestSilence, longestSilence = 2 * time.Second, 10 * time.Minute

	// defaultPrompts is the default of Silence.Times, and maxPrompts its maximum. maxSay limits an instruction, in
	// bytes.
	defaultPrompts, maxPrompts, maxSay = 2, 100, 4000

	defaultSay = "The person has said nothing for a while. " +
		"Ask in one short sentence whether they are still there, in the language that you have spoken so far."
)

// HistoryTurn is one turn of a history.
type HistoryTurn struct {
	Role    string // "user" or "assistant"
	Content string // text of the turn; not empty
}

const (
	// maxHistory and maxHistoryText limit a history. Package bridge keeps the same amount of a conversation.
	maxHistory     = 100     // turns
	maxHistoryText = 200_000 // total characters

	// defaultPreRoll is the length of speech that typically precedes the client's mark of its start, because the person
	// presses the button late, or the client's detector needs time.
	defaultPreRoll = 300 * time.Millisecond

	// maxPause limits silenceDurationMs and prefixPaddingMs: people do not pause longer within a turn.
	maxPause = 10_000 // ms
)

// takeOptions takes the `voxgate` object from fields. It copies the settings for activity detection to Google's fields
// in realtimeInputConfig, but does not replace a field that the client has set itself.
func (p *parser) takeOptions(fields map[string]any) error {
	p.Options.Resumption, p.compression = true, true
	options := fields["voxgate"]
	delete(fields, "voxgate")
	if options == nil {
		return nil
	}
	r := &reader{warnings: &p.warnings}
	o := r.readObject(options, p.path+".voxgate")
	p.Options.Resumption = !isFalse(o.takeBool("enableResumption"))
	p.compression = !isFalse(o.takeBool("contextCompression"))
	p.Options.MaxDuration = o.takeDuration("maxDuration")
	p.Options.Ducking = isTrue(o.takeBool("ducking"))
	p.Options.Record = isTrue(o.takeBool("record"))
	p.Options.Canvas = isTrue(o.takeBool("canvas"))
	p.Options.History = o.takeHistory("history")
	p.Options.Silence = o.takeSilence("silence")
	p.Options.Waiting = o.takeWaiting("waiting")
	p.readVAD(o, fields)
	p.readInterrupts(o, fields)
	p.readTurns(o, fields)
	o.warnUnknown()
	return r.err
}

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }

// takeHistory reads an array of {role, content}. It accepts the role "model" for "assistant".
func (o *object) takeHistory(name string) (turns []HistoryTurn) {
	value := o.takeField(name)
	list, ok := value.([]any)
	switch {
	case value == nil:
		return nil
	case !ok:
		o.recordError(name, "must be an array")
		return nil
	case len(list) > maxHistory:
		o.recordError(name, fmt.Sprintf("must have at most %d entries", maxHistory))
		return nil
	}
	characters := 0
	for i, v := range list {
		entry := o.reader.readObject(v, fmt.Sprintf("%s.%s[%d]", o.path, name, i))
		role, _ := entry.takeField("role").(string)
		if role == "model" {
			role = "assistant"
		}
		if role != "user" && role != "assistant" {
			entry.recordError("role", `must be "user", "assistant" or "model"`)
		}
		content, _ := entry.takeField("content").(string)
		if strings.TrimSpace(content) == "" {
			entry.recordError("content", "must be a text")
		}
		if characters += utf8.RuneCountInString(content); characters > maxHistoryText {
			o.recordError(name, fmt.Sprintf("must have at most %d characters", maxHistoryText))
		}
		entry.warnUnknown()
		turns = append(turns, HistoryTurn{role, content})
	}
	return turns
}

// takeSilence reads {after, say, times}.
func (o *object) takeSilence(name string) (s Silence) {
	value := o.takeField(name)
	if value == nil {
		return s
	}
	options := o.reader.readObject(value, o.path+"."+name)
	s = Silence{After: options.takeDuration("after"), Say: defaultSay, Times: defaultPrompts}
	if say, _ := options.takeField("say").(string); say != "" {
		s.Say = say
	}
	if times := options.takeNumber("times", 0, maxPrompts); times != nil {
		s.Times = int(*times)
	}
	switch {
	case s.After < shortestSilence || s.After > longestSilence:
		options.recordError("after", fmt.Sprintf("must be between %v and %v", shortestSilence, longestSilence))
	case len(s.Say) > maxSay:
		options.recordError("say", fmt.Sprintf("has %d bytes; %d are the most", len(s.Say), maxSay))
	}
	options.warnUnknown()
	return s
}

// takeWaiting reads {sound, say}.
func (o *object) takeWaiting(name string) (w Waiting) {
	value := o.takeField(name)
	if value == nil {
		return w
	}
	options := o.reader.readObject(value, o.path+"."+name)
	w.Sound = !isFalse(options.takeBool("sound"))
	if w.Say, _ = options.takeField("say").(string); len(w.Say) > maxSay {
		options.recordError("say", fmt.Sprintf("has %d bytes; %d are the most", len(w.Say), maxSay))
	}
	options.warnUnknown()
	return w
}

// readVAD reads vad {enabled, sensitivity, silenceDurationMs, prefixPaddingMs}.
func (p *parser) readVAD(o *object, fields map[string]any) {
	raw := o.takeField("vad")
	if raw == nil {
		return
	}
	v := o.reader.readObject(raw, o.path+".vad")
	set := func(name string, value any, from string) {
		p.setUnlessGiven(fields, []string{"realtimeInputConfig", "automaticActivityDetection"}, name, value, v.path+"."+from)
	}
	if enabled := v.takeBool("enabled"); enabled != nil {
		set("disabled", !*enabled, "enabled")
	}
	if sensitivity := v.takeNumber("sensitivity", 0, 1); sensitivity != nil {
		level := "LOW"
		if *sensitivity >= 0.5 { // Google has only two levels, LOW and HIGH
			level = "HIGH"
		}
		set("startOfSpeechSensitivity", "START_SENSITIVITY_"+level, "sensitivity")
		set("endOfSpeechSensitivity", "END_SENSITIVITY_"+level, "sensitivity")
	}
	for _, name := range []string{"silenceDurationMs", "prefixPaddingMs"} {
		if ms := v.takeNumber(name, 0, maxPause); ms != nil {
			set(name, json.Number(fmt.Sprint(int(*ms))), name)
		}
	}
	v.warnUnknown()
}

// readInterrupts reads interrupts {enabled, allowUserInterruption}.
func (p *parser) readInterrupts(o *object, fields map[string]any) {
	raw := o.takeField("interrupts")
	if raw == nil {
		return
	}
	i := o.reader.readObject(raw, o.path+".interrupts")
	for _, name := range []string{"enabled", "allowUserInterruption"} {
		if isFalse(i.takeBool(name)) {
			p.setUnlessGiven(fields, []string{"realtimeInputConfig"}, "activityHandling", "NO_INTERRUPTION", i.path+"."+name)
		}
	}
	i.warnUnknown()
}

// readTurns reads turns {by, patience, interrupt, shield}.
func (p *parser) readTurns(o *object, fields map[string]any) {
	raw := o.takeField("turns")
	if raw == nil {
		return
	}
	s := &p.Options.Turns
	if err := json.Unmarshal(tools.EncodeOrEmpty(raw), s); err != nil {
		if field := (*turns.FieldError)(nil); errors.As(err, &field) {
			o.recordError(field.Field, field.Problem)
		}
		return
	}
	if s.By != "" {
		parents := []string{"realtimeInputConfig", "automaticActivityDetection"}
		p.setUnlessGiven(fields, parents, "disabled", s.By != turns.ByModel, o.path+".turns.by")
	}
}

// setUnlessGiven sets a field in a nested object of Google's setup. If the client has set the field to another value,
// setUnlessGiven warns that the gateway's own option has no effect. option is the name of that option.
func (p *parser) setUnlessGiven(fields map[string]any, parents []string, name string, value any, option string) {
	path := p.path
	for _, n := range parents {
		path += "." + n
		object, ok := fields[n].(map[string]any)
		if !ok && fields[n] != nil {
			return // fitValue reports the wrong type
		}
		object = camelKeys(object)
		fields[n] = object
		fields = object
	}
	switch given := fields[name]; {
	case given == nil:
		fields[name] = value
	case fmt.Sprint(given) != fmt.Sprint(value):
		p.warnf("%s was dropped: %s.%s says otherwise.", option, path, name)
	}
}

// takeActivityDetection records in Options whether the model, the client or the gateway detects speech.
func (p *parser) takeActivityDetection(setup map[string]any) {
	detection, _ := fieldByPath(setup, "realtimeInputConfig.automaticActivityDetection").(map[string]any)
	silence, t := milliseconds(detection["silenceDurationMs"]), &p.Options.Turns
	by := turns.ByGateway
	if p.row.translates && t.By == turns.ByGateway { // a translating model speaks while the user speaks, so it must detect speech itself
		delete(detection, "disabled")
	}
	switch {
	case detection["disabled"] != true:
		by, p.Options.EndPause = turns.ByModel, silence
	case t.By != turns.ByGateway:
		by = turns.ByClient
	}
	if by == turns.ByModel {
		p.clearTurnSettings(by)
		return
	}
	p.Options.Manual, p.Options.PreRoll = true, defaultPreRoll
	if _, ok := detection["prefixPaddingMs"].(json.Number); ok {
		p.Options.PreRoll = milliseconds(detection["prefixPaddingMs"])
	}
	if by == turns.ByClient {
		p.clearTurnSettings(by)
		return
	}
	if silence > 0 && t.Patience == turns.Normal {
		t.Patience = turns.PatienceFixedAt(silence)
	}
	input := fieldByPath(setup, "realtimeInputConfig").(map[string]any)
	if input["activityHandling"] == "NO_INTERRUPTION" && t.Interrupt == "" {
		t.Interrupt = turns.InterruptNever
	}
	delete(input, "activityHandling") // not needed, because the gateway marks only speech that should interrupt
}

// clearTurnSettings clears Options.Turns, and warns about settings that apply only if the gateway detects turns.
func (p *parser) clearTurnSettings(decider turns.By) {
	if t := p.Options.Turns; t != (turns.Settings{By: t.By}) || t.By == turns.ByGateway {
		p.warnf("%s.voxgate.turns has no effect: the %s decides about turns.", p.path, decider)
	}
	p.Options.Turns = turns.Settings{}
}

// milliseconds converts the number of milliseconds in a validated field to a duration. It returns 0 if the field is
// absent.
func milliseconds(value any) time.Duration {
	number, _ := value.(json.Number)
	ms, _ := number.Int64()
	return time.Duration(ms) * time.Millisecond
}
