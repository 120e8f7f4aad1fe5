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

	// PreRoll extends a speech backwards: audio of this length from before the activityStart is sent with the speech. It
	// applies only if Manual is set.
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
	// shortestSilence and longestSilence limit Silence.After. People think for less than 2 s before they answer, and 10
	// min are practically unlimited.
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

	// defaultPreRoll covers the time from the start of a word until the user presses a button or a client's detector triggers.
	defaultPreRoll = 300 * time.Millisecond

	// maxPause limits silenceDurationMs and prefixPaddingMs: people do not pause longer within a turn.
	maxPause = 10_000 // ms
)

// readOptions reads the `voxgate` object. It translates settings for activity detection to realtimeInputConfig, unless the client
// has set Google's own field.
func (p *parser) readOptions(fields map[string]any) error {
	p.Options.Resumption, p.compression = true, true
	options := fields["voxgate"]
	delete(fields, "voxgate")
	if options == nil {
		return nil
	}
	r := &reader{warnings: &p.warnings}
	o := r.object(options, p.path+".voxgate")
	p.Options.Resumption = !isFalse(o.boolean("enableResumption"))
	p.compression = !isFalse(o.boolean("contextCompression"))
	p.Options.MaxDuration = o.duration("maxDuration")
	p.Options.Ducking = isTrue(o.boolean("ducking"))
	p.Options.Record = isTrue(o.boolean("record"))
	p.Options.Canvas = isTrue(o.boolean("canvas"))
	p.Options.History = o.history("history")
	p.Options.Silence = o.silence("silence")
	p.Options.Waiting = o.waiting("waiting")
	p.readVAD(o, fields)
	p.readInterrupts(o, fields)
	p.readTurns(o, fields)
	o.warnUnknown()
	return r.err
}

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }

// history reads an array of {role, content}. It accepts the role "model" for "assistant".
func (o *object) history(name string) (said []HistoryTurn) {
	value := o.take(name)
	list, ok := value.([]any)
	switch {
	case value == nil:
		return nil
	case !ok:
		o.fail(name, "must be an array")
		return nil
	case len(list) > maxHistory:
		o.fail(name, fmt.Sprintf("must have at most %d entries", maxHistory))
		return nil
	}
	characters := 0
	for i, v := range list {
		entry := o.reader.object(v, fmt.Sprintf("%s.%s[%d]", o.path, name, i))
		role, _ := entry.take("role").(string)
		if role == "model" {
			role = "assistant"
		}
		if role != "user" && role != "assistant" {
			entry.fail("role", `must be "user", "assistant" or "model"`)
		}
		content, _ := entry.take("content").(string)
		if strings.TrimSpace(content) == "" {
			entry.fail("content", "must be a text")
		}
		if characters += utf8.RuneCountInString(content); characters > maxHistoryText {
			o.fail(name, fmt.Sprintf("must have at most %d characters", maxHistoryText))
		}
		entry.warnUnknown()
		said = append(said, HistoryTurn{role, content})
	}
	return said
}

// silence reads {after, say, times}.
func (o *object) silence(name string) (s Silence) {
	value := o.take(name)
	if value == nil {
		return s
	}
	options := o.reader.object(value, o.path+"."+name)
	s = Silence{After: options.duration("after"), Say: defaultSay, Times: defaultPrompts}
	if say, _ := options.take("say").(string); say != "" {
		s.Say = say
	}
	if times := options.number("times", 0, maxPrompts); times != nil {
		s.Times = int(*times)
	}
	switch {
	case s.After < shortestSilence || s.After > longestSilence:
		options.fail("after", fmt.Sprintf("must be between %v and %v", shortestSilence, longestSilence))
	case len(s.Say) > maxSay:
		options.fail("say", fmt.Sprintf("has %d bytes; %d are the most", len(s.Say), maxSay))
	}
	options.warnUnknown()
	return s
}

// waiting reads {sound, say}.
func (o *object) waiting(name string) (w Waiting) {
	value := o.take(name)
	if value == nil {
		return w
	}
	options := o.reader.object(value, o.path+"."+name)
	w.Sound = !isFalse(options.boolean("sound"))
	if w.Say, _ = options.take("say").(string); len(w.Say) > maxSay {
		options.fail("say", fmt.Sprintf("has %d bytes; %d are the most", len(w.Say), maxSay))
	}
	options.warnUnknown()
	return w
}

// readVAD reads vad {enabled, sensitivity, silenceDurationMs, prefixPaddingMs}.
func (p *parser) readVAD(o *object, fields map[string]any) {
	raw := o.take("vad")
	if raw == nil {
		return
	}
	v := o.reader.object(raw, o.path+".vad")
	set := func(name string, value any, from string) {
		p.overlay(fields, []string{"realtimeInputConfig", "automaticActivityDetection"}, name, value, v.path+"."+from)
	}
	if enabled := v.boolean("enabled"); enabled != nil {
		set("disabled", !*enabled, "enabled")
	}
	if sensitivity := v.number("sensitivity", 0, 1); sensitivity != nil {
		level := "LOW"
		if *sensitivity >= 0.5 { // Google has only two levels, LOW and HIGH
			level = "HIGH"
		}
		set("startOfSpeechSensitivity", "START_SENSITIVITY_"+level, "sensitivity")
		set("endOfSpeechSensitivity", "END_SENSITIVITY_"+level, "sensitivity")
	}
	for _, name := range []string{"silenceDurationMs", "prefixPaddingMs"} {
		if ms := v.number(name, 0, maxPause); ms != nil {
			set(name, json.Number(fmt.Sprint(int(*ms))), name)
		}
	}
	v.warnUnknown()
}

// readInterrupts reads interrupts {enabled, allowUserInterruption}.
func (p *parser) readInterrupts(o *object, fields map[string]any) {
	raw := o.take("interrupts")
	if raw == nil {
		return
	}
	i := o.reader.object(raw, o.path+".interrupts")
	for _, name := range []string{"enabled", "allowUserInterruption"} {
		if isFalse(i.boolean(name)) {
			p.overlay(fields, []string{"realtimeInputConfig"}, "activityHandling", "NO_INTERRUPTION", i.path+"."+name)
		}
	}
	i.warnUnknown()
}

// readTurns reads turns {by, patience, interrupt, shield}.
func (p *parser) readTurns(o *object, fields map[string]any) {
	raw := o.take("turns")
	if raw == nil {
		return
	}
	s := &p.Options.Turns
	if err := json.Unmarshal(tools.Encode(raw), s); err != nil {
		if field := (*turns.FieldError)(nil); errors.As(err, &field) {
			o.fail(field.Field, field.Problem)
		}
		return
	}
	if s.By != "" {
		p.overlay(fields, []string{"realtimeInputConfig", "automaticActivityDetection"}, "disabled", s.By != turns.ByModel, o.path+".turns.by")
	}
}

// overlay sets a field in a nested object of Google's setup. If the client has set the field to another value, overlay
// warns that the client's own option (from) has no effect.
func (p *parser) overlay(fields map[string]any, names []string, name string, value any, from string) {
	path := p.path
	for _, n := range names {
		path += "." + n
		object, ok := fields[n].(map[string]any)
		if !ok && fields[n] != nil {
			return // fit reports the wrong type
		}
		object = camelKeys(object)
		fields[n] = object
		fields = object
	}
	switch given := fields[name]; {
	case given == nil:
		fields[name] = value
	case fmt.Sprint(given) != fmt.Sprint(value):
		p.warnf("%s was dropped: %s.%s says otherwise.", from, path, name)
	}
}

// readActivity records in Options whether the model, the client or the gateway detects speech.
func (p *parser) readActivity(setup map[string]any) {
	detection, _ := get(setup, "realtimeInputConfig.automaticActivityDetection").(map[string]any)
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
		p.dropTurns(by)
		return
	}
	p.Options.Manual, p.Options.PreRoll = true, defaultPreRoll
	if _, ok := detection["prefixPaddingMs"].(json.Number); ok {
		p.Options.PreRoll = milliseconds(detection["prefixPaddingMs"])
	}
	if by == turns.ByClient {
		p.dropTurns(by)
		return
	}
	if silence > 0 && t.Patience == turns.Normal {
		t.Patience = turns.FixedSilence(silence)
	}
	input := get(setup, "realtimeInputConfig").(map[string]any)
	if input["activityHandling"] == "NO_INTERRUPTION" && t.Interrupt == "" {
		t.Interrupt = turns.InterruptNever
	}
	delete(input, "activityHandling") // not needed, because the gateway marks only speech that should interrupt
}

// dropTurns clears Options.Turns, and warns about settings that apply only if the gateway detects turns.
func (p *parser) dropTurns(by turns.By) {
	if t := p.Options.Turns; t != (turns.Settings{By: t.By}) || t.By == turns.ByGateway {
		p.warnf("%s.voxgate.turns has no effect: the %s decides about turns.", p.path, by)
	}
	p.Options.Turns = turns.Settings{}
}

// milliseconds returns the value of a field in milliseconds that was validated before, or 0.
func milliseconds(value any) time.Duration {
	number, _ := value.(json.Number)
	ms, _ := number.Int64()
	return time.Duration(ms) * time.Millisecond
}
