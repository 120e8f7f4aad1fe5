package catalogue

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"voxgate/internal/environment"
	"voxgate/tools"
	"voxgate/tools/canvas"
	"voxgate/tools/mcp"
	"voxgate/tools/webhook"
)

// file is the parsed content of the file of tools.
type file struct {
	builtin  []string
	webhooks []webhook.Options
	servers  []mcp.Options
}

// fields maps the names of an object's fields to pointers to variables, which receive the values.
type fields map[string]any

// syntaxErrorPosition returns the JSON syntax error in a text. where is its position as ":line:column", both counted
// from 1. For valid JSON both results are empty.
func syntaxErrorPosition(text []byte) (where string, err error) {
	var syntax *json.SyntaxError
	if err = json.Unmarshal(text, new(any)); !errors.As(err, &syntax) {
		return "", err
	}
	before := text[:max(syntax.Offset-1, 0)] // the offset includes the offending byte
	line := bytes.Count(before, []byte("\n")) + 1
	return fmt.Sprintf(":%d:%d", line, len(before)-bytes.LastIndexByte(before, '\n')), err
}

func parseFile(text []byte) (*file, error) {
	var f file
	var webhooks, servers []json.RawMessage
	if err := decodeObject(text, "", fields{"builtin": &f.builtin, "webhooks": &webhooks, "mcp": &servers}); err != nil {
		return nil, err
	}
	for i, text := range webhooks {
		o, err := parseWebhook(text, fmt.Sprintf("webhooks[%d]", i))
		if err != nil {
			return nil, err
		}
		f.webhooks = append(f.webhooks, o)
	}
	for i, text := range servers {
		o, err := parseServer(text, fmt.Sprintf("mcp[%d]", i))
		if err != nil {
			return nil, err
		}
		f.servers = append(f.servers, o)
	}
	return &f, nil
}

// rules are the settings that all kinds of tools share.
type rules struct {
	timeout              string
	behavior, scheduling string
	repeats              bool
}

// addFields adds the fields of the rules to f, and returns f.
func (r *rules) addFields(f fields) fields {
	maps.Copy(f, fields{
		"timeout": &r.timeout, "behavior": &r.behavior, "scheduling": &r.scheduling, "repeats": &r.repeats,
	})
	return f
}

func (r *rules) validate(place string) (timeout time.Duration, b tools.Behavior, s tools.Scheduling, err error) {
	b, s = tools.Behavior(r.behavior), tools.Scheduling(r.scheduling)
	if r.timeout != "" {
		if timeout, err = time.ParseDuration(r.timeout); err != nil || timeout <= 0 {
			return 0, "", "", fmt.Errorf("%s.timeout: %q is not a duration such as 20s", place, r.timeout)
		}
		if timeout > tools.MaxTimeout {
			return 0, "", "", fmt.Errorf("%s.timeout: %q is above the maximum of %v", place, r.timeout, tools.MaxTimeout)
		}
	}
	if !slices.Contains([]tools.Behavior{"", tools.Blocking, tools.NonBlocking}, b) {
		return 0, "", "", fmt.Errorf("%s.behavior: %q is neither BLOCKING nor NON_BLOCKING", place, b)
	}
	if !slices.Contains([]tools.Scheduling{"", tools.WhenIdle, tools.Interrupt, tools.Silent}, s) {
		return 0, "", "", fmt.Errorf("%s.scheduling: %q must be WHEN_IDLE, INTERRUPT or SILENT", place, s)
	}
	return timeout, b, s, nil
}

func parseWebhook(text []byte, place string) (o webhook.Options, err error) {
	var r rules
	err = decodeObject(text, place, r.addFields(fields{
		"name": &o.Name, "title": &o.Title, "description": &o.Description, "parameters": &o.Parameters,
		"url": &o.URL, "secret": &o.Secret, "headers": &o.Headers, "allowPrivate": &o.AllowPrivate,
	}))
	if err != nil {
		return o, err
	}
	if o.Timeout, o.Behavior, o.Scheduling, err = r.validate(place); err != nil {
		return o, err
	}
	o.Repeats = r.repeats
	for _, field := range []struct{ name, value string }{
		{"name", o.Name}, {"description", o.Description}, {"url", o.URL}, {"secret", o.Secret},
	} {
		if field.value == "" {
			return o, fmt.Errorf("%s.%s: is missing", place, field.name)
		}
	}
	if !tools.IsValidName(o.Name) {
		return o, fmt.Errorf("%s.name: %q must be a letter or _, then letters, digits, _ . : or -, 128 at most", place, o.Name)
	}
	if canvas.IsCanvasTool(o.Name) {
		return o, fmt.Errorf("%s.name: %q is reserved for the canvas", place, o.Name)
	}
	if o.Parameters != nil {
		schema, err := tools.Decode(o.Parameters)
		if err == nil {
			_, err = tools.ParseSchema(schema, nil)
		}
		if err != nil {
			return o, fmt.Errorf("%s.parameters: %w", place, err)
		}
	}
	if o.Secret, err = environment.Expand(o.Secret); err != nil {
		return o, fmt.Errorf("%s.secret: %w", place, err)
	}
	return o, expandVariables(o.Headers, place+".headers")
}

func parseServer(text []byte, place string) (o mcp.Options, err error) {
	var r rules
	err = decodeObject(text, place, r.addFields(fields{
		"name": &o.Name, "command": &o.Command, "env": &o.Env, "url": &o.URL, "headers": &o.Headers,
		"tools": &o.Only, "prefix": &o.Prefix,
	}))
	if err != nil {
		return o, err
	}
	if o.Timeout, o.Behavior, o.Scheduling, err = r.validate(place); err != nil {
		return o, err
	}
	o.Repeats = r.repeats
	switch {
	case o.Name == "":
		return o, fmt.Errorf("%s.name: is missing", place)
	case (len(o.Command) == 0) == (o.URL == ""):
		return o, fmt.Errorf("%s: needs either a command or a url", place)
	case o.URL == "" && o.Headers != nil:
		return o, fmt.Errorf("%s.headers: only for a server with a url", place)
	case o.URL != "" && o.Env != nil:
		return o, fmt.Errorf("%s.env: only for a server with a command", place)
	}
	return o, errors.Join(expandVariables(o.Headers, place+".headers"), expandVariables(o.Env, place+".env"))
}

// decodeObject decodes an object. It returns an error if a field's name is not exactly one of the known names.
func decodeObject(text []byte, place string, known fields) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil || object == nil {
		return fmt.Errorf("%s: must be an object", cmp.Or(place, "the file"))
	}
	if place != "" {
		place += "."
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		to, ok := known[name]
		if !ok {
			return fmt.Errorf("%s%s: unknown field", place, name)
		}
		var kind *json.UnmarshalTypeError
		if err := json.Unmarshal(object[name], to); errors.As(err, &kind) {
			return fmt.Errorf("%s%s: must be %s, not %s", place, name, kinds[kind.Type.Kind()], kind.Value)
		} else if err != nil {
			return fmt.Errorf("%s%s: %w", place, name, err)
		}
	}
	return nil
}

var kinds = map[reflect.Kind]string{
	reflect.String: "a string", reflect.Bool: "true or false", reflect.Slice: "an array", reflect.Map: "an object",
}

func expandVariables(values map[string]string, place string) (err error) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if values[name], err = environment.Expand(values[name]); err != nil {
			return fmt.Errorf("%s.%s: %w", place, name, err)
		}
	}
	return nil
}
