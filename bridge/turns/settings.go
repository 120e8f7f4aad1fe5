package turns

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// By says who decides when a turn begins and ends.
type By string

// The sides that can decide when a turn begins and ends. An empty By means ByModel.
const (
	ByModel   By = "model"
	ByGateway By = "gateway"
	ByClient  By = "client"
)

// Interrupt selects which sounds of the person interrupt an answer.
type Interrupt string

// The sounds of the person that interrupt an answer. The empty string means InterruptSpeech.
const (
	InterruptAtOnce Interrupt = "at-once" // any voice of 60 ms
	InterruptSpeech Interrupt = "speech"
	InterruptNever  Interrupt = "never" // the person is heard when the answer is over, if they still speak
)

// Shield says which answers cannot be interrupted.
type Shield string

// Values of Shield. The empty string means ShieldNone.
const (
	ShieldNone     Shield = "none"
	ShieldGreeting Shield = "greeting" // speech over the first answer is sent when that answer is over
)

// Settings are the field `turns` of an agent, a grant or a client's config. The zero value means the defaults.
type Settings struct {
	By        By        `json:"by,omitempty"`
	Patience  Patience  `json:"patience,omitzero"`
	Interrupt Interrupt `json:"interrupt,omitempty"`
	Shield    Shield    `json:"shield,omitempty"`
}

func (s Settings) withDefaults() Settings {
	if s.By == "" {
		s.By = ByModel
	}
	if s.Interrupt == "" {
		s.Interrupt = InterruptSpeech
	}
	if s.Shield == "" {
		s.Shield = ShieldNone
	}
	return s
}

// FieldError describes an invalid setting.
type FieldError struct {
	Field   string // "turns", or a field of it such as "turns.patience"
	Problem string // such as "must be none or greeting"
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// UnmarshalJSON changes the settings that raw contains. Fields that are absent or null keep their values. The error is
// a [*FieldError] or a syntax error. After an error nothing has changed.
func (s *Settings) UnmarshalJSON(raw []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return &FieldError{"turns", "must be an object"}
	}
	changed := *s
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value, at := fields[name], "turns."+name
		if string(value) == "null" {
			continue
		}
		var err error
		switch name {
		case "by":
			err = parseWord(value, at, &changed.By, ByModel, ByGateway, ByClient)
		case "patience":
			err = changed.Patience.parse(value, at)
		case "interrupt":
			err = parseWord(value, at, &changed.Interrupt, InterruptAtOnce, InterruptSpeech, InterruptNever)
		case "shield":
			err = parseWord(value, at, &changed.Shield, ShieldNone, ShieldGreeting)
		default:
			err = &FieldError{at, "unknown field"}
		}
		if err != nil {
			return err
		}
	}
	*s = changed
	return nil
}

// parseWord sets a setting to the word in raw. It returns an error if the word is not in words.
func parseWord[T ~string](raw json.RawMessage, field string, setting *T, words ...T) error {
	var word T
	if json.Unmarshal(raw, &word) != nil || !slices.Contains(words, word) {
		text := ""
		for i, w := range words {
			switch {
			case i > 0 && i == len(words)-1:
				text += " or "
			case i > 0:
				text += ", "
			}
			text += string(w)
		}
		return &FieldError{field, "must be " + text}
	}
	*setting = word
	return nil
}

// minMost and maxMost limit what may be set as the longest quiet within a turn.
const (
	minMost = pauseTime
	maxMost = 10 * time.Second
)

// Patience determines how long the person must be quiet for the turn to end. That depends on how finished the turn
// sounds. The zero value is Normal.
type Patience struct {
	word  string        // quick, patient, or empty
	most  time.Duration // longest quiet within a turn; 0 means the default for word
	fixed time.Duration // if not 0, this quiet ends every turn, and the judge is not asked
}

// Patience values that can be set by a word.
var (
	Quick   = Patience{word: "quick"}
	Normal  = Patience{}
	Patient = Patience{word: "patient"}
)

// PatienceAtMost returns Normal with another limit for the quiet within a turn. The limit may be from 200 ms to 10 s. A
// value outside this range is replaced by the nearest value in it.
func PatienceAtMost(maxQuiet time.Duration) Patience {
	return Patience{most: min(max(maxQuiet, minMost), maxMost)}
}

// PatienceFixedAt returns a patience that does not ask the judge: each turn ends after the given quiet, from 200 ms to
// 10 s. OpenAI's server_vad works like this.
func PatienceFixedAt(quiet time.Duration) Patience {
	return Patience{fixed: min(max(quiet, minMost), maxMost)}
}

// parse parses a patience: a word, or {"most": milliseconds}. The error is a [*FieldError].
func (p *Patience) parse(raw json.RawMessage, field string) error {
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil {
			return &FieldError{field, "must be an object"}
		}
		for _, name := range slices.Sorted(maps.Keys(object)) {
			if name != "most" {
				return &FieldError{field + "." + name, "unknown field"}
			}
		}
		var most float64
		err := json.Unmarshal(object["most"], &most)
		if low, high := float64(minMost.Milliseconds()), float64(maxMost.Milliseconds()); err != nil || most < low || most > high {
			return &FieldError{field + ".most", fmt.Sprintf("must be a number of milliseconds from %v to %v", low, high)}
		}
		*p = PatienceAtMost(time.Duration(most * float64(time.Millisecond)))
		return nil
	}
	var word string
	if err := parseWord(raw, field, &word, "quick", "normal", "patient"); err != nil {
		return &FieldError{field, `must be quick, normal, patient or {"most": milliseconds}`}
	}
	*p = map[string]Patience{"quick": Quick, "normal": Normal, "patient": Patient}[word]
	return nil
}

// quietLengths holds three lengths of quiet that end a turn. Which of them applies depends on the judge's probability
// that the turn is finished: first if it is at least firstLimit, second if it is at least secondLimit, and otherwise
// third.
type quietLengths struct {
	first, second, third    time.Duration
	firstLimit, secondLimit float64
}

// The limits come from the training half of the recordings in lab/turns. Results of make bench-turns for quick, normal
// and patient:
//
//   - with package prosody, 25, 13 and 3 % of pauses of 0.4 to 1.2 s within a phrase end a turn
//   - with package prosody, half of all turns end after 0.26, 0.63 and 1.10 s
//   - with package smartturn, the shares are 15, 7 and 1 %, and the times 0.27, 0.64 and 1.11 s
var (
	quickSteps   = quietLengths{250 * time.Millisecond, 600 * time.Millisecond, 1200 * time.Millisecond, 0.4, 0.17}
	normalSteps  = quietLengths{300 * time.Millisecond, 640 * time.Millisecond, 1600 * time.Millisecond, 0.8, 0.3}
	patientSteps = quietLengths{700 * time.Millisecond, 1100 * time.Millisecond, 2500 * time.Millisecond, 0.97, 0.4}
	longestSteps = quietLengths{1050 * time.Millisecond, 1650 * time.Millisecond, 3750 * time.Millisecond, 0.97, 0.4}
)

// quietLengths returns the lengths of quiet for this patience. If isLonger is true, it returns those of the next longer
// patience.
func (p Patience) quietLengths(isLonger bool) quietLengths {
	ladder, i := [...]quietLengths{quickSteps, normalSteps, patientSteps, longestSteps}, 1
	switch p.word {
	case "quick":
		i = 0
	case "patient":
		i = 2
	}
	if isLonger {
		i++
	}
	s := ladder[i]
	if p.fixed > 0 {
		s.first, s.second, s.third = p.fixed, p.fixed, p.fixed
	}
	if p.most > 0 {
		s.first, s.second, s.third = min(s.first, p.most), min(s.second, p.most), p.most
	}
	return s
}

// quietFor returns the length of quiet that ends a turn. finished is the probability that the turn is finished.
func (s *quietLengths) quietFor(finished float64) time.Duration {
	switch {
	case finished >= s.firstLimit:
		return s.first
	case finished >= s.secondLimit:
		return s.second
	}
	return s.third
}
