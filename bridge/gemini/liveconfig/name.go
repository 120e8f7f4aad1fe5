package liveconfig

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// maxName limits the name of a function in a client's declaration, in bytes.
const maxName = 1024

// maxWireName is the maximum length of a function name that all versions of the API accept. Some versions allow 128
// characters, dots and colons (https://ai.google.dev/api/caching#FunctionDeclaration). wireName matches the names that
// all versions accept.
const maxWireName = 64

var (
	wireName    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)
	notWireName = regexp.MustCompile(`[^A-Za-z0-9_-]`)
)

// newWireName returns the name under which a function is declared to the model: its own name or, if Google does not
// accept that, a similar name. The result differs from all other wire names in the list.
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

// Find returns the function that was declared with this name, or false.
func (l FunctionList) Find(name string) (f Function, ok bool) {
	return l.firstMatch(func(f Function) bool { return f.Name == name })
}

// namespaces are prefixes that models write before function names (kilocode #9201). The prefixes come from the library
// with which the models were trained.
var namespaces = []string{"default_api:", "default_api."}

// FindCalled returns the function that the model has called by this name, or false. The name may begin with one of the
// namespaces.
func (l FunctionList) FindCalled(name string) (f Function, ok bool) {
	if f, ok := l.findByWireName(name); ok {
		return f, true
	}
	name = strings.TrimSpace(name)
	for _, before := range namespaces {
		name = strings.TrimPrefix(name, before)
	}
	return l.findByWireName(name)
}

func (l FunctionList) findByWireName(name string) (f Function, ok bool) {
	if f, ok := l.firstMatch(func(f Function) bool { return f.WireName == name }); ok {
		return f, true
	}
	return l.Find(name)
}

func (l FunctionList) firstMatch(matches func(Function) bool) (f Function, ok bool) {
	i := slices.IndexFunc(l, matches)
	if i < 0 {
		return Function{}, false
	}
	return l[i], true
}
