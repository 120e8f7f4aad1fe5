package vox

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// clause is the minimum length, in bytes, of a phrase that ends at a comma. After longest bytes, a phrase ends at any space.
	clause  = 40
	longest = 200
)

// phrases splits streamed text where a reader expects a pause. Joined, the phrases are the text.
type phrases struct{ rest string }

// add adds a piece of text and returns the phrases that are now complete.
func (p *phrases) add(piece string) (whole []string) {
	p.rest += piece
	for {
		end := phraseEnd(p.rest)
		if end == 0 {
			return whole
		}
		whole = append(whole, p.rest[:end])
		p.rest = p.rest[end:]
	}
}

// end returns the rest of the text.
func (p *phrases) end() (whole []string) {
	if strings.TrimSpace(p.rest) != "" {
		whole = []string{p.rest}
	}
	p.rest = ""
	return whole
}

// phraseEnd returns the end of the first phrase of a text, or 0 if it is incomplete. A punctuation mark ends a phrase only before a
// space, so "3.5" is not split.
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
		if r == '\n' || strings.ContainsRune(".!?…", before) || i >= clause && strings.ContainsRune(",;:–—", before) || i >= longest {
			return next
		}
	}
	return 0
}
