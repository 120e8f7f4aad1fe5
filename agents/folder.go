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
	"voxgate/internal/filewatch"
)

// extension is the extension of agent files.
const extension = ".md"

// maxFile limits the size of a file, in bytes. A longer prompt would exceed the context of a Live session.
const maxFile = 256 << 10

// Folder holds the operator's current agents. A nil Folder has none. Its methods may be called from any goroutine.
type Folder struct {
	path    string
	project string // project on Vertex AI, or "" for the Gemini API
	log     *slog.Logger
	watch   *filewatch.Watch

	mu     sync.Mutex
	agents []*Agent // sorted by name, or in the order given to New
	files  []File   // state of the files at the last reload
	checks []func(*Agent) error
}

// File is the state of an agent's file at the last reload.
type File struct {
	Name string // name of the agent
	Err  error  // error with file and line, or nil for a valid file; after an error, the previous version of the agent stays
}

// Open reads a folder. If files are invalid, the error joins their errors, each with the name of the file and the line.
// project is the project on Vertex AI that answers, or "" for the Gemini API: a config is valid for one of them.
func Open(path, project string, log *slog.Logger) (*Folder, error) {
	f := &Folder{path: path, project: project, log: log}
	files, err := f.listFiles()
	if err != nil {
		return nil, err
	}
	f.watch = filewatch.NewWatch(log, time.Now, files)
	return f, f.readAll(files)
}

// New returns a Folder of the given agents, in this order. It reads no files.
func New(list ...*Agent) *Folder { return &Folder{agents: list} }

func (f *Folder) listFiles() ([]string, error) {
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

// readAll replaces the agents by those in the files. If a file is invalid, its agent stays as before, and the returned
// error includes the file's error.
func (f *Folder) readAll(files []string) error {
	var list []*Agent
	var state []File
	var errs []error
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), extension)
		a, err := f.readFile(file, name, nil)
		if err == nil && isBlank(a) && f.findByName(name) != nil {
			err = fmt.Errorf("%s: the file is empty", file) // an editor may leave it like this between two writes
		}
		if err == nil {
			err = f.runChecks(a)
		}
		state = append(state, File{name, err})
		if err != nil {
			errs = append(errs, err)
			a = f.findByName(name)
		}
		if a != nil {
			list = append(list, a)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.agents, f.files = list, state
	return errors.Join(errs...)
}

// isBlank reports whether an agent's file has neither fields nor a prompt.
func isBlank(a *Agent) bool {
	fields, err := json.Marshal(a)
	return err == nil && string(fields) == "{}"
}

// reloadIfChanged returns the agents, after reloading files that have changed. At most one caller per second waits for
// the reload.
func (f *Folder) reloadIfChanged() (agents []*Agent) {
	if f == nil {
		return nil
	}
	var files []string
	var err error
	if f.watch != nil && f.watch.TakeChange(func() []string { files, err = f.listFiles(); return files }) {
		if err == nil {
			err = f.readAll(files)
		}
		if err != nil {
			f.log.Error("changed agents are invalid, keeping the previous ones", "err", err)
		} else {
			f.log.Info("agents reloaded", "folder", f.path, "agents", len(files))
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.agents
}

// Files returns the state of all agent files, including invalid ones.
func (f *Folder) Files() []File {
	if f == nil {
		return nil
	}
	f.reloadIfChanged()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.files
}

// Names returns the names of the agents.
func (f *Folder) Names() (names []string) {
	for _, a := range f.reloadIfChanged() {
		names = append(names, a.Name)
	}
	return names
}

// AddAndRunCheck adds a check of all agents that can be reached by phone through a protocol. The check runs now and
// after every reload. The returned error joins the errors of the check, each with the file's name.
func (f *Folder) AddAndRunCheck(protocol string, check func(*Agent) error) error {
	if f == nil {
		return nil
	}
	list := f.reloadIfChanged()
	f.mu.Lock()
	f.checks = append(f.checks, func(a *Agent) error {
		if len(a.Numbers) == 0 || !a.servesProtocol(protocol) {
			return nil
		}
		return check(a)
	})
	f.mu.Unlock()
	var errs []error
	for _, a := range list {
		errs = append(errs, f.runChecks(a))
	}
	return errors.Join(errs...)
}

// runChecks runs the checks of [Folder.AddAndRunCheck] on an agent.
func (f *Folder) runChecks(a *Agent) error {
	f.mu.Lock()
	checks := f.checks
	f.mu.Unlock()
	for _, check := range checks {
		if err := check(a); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(f.path, a.Name+extension), err)
		}
	}
	return nil
}

// telephoneTools are the tools that package phone adds to the operator's tools in phone calls.
var telephoneTools = []string{"collect_digits", "end_call", "send_dtmf", "transfer_call"}

// CheckTools reads the files again, and returns an error that names each agent with an unknown tool. The known tools
// are the operator's, in toolNames, and the phone tools.
func (f *Folder) CheckTools(toolNames []string) error {
	if f == nil {
		return nil
	}
	toolNames = slices.Concat(toolNames, telephoneTools)
	var errs []error
	for _, a := range f.reloadIfChanged() {
		_, err := f.readFile(filepath.Join(f.path, a.Name+extension), a.Name, toolNames)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// findByName returns the agent with this name, or nil.
func (f *Folder) findByName(name string) *Agent {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.agents {
		if a.Name == name {
			return a
		}
	}
	return nil
}

// Find returns the agent with this name, or nil if it does not exist or the protocol cannot reach it.
func (f *Folder) Find(name, protocol string) *Agent {
	for _, a := range f.reloadIfChanged() {
		if a.Name == name && a.servesProtocol(protocol) {
			return a
		}
	}
	return nil
}

// PhoneAgents returns the agents of a protocol that have numbers.
func (f *Folder) PhoneAgents(protocol string) (list []*Agent) {
	for _, a := range f.reloadIfChanged() {
		if len(a.Numbers) > 0 && a.servesProtocol(protocol) {
			list = append(list, a)
		}
	}
	return list
}

// Select sets the agent that answers: the agent that Origin.Agent names or, without a name, the first agent of the
// grant. If the grant has agents, it rejects all others, and the client cannot override their fields. If neither names
// an agent, nothing changes. values fill the variables of the prompt.
func (f *Folder) Select(o *bridge.SessionRequest, values map[string]string) error {
	a, granted, err := f.selectAgent(o, values)
	switch {
	// A resumed conversation has its agent already, so an unknown name is an error only if the resume fails.
	case err != nil && o.ResumeToken != "":
		o.ResumeError = cmp.Or(o.ResumeError, err)
		return nil
	case err != nil || a == nil:
		return err
	}
	a.ApplyTo(o)
	o.AgentLocked = granted
	return nil
}

func (f *Folder) selectAgent(o *bridge.SessionRequest, values map[string]string) (a *Agent, isGranted bool, err error) {
	name := o.Origin.Agent
	if g := o.Grant; g != nil && len(g.Agents) > 0 {
		isGranted = true
		switch {
		case name == "" && strings.ContainsAny(g.Agents[0], `*?[\`):
			return nil, true, newError(bridge.CodeForbidden, http.StatusForbidden, "This token is for %s: name one of them.",
				strings.Join(g.Agents, ", "))
		case name == "":
			name = g.Agents[0]
		case !bridge.MatchesAny(g.Agents, name):
			return nil, true, newError(bridge.CodeForbidden, http.StatusForbidden, "This token is not for the agent %q, but for %s.",
				name, strings.Join(g.Agents, ", "))
		}
	}
	if name == "" {
		return nil, false, nil
	}
	if a = f.Find(name, o.Origin.Protocol); a == nil {
		return nil, isGranted, NewUnknownAgentError(name)
	}
	if a, err = a.WithVariables(values); err != nil {
		return nil, isGranted, newError(bridge.CodeBadMessage, http.StatusBadRequest, "Agent %q: %v.", name, err)
	}
	return a, isGranted, nil
}

// Resolve returns the agent that a backend has chosen for a protocol, with values for its prompt. If the backend has
// chosen none, it returns an agent with all defaults.
func (f *Folder) Resolve(c Choice, protocol string, values map[string]string) (*Agent, error) {
	a := c.Agent
	if a == nil {
		a = &Agent{}
		if c.Name != "" {
			a = f.Find(c.Name, protocol)
		}
		if a == nil {
			return nil, NewUnknownAgentError(c.Name)
		}
	}
	a, err := a.WithVariables(values)
	if err != nil {
		return nil, newError(bridge.CodeBadMessage, http.StatusBadRequest, "%v.", err)
	}
	return a, nil
}

// NewUnknownAgentError returns the error for an agent that does not exist or cannot be reached by this protocol.
func NewUnknownAgentError(name string) error {
	return newError(bridge.CodeBadMessage, http.StatusNotFound, "There is no agent %.64q here.", name)
}

// ErrorField is the Field of each [bridge.Error] about the choice of agent. These errors also have a Status.
const ErrorField = "agent"

func newError(code bridge.Code, status int, format string, args ...any) error {
	return &bridge.Error{Code: code, Field: ErrorField, Status: status, Message: fmt.Sprintf(format, args...)}
}

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// readFile reads an agent. Its errors name the file and the line: "desk.md:4: …". knownTools lists the operator's
// tools; if it is nil, tool names are not checked.
func (f *Folder) readFile(file, name string, knownTools []string) (*Agent, error) {
	at := func(line int, err error) error { return fmt.Errorf("%s:%d: %w", file, line, err) }
	if !namePattern.MatchString(name) || strings.HasPrefix(name, "gemini-") || strings.HasPrefix(name, "gpt-") {
		return nil, fmt.Errorf("%s: invalid agent name: use a-z, 0-9, - and _, and no name of a model", file)
	}
	if err := filewatch.CheckReloadable(file); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxFile:
		return nil, fmt.Errorf("%s: too large: %d bytes, maximum %d", file, len(text), maxFile)
	}
	front, prompt, err := splitFrontMatter(text)
	if m, ok := errors.AsType[*lineError](err); ok {
		return nil, at(m.line, m.err)
	}
	if err != nil {
		return nil, at(1, err)
	}
	var document yaml.Node
	fields, err := frontMatterToJSON(front, &document)
	if err != nil {
		return nil, at(yamlErrorLine(err), errors.New(explainYAMLError(err)))
	}
	a := &Agent{Name: name, knownTools: knownTools, project: f.project}
	if err = a.parseFields(fields); err == nil && a.Prompt != "" {
		err = fieldErrorf("prompt", "must follow the front matter")
	}
	a.Prompt = strings.TrimSpace(string(prompt))
	if err == nil {
		err = a.validate() // now with its prompt
	}
	if m, ok := errors.AsType[*lineError](err); ok {
		before, _, _ := bytes.Cut(prompt, []byte(strings.TrimSpace(string(prompt))))
		return nil, at(bytes.Count(front, []byte("\n"))+bytes.Count(before, []byte("\n"))+m.line, m.err)
	}
	if err != nil {
		return nil, at(fieldLine(&document, err), err)
	}
	return a, nil
}

const fence = "---"

// splitFrontMatter divides a file into its front matter and the prompt. Empty lines and comments may precede the front
// matter. front is padded with empty lines, so that line numbers in it are those of the file.
//
// Malformed front matter is an error. If it counted as part of the prompt, the restrictions in it would not apply.
func splitFrontMatter(text []byte) (front, prompt []byte, err error) {
	lines, err := splitLines(text)
	if err != nil {
		return nil, nil, err
	}
	begin := firstContentLine(lines)
	if begin == len(lines) || !isFrontMatterFence(lines[begin]) {
		return nil, []byte(strings.Join(lines, "\n")), checkMisplacedFrontMatter(lines, begin)
	}
	length := slices.IndexFunc(lines[begin+1:], isFrontMatterFence)
	if length < 0 {
		return nil, nil, &lineError{begin + 1, errors.New("the front matter does not end with a line of three dashes")}
	}
	end := begin + 1 + length
	front = []byte(strings.Repeat("\n", begin) + fence + "\n" + strings.Join(append(lines[begin+1:end:end], ""), "\n"))
	return front, []byte("\n" + strings.Join(lines[end+1:], "\n")), nil
}

// splitLines returns the lines of a UTF-8 text with any line endings.
func splitLines(text []byte) ([]string, error) {
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		return nil, errors.New("the file is UTF-16: save it as UTF-8")
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
		return nil, errors.New("the file is not UTF-8 text")
	}
	return strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(text)), "\n"), nil
}

// firstContentLine returns the index of the first line that is neither empty nor part of an HTML comment.
func firstContentLine(lines []string) int {
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

func isFrontMatterFence(line string) bool { return strings.TrimSpace(line) == fence }

// almostFence matches a mistyped delimiter of front matter: too many or too few dashes, the dashes of a word processor,
// or the delimiter of another format.
var almostFence = regexp.MustCompile("^\\s*([-–—−]{1,2}|[-–—−]{4,}|[–—−]+|" +
	"\\+{3,}|;{3,}|`{3,}\\s*(ya?ml|json|toml)?)\\s*$")

// checkMisplacedFrontMatter returns an error if a file without front matter contains lines that look like front matter.
// begin is the index of the first line that is neither empty nor a comment.
func checkMisplacedFrontMatter(lines []string, begin int) error {
	if begin < len(lines) && almostFence.MatchString(lines[begin]) {
		err := fmt.Errorf("front matter begins and ends with a line of three dashes, not with %q", strings.TrimSpace(lines[begin]))
		return &lineError{begin + 1, err}
	}
	open := begin
	for i := begin; i < len(lines); i++ {
		if !isFrontMatterFence(lines[i]) {
			continue
		}
		if areAgentFields(lines[open:i]) {
			return &lineError{open + 1, errors.New("front matter must stand at the start of the file, between two lines of three dashes")}
		}
		open = i + 1
	}
	return nil
}

// areAgentFields reports whether the lines are YAML and contain only fields of an agent.
func areAgentFields(lines []string) bool {
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

// frontMatterToJSON converts front matter to JSON. It returns the errors of the YAML parser unchanged.
func frontMatterToJSON(front []byte, document *yaml.Node) ([]byte, error) {
	fields := map[string]any{}
	if err := cmp.Or(yaml.Unmarshal(front, document), yaml.Unmarshal(front, &fields)); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

var yamlErrorPrefix = regexp.MustCompile(`^yaml: (?:unmarshal errors:\s*)?(?:line (\d+): )?`)

// yamlHints maps messages of the YAML parser to advice for the author of an agent.
var yamlHints = map[string]string{
	"mapping values are not allowed":              "a value that contains a colon and a space must be in quotation marks",
	"could not find expected ':'":                 "this line, or the one above, is neither a field nor indented under one",
	"did not find expected key":                   "the indentation differs from the lines above, or text follows a closing quotation mark",
	"did not find expected '-' indicator":         "the items of a list must be indented equally",
	"found character that cannot start any token": "indent with spaces, not tabs, and put a value that begins with @ or ` in quotation marks",
	"found a tab character":                       "indent with spaces, not tabs",
	"found unexpected end of stream":              "a quotation mark is not closed",
	"found unknown escape character":              "in double quotation marks a backslash must be doubled",
}

// explainYAMLError returns the parser's message without the line number. If yamlHints has advice for it, it appends the
// advice.
func explainYAMLError(err error) string {
	message := yamlErrorPrefix.ReplaceAllString(err.Error(), "")
	for found, hint := range yamlHints {
		if strings.HasPrefix(message, found) {
			return message + "; " + hint
		}
	}
	return message
}

// yamlErrorLine returns the line number in a YAML error.
func yamlErrorLine(err error) int {
	m := yamlErrorPrefix.FindStringSubmatch(err.Error())
	if m == nil {
		return 1
	}
	n, _ := strconv.Atoi(m[1])
	return max(n, 1)
}

// fieldLine returns the line of the field that an error is about.
func fieldLine(document *yaml.Node, err error) int {
	m := &fieldError{}
	errors.As(err, &m)
	name, _, _ := strings.Cut(m.field[strings.LastIndex(m.field, ".")+1:], "[")
	return max(1, findKeyLine(document, name))
}

// findKeyLine returns the line of a key at any depth, or 0.
func findKeyLine(node *yaml.Node, key string) (line int) {
	for i, n := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 0 && n.Value == key {
			return n.Line
		}
	}
	for _, n := range node.Content {
		line = cmp.Or(line, findKeyLine(n, key))
	}
	return line
}
