package setup

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// object reads an object of our own strictly: what was not asked for by the end is unknown.
type object struct {
	path   string
	fields map[string]any // in camelCase; what is asked for is taken out
	warn   *warnings
}

// newObject reads an object with this path. Its error is, as those of all methods, a *FieldError.
func newObject(value any, path string, warn *warnings) (*object, error) {
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, &FieldError{Field: path, Problem: "must be an object"}
	}
	return &object{path: path, fields: camelKeys(fields), warn: warn}, nil
}

// take returns a field and forgets it.
func (o *object) take(name string) any {
	value := o.fields[name]
	delete(o.fields, name)
	return value
}

// wrong is the error of a field.
func (o *object) wrong(name, problem string) error {
	return &FieldError{Field: o.path + "." + name, Problem: problem}
}

// object reads a field that is one, nil if it is absent.
func (o *object) object(name string) (*object, error) {
	value := o.take(name)
	if value == nil {
		return nil, nil
	}
	return newObject(value, o.path+"."+name, o.warn)
}

// boolean reads a field, nil if it is absent.
func (o *object) boolean(name string) (*bool, error) {
	switch value := o.take(name).(type) {
	case nil:
		return nil, nil
	case bool:
		return &value, nil
	}
	return nil, o.wrong(name, "must be true or false")
}

// number reads a field from low to high, nil if it is absent.
func (o *object) number(name string, low, high float64) (*float64, error) {
	value := o.take(name)
	if value == nil {
		return nil, nil
	}
	if number, ok := value.(json.Number); ok {
		if f, err := number.Float64(); err == nil && f >= low && f <= high {
			return &f, nil
		}
	}
	return nil, o.wrong(name, fmt.Sprintf("must be a number from %g to %g", low, high))
}

// duration reads a field as "30m", 0 if it is absent.
func (o *object) duration(name string) (time.Duration, error) {
	value := o.take(name)
	if value == nil {
		return 0, nil
	}
	if text, ok := value.(string); ok {
		if d, err := time.ParseDuration(text); err == nil && d > 0 {
			return d, nil
		}
	}
	return 0, o.wrong(name, `must be a duration, as "30m" or "2h"`)
}

// rest warns of the fields that nobody asked for.
func (o *object) rest() {
	for _, name := range slices.Sorted(maps.Keys(o.fields)) {
		if o.fields[name] != nil {
			o.warn.warnf("%s.%s was dropped: there is no such option.", o.path, name)
		}
	}
}
