package liveconfig

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// maxName limits the name of a function in a client's declaration, in bytes.
const maxName = 1024

// maxWireName is the longest function name that every version of the API accepts; wireName matches such a name. Some
// versions allow 128 characters, dots and colons (https://ai.google.dev/api/caching#FunctionDeclaration).
const maxWireName = 64

var (
	wireName    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)
	notWireName = regexp.MustCompile(`[^A-Za-z0-9_-]`)
)

// newWireName returns the name under which a function is declared to the model: its own name or, if Google does not
// accept it, a similar one. The name is unique in the list.
func (l FunctionList) newWireName(name string) string {
	isTaken := func(wire string) bool {
		return slices.ContainsFunc(l, func(f Function) bool { return f.WireName == wire })
	}
	wire := name
	if !wireName.MatchString(name) {
		if wire = notWireName.ReplaceAllString(name, "_"); !wireName.MatchString(wire[:1]) {
			wire = "_" + wire
		}
		wire = wire[:min(len(wire), maxWireName)]
	}
	for n := 2; isTaken(wire); n++ {
		suffix := fmt.Sprintf("_%d", n)
		wire = strings.TrimSuffix(wire, fmt.Sprintf("_%d", n-1))
		wire = wire[:min(len(wire), maxWireName-len(suffix))] + suffix
	}
	return wire
}

// Find returns the function with this name in its declaration, or false.
func (l FunctionList) Find(name string) (Function, bool) {
	return l.findBy(func(f Function) bool { return f.Name == name })
}

// namespaces are prefixes that models write before function names (kilocode #9201). They come from the library that the
// models were trained on.
var namespaces = []string{"default_api:", "default_api."}

// FindCalled returns the function that the model calls by a name, or false. It accepts the name with one of the namespaces.
func (l FunctionList) FindCalled(name string) (Function, bool) {
	if f, ok := l.findByWireName(name); ok {
		return f, true
	}
	name = strings.TrimSpace(name)
	for _, before := range namespaces {
		name = strings.TrimPrefix(name, before)
	}
	return l.findByWireName(name)
}

func (l FunctionList) findByWireName(name string) (Function, bool) {
	if f, ok := l.findBy(func(f Function) bool { return f.WireName == name }); ok {
		return f, true
	}
	return l.Find(name)
}

func (l FunctionList) findBy(is func(Function) bool) (Function, bool) {
	i := slices.IndexFunc(l, is)
	if i < 0 {
		return Function{}, false
	}
	return l[i], true
}
