package tree

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Object reads an object of our own strictly: what was not asked for by the end is unknown.
type Object struct {
	Path     string
	Fields   map[string]any // in camelCase; what is asked for is taken out
	Warnings *Warnings
}

// NewObject reads an object with this path. Its error is, as those of all methods, a *FieldError.
func NewObject(value any, path string, warnings *Warnings) (*Object, error) {
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, &FieldError{Field: path, Problem: "must be an object"}
	}
	return &Object{Path: path, Fields: Camel(fields), Warnings: warnings}, nil
}

// Take returns a field and forgets it.
func (o *Object) Take(name string) any {
	value := o.Fields[name]
	delete(o.Fields, name)
	return value
}

// Wrong is the error of a field.
func (o *Object) Wrong(name, problem string) error {
	return &FieldError{Field: o.Path + "." + name, Problem: problem}
}

// Object reads a field that is one, nil if it is absent.
func (o *Object) Object(name string) (*Object, error) {
	value := o.Take(name)
	if value == nil {
		return nil, nil
	}
	return NewObject(value, o.Path+"."+name, o.Warnings)
}

// Boolean reads a field, nil if it is absent.
func (o *Object) Boolean(name string) (*bool, error) {
	switch value := o.Take(name).(type) {
	case nil:
		return nil, nil
	case bool:
		return &value, nil
	}
	return nil, o.Wrong(name, "must be true or false")
}

// Number reads a field from low to high, nil if it is absent.
func (o *Object) Number(name string, low, high float64) (*float64, error) {
	value := o.Take(name)
	if value == nil {
		return nil, nil
	}
	if number, ok := value.(json.Number); ok {
		if f, err := number.Float64(); err == nil && f >= low && f <= high {
			return &f, nil
		}
	}
	return nil, o.Wrong(name, fmt.Sprintf("must be a number from %g to %g", low, high))
}

// Duration reads a field as "30m", 0 if it is absent.
func (o *Object) Duration(name string) (time.Duration, error) {
	value := o.Take(name)
	if value == nil {
		return 0, nil
	}
	if text, ok := value.(string); ok {
		if d, err := time.ParseDuration(text); err == nil && d > 0 {
			return d, nil
		}
	}
	return 0, o.Wrong(name, `must be a duration, as "30m" or "2h"`)
}

// Rest warns of the fields that nobody asked for.
func (o *Object) Rest() {
	for _, name := range slices.Sorted(maps.Keys(o.Fields)) {
		if o.Fields[name] != nil {
			o.Warnings.Warnf("%s.%s was dropped: there is no such option.", o.Path, name)
		}
	}
}
