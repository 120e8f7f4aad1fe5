// Package transcript records what both sides of a conversation said. Of the model's answers, it records how much was
// played.
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
	// maxEntries and maxRunes limit how much of a conversation is kept: about five hours.
	maxEntries = 2000
	maxRunes   = 200_000
)

// Transcript records what both sides said. Of the model's answers it returns only what was played. The zero value is
// empty. Its methods are safe for concurrent use.
type Transcript struct {
	mu        sync.Mutex
	entries   []turnEntry
	runeCount int // length of all entries, in runes
}

// The values of [Entry].Role.
const (
	User      = "user"
	Assistant = "assistant"
)

// Entry holds the words of one side in one turn.
type Entry struct {
	Role        string // "user" or "assistant"
	Content     string
	Time        time.Time     // when the turn began
	Played      time.Duration // length of an assistant's voice that was played; after an interruption less than the whole
	Interrupted bool          `json:"Cut"` // the answer was interrupted; Content is the part that was played
}

// NumberedEntry is an entry with the number of its turn.
type NumberedEntry struct {
	Entry
	Turn int
}

// turnEntry is an entry with the number of its turn: a question and its answer have the same number.
type turnEntry struct {
	Entry
	turn          int
	pieces        []piece       // text of an answer after Content, with its times; nil once the answer was played to its end
	voiceLength   time.Duration // length of all the voice of an answer
	hasTypedText  bool          // part of a question was typed
	playedLimited bool          // the client reported how much of an answer was played
}

// piece is a part of an answer's text. start is its position in the voice of the answer. The piece ends where the next
// piece starts.
type piece struct {
	start time.Duration
	text  string
}

func (e *turnEntry) countRunes() int {
	n := utf8.RuneCountInString(e.Content)
	for _, p := range e.pieces {
		n += utf8.RuneCountInString(p.text)
	}
	return n
}

// playedEntry returns the entry with only the text that was played so far.
func (e *turnEntry) playedEntry() Entry {
	entry := e.Entry
	entry.Content = e.playedText()
	return entry
}

// fullText returns the whole text, including text that was not played yet. If the answer was interrupted, it returns
// only the text that was played.
func (e *turnEntry) fullText() string {
	if e.Interrupted {
		return e.playedText()
	}
	text := e.Content
	for _, p := range e.pieces {
		text += p.text
	}
	return text
}

// playedText returns the part of the text that was played. It estimates the times of words from their lengths in
// letters. Only words that were played completely count.
func (e *turnEntry) playedText() string {
	text := e.Content
	for i, p := range e.pieces {
		to, last := e.voiceLength, i+1 == len(e.pieces)
		if !last {
			to = e.pieces[i+1].start
		}
		switch {
		case e.voiceLength == 0: // an answer without voice
		case e.Played < to, e.Played == p.start && !last:
			if e.Played > p.start {
				text += wordsUpTo(p.text, float64(e.Played-p.start)/float64(to-p.start))
			}
			return text
		}
		text += p.text
	}
	return text
}

// wordsUpTo returns the words that lie completely within the first part of a text. share is the size of that part, from
// 0 to 1. In scripts without spaces, each letter counts as a word.
func wordsUpTo(text string, share float64) string {
	end, most := 0, share*float64(len(text))
	for i, r := range text {
		next := i + utf8.RuneLen(r)
		if unicode.IsSpace(r) && float64(i) <= most || unicode.In(r, spacelessScripts...) && float64(next) <= most {
			end = next
		}
	}
	return text[:end]
}

// spacelessScripts are written without spaces between words.
var spacelessScripts = []*unicode.RangeTable{
	unicode.Han,
	unicode.Hiragana,
	unicode.Katakana,
	unicode.Thai,
	unicode.Lao,
	unicode.Khmer,
	unicode.Myanmar,
}

// LoadHistory fills an empty transcript with turns from before the conversation. These turns get negative numbers.
func (t *Transcript) LoadHistory(entries []Entry) {
	for i, e := range entries {
		t.changeOrAddEntry(i-len(entries), e.Role, func(s *turnEntry) { s.Content, s.Interrupted, s.Played = e.Content, e.Interrupted, e.Played })
	}
}

// AnswerText returns the text of an answer. If the answer was interrupted, it returns only the text that was played.
func (t *Transcript) AnswerText(turn int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.findEntry(turn, Assistant); e != nil {
		return e.fullText()
	}
	return ""
}

// NewestEntries returns the newest entries, with at most maxBytes of text in all. They contain only text that was
// played.
func (t *Transcript) NewestEntries(maxBytes int) (newest []NumberedEntry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	size := 0
	for i := len(t.entries) - 1; i >= 0; i-- {
		e := &t.entries[i]
		entry := e.playedEntry()
		if size += len(entry.Content); size > maxBytes {
			break
		}
		newest = append(newest, NumberedEntry{entry, e.turn})
	}
	slices.Reverse(newest)
	return newest
}

// RestoreEntries replaces the entries by those that NewestEntries returned, perhaps at another gateway.
func (t *Transcript) RestoreEntries(entries []NumberedEntry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries, t.runeCount = nil, 0 // entries includes the part that is left of the history before the conversation
	for _, e := range entries {
		s := turnEntry{Entry: e.Entry, turn: e.Turn, hasTypedText: true}
		t.entries = append(t.entries, s)
		t.runeCount += s.countRunes()
	}
}

// AddTranscription adds the model's transcription of the person's speech to a turn.
func (t *Transcript) AddTranscription(turn int, text string) {
	if text != "" {
		t.changeOrAddEntry(turn, User, func(e *turnEntry) { e.Content += text })
	}
}

// AddTypedText adds a typed text to the person's turn.
func (t *Transcript) AddTypedText(turn int, text string) { t.AddText(turn, User, text) }

// AddText adds a written text to one side's turn.
func (t *Transcript) AddText(turn int, role, text string) {
	t.changeOrAddEntry(turn, role, func(e *turnEntry) {
		if e.Content != "" {
			e.Content += "\n"
		}
		e.Content += text
		e.hasTypedText = true
	})
}

// RemoveTranscription removes the transcription of a turn whose speech is sent again and will be transcribed again.
func (t *Transcript) RemoveTranscription(turn int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries = slices.DeleteFunc(t.entries, func(e turnEntry) bool {
		remove := e.turn == turn && e.Role == User && !e.hasTypedText
		if remove {
			t.runeCount -= e.countRunes()
		}
		return remove
	})
}

// AddAnswer adds text to the model's turn. start is the position of the text in the voice of the turn. voiceLength is
// the length of that voice so far.
func (t *Transcript) AddAnswer(turn int, text string, start, voiceLength time.Duration) {
	if text != "" || voiceLength > start {
		t.changeOrAddEntry(turn, Assistant, func(e *turnEntry) {
			if e.Interrupted {
				return
			}
			if text != "" {
				e.pieces = append(e.pieces, piece{start, text})
			}
			e.voiceLength = voiceLength
		})
	}
}

// SetPlayed records how much of an answer's voice was played so far.
func (t *Transcript) SetPlayed(turn int, played time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.findEntry(turn, Assistant); e != nil && !e.playedLimited {
		e.Played = max(e.Played, played)
	}
}

// MarkComplete records that all of an answer was played.
func (t *Transcript) MarkComplete(turn int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.findEntry(turn, Assistant); e != nil && !e.Interrupted {
		e.Content, e.pieces = e.fullText(), nil
	}
}

// MarkInterrupted records that an answer was interrupted after the duration played of its voice. If played is negative,
// the duration recorded before stays. It returns the entry with only the played text.
func (t *Transcript) MarkInterrupted(turn int, played time.Duration) Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.findEntry(turn, Assistant)
	if e == nil {
		return Entry{}
	}
	if played >= 0 && !e.playedLimited { // corrects SetPlayed, which is called when sound is handed over, perhaps before it is heard
		e.Played = played
	}
	e.Interrupted = true
	return e.playedEntry()
}

// LimitPlayed records that at most maxPlayed of an answer's voice was played, although more may have been passed to the
// output.
func (t *Transcript) LimitPlayed(turn int, maxPlayed time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.findEntry(turn, Assistant)
	if e == nil || maxPlayed >= e.voiceLength {
		return
	}
	if e.pieces == nil { // the answer was complete
		e.pieces, e.Content = []piece{{0, e.Content}}, ""
	}
	e.Interrupted, e.playedLimited, e.Played = true, true, maxPlayed
}

// UserText returns what the person said in a turn.
func (t *Transcript) UserText(turn int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.findEntry(turn, User); e != nil {
		return e.Content
	}
	return ""
}

// PlayedAnswer returns an answer with only the text that was played so far.
func (t *Transcript) PlayedAnswer(turn int) Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.findEntry(turn, Assistant); e != nil {
		return e.playedEntry()
	}
	return Entry{}
}

// changeOrAddEntry changes the entry of one side in a turn, after adding it if it is missing. It also enforces the
// limits.
func (t *Transcript) changeOrAddEntry(turn int, role string, change func(*turnEntry)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.findEntry(turn, role)
	if e == nil {
		now := time.Now()
		if n := len(t.entries); n > 0 && t.entries[n-1].Time.After(now) {
			now = t.entries[n-1].Time // the wall clock was set back
		}
		t.entries = append(t.entries, turnEntry{Entry: Entry{Role: role, Time: now}, turn: turn})
		e = &t.entries[len(t.entries)-1]
	}
	before := e.countRunes()
	change(e)
	t.runeCount += e.countRunes() - before
	for len(t.entries) > maxEntries || t.runeCount > maxRunes && len(t.entries) > 1 {
		t.runeCount -= t.entries[0].countRunes()
		t.entries = slices.Delete(t.entries, 0, 1)
	}
	if t.runeCount > maxRunes { // a single entry exceeds the limit
		last := &t.entries[0]
		all := []rune(last.fullText())
		last.Content, last.pieces = string(all[max(0, len(all)-maxRunes):]), nil
		t.runeCount = last.countRunes()
	}
}

// findEntry returns the entry of one side in a turn, or nil. The caller must hold mu.
func (t *Transcript) findEntry(turn int, role string) *turnEntry {
	for i := len(t.entries) - 1; i >= 0; i-- {
		if e := &t.entries[i]; e.turn == turn && e.Role == role {
			return e
		}
	}
	return nil
}

// Entries returns a copy of the entries, with only the text that was played.
func (t *Transcript) Entries() []Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	entries := make([]Entry, 0, len(t.entries))
	for _, e := range t.entries {
		if entry := e.playedEntry(); entry.Content != "" { // skip what was never played
			entries = append(entries, entry)
		}
	}
	return entries
}

// NewestPlayedEntry returns the newest entry whose text was played at least in part, or the zero Entry.
func (t *Transcript) NewestPlayedEntry() Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range slices.Backward(t.entries) {
		if entry := e.playedEntry(); entry.Content != "" {
			return entry
		}
	}
	return Entry{}
}

// Clear removes all entries.
func (t *Transcript) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries, t.runeCount = nil, 0
}

// HistoryBefore returns the newest entries before a turn, with alternating roles and at most maxBytes of text. It
// includes turns from before the conversation. If the newest entry alone is longer than maxBytes, it returns the end of
// that entry.
func (t *Transcript) HistoryBefore(before, maxBytes int) []wire.Content {
	return t.buildHistory(maxBytes, func(turn int) bool { return turn != 0 && turn < before })
}

// HistoryBetween works like HistoryBefore, but returns only turns whose number is greater than after.
func (t *Transcript) HistoryBetween(after, before, maxBytes int) []wire.Content {
	return t.buildHistory(maxBytes, func(turn int) bool { return after < turn && turn < before })
}

func (t *Transcript) buildHistory(maxBytes int, include func(turn int) bool) []wire.Content {
	t.mu.Lock()
	defer t.mu.Unlock()
	var turns []wire.Content
	var texts []string
	size := 0
	for _, e := range slices.Backward(t.entries) {
		if !include(e.turn) {
			continue
		}
		role := User
		if e.Role == Assistant {
			role = "model"
		}
		text := strings.TrimSpace(e.fullText())
		if text == "" {
			continue
		}
		if size += len(text); size > maxBytes && len(turns) > 0 {
			break
		} else if size > maxBytes { // a single entry exceeds the limit
			text = "… " + strings.ToValidUTF8(text[len(text)-maxBytes:], "")
		}
		if e.Interrupted {
			text += " …" // the answer was interrupted at this point
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
