package vox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// maxApps is how many apps one conversation may generate: each is a long answer of a writing model, which somebody pays for.
const maxApps = 10

// Project is what one conversation has made. It may be used by several goroutines at once, and lives as long as the conversation,
// over resumes.
type Project struct {
	mu      sync.Mutex
	context json.RawMessage // an object, or nil
	tools   []Entry
	apps    []App
	place   string
	busy    bool    // there is an app that the person is asked for, or that is being written
	writing string  // the name of the one that is being written; empty: none is
	wish    *wanted // what the person must still be asked by voice
}

// wanted is an app that the model asks the person for.
type wanted struct {
	prompt string
	said   int // how often the person had spoken by then
}

// App is a web app that was generated.
type App struct {
	Name   string   `json:"name"`   // app-1, app-2, …
	Prompt string   `json:"prompt"` // what was asked for, 200 bytes of it
	URL    string   `json:"url"`    // where it is served, relative to the gateway's root
	Files  []string `json:"files"`
	Gone   bool     `json:"gone,omitempty"` // it was removed since, to make room for newer ones
}

// Status is what a project has.
type Status struct {
	Context json.RawMessage `json:"context,omitempty"` // as the client gave it
	Tools   []Entry         `json:"tools"`             // that were added, the newest last
	Apps    []App           `json:"apps"`              // that are complete, the newest last
	Writing string          `json:"writing,omitempty"` // the name of the app that is being written
	Place   string          `json:"place,omitempty"`   // where navigate_ui went last; empty: it was not called
}

// NewProject returns the project of a new conversation. Context is what the client says of it, a JSON object; nil or null: nothing.
func NewProject(context json.RawMessage) *Project {
	context = bytes.TrimSpace(context)
	if len(context) == 0 || !json.Valid(context) || bytes.Equal(context, []byte("null")) {
		return &Project{}
	}
	return &Project{context: slices.Clone(context)}
}

// Status returns what the project has now; a copy.
func (p *Project) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Status{
		Context: slices.Clone(p.context), Writing: p.writing, Place: p.place,
		Tools: append([]Entry{}, p.tools...), Apps: append([]App{}, p.apps...),
	}
}

// add notes a tool; false: it is there already.
func (p *Project) add(e Entry) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.ContainsFunc(p.tools, func(t Entry) bool { return t.ID == e.ID }) {
		return false
	}
	p.tools = append(p.tools, e)
	return true
}

func (p *Project) goTo(place string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.place = place
}

// begin takes the project's one place for an app that is not ready, and names it. The caller calls end.
func (p *Project) begin() (name string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.busy:
		return "", errors.New("another app is under way; this one can begin when that is ready, or the person does not want it")
	case len(p.apps) >= maxApps:
		return "", fmt.Errorf("this conversation has generated %d apps, which is the most there may be", maxApps)
	}
	p.busy = true
	return fmt.Sprintf("app-%d", len(p.apps)+1), nil
}

// writes notes that the app that has the place is being written.
func (p *Project) writes(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing = name
}

// keep notes an app that is ready.
func (p *Project) keep(app App) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.apps, p.writing = append(p.apps, app), ""
}

// end gives the place back.
func (p *Project) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy, p.writing = false, ""
}

// agreed reports whether the person has spoken since the model had to ask for this app, and forgets it then; else it notes
// that they are to be asked.
func (p *Project) agreed(prompt string, said int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Models repeat a prompt with other spaces and capitals.
	prompt = strings.ToLower(strings.Join(strings.Fields(prompt), " "))
	if p.wish != nil && p.wish.prompt == prompt {
		if said <= p.wish.said {
			return false
		}
		p.wish = nil
		return true
	}
	p.wish = &wanted{prompt, said}
	return false
}
