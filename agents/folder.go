package agents

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"voxgate/bridge"
	"voxgate/reread"
)

// extension ends the names of agents' files.
const extension = ".md"

// maxFile bounds a file, in bytes: a prompt of that length is longer than what a Live session keeps.
const maxFile = 256 << 10

// Folder is the operator's agents, as they are now. A nil one has none. Its methods may be called by any goroutine.
type Folder struct {
	path  string
	log   *slog.Logger
	watch *reread.Watch

	mu    sync.Mutex
	list  []*Agent // by their names
	state []File   // as they were read last
	wants []func(*Agent) error
}

// File is an agent's file, as it was read last.
type File struct {
	Name string // of the agent
	Err  error  // what is wrong, with file and line; the agent before it goes on, if there was one
}

// Open reads a folder. Its errors are those of all files, each with its name and line.
func Open(path string, log *slog.Logger) (*Folder, error) {
	f := &Folder{path: path, log: log}
	files, err := f.files()
	if err != nil {
		return nil, err
	}
	f.watch = reread.NewWatch(log, time.Now, files)
	return f, f.read(files)
}

// New returns agents that are in no folder, in the order in which they were given.
func New(list ...*Agent) *Folder { return &Folder{list: list} }

func (f *Folder) files() ([]string, error) {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return filepath.Ext(e.Name()) != extension })
	files := make([]string, len(entries))
	for i, e := range entries {
		files[i] = filepath.Join(f.path, e.Name())
	}
	return files, nil
}

// read reads the files. A file that is wrong leaves the agent as it was before.
func (f *Folder) read(files []string) error {
	var list []*Agent
	var state []File
	var errs []error
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), extension)
		a, err := readFile(file, name, nil)
		if err == nil {
			err = f.required(a)
		}
		state = append(state, File{name, err})
		if err != nil {
			errs = append(errs, err)
			a = f.named(name)
		}
		if a != nil {
			list = append(list, a)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list, f.state = list, state
	return errors.Join(errs...)
}

// all are the agents. It reads the files again if they have changed; one caller a second waits for that.
func (f *Folder) all() []*Agent {
	if f == nil {
		return nil
	}
	var files []string
	var err error
	if f.watch != nil && f.watch.Changed(func() []string { files, err = f.files(); return files }) {
		if err == nil {
			err = f.read(files)
		}
		if err != nil {
			f.log.Error("agents were changed and cannot be used; those before them go on", "err", err)
		} else {
			f.log.Info("agents were read again", "folder", f.path, "agents", len(files))
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.list
}

// Files are the agents' files, those that are wrong among them.
func (f *Folder) Files() []File {
	if f == nil {
		return nil
	}
	f.all()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// Names returns the names of the agents.
func (f *Folder) Names() (names []string) {
	for _, a := range f.all() {
		names = append(names, a.Name)
	}
	return names
}

// Require has the agents that a door's telephones can reach pass a check, now and whenever they are read again. Its errors name their
// files.
func (f *Folder) Require(door string, check func(*Agent) error) error {
	if f == nil {
		return nil
	}
	list := f.all()
	f.mu.Lock()
	f.wants = append(f.wants, func(a *Agent) error {
		if len(a.Numbers) == 0 || !a.serves(door) {
			return nil
		}
		return check(a)
	})
	f.mu.Unlock()
	var errs []error
	for _, a := range list {
		errs = append(errs, f.required(a))
	}
	return errors.Join(errs...)
}

// required says what is wrong with an agent, by the checks of [Folder.Require].
func (f *Folder) required(a *Agent) error {
	f.mu.Lock()
	wants := f.wants
	f.mu.Unlock()
	for _, check := range wants {
		if err := check(a); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(f.path, a.Name+extension), err)
		}
	}
	return nil
}

// telephoneTools are those that telephone calls bring along (package phone), besides the operator's.
var telephoneTools = []string{"collect_digits", "end_call", "send_dtmf", "transfer_call"}

// CheckTools returns an error for each agent that names a tool that is neither known, the names of the operator's, nor a telephone's.
func (f *Folder) CheckTools(known []string) error {
	if f == nil {
		return nil
	}
	known = slices.Concat(known, telephoneTools)
	var errs []error
	for _, a := range f.all() {
		_, err := readFile(filepath.Join(f.path, a.Name+extension), a.Name, known)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (f *Folder) named(name string) *Agent {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.list {
		if a.Name == name {
			return a
		}
	}
	return nil
}

// Find is the agent of a name for a door; nil: there is none.
func (f *Folder) Find(name, door string) *Agent {
	for _, a := range f.all() {
		if a.Name == name && a.serves(door) {
			return a
		}
	}
	return nil
}

// Telephones are the agents of a door that have numbers.
func (f *Folder) Telephones(door string) (list []*Agent) {
	for _, a := range f.all() {
		if len(a.Numbers) > 0 && a.serves(door) {
			list = append(list, a)
		}
	}
	return list
}

// Choose sets the agent that answers: the one that the client has named in Origin.Agent, unless the grant names another. The client cannot
// change an agent that comes from the grant. Without a name, and without agents in the grant, nothing changes. When a conversation is
// resumed, an unknown name is an error only if there is nothing to resume. The values fill the variables of the prompt.
func (f *Folder) Choose(o *bridge.Open, values map[string]string) error {
	a, granted, err := f.chosen(o, values)
	switch {
	case err != nil && o.ResumeToken != "":
		o.Instead = cmp.Or(o.Instead, err)
		return nil
	case err != nil || a == nil:
		return err
	}
	a.Put(o)
	o.Locked = granted
	return nil
}

func (f *Folder) chosen(o *bridge.Open, values map[string]string) (a *Agent, granted bool, err error) {
	name := o.Origin.Agent
	if g := o.Grant; g != nil && len(g.Agents) > 0 {
		granted = true
		switch {
		case name == "" && strings.ContainsAny(g.Agents[0], `*?[\`):
			return nil, true, refuse(bridge.CodeForbidden, http.StatusForbidden, "This token is for %s: name one of them.",
				strings.Join(g.Agents, ", "))
		case name == "":
			name = g.Agents[0]
		case !bridge.Matches(g.Agents, name):
			return nil, true, refuse(bridge.CodeForbidden, http.StatusForbidden, "This token is not for the agent %q, but for %s.",
				name, strings.Join(g.Agents, ", "))
		}
	}
	if name == "" {
		return nil, false, nil
	}
	if a = f.Find(name, o.Origin.Door); a == nil {
		return nil, granted, Unknown(name)
	}
	if a, err = a.With(values); err != nil {
		return nil, granted, refuse(bridge.CodeBadMessage, http.StatusBadRequest, "The agent %q cannot be reached so: %v.", name, err)
	}
	return a, granted, nil
}

// Resolve returns the agent that a backend has chosen for a door, with values for its prompt. Without a choice it is an agent with all
// defaults.
func (f *Folder) Resolve(c Choice, door string, values map[string]string) (*Agent, error) {
	a := c.Agent
	if a == nil {
		a = &Agent{}
		if c.Name != "" {
			a = f.Find(c.Name, door)
		}
		if a == nil {
			return nil, Unknown(c.Name)
		}
	}
	a, err := a.With(values)
	if err != nil {
		return nil, refuse(bridge.CodeBadMessage, http.StatusBadRequest, "%v.", err)
	}
	return a, nil
}

// Unknown is the error for an agent that there is not, or not at this door.
func Unknown(name string) error {
	return refuse(bridge.CodeBadMessage, http.StatusNotFound, "There is no agent %.64q here.", name)
}

// Field is that of the errors about who answers. Their Status is that of HTTP.
const Field = "agent"

func refuse(code bridge.Code, status int, format string, args ...any) error {
	return &bridge.Error{Code: code, Field: Field, Status: status, Message: fmt.Sprintf(format, args...)}
}

var nameOf = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// readFile reads an agent. Its errors say where: "desk.md:4: …". Known are the operator's tools, if all of them are known.
func readFile(file, name string, known []string) (*Agent, error) {
	at := func(line int, err error) error { return fmt.Errorf("%s:%d: %w", file, line, err) }
	if !nameOf.MatchString(name) || strings.HasPrefix(name, "gemini-") || strings.HasPrefix(name, "gpt-") {
		return nil, fmt.Errorf("%s: an agent's name is made of a-z, 0-9, - and _, and is not that of a model", file)
	}
	text, err := os.ReadFile(file)
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxFile:
		return nil, fmt.Errorf("%s: %d bytes are more than %d", file, len(text), maxFile)
	}
	front, prompt, err := split(text)
	if m, ok := errors.AsType[*misplaced](err); ok {
		return nil, at(m.line, m.err)
	}
	if err != nil {
		return nil, at(1, err)
	}
	var document yaml.Node
	fields, err := fieldsOf(front, &document)
	if err != nil {
		return nil, at(lineOf(err), errors.New(yamlPlace.ReplaceAllString(err.Error(), "")))
	}
	a := &Agent{Name: name, known: known}
	if err = a.read(fields); err == nil && a.Prompt != "" {
		err = wrong("prompt", "stands behind the front matter")
	}
	a.Prompt = strings.TrimSpace(string(prompt))
	if err == nil {
		err = a.check() // now with its prompt
	}
	if m, ok := errors.AsType[*misplaced](err); ok {
		before, _, _ := bytes.Cut(prompt, []byte(strings.TrimSpace(string(prompt))))
		return nil, at(bytes.Count(front, []byte("\n"))+bytes.Count(before, []byte("\n"))+m.line, m.err)
	}
	if err != nil {
		return nil, at(place(&document, err), err)
	}
	return a, nil
}

const fence = "---"

// split divides a file into its front matter, in which lines have the same numbers as in the file, and the prompt. Empty lines and comments
// may stand before the front matter, and blanks behind its dashes. A front matter that is written otherwise is an error: as a part of the
// prompt it would be spoken to the model, and whatever it restricts would be allowed.
func split(text []byte) (front, prompt []byte, err error) {
	lines, err := linesOf(text)
	if err != nil {
		return nil, nil, err
	}
	begin := skipComments(lines)
	if begin == len(lines) || !isFence(lines[begin]) {
		return nil, []byte(strings.Join(lines, "\n")), misplacedFront(lines, begin)
	}
	length := slices.IndexFunc(lines[begin+1:], isFence)
	if length < 0 {
		return nil, nil, &misplaced{begin + 1, errors.New("the front matter has no end: a line of three dashes")}
	}
	end := begin + 1 + length
	front = []byte(strings.Repeat("\n", begin) + fence + "\n" + strings.Join(append(lines[begin+1:end:end], ""), "\n"))
	return front, []byte("\n" + strings.Join(lines[end+1:], "\n")), nil
}

// linesOf returns the lines of a UTF-8 text, whatever ends them.
func linesOf(text []byte) ([]string, error) {
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		return nil, errors.New("the file is UTF-16: save it as UTF-8")
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
		return nil, errors.New("the file is not UTF-8 text")
	}
	return strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(text)), "\n"), nil
}

// skipComments returns the number of the first line, from 0, that is neither empty nor part of an HTML comment.
func skipComments(lines []string) int {
	inside := false
	for i, line := range lines {
		line = strings.TrimSpace(line)
		if !inside && strings.HasPrefix(line, "<!--") {
			inside, line = true, line[len("<!--"):]
		}
		if !inside && line != "" {
			return i
		}
		if _, rest, ended := strings.Cut(line, "-->"); inside && ended {
			if inside = false; strings.TrimSpace(rest) != "" {
				return i
			}
		}
	}
	return len(lines)
}

func isFence(line string) bool { return strings.TrimSpace(line) == fence }

// almostFence matches a line that was meant as the dashes of a front matter: too many or too few of them, dashes of a word processor, or
// the fence of another format.
var almostFence = regexp.MustCompile("^\\s*([-–—−]{1,2}|[-–—−]{4,}|[–—−]+|" +
	"\\+{3,}|;{3,}|`{3,}\\s*(ya?ml|json|toml)?)\\s*$")

// misplacedFront returns an error where a file without front matter at its start has something that looks like one.
func misplacedFront(lines []string, begin int) error {
	if begin < len(lines) && almostFence.MatchString(lines[begin]) {
		err := fmt.Errorf("front matter begins and ends with a line of three dashes, not with %q", strings.TrimSpace(lines[begin]))
		return &misplaced{begin + 1, err}
	}
	open := begin
	for i := begin; i < len(lines); i++ {
		if !isFence(lines[i]) {
			continue
		}
		if isFields(lines[open:i]) {
			return &misplaced{open + 1, errors.New("front matter must stand at the start of the file, between two lines of three dashes")}
		}
		open = i + 1
	}
	return nil
}

// isFields reports whether lines are YAML with fields of an agent and nothing else.
func isFields(lines []string) bool {
	fields := map[string]any{}
	if yaml.Unmarshal([]byte(strings.Join(lines, "\n")), &fields) != nil || len(fields) == 0 {
		return false
	}
	for name := range fields {
		if !slices.Contains(fieldNames, name) {
			return false
		}
	}
	return true
}

// fieldNames are the names of an agent's fields.
var fieldNames = func() (names []string) {
	for field := range reflect.TypeFor[Agent]().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}()

// fieldsOf is a front matter as JSON. Its errors are YAML's.
func fieldsOf(front []byte, document *yaml.Node) ([]byte, error) {
	fields := map[string]any{}
	if err := cmp.Or(yaml.Unmarshal(front, document), yaml.Unmarshal(front, &fields)); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

var yamlPlace = regexp.MustCompile(`^yaml: (?:unmarshal errors:\s*)?(?:line (\d+): )?`)

// lineOf is the line that an error of YAML names.
func lineOf(err error) int {
	m := yamlPlace.FindStringSubmatch(err.Error())
	if m == nil {
		return 1
	}
	n, _ := strconv.Atoi(m[1])
	return max(n, 1)
}

// place is the line of the field that an error is about.
func place(document *yaml.Node, err error) int {
	m := &mistake{}
	errors.As(err, &m)
	name, _, _ := strings.Cut(m.field[strings.LastIndex(m.field, ".")+1:], "[")
	return max(1, find(document, name))
}

// find is the line of a key, wherever it stands; 0: there is none.
func find(node *yaml.Node, key string) (line int) {
	for i, n := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 0 && n.Value == key {
			return n.Line
		}
	}
	for _, n := range node.Content {
		line = cmp.Or(line, find(n, key))
	}
	return line
}
