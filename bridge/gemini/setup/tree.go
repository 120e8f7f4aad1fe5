package setup

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// FieldError says which field of a client's config cannot be used, and why. Both parts are for the client.
type FieldError struct {
	Field   string // path from the name the config was given, as "initialConfig.generationConfig.topK"
	Problem string // continues the field's name, as "must be a number"
}

// Error implements error.
func (e *FieldError) Error() string { return e.Field + " " + e.Problem }

// maxWarnings keeps a config of nonsense from becoming a log of nonsense.
const maxWarnings = 32

// warnings are sentences for the client: what was dropped or changed, and why.
type warnings struct {
	first []string // maxWarnings of them
	more  int
}

// warnf adds one.
func (w *warnings) warnf(format string, args ...any) {
	if len(w.first) == maxWarnings {
		w.more++
		return
	}
	w.first = append(w.first, fmt.Sprintf(format, args...))
}

// list returns them for the client.
func (w *warnings) list() []string {
	if w.more == 0 {
		return w.first
	}
	return append(slices.Clone(w.first), fmt.Sprintf("There are %d more warnings.", w.more))
}

// camelKeys returns the object with snake_case names in camelCase, as proto3 JSON has both. It is the same object if there are
// none.
func camelKeys(fields map[string]any) map[string]any {
	snake := false
	for name := range fields {
		snake = snake || strings.Contains(name, "_")
	}
	if !snake && fields != nil {
		return fields
	}
	out := make(map[string]any, len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		out[camel(name)] = fields[name]
	}
	return out
}

// sortedKeys appends the names of the fields to names, which is empty, in order: what is said of them comes in the same order always.
func sortedKeys(fields map[string]any, names []string) []string {
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func camel(name string) string {
	if !strings.Contains(name, "_") {
		return name
	}
	words := strings.Split(name, "_")
	for i := 1; i < len(words); i++ {
		if w := words[i]; w != "" {
			words[i] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

// parent returns the object that holds the field with a dotted name, and the name's last word.
func parent(tree map[string]any, name string) (map[string]any, string) {
	for {
		first, rest, deeper := strings.Cut(name, ".")
		if !deeper {
			return tree, name
		}
		tree, _ = tree[first].(map[string]any)
		name = rest
	}
}

// get returns the field with a dotted name, nil if there is none.
func get(tree map[string]any, name string) any {
	tree, name = parent(tree, name)
	return tree[name]
}

// remove takes out the field with a dotted name, and tells whether there was one.
func remove(tree map[string]any, name string) bool {
	tree, name = parent(tree, name)
	_, found := tree[name]
	delete(tree, name)
	return found
}

// encode encodes a tree that came out of a JSON decoder.
func encode(tree any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(tree); err != nil {
		panic("tree: encode what was decoded: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
