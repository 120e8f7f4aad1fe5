package vox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"

	"voxgate/tools"
)

// maxWritten is how many versions of apps may be written in one conversation, and maxApps how many apps a project may have: each version
// is a long answer of a writing model, which somebody pays for.
const (
	maxWritten = 30
	maxApps    = 10

	// maxVersions is how many versions an app may have: the project's file names all of them.
	maxVersions = 30
)

// maxName is how long the name of an app may be, in bytes.
const maxName = 40

// Project is what was made by talking. It may be used by several goroutines at once. One that a workspace keeps outlives its
// conversation: each change reads the file, changes it and writes it, so that two conversations may work on one project.
type Project struct {
	id        string
	workspace *Workspace // nil: it lives as long as its conversation

	changing sync.Mutex // one change at a time; it writes to the disk, for which nobody else waits

	mu      sync.Mutex
	status  Status // as it was last known
	busy    bool   // there is an app that the person is asked for, or that is being written
	written int    // versions, in this conversation
	wished  int    // how often the person had spoken when the newest version was begun
	open    *asked // nil: nothing is asked
}

// asked is a question to the person that the model may answer for them.
type asked struct {
	said   int       // how often the person had spoken by then
	answer chan bool // takes one
}

// App is a web app that was generated.
type App struct {
	Name     string    `json:"name"`
	Prompt   string    `json:"prompt"` // what was asked for, 200 bytes of it
	URL      string    `json:"url"`    // where the version that is shown is served, relative to the gateway's root
	Files    []string  `json:"files"`  // of that version
	Version  int       `json:"version"`
	Versions []Version `json:"versions"`       // all of them, the oldest, which is number 1, first
	Gone     bool      `json:"gone,omitempty"` // it was removed since, to make room for newer ones
}

// Version is an app as it was once.
type Version struct {
	URL     string   `json:"url"`
	Files   []string `json:"files"`
	Wish    string   `json:"wish"`              // what was asked for, 200 bytes of it
	From    int      `json:"from,omitempty"`    // the version that it was made of; 0: none
	Changes []Change `json:"changes,omitempty"` // since that
}

// Change is what has become of a file, in lines.
type Change struct {
	File    string `json:"file"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
}

// Status is what a project has.
type Status struct {
	Context json.RawMessage `json:"context,omitempty"` // as the client gave it
	Tools   []Entry         `json:"tools"`             // that were added, the newest last
	Apps    []App           `json:"apps"`              // that are complete, the newest last
	Writing string          `json:"writing,omitempty"` // the name of the app that is being written
	Place   string          `json:"place,omitempty"`   // where navigate_ui went last; empty: it was not called
}

// NewProject returns a project that lives as long as its conversation. Context is what the client says of it, a JSON object; nil or
// null: nothing.
func NewProject(context json.RawMessage) *Project {
	p := &Project{}
	context = bytes.TrimSpace(context)
	if len(context) > 0 && json.Valid(context) && !bytes.Equal(context, []byte("null")) {
		p.status.Context = slices.Clone(context)
	}
	return p
}

// ID is what the workspace keeps it under: nobody can guess it. Empty: it is not kept.
func (p *Project) ID() string { return p.id }

// Status returns what the project has now; a copy.
func (p *Project) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status.clone()
}

func (s *Status) clone() Status {
	c := *s
	c.Context, c.Tools, c.Apps = slices.Clone(s.Context), append([]Entry{}, s.Tools...), append([]App{}, s.Apps...)
	for i := range c.Apps {
		c.Apps[i].Versions = slices.Clone(c.Apps[i].Versions)
	}
	return c
}

// update changes the project, and writes it where it is kept. After an error it is as it was.
func (p *Project) update(change func(s *Status) error) error {
	p.changing.Lock()
	defer p.changing.Unlock()
	next := p.Status()
	var err error
	if p.workspace != nil {
		err = p.workspace.change(p.id, &next, change)
	} else {
		err = change(&next)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	next.Writing = p.status.Writing
	p.status = next
	return nil
}

// add notes a tool. It fails if the tool is there already.
func (p *Project) add(e Entry) error {
	return p.update(func(s *Status) error {
		if slices.ContainsFunc(s.Tools, func(t Entry) bool { return t.ID == e.ID }) {
			return fmt.Errorf("%s is in the project already", e.Name)
		}
		s.Tools = append(s.Tools, e)
		return nil
	})
}

func (p *Project) goTo(place string) error {
	return p.update(func(s *Status) error {
		s.Place = place
		return nil
	})
}

// app finds an app by its name; without one it is the newest.
func (s *Status) app(name string) (*App, error) {
	if len(s.Apps) == 0 {
		return nil, errors.New("there is no app yet; generate_app makes one")
	}
	if name == "" {
		return &s.Apps[len(s.Apps)-1], nil
	}
	var names []string
	for i := range s.Apps {
		if strings.EqualFold(s.Apps[i].Name, strings.TrimSpace(name)) {
			return &s.Apps[i], nil
		}
		names = append(names, s.Apps[i].Name)
	}
	return nil, fmt.Errorf("there is no app %q, but these: %s", tools.Cut(name, maxName), strings.Join(names, ", "))
}

// show has an app be what it was in a version.
func (a *App) show(version int) error {
	if version < 1 || version > len(a.Versions) {
		return fmt.Errorf("%s has no version %d; it has %d", a.Name, version, len(a.Versions))
	}
	v := a.Versions[version-1]
	a.Version, a.URL, a.Files = version, v.URL, v.Files
	return nil
}

// use has an app be what it was in a version; 0: in the one that it was made of.
func (p *Project) use(name string, version int) (shown App, err error) {
	err = p.update(func(s *Status) error {
		a, err := s.app(name)
		if err != nil {
			return err
		}
		if version == 0 {
			if version = a.Versions[a.Version-1].From; version == 0 {
				return fmt.Errorf("nothing of %s can be taken back: this is its first version", a.Name)
			}
		}
		err = a.show(version)
		shown = *a
		return err
	})
	return shown, err
}

// begin takes the project's one place for an app that is not ready. The caller calls end.
func (p *Project) begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.busy:
		return errors.New("another app is under way; this one can begin when that is ready, or the person does not want it")
	case p.written >= maxWritten:
		return fmt.Errorf("this conversation has written %d versions of apps, which is the most there may be", maxWritten)
	}
	p.busy = true
	return nil
}

// writes notes that the app that has the place is being written.
func (p *Project) writes(name string, said int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.Writing = name
	p.wished = said
	p.written++
}

// hasWished reports whether the person has said something since the newest version was begun.
func (p *Project) hasWished(said int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written == 0 || said > p.wished
}

// keep notes an app that is ready: a new one, or a version of one that there is.
func (p *Project) keep(name, prompt string, v Version) (kept App, err error) {
	err = p.update(func(s *Status) error {
		i := slices.IndexFunc(s.Apps, func(a App) bool { return a.Name == name })
		if i < 0 {
			i, s.Apps = len(s.Apps), append(s.Apps, App{Name: name, Prompt: prompt})
		}
		a := &s.Apps[i]
		a.Versions = append(a.Versions, v)
		err := a.show(len(a.Versions))
		kept = *a
		return err
	})
	return kept, err
}

// end gives the place back.
func (p *Project) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy, p.status.Writing = false, ""
}

// ask notes that the person is asked something; they had spoken so often by then. The caller calls settled.
func (p *Project) ask(said int) (answer <-chan bool, settled func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := &asked{said, make(chan bool, 1)}
	p.open = q
	return q.answer, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.open == q {
			p.open = nil
		}
	}
}

// answered takes an answer that the person has given aloud or by typing. They must have said something since they were asked.
func (p *Project) answered(yes bool, said int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.open == nil:
		return errors.New("no question is open; the person may have answered on the screen")
	case said <= p.open.said:
		return errors.New("the person has said nothing since they were asked; wait for their answer")
	}
	p.open.answer <- yes
	p.open = nil
	return nil
}

// nameFor is the name of a new app: what it is called, or the first words of what it shall be. Another one of that name is there: with a
// number.
func (s *Status) nameFor(called, prompt string) string {
	plain := func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}
	words := strings.Fields(strings.Map(plain, called))
	if len(words) == 0 {
		words = strings.Fields(strings.Map(plain, prompt))
		words = words[:min(len(words), 4)]
	}
	name := strings.TrimRight(strings.ToValidUTF8(tools.Cut(strings.Join(words, " "), maxName), ""), " .,;:!?")
	if name == "" {
		name = "App"
	}
	unused := name
	for n := 2; slices.ContainsFunc(s.Apps, func(a App) bool { return strings.EqualFold(a.Name, unused) }); n++ {
		unused = fmt.Sprintf("%s %d", name, n)
	}
	return unused
}
