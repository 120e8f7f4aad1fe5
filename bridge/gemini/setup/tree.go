package setup

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"voxgate/tools"
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
		out[tools.ToCamelCase(name)] = fields[name]
	}
	return out
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
