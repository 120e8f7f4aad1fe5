package phone

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"unicode"

	"voxgate/bridge"
)

// maxMenuRounds limits how often the model may hear the same announcement and press keys.
const maxMenuRounds = 3

// minSimilarity is the share of word pairs that two announcements must have in common to count as the same, relative to
// the shorter one. The share is high, because different menus of a company have phrases such as "press one" in common.
// It is below 1, because a repeated announcement may begin differently or be cut off.
const minSimilarity = 0.6

var (
	errListenFirst = errors.New("nothing was said since the keys before: listen first, and press all keys of an answer at once")
	errRepeatedKey = errors.New("this key was pressed for the same announcement, and led nowhere: press another one, or wait")
	errGaveUp      = errors.New("gave up: this announcement has come three times, and keys lead nowhere. " +
		"Press no more, and end the call or speak")
)

// Menu keeps a model that has called an automatic phone menu from pressing keys in circles. The model must listen
// first, must not repeat a key at the same announcement, and must give up after three rounds. A nil *Menu allows all
// keys.
type Menu struct {
	mu            sync.Mutex
	hasSpeech     bool     // the other side has spoken since the latest keys
	words         []string // words of the speech since the latest keys
	announcements []*announcement
	current       *announcement // the announcement for which the model wants to press keys; nil before it has tried
}

// announcement is the speech of an automatic system before a key was pressed.
type announcement struct {
	wordPairs map[string]bool // adjacent words
	keys      []string        // pressed at this announcement
	times     int             // how often the announcement was played and the model wanted to press keys
}

// maxAnnouncementWords limits the words of an announcement that are compared.
const maxAnnouncementWords = 400

// RecordSpeech records the speech of the other side.
func (m *Menu) RecordSpeech(event bridge.EventBody) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch b := event.(type) {
	case bridge.UserSpeaking:
		m.hasSpeech = m.hasSpeech || b.Speaking
	case bridge.UserText:
		if b.Final { // the words of a final text have already arrived in parts
			return
		}
		m.hasSpeech = true
		apart := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
		if len(m.words) < maxAnnouncementWords {
			m.words = append(m.words, strings.FieldsFunc(strings.ToLower(b.Text), apart)...)
		}
	}
}

// PressKeys calls press, unless the keys would not help. In that case it returns an error that tells the model why.
func (m *Menu) PressKeys(keys string, press func() error) error {
	if m == nil {
		return press()
	}
	if err := m.admitKeys(keys); err != nil {
		return err
	}
	if err := press(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current != nil {
		m.current.keys = append(m.current.keys, keys)
	}
	m.hasSpeech, m.words, m.current = false, nil, nil
	return nil
}

// admitKeys returns an error if pressing the keys would not help. The first call after an announcement counts the
// announcement.
func (m *Menu) admitKeys(keys string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.hasSpeech {
		return errListenFirst
	}
	if m.current == nil && len(m.words) > 0 { // without a transcript there is nothing to compare
		m.current = m.findOrAddAnnouncement()
		m.current.times++
	}
	switch {
	case m.current == nil:
	case m.current.times > maxMenuRounds:
		return errGaveUp
	case slices.Contains(m.current.keys, keys):
		return errRepeatedKey
	}
	return nil
}

// findOrAddAnnouncement returns the earlier announcement that counts as the same as the current one (see
// minSimilarity). If there is none, it adds the current one.
func (m *Menu) findOrAddAnnouncement() *announcement {
	pairs := map[string]bool{}
	for i := range m.words {
		pairs[strings.Join(m.words[i:min(i+2, len(m.words))], " ")] = true
	}
	for _, a := range m.announcements {
		both := 0
		for p := range pairs {
			if a.wordPairs[p] {
				both++
			}
		}
		if float64(both) >= minSimilarity*float64(min(len(pairs), len(a.wordPairs))) {
			return a
		}
	}
	a := &announcement{wordPairs: pairs}
	m.announcements = append(m.announcements, a)
	return a
}
