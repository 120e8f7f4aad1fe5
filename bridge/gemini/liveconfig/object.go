package liveconfig

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"voxgate/tools"
)

// reader reads the gateway's own objects in a config, such as `voxgate`. It keeps the first error, a *FieldError. After
// an error, reading continues as if the invalid field were absent.
type reader struct {
	*warnings
	err error
}

// readObject starts reading an object. The caller takes the fields that it knows, and then calls warnUnknown, which
// warns about the remaining fields.
func (r *reader) readObject(value any, path string) *object {
	fields, ok := value.(map[string]any)
	if !ok && r.err == nil {
		r.err = &FieldError{Field: path, Problem: "must be an object"}
	}
	return &object{reader: r, path: path, fields: camelKeys(fields)}
}

type object struct {
	*reader
	path   string
	fields map[string]any // fields that were not taken yet, with names in camelCase
}

// takeField removes and returns a field.
func (o *object) takeField(name string) any {
	value := o.fields[name]
	delete(o.fields, name)
	return value
}

// recordError records an error in a field.
func (o *object) recordError(name, problem string) {
	if o.err == nil {
		o.err = &FieldError{Field: o.path + "." + name, Problem: problem}
	}
}

// takeBool takes a field that must be true or false. It returns nil if the field is absent.
func (o *object) takeBool(name string) *bool {
	value := o.takeField(name)
	if value == nil {
		return nil
	}
	is, ok := tools.ParseBool(value)
	if !ok {
		o.recordError(name, "must be true or false")
		return nil
	}
	return &is
}

// takeNumber takes a field with a number from low to high. It returns nil if the field is absent.
func (o *object) takeNumber(name string, low, high float64) *float64 {
	value := o.takeField(name)
	if value == nil {
		return nil
	}
	if number, ok := tools.ParseNumber(value); ok {
		if f, err := number.Float64(); err == nil && f >= low && f <= high {
			return &f
		}
	}
	o.recordError(name, fmt.Sprintf("must be a number from %g to %g", low, high))
	return nil
}

// takeDuration takes a field with a duration such as "30m". It returns 0 if the field is absent.
func (o *object) takeDuration(name string) time.Duration {
	value := o.takeField(name)
	if value == nil {
		return 0
	}
	if text, ok := value.(string); ok {
		if d, err := time.ParseDuration(text); err == nil && d > 0 {
			return d
		}
	}
	o.recordError(name, `must be a duration, as "30m" or "2h"`)
	return 0
}

// warnUnknown warns about fields that were not taken.
func (o *object) warnUnknown() {
	for _, name := range slices.Sorted(maps.Keys(o.fields)) {
		if o.fields[name] != nil {
			o.warnf("%s.%s was dropped: there is no such option.", o.path, name)
		}
	}
}
