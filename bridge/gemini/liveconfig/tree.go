package liveconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"voxgate/tools"
)

// FieldError describes an invalid field of a client's config. Both parts are for the client.
type FieldError struct {
	Field   string // path that begins with the name of the config, such as "initialConfig.generationConfig.topK"
	Problem string // the rest of a sentence that begins with Field, such as "must be a number"
}

// Error implements error.
func (e *FieldError) Error() string { return e.Field + " " + e.Problem }

// maxWarnings limits the warnings about one config.
const maxWarnings = 32

// warnings holds sentences for the client about dropped or changed fields, with reasons.
type warnings []string

// warnf adds a warning, up to maxWarnings.
func (w *warnings) warnf(format string, args ...any) {
	if len(*w) < maxWarnings {
		*w = append(*w, fmt.Sprintf(format, args...))
	}
}

// camelKeys returns an object with its names in camelCase, because proto3 JSON also accepts snake_case. It may return
// the same object.
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

// parent returns the object that contains the field with a dotted name, and the last part of that name.
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

// get returns the value of the field with a dotted name, or nil.
func get(tree map[string]any, name string) any {
	tree, name = parent(tree, name)
	return tree[name]
}

// remove deletes the field with a dotted name, and reports whether it existed.
func remove(tree map[string]any, name string) bool {
	tree, name = parent(tree, name)
	_, found := tree[name]
	delete(tree, name)
	return found
}
