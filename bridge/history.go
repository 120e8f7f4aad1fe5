package bridge

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"voxgate/bridge/gemini"
)

const (
	// maxEntries and maxRunes bound what is kept of a conversation.
	maxEntries = 100
	maxRunes   = 200_000

	// seedEntries and seedBytes bound what a fresh session is told: a longer set-up is refused with 1011, and the model
	// needs the thread, not the minutes.
	seedEntries = 20
	seedBytes   = 8 << 10
)

// history is what both sides have said. Its methods may be called by any goroutine.
type history struct {
	mu      sync.Mutex
	entries []said
	runes   int // in all of them
}

func (e *said) runes() int {
	return utf8.RuneCountInString(e.Content) + utf8.RuneCountInString(e.ahead)
}

// said is an entry, and the number of its turn: a question and its answer have the same.
type said struct {
	Entry
	turn    int
	ahead   string // of an answer: what was made of it and not heard yet
	written bool   // of a question: some of it was typed
}

const (
	roleUser      = "user"
	roleAssistant = "assistant"
)

// heard adds to what the person has said in a turn, as the model has understood it.
func (h *history) heard(turn int, text string) {
	if text != "" {
		h.edit(turn, roleUser, func(e *said) { e.Content += text })
	}
}

// typed adds a text to what the person says in a turn.
func (h *history) typed(turn int, text string) {
	h.edit(turn, roleUser, func(e *said) {
		if e.Content != "" {
			e.Content += "\n"
		}
		e.Content += text
		e.written = true
	})
}

// unsay forgets what the model has understood of a turn: it is said again, and will be understood again.
func (h *history) unsay(turn int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = slices.DeleteFunc(h.entries, func(e said) bool {
		gone := e.turn == turn && e.Role == roleUser && !e.written
		if gone {
			h.runes -= e.runes()
		}
		return gone
	})
}

// answer adds to what the model says in a turn, before it is heard.
func (h *history) answer(turn int, text string) {
	if text != "" {
		h.edit(turn, roleAssistant, func(e *said) { e.ahead += text })
	}
}

// played notes that a text was heard, and how much of the voice so far.
func (h *history) played(turn int, text string, voice time.Duration) {
	h.edit(turn, roleAssistant, func(e *said) {
		if !e.Cut {
			e.Content += text
			e.ahead = strings.TrimPrefix(e.ahead, text)
		}
		e.Played = max(e.Played, voice)
	})
}

// cut notes that an answer ends after so much of its voice, and that there should have been more. voice below zero: as far
// as is known.
func (h *history) cut(turn int, voice time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.find(turn, roleAssistant); e != nil {
		h.runes -= utf8.RuneCountInString(e.ahead)
		e.ahead, e.Cut = "", true
		e.Played = max(e.Played, voice)
	}
}

// edit changes what a side has said in a turn, and keeps within the bounds.
func (h *history) edit(turn int, role string, change func(*said)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.find(turn, role)
	if e == nil {
		now := time.Now()
		if n := len(h.entries); n > 0 && h.entries[n-1].Time.After(now) {
			now = h.entries[n-1].Time // the wall clock was set back
		}
		h.entries = append(h.entries, said{Entry: Entry{Role: role, Time: now}, turn: turn})
		e = &h.entries[len(h.entries)-1]
	}
	before := e.runes()
	change(e)
	h.runes += e.runes() - before
	for len(h.entries) > maxEntries || h.runes > maxRunes && len(h.entries) > 1 {
		h.runes -= h.entries[0].runes()
		h.entries = slices.Delete(h.entries, 0, 1)
	}
	if h.runes > maxRunes { // one entry alone
		last := &h.entries[0]
		all := []rune(last.Content)
		last.Content = string(all[max(0, len(all)-maxRunes):])
		h.runes = last.runes()
	}
}

// find returns what a side has said in a turn. Needs mu.
func (h *history) find(turn int, role string) *said {
	for i := len(h.entries) - 1; i >= 0; i-- {
		if e := &h.entries[i]; e.turn == turn && e.Role == role {
			return e
		}
	}
	return nil
}

// list is a copy of the entries.
func (h *history) list() []Entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	entries := make([]Entry, 0, len(h.entries))
	for _, e := range h.entries {
		if e.Content != "" { // else nobody has heard it
			entries = append(entries, e.Entry)
		}
	}
	return entries
}

func (h *history) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries, h.runes = nil, 0
}

// between is what was said after one turn and before another, as a model is told of it: the newest of it, roles in turn.
func (h *history) between(after, before int) []gemini.Content {
	h.mu.Lock()
	defer h.mu.Unlock()
	var turns []gemini.Content
	var texts []string
	size := 0
	for _, e := range slices.Backward(h.entries) {
		if e.turn <= after || e.turn >= before {
			continue
		}
		role := roleUser
		if e.Role == roleAssistant {
			role = "model"
		}
		text := strings.TrimSpace(e.Content + e.ahead)
		if text == "" {
			continue
		}
		size += len(text)
		if len(turns) == seedEntries || size > seedBytes {
			break
		}
		if e.Cut {
			text += " …" // was interrupted here
		}
		if n := len(turns); n > 0 && turns[n-1].Role == role {
			texts[n-1] = text + "\n" + texts[n-1]
			continue
		}
		turns, texts = append(turns, gemini.Content{Role: role}), append(texts, text)
	}
	for i := range turns {
		parts, err := json.Marshal([]map[string]string{{"text": texts[i]}})
		if err != nil {
			return nil // a string encodes
		}
		turns[i].Parts = parts
	}
	slices.Reverse(turns)
	return turns
}
