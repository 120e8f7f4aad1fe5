package vox

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// clause is how many bytes a phrase has at least that ends at a comma, and longest when it ends at any space.
	clause  = 40
	longest = 200
)

// phrases cuts a text that comes in pieces where a reader expects it. Joined, they are the text.
type phrases struct{ rest string }

// add takes the next piece, and returns the phrases that are whole.
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

// end returns what is left.
func (p *phrases) end() (whole []string) {
	if strings.TrimSpace(p.rest) != "" {
		whole = []string{p.rest}
	}
	p.rest = ""
	return whole
}

// phraseEnd is where the first phrase of a text ends; 0: it does not yet. A mark ends one if a space follows, as in "3.5" none does.
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
