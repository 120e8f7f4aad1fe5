package liveconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"voxgate/tools"
)

// FieldError describes an invalid field of a client's config. The client receives the name of the field and the
// problem.
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

// parentOfPath returns the object that contains the field with a dotted path, and that field's own name.
func parentOfPath(tree map[string]any, path string) (object map[string]any, name string) {
	for {
		first, rest, deeper := strings.Cut(path, ".")
		if !deeper {
			return tree, path
		}
		tree, _ = tree[first].(map[string]any)
		path = rest
	}
}

// fieldByPath returns the value of the field with a dotted path, or nil.
func fieldByPath(tree map[string]any, path string) any {
	object, name := parentOfPath(tree, path)
	return object[name]
}

// removeByPath deletes the field with a dotted path.
func removeByPath(tree map[string]any, path string) (wasPresent bool) {
	object, name := parentOfPath(tree, path)
	_, wasPresent = object[name]
	delete(object, name)
	return wasPresent
}
