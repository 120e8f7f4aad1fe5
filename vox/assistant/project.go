package assistant

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

// maxWritten limits the app versions that one conversation may write. maxApps limits the apps of a project. The limits
// are low, because each version is a long, costly answer of a writing model.
const (
	maxWritten = 30
	maxApps    = 10

	// maxVersions is the maximum number of versions of an app. It limits the size of the project's file, which lists
	// all versions.
	maxVersions = 30
)

// maxName is the maximum length of an app's name, in bytes.
const maxName = 40

// Project holds a user's tools and generated apps. It is safe for concurrent use. A project in a workspace outlives its
// conversation. Two conversations may share it, because each change reads and writes the project's file.
type Project struct {
	id        string
	workspace *Workspace // nil if the project is not kept after the conversation

	changeMu sync.Mutex // serializes changes; it is held while writing to disk

	mu            sync.Mutex
	status        Status    // content after the last change
	busy          bool      // an app is awaiting consent or being written
	writtenCount  int       // versions written in this conversation
	inputsAtStart int       // number of user inputs when the newest version was started
	question      *question // nil: no question is open
}

// question is an open question to the user. If the user answers aloud or by typing, the model passes the answer on to
// the question.
type question struct {
	inputCount int       // number of user inputs when the question was asked
	answer     chan bool // has room for one
}

// App is a generated web app.
type App struct {
	Name     string    `json:"name"`            // identifies the app in the project
	Title    string    `json:"title,omitempty"` // what people call the displayed version, if a change has renamed it
	Prompt   string    `json:"prompt"`          // the request, cut to 200 bytes
	URL      string    `json:"url"`             // URL of the displayed version, relative to the gateway's root
	Files    []string  `json:"files"`           // files of the displayed version
	Version  int       `json:"version"`
	Versions []Version `json:"versions"`       // oldest first; the first has number 1
	Gone     bool      `json:"gone,omitempty"` // removed to make room for newer apps
}

// Version is one version of an app.
type Version struct {
	Title   string   `json:"title,omitempty"` // see [App]
	URL     string   `json:"url"`
	Files   []string `json:"files"`
	Wish    string   `json:"wish"`              // the request, cut to 200 bytes
	From    int      `json:"from,omitempty"`    // number of the version that it changes (0: none)
	Changes []Change `json:"changes,omitempty"` // changed lines since that version
	Uses    []string `json:"uses"`              // names of the project's tools that its files load (nil: not known)
}

// Change counts the changed lines of a file.
type Change struct {
	File    string `json:"file"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
}

// Status is the content of a project.
type Status struct {
	Context json.RawMessage `json:"context,omitempty"` // as sent by the client
	Tools   []Entry         `json:"tools"`             // added tools, newest last
	Apps    []App           `json:"apps"`              // complete apps, newest last
	Writing string          `json:"writing,omitempty"` // name of the app being written
	Place   string          `json:"place,omitempty"`   // last target of navigate_ui
}

// NewProject returns a project that lives as long as its conversation. context is the client's description, a JSON
// object, null or nil.
func NewProject(context json.RawMessage) *Project {
	p := &Project{}
	context = bytes.TrimSpace(context)
	if len(context) > 0 && json.Valid(context) && !bytes.Equal(context, []byte("null")) {
		p.status.Context = slices.Clone(context)
	}
	return p
}

// ID returns the unguessable ID of the project in its workspace, or "" if the workspace does not store it.
func (p *Project) ID() string { return p.id }

// Status returns a copy of the project's content.
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

// update changes the project. If the project is in a workspace, it also writes the project's file. After an error, the
// project is unchanged.
func (p *Project) update(change func(s *Status) error) error {
	p.changeMu.Lock()
	defer p.changeMu.Unlock()
	next := p.Status()
	var err error
	if p.workspace != nil {
		err = p.workspace.changeProject(p.id, &next, change)
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

// addTool adds a tool. It fails if the project already has the tool.
func (p *Project) addTool(e Entry) error {
	return p.update(func(s *Status) error {
		if slices.ContainsFunc(s.Tools, func(t Entry) bool { return t.ID == e.ID }) {
			return fmt.Errorf("%s is in the project already", e.Name)
		}
		s.Tools = append(s.Tools, e)
		return nil
	})
}

func (p *Project) setPlace(place string) error {
	return p.update(func(s *Status) error {
		s.Place = place
		return nil
	})
}

// findApp returns the app with this name, or the newest app if name is empty.
func (s *Status) findApp(name string) (*App, error) {
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
	for i := range s.Apps {
		if title := s.Apps[i].Title; title != "" && strings.EqualFold(title, strings.TrimSpace(name)) {
			return &s.Apps[i], nil
		}
	}
	return nil, fmt.Errorf("there is no app %q, but these: %s", tools.Truncate(name, maxName), strings.Join(names, ", "))
}

// setVersion switches the app to a version.
func (a *App) setVersion(version int) error {
	if version < 1 || version > len(a.Versions) {
		return fmt.Errorf("%s has no version %d; it has %d", a.Name, version, len(a.Versions))
	}
	v := a.Versions[version-1]
	a.Version, a.Title, a.URL, a.Files = version, v.Title, v.URL, v.Files
	return nil
}

// switchVersion switches an app to a version. 0 means the version from which the current version was made.
func (p *Project) switchVersion(name string, version int) (app App, err error) {
	err = p.update(func(s *Status) error {
		a, err := s.findApp(name)
		if err != nil {
			return err
		}
		if version == 0 {
			if version = a.Versions[a.Version-1].From; version == 0 {
				return fmt.Errorf("%s has no earlier version to return to", a.Name)
			}
		}
		err = a.setVersion(version)
		app = *a
		return err
	})
	return app, err
}

// beginWriting marks the project as busy with an app. It fails if the project is already busy. The caller must call
// endWriting at least once.
func (p *Project) beginWriting() (endWriting func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.busy:
		return nil, errors.New("another app is being written; wait until it is ready, or the person has declined it")
	case p.writtenCount >= maxWritten:
		return nil, fmt.Errorf("this conversation has written %d versions of apps, which is the maximum", maxWritten)
	}
	p.busy = true
	return sync.OnceFunc(p.endWriting), nil
}

// recordWriting records that an app is being written. inputCount is the number of user inputs counted so far.
func (p *Project) recordWriting(name string, inputCount int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.Writing = name
	p.inputsAtStart = inputCount
	p.writtenCount++
}

// hasNewInput reports whether the user has spoken or typed since the newest version was started. inputCount is the number of
// user inputs so far.
func (p *Project) hasNewInput(inputCount int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writtenCount == 0 || inputCount > p.inputsAtStart
}

// addVersion adds a finished app, or a new version of an existing one.
func (p *Project) addVersion(name, prompt string, v Version) (app App, err error) {
	err = p.update(func(s *Status) error {
		i := slices.IndexFunc(s.Apps, func(a App) bool { return a.Name == name })
		if i < 0 {
			i, s.Apps = len(s.Apps), append(s.Apps, App{Name: name, Prompt: prompt})
		}
		a := &s.Apps[i]
		if v.Title == "" && v.From > 0 {
			v.Title = a.Versions[v.From-1].Title
		}
		a.Versions = append(a.Versions, v)
		err := a.setVersion(len(a.Versions))
		app = *a
		return err
	})
	return app, err
}

// endWriting marks the project as no longer busy.
func (p *Project) endWriting() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy, p.status.Writing = false, ""
}

// openQuestion records a question to the user. inputCount is the number of user inputs so far. The caller must call
// closeQuestion, even if the question was answered.
func (p *Project) openQuestion(inputCount int) (answer <-chan bool, closeQuestion func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := &question{inputCount, make(chan bool, 1)}
	p.question = q
	return q.answer, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.question == q {
			p.question = nil
		}
	}
}

// answerQuestion passes on the answer that the user has spoken or typed. inputCount is the number of user inputs so
// far. It fails if no question is open, or if the user has not spoken or typed since the question.
func (p *Project) answerQuestion(yes bool, inputCount int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.question == nil:
		return errors.New("no question is open; the person may have answered on the screen")
	case inputCount <= p.question.inputCount:
		return errors.New("the person has said nothing since they were asked; wait for their answer")
	}
	p.question.answer <- yes
	p.question = nil
	return nil
}

// uniqueAppName returns a name for a new app. It is the suggested name, or the first words of the prompt. If another
// app has this name, a number is appended.
func (s *Status) uniqueAppName(suggestedName, prompt string) string {
	plain := func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}
	words := strings.Fields(strings.Map(plain, suggestedName))
	if len(words) == 0 {
		words = strings.Fields(strings.Map(plain, prompt))
		words = words[:min(len(words), 4)]
	}
	name := strings.TrimRight(strings.ToValidUTF8(tools.Truncate(strings.Join(words, " "), maxName), ""), " .,;:!?")
	if name == "" {
		name = "App"
	}
	unused := name
	for n := 2; slices.ContainsFunc(s.Apps, func(a App) bool { return strings.EqualFold(a.Name, unused) }); n++ {
		unused = fmt.Sprintf("%s %d", name, n)
	}
	return unused
}
