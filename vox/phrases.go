package vox

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// A phrase of at least minClause bytes may end at a comma, and a phrase of at least maxPhrase bytes ends at the next space.
	minClause = 40
	maxPhrase = 200
)

// phraseSplitter splits streamed text where a reader expects a pause. It drops nothing: the phrases, joined, are the text.
type phraseSplitter struct{ pending string }

// addText adds a piece of text and returns the phrases that are now complete.
func (p *phraseSplitter) addText(piece string) (whole []string) {
	p.pending += piece
	for {
		end := phraseEnd(p.pending)
		if end == 0 {
			return whole
		}
		whole = append(whole, p.pending[:end])
		p.pending = p.pending[end:]
	}
}

// flushRest returns the rest of the text.
func (p *phraseSplitter) flushRest() (whole []string) {
	if strings.TrimSpace(p.pending) != "" {
		whole = []string{p.pending}
	}
	p.pending = ""
	return whole
}

// phraseEnd returns the end of the first phrase of a text, or 0 if it is incomplete. Punctuation counts before a space
// only: "3.5" stays.
func phraseEnd(text string) int {
	for i, r := range text {
		next := i + utf8.RuneLen(r)
		if strings.TrimSpace(text[:i]) == "" {
			continue
		}
		if strings.ContainsRune("。！？", r) {
			return next
		}
		if !unicode.IsSpace(r) {
			continue
		}
		before, _ := utf8.DecodeLastRuneInString(strings.TrimRight(text[:i], `"')]”’»`))
		if r == '\n' || strings.ContainsRune(".!?…", before) || i >= minClause && strings.ContainsRune(",;:–—", before) || i >= maxPhrase {
			return next
		}
	}
	return 0
}
