package setup

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"voxgate/tools"
)

// reader reads objects of our own. It keeps the first error, a *FieldError; what is wrong reads as if it were absent.
type reader struct {
	*warnings
	err error
}

// object reads an object strictly: what was not asked for by the end is unknown.
func (r *reader) object(value any, path string) *object {
	fields, ok := value.(map[string]any)
	if !ok && r.err == nil {
		r.err = &FieldError{Field: path, Problem: "must be an object"}
	}
	return &object{reader: r, path: path, fields: camelKeys(fields)}
}

type object struct {
	*reader
	path   string
	fields map[string]any // in camelCase; what is asked for is taken out
}

// take returns a field and forgets it.
func (o *object) take(name string) any {
	value := o.fields[name]
	delete(o.fields, name)
	return value
}

// wrong says what is wrong with a field.
func (o *object) wrong(name, problem string) {
	if o.err == nil {
		o.err = &FieldError{Field: o.path + "." + name, Problem: problem}
	}
}

// boolean reads a field, nil if it is absent.
func (o *object) boolean(name string) *bool {
	value := o.take(name)
	if value == nil {
		return nil
	}
	is, ok := tools.ParseBool(value)
	if !ok {
		o.wrong(name, "must be true or false")
		return nil
	}
	return &is
}

// number reads a field from low to high, nil if it is absent.
func (o *object) number(name string, low, high float64) *float64 {
	value := o.take(name)
	if value == nil {
		return nil
	}
	if number, ok := tools.ParseNumber(value); ok {
		if f, err := number.Float64(); err == nil && f >= low && f <= high {
			return &f
		}
	}
	o.wrong(name, fmt.Sprintf("must be a number from %g to %g", low, high))
	return nil
}

// duration reads a field as "30m", 0 if it is absent.
func (o *object) duration(name string) time.Duration {
	value := o.take(name)
	if value == nil {
		return 0
	}
	if text, ok := value.(string); ok {
		if d, err := time.ParseDuration(text); err == nil && d > 0 {
			return d
		}
	}
	o.wrong(name, `must be a duration, as "30m" or "2h"`)
	return 0
}

// rest warns of the fields that nobody asked for.
func (o *object) rest() {
	for _, name := range slices.Sorted(maps.Keys(o.fields)) {
		if o.fields[name] != nil {
			o.warnf("%s.%s was dropped: there is no such option.", o.path, name)
		}
	}
}
