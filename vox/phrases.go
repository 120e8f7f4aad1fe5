package vox

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// Limits for the end of a phrase, in bytes. From minClause on, a phrase may end at a comma. From maxPhrase on, it
	// ends at the next space.
	minClause = 40
	maxPhrase = 200
)

// phraseSplitter splits streamed text into phrases, where a reader expects a pause. It drops nothing, so the joined
// phrases are the text.
type phraseSplitter struct{ pending string }

// addText adds a piece of text and returns the phrases that are now complete.
func (p *phraseSplitter) addText(piece string) (phrases []string) {
	p.pending += piece
	for {
		end, isComplete := phraseEnd(p.pending)
		if !isComplete {
			return phrases
		}
		phrases = append(phrases, p.pending[:end])
		p.pending = p.pending[end:]
	}
}

// takeRest returns the rest of the text.
func (p *phraseSplitter) takeRest() (phrases []string) {
	if strings.TrimSpace(p.pending) != "" {
		phrases = []string{p.pending}
	}
	p.pending = ""
	return phrases
}

// phraseEnd returns the end of the first phrase of a text. isComplete is false if the text does not contain that end.
// Punctuation such as a full stop ends a phrase only if white space follows, so "3.5" is not split.
func phraseEnd(text string) (end int, isComplete bool) {
	for i, r := range text {
		next := i + utf8.RuneLen(r)
		if strings.TrimSpace(text[:i]) == "" {
			continue
		}
		if strings.ContainsRune("。！？", r) {
			return next, true
		}
		if !unicode.IsSpace(r) {
			continue
		}
		before, _ := utf8.DecodeLastRuneInString(strings.TrimRight(text[:i], `"')]”’»`))
		if r == '\n' || strings.ContainsRune(".!?…", before) || i >= minClause && strings.ContainsRune(",;:–—", before) || i >= maxPhrase {
			return next, true
		}
	}
	return 0, false
}
