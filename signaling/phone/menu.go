package phone

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"unicode"

	"voxgate/bridge"
)

// menuRounds is how often a model may press a key for the same announcement, until it has to give up.
const menuRounds = 3

// sameAnnouncement is the share of the pairs of neighbouring words of the shorter one from which on two announcements are the same.
// Menus of the same house have "press one" and "one for" in common; one that is repeated may begin with "I did not get that", or be
// cut off.
const sameAnnouncement = 0.6

var (
	errListen = errors.New("nothing was said since the keys before: listen first, and press all keys of an answer at once")
	errCircle = errors.New("this key was pressed for the same announcement, and led nowhere: press another one, or wait")
	errGaveUp = errors.New("gave up: this announcement has come three times, and keys lead nowhere. Press no more, and end the call or speak")
)

// Menu keeps a model that has called an automatic system from going in circles there: it listens before it presses keys, presses none twice
// for the same announcement, and gives up after three rounds. A nil *Menu allows everything.
type Menu struct {
	mu     sync.Mutex
	heard  bool     // something, since the newest keys
	words  []string // of that
	rounds []*announcement
	now    *announcement // what was heard, once keys were wanted for it; nil: they were not
}

// announcement is what an automatic system has said before a key was pressed.
type announcement struct {
	pairs map[string]bool // of neighbouring words
	keys  []string        // that were pressed
	times int             // that it was heard
}

// maxAnnouncement bounds the words of one announcement that are compared.
const maxAnnouncement = 400

// Notice takes what happens in the conversation.
func (m *Menu) Notice(event bridge.EventBody) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch b := event.(type) {
	case bridge.UserSpeaking:
		m.heard = m.heard || b.Speaking
	case bridge.UserText:
		if b.Final { // the pieces have come
			return
		}
		m.heard = true
		apart := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
		if len(m.words) < maxAnnouncement {
			m.words = append(m.words, strings.FieldsFunc(strings.ToLower(b.Text), apart)...)
		}
	}
}

// Press presses keys, unless that would not help.
func (m *Menu) Press(keys string, press func() error) error {
	if m == nil {
		return press()
	}
	if err := m.check(keys); err != nil {
		return err
	}
	if err := press(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now != nil {
		m.now.keys = append(m.now.keys, keys)
	}
	m.heard, m.words, m.now = false, nil, nil
	return nil
}

func (m *Menu) check(keys string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.heard {
		return errListen
	}
	if m.now == nil && len(m.words) > 0 { // without a transcript nothing is known to be the same
		m.now = m.announced()
		m.now.times++
	}
	switch {
	case m.now == nil:
	case m.now.times > menuRounds:
		return errGaveUp
	case slices.Contains(m.now.keys, keys):
		return errCircle
	}
	return nil
}

// announced is what was heard, as one that was heard before if it was.
func (m *Menu) announced() *announcement {
	pairs := map[string]bool{}
	for i := range m.words {
		pairs[strings.Join(m.words[i:min(i+2, len(m.words))], " ")] = true
	}
	for _, a := range m.rounds {
		both := 0
		for p := range pairs {
			if a.pairs[p] {
				both++
			}
		}
		if float64(both) >= sameAnnouncement*float64(min(len(pairs), len(a.pairs))) {
			return a
		}
	}
	a := &announcement{pairs: pairs}
	m.rounds = append(m.rounds, a)
	return a
}
