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
	runes   int
}

// said is an entry, and the number of its turn: a question and its answer have the same.
type said struct {
	Entry
	turn int
}

const (
	roleUser      = "user"
	roleAssistant = "assistant"
)

// add appends text to what a side says in a turn.
func (h *history) add(turn int, role, text string) {
	if text == "" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runes += utf8.RuneCountInString(text)
	if e := h.find(turn, role); e != nil {
		e.Content += text
	} else {
		now := time.Now()
		if n := len(h.entries); n > 0 && h.entries[n-1].Time.After(now) {
			now = h.entries[n-1].Time // the wall clock was set back
		}
		h.entries = append(h.entries, said{Entry{Role: role, Content: text, Time: now}, turn})
	}
	for len(h.entries) > maxEntries || h.runes > maxRunes && len(h.entries) > 1 {
		h.runes -= utf8.RuneCountInString(h.entries[0].Content)
		h.entries = slices.Delete(h.entries, 0, 1)
	}
	if last := &h.entries[len(h.entries)-1]; h.runes > maxRunes { // one entry alone
		runes := []rune(last.Content)
		last.Content = string(runes[len(runes)-maxRunes:])
		h.runes = maxRunes
	}
}

// line adds a typed text to what the person says in a turn.
func (h *history) line(turn int, text string) {
	h.mu.Lock()
	if e := h.find(turn, roleUser); e != nil {
		text = "\n" + text
	}
	h.mu.Unlock()
	h.add(turn, roleUser, text)
}

// find returns what a side has said in a turn. Needs mu.
func (h *history) find(turn int, role string) *said {
	for i := len(h.entries) - 1; i >= 0 && h.entries[i].turn >= turn; i-- {
		if e := &h.entries[i]; e.turn == turn && e.Role == role {
			return e
		}
	}
	return nil
}

// played notes how much was heard of an answer's voice, and whether that was not all.
func (h *history) played(turn int, d time.Duration, cut bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.find(turn, roleAssistant); e != nil {
		e.Played, e.Cut = max(e.Played, d), e.Cut || cut
	}
}

// list is a copy of the entries.
func (h *history) list() []Entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	entries := make([]Entry, len(h.entries))
	for i, e := range h.entries {
		entries[i] = e.Entry
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
		text := strings.TrimSpace(e.Content)
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
