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
type warnings []string

// warnf adds one, if there are not too many.
func (w *warnings) warnf(format string, args ...any) {
	if len(*w) < maxWarnings {
		*w = append(*w, fmt.Sprintf(format, args...))
	}
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

// remove takes out the field with a dotted name, and reports whether there was one.
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
