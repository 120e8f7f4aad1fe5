// Package transcript is what both sides of a conversation have said, as far as it was heard.
package transcript

import (
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"voxgate/bridge/gemini/wire"
)

const (
	// maxEntries and maxRunes bound what is kept of a conversation: some five hours.
	maxEntries = 2000
	maxRunes   = 200_000
)

// Transcript is what both sides have said, as far as it was heard. The zero value is empty. Its methods may be called
// by any goroutine.
type Transcript struct {
	mu      sync.Mutex
	entries []said
	runes   int // in all of them
}

// The values of [Entry].Role.
const (
	User      = "user"
	Assistant = "assistant"
)

// Entry is what one side said in one turn.
type Entry struct {
	Role    string // "user" or "assistant"
	Content string
	Time    time.Time     // when it began
	Played  time.Duration // of the voice, for an assistant's turn: less than it all when it was interrupted
	Cut     bool          `json:"Cut"` // it was interrupted; Content is what was heard of it
}

// Numbered is an entry and its turn.
type Numbered struct {
	Entry
	Turn int
}

// said is an entry, and the number of its turn: a question and its answer have the same.
type said struct {
	Entry
	turn    int
	pieces  []piece       // of an answer, whose Content is what was heard of them
	voice   time.Duration // of an answer: how much of it there is
	written bool          // of a question: some of it was typed
	bounded bool          // of an answer: its client has said how much was heard
}

// piece is a part of an answer's text, and where in its voice it begins. It goes on to where the next one begins.
type piece struct {
	from time.Duration
	text string
}

func (e *said) runes() int {
	n := utf8.RuneCountInString(e.Content)
	for _, p := range e.pieces {
		n += utf8.RuneCountInString(p.text)
	}
	return n
}

// soFar is the entry with what was heard of it so far.
func (e *said) soFar() Entry {
	entry := e.Entry
	entry.Content = e.heard()
	return entry
}

// all is its whole text, heard or not, if it was not cut off.
func (e *said) all() string {
	if e.Cut {
		return e.heard()
	}
	text := e.Content
	for _, p := range e.pieces {
		text += p.text
	}
	return text
}

// heard is what was heard of it. A model does not say where in its voice the words of a piece are, so their length in
// time is taken from their length in letters: of a piece that was cut off, the words count whose end was reached.
func (e *said) heard() string {
	text := e.Content
	for i, p := range e.pieces {
		to, last := e.voice, i+1 == len(e.pieces)
		if !last {
			to = e.pieces[i+1].from
		}
		switch {
		case e.voice == 0: // it has none
		case e.Played < to, e.Played == p.from && !last:
			if e.Played > p.from {
				text += wordsUpTo(p.text, float64(e.Played-p.from)/float64(to-p.from))
			}
			return text
		}
		text += p.text
	}
	return text
}

// wordsUpTo is the words of a text that end before a share of it. In a script without spaces each letter is one.
func wordsUpTo(text string, share float64) string {
	end, most := 0, share*float64(len(text))
	for i, r := range text {
		next := i + utf8.RuneLen(r)
		if unicode.IsSpace(r) && float64(i) <= most || unicode.In(r, spaceless...) && float64(next) <= most {
			end = next
		}
	}
	return text[:end]
}

// spaceless are the scripts that are written without spaces between words.
var spaceless = []*unicode.RangeTable{
	unicode.Han,
	unicode.Hiragana,
	unicode.Katakana,
	unicode.Thai,
	unicode.Lao,
	unicode.Khmer,
	unicode.Myanmar,
}

// Begin fills an empty log with what was said before the conversation. Those turns have numbers below zero.
func (l *Transcript) Begin(entries []Entry) {
	for i, e := range entries {
		l.edit(i-len(entries), e.Role, func(s *said) { s.Content, s.Cut, s.Played = e.Content, e.Cut, e.Played })
	}
}

// AnswerText returns the whole text of an answer, or what was heard of an interrupted one.
func (l *Transcript) AnswerText(turn int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.find(turn, Assistant); e != nil {
		return e.all()
	}
	return ""
}

// Newest returns the newest entries, as far as they were heard, with limit bytes of text at most.
func (l *Transcript) Newest(limit int) (said []Numbered) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := 0
	for i := len(l.entries) - 1; i >= 0; i-- {
		e := &l.entries[i]
		entry := e.soFar()
		if size += len(entry.Content); size > limit {
			break
		}
		said = append(said, Numbered{entry, e.turn})
	}
	slices.Reverse(said)
	return said
}

// Restore fills an empty log with what Newest returned.
func (l *Transcript) Restore(entries []Numbered) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries, l.runes = nil, 0 // of a history before the conversation newest has what is left
	for _, e := range entries {
		s := said{Entry: e.Entry, turn: e.Turn, written: true}
		l.entries = append(l.entries, s)
		l.runes += s.runes()
	}
}

// Understood adds to what the person has said in a turn, as the model has understood it.
func (l *Transcript) Understood(turn int, text string) {
	if text != "" {
		l.edit(turn, User, func(e *said) { e.Content += text })
	}
}

// Typed adds a text to what the person says in a turn.
func (l *Transcript) Typed(turn int, text string) { l.Add(turn, User, text) }

// Add adds a text that was written to what a side says in a turn.
func (l *Transcript) Add(turn int, role, text string) {
	l.edit(turn, role, func(e *said) {
		if e.Content != "" {
			e.Content += "\n"
		}
		e.Content += text
		e.written = true
	})
}

// Unsay forgets what the model has understood of a turn: it is said again and will be transcribed again.
func (l *Transcript) Unsay(turn int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = slices.DeleteFunc(l.entries, func(e said) bool {
		gone := e.turn == turn && e.Role == User && !e.written
		if gone {
			l.runes -= e.runes()
		}
		return gone
	})
}

// Answer adds text to what the model says in a turn. The text begins at from in its voice, which is voice long by now.
func (l *Transcript) Answer(turn int, text string, from, voice time.Duration) {
	if text != "" || voice > from {
		l.edit(turn, Assistant, func(e *said) {
			if e.Cut {
				return
			}
			if text != "" {
				e.pieces = append(e.pieces, piece{from, text})
			}
			e.voice = voice
		})
	}
}

// Played notes how much of an answer's voice was heard so far.
func (l *Transcript) Played(turn int, voice time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.find(turn, Assistant); e != nil && !e.bounded {
		e.Played = max(e.Played, voice)
	}
}

// Complete notes that all of an answer was heard.
func (l *Transcript) Complete(turn int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.find(turn, Assistant); e != nil && !e.Cut {
		e.Content, e.pieces = e.all(), nil
	}
}

// Cut notes that an answer was cut off after so much of its voice; below zero: after what is known to be heard. It
// returns what is kept.
func (l *Transcript) Cut(turn int, voice time.Duration) Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.find(turn, Assistant)
	if e == nil {
		return Entry{}
	}
	if voice >= 0 && !e.bounded { // marks are called when sound is handed over, perhaps ahead of its time
		e.Played = voice
	}
	e.Cut = true
	return e.soFar()
}

// HeardUpTo notes that at most so much of an answer's voice was heard, whatever was handed over.
func (l *Transcript) HeardUpTo(turn int, voice time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.find(turn, Assistant)
	if e == nil || voice >= e.voice {
		return
	}
	if e.pieces == nil { // it was complete
		e.pieces, e.Content = []piece{{0, e.Content}}, ""
	}
	e.Cut, e.bounded, e.Played = true, true, voice
}

// Question is what the person has said in a turn.
func (l *Transcript) Question(turn int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.find(turn, User); e != nil {
		return e.Content
	}
	return ""
}

// Heard is an answer as it was heard so far.
func (l *Transcript) Heard(turn int) Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.find(turn, Assistant); e != nil {
		return e.soFar()
	}
	return Entry{}
}

// edit changes what a side has said in a turn, and enforces the bounds.
func (l *Transcript) edit(turn int, role string, change func(*said)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.find(turn, role)
	if e == nil {
		now := time.Now()
		if n := len(l.entries); n > 0 && l.entries[n-1].Time.After(now) {
			now = l.entries[n-1].Time // the wall clock was set back
		}
		l.entries = append(l.entries, said{Entry: Entry{Role: role, Time: now}, turn: turn})
		e = &l.entries[len(l.entries)-1]
	}
	before := e.runes()
	change(e)
	l.runes += e.runes() - before
	for len(l.entries) > maxEntries || l.runes > maxRunes && len(l.entries) > 1 {
		l.runes -= l.entries[0].runes()
		l.entries = slices.Delete(l.entries, 0, 1)
	}
	if l.runes > maxRunes { // one entry alone
		last := &l.entries[0]
		all := []rune(last.all())
		last.Content, last.pieces = string(all[max(0, len(all)-maxRunes):]), nil
		l.runes = last.runes()
	}
}

// find returns what a side has said in a turn. Needs mu.
func (l *Transcript) find(turn int, role string) *said {
	for i := len(l.entries) - 1; i >= 0; i-- {
		if e := &l.entries[i]; e.turn == turn && e.Role == role {
			return e
		}
	}
	return nil
}

// Entries is a copy of the entries.
func (l *Transcript) Entries() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries := make([]Entry, 0, len(l.entries))
	for _, e := range l.entries {
		if entry := e.soFar(); entry.Content != "" { // else nobody has heard it
			entries = append(entries, entry)
		}
	}
	return entries
}

// Clear forgets all.
func (l *Transcript) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries, l.runes = nil, 0
}

// Before returns what was said before a turn, and before the conversation, in the form for a model: the newest entries with
// alternating roles, limited to limit bytes of text. Of a single longer entry it returns the end.
func (l *Transcript) Before(before, limit int) []wire.Content {
	return l.contents(limit, func(turn int) bool { return turn != 0 && turn < before })
}

// Between is like Before for the entries after one turn and before another.
func (l *Transcript) Between(after, before, limit int) []wire.Content {
	return l.contents(limit, func(turn int) bool { return after < turn && turn < before })
}

func (l *Transcript) contents(limit int, wanted func(turn int) bool) []wire.Content {
	l.mu.Lock()
	defer l.mu.Unlock()
	var turns []wire.Content
	var texts []string
	size := 0
	for _, e := range slices.Backward(l.entries) {
		if !wanted(e.turn) {
			continue
		}
		role := User
		if e.Role == Assistant {
			role = "model"
		}
		text := strings.TrimSpace(e.all())
		if text == "" {
			continue
		}
		if size += len(text); size > limit && len(turns) > 0 {
			break
		} else if size > limit { // one entry alone
			text = "… " + strings.ToValidUTF8(text[len(text)-limit:], "")
		}
		if e.Cut {
			text += " …" // was interrupted here
		}
		if n := len(turns); n > 0 && turns[n-1].Role == role {
			texts[n-1] = text + "\n" + texts[n-1]
			continue
		}
		turns, texts = append(turns, wire.Content{Role: role}), append(texts, text)
	}
	for i := range turns {
		turns[i].Parts = wire.TextPart(texts[i]).JSON()
	}
	slices.Reverse(turns)
	return turns
}
