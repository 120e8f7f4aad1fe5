package setup

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Options are the session options of a config's `voxgate` object.
type Options struct {
	// Resumption is true unless enableResumption is false: no handle is asked for, and the caller is not waited for.
	Resumption bool

	// MaxDuration ends the conversation; 0 means no limit.
	MaxDuration time.Duration

	// Manual is set if the client marks speech itself by activityStart and activityEnd.
	Manual bool

	// Ducking makes the model's voice quieter while the person speaks over it.
	Ducking bool

	// Record asks for a recording of the conversation.
	Record bool

	// Canvas is set if the client can show a canvas.
	Canvas bool

	// History is what was said before the conversation began, in other ones, oldest first.
	History []Said

	// PreRoll is how much audio from before an activityStart belongs to the speech, if Manual.
	PreRoll time.Duration
}

// Said is one turn of a history.
type Said struct {
	Role    string // "user" or "assistant"
	Content string // not empty
}

const (
	// maxHistory and maxHistoryText bound a history: what package transcript keeps of a conversation.
	maxHistory     = 100     // turns
	maxHistoryText = 200_000 // characters in all of them

	// defaultPreRoll covers the time from the first sound of a word to the press of a button or the finding of a
	// client's own detector.
	defaultPreRoll = 300 * time.Millisecond

	// maxPause bounds prefixPaddingMs and silenceDurationMs: nobody pauses longer within a turn, and what waits before
	// an activityStart is kept in memory.
	maxPause = 10_000 // ms
)

// options reads the `voxgate` object. What it says about activity detection goes into realtimeInputConfig, unless Google's
// own field is there already.
func (p *parser) options(fields map[string]any) error {
	p.Options.Resumption, p.compression = true, true
	own := fields["voxgate"]
	delete(fields, "voxgate")
	if own == nil {
		return nil
	}
	o, err := newObject(own, p.path+".voxgate", &p.warnings)
	if err != nil {
		return err
	}
	resumption, err := o.boolean("enableResumption")
	if err != nil {
		return err
	}
	p.Options.Resumption = resumption == nil || *resumption
	compression, err := o.boolean("contextCompression")
	if err != nil {
		return err
	}
	p.compression = compression == nil || *compression
	if p.Options.MaxDuration, err = o.duration("maxDuration"); err != nil {
		return err
	}
	for name, option := range map[string]*bool{"ducking": &p.Options.Ducking, "record": &p.Options.Record, "canvas": &p.Options.Canvas} {
		given, err := o.boolean(name)
		if err != nil {
			return err
		}
		*option = given != nil && *given
	}
	if p.Options.History, err = o.history("history"); err != nil {
		return err
	}
	if err := p.vad(o, fields); err != nil {
		return err
	}
	if err := p.interrupts(o, fields); err != nil {
		return err
	}
	o.rest()
	return nil
}

// history reads a field that is an array of {role, content}; "model" is another word for "assistant".
func (o *object) history(name string) ([]Said, error) {
	value := o.take(name)
	if value == nil {
		return nil, nil
	}
	list, ok := value.([]any)
	if !ok {
		return nil, o.wrong(name, "must be an array")
	}
	if len(list) > maxHistory {
		return nil, o.wrong(name, fmt.Sprintf("must have at most %d entries", maxHistory))
	}
	var said []Said
	characters := 0
	for i, v := range list {
		entry, err := newObject(v, fmt.Sprintf("%s.%s[%d]", o.path, name, i), o.warn)
		if err != nil {
			return nil, err
		}
		role, _ := entry.take("role").(string)
		if role == "model" {
			role = "assistant"
		}
		if role != "user" && role != "assistant" {
			return nil, entry.wrong("role", `must be "user", "assistant" or "model"`)
		}
		content, _ := entry.take("content").(string)
		if strings.TrimSpace(content) == "" {
			return nil, entry.wrong("content", "must be a text")
		}
		if characters += utf8.RuneCountInString(content); characters > maxHistoryText {
			return nil, o.wrong(name, fmt.Sprintf("must have at most %d characters", maxHistoryText))
		}
		entry.rest()
		said = append(said, Said{role, content})
	}
	return said, nil
}

// vad reads vad {enabled, sensitivity, silenceDurationMs, prefixPaddingMs}.
func (p *parser) vad(o *object, fields map[string]any) error {
	v, err := o.object("vad")
	if err != nil || v == nil {
		return err
	}
	enabled, err := v.boolean("enabled")
	if err != nil {
		return err
	}
	sensitivity, err := v.number("sensitivity", 0, 1)
	if err != nil {
		return err
	}
	silence, err := v.number("silenceDurationMs", 0, maxPause)
	if err != nil {
		return err
	}
	padding, err := v.number("prefixPaddingMs", 0, maxPause)
	if err != nil {
		return err
	}
	v.rest()
	google := overlay{p, fields, []string{"realtimeInputConfig", "automaticActivityDetection"}}
	if enabled != nil {
		google.set("disabled", !*enabled, v.path+".enabled")
	}
	if sensitivity != nil {
		level := "LOW"
		if *sensitivity >= 0.5 { // Google has two levels
			level = "HIGH"
		}
		google.set("startOfSpeechSensitivity", "START_SENSITIVITY_"+level, v.path+".sensitivity")
		google.set("endOfSpeechSensitivity", "END_SENSITIVITY_"+level, v.path+".sensitivity")
	}
	if silence != nil {
		google.set("silenceDurationMs", json.Number(fmt.Sprint(int(*silence))), v.path+".silenceDurationMs")
	}
	if padding != nil {
		google.set("prefixPaddingMs", json.Number(fmt.Sprint(int(*padding))), v.path+".prefixPaddingMs")
	}
	return nil
}

// interrupts reads interrupts {enabled, allowUserInterruption}.
func (p *parser) interrupts(o *object, fields map[string]any) error {
	i, err := o.object("interrupts")
	if err != nil || i == nil {
		return err
	}
	google := overlay{p, fields, []string{"realtimeInputConfig"}}
	for _, name := range []string{"enabled", "allowUserInterruption"} {
		may, err := i.boolean(name)
		if err != nil {
			return err
		}
		if may != nil && !*may {
			google.set("activityHandling", "NO_INTERRUPTION", i.path+"."+name)
		}
	}
	i.rest()
	return nil
}

// activity notes who marks speech in a setup.
func (p *parser) activity(setup map[string]any) error {
	detection, _ := get(setup, "realtimeInputConfig.automaticActivityDetection").(map[string]any)
	for _, name := range []string{"silenceDurationMs", "prefixPaddingMs"} {
		ms, ok := milliseconds(detection[name])
		if !ok {
			return &FieldError{
				Field: p.path + ".realtimeInputConfig.automaticActivityDetection." + name, Problem: fmt.Sprintf("must be from 0 to %d", maxPause),
			}
		}
		if name == "prefixPaddingMs" && ms != nil {
			p.Options.PreRoll = *ms
		}
	}
	if detection["disabled"] != true {
		p.Options.PreRoll = 0
		return nil
	}
	p.Options.Manual = true
	if detection["prefixPaddingMs"] == nil {
		p.Options.PreRoll = defaultPreRoll
	}
	return nil
}

// milliseconds reads a number, nil if there is none. It is false if the number is out of range.
func milliseconds(value any) (*time.Duration, bool) {
	number, ok := value.(json.Number)
	if !ok {
		return nil, true
	}
	n, err := number.Int64()
	d := time.Duration(n) * time.Millisecond
	return &d, err == nil && n >= 0 && n <= maxPause
}

// overlay sets fields of an object of Google's that the client may have filled itself. The object is made when it is
// needed.
type overlay struct {
	p      *parser
	fields map[string]any // of the whole config
	names  []string       // the way from there
}

// set sets a field, unless the client said something else there.
func (o overlay) set(name string, value any, from string) {
	fields, path := o.fields, o.p.path
	for _, n := range o.names {
		path += "." + n
		object, ok := fields[n].(map[string]any)
		if !ok && fields[n] != nil {
			return // fit complains
		}
		object = camelKeys(object)
		fields[n] = object
		fields = object
	}
	switch given := fields[name]; {
	case given == nil:
		fields[name] = value
	case fmt.Sprint(given) != fmt.Sprint(value):
		o.p.warnf("%s was dropped: %s.%s says otherwise.", from, path, name)
	}
}
