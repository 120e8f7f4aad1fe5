package tools

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"reflect"
	"strconv"
	"strings"
)

// JSONError says what is wrong with JSON that somebody has sent, in words that are for them.
type JSONError struct {
	Field string // its path, as "contents[0].parts"; empty: the whole
	Want  string // what it must be, as "a number"; empty: it is no JSON at all
	Got   string // what it is, as "a string", or why it is no JSON
}

// Error implements error.
func (e *JSONError) Error() string {
	switch {
	case e.Want == "" && e.Field == "":
		return "not valid JSON: " + e.Got
	case e.Want == "":
		return e.Field + " is not valid JSON: " + e.Got
	}
	field := e.Field
	if field == "" {
		field = "it"
	}
	return fmt.Sprintf("%s must be %s, not %s", field, e.Want, e.Got)
}

// ExplainJSON returns an error of encoding/json as one that names no type of Go's; others as they are. at is the path of what was read.
func ExplainJSON(err error, at string) error {
	var known *JSONError
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return &JSONError{strings.Trim(at+"."+known.Field, "."), known.Want, known.Got}
	case errors.As(err, &kind):
		word, _, _ := strings.Cut(kind.Value, " ")
		want := "of another type"
		if kind.Type != nil {
			want = typeName(kind.Type)
		}
		return &JSONError{strings.Trim(at+"."+kind.Field, "."), want, withArticle(word)}
	case errors.As(err, &syntax) && syntax.Error() == "unexpected end of JSON input":
		return &JSONError{Field: at, Got: "it ends too early"}
	case errors.As(err, &syntax) && strings.HasSuffix(syntax.Error(), " after top-level value"):
		return &JSONError{Field: at, Got: behindValue}
	case errors.As(err, &syntax):
		return &JSONError{Field: at, Got: fmt.Sprintf("%s at byte %d", strings.TrimPrefix(syntax.Error(), "json: "), syntax.Offset)}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &JSONError{Field: at, Got: "it ends too early"}
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		return errors.New(strings.TrimPrefix(err.Error(), "json: ")) // which has no path
	case strings.HasPrefix(err.Error(), "json: "):
		return &JSONError{Field: at, Got: "it cannot be read"}
	}
	return err
}

const behindValue = "there is more behind the value"

func withArticle(word string) string {
	switch word {
	case "array":
		return "an array"
	case "object":
		return "an object"
	case "bool":
		return "true or false"
	case "null", "":
		return "null"
	}
	return "a " + word
}

func typeName(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return "a string"
		}
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	}
	return "of another type"
}

func kindName(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case string:
		return "a string"
	case json.Number:
		return "a number"
	case []any:
		return "an array"
	}
	return "an object"
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// TrimBOM returns JSON without the byte order mark that some programs begin a file with.
func TrimBOM(raw []byte) []byte { return bytes.TrimPrefix(bytes.TrimSpace(raw), byteOrderMark) }

// ReadJSON reads JSON as Google's servers do (https://protobuf.dev/programming-guides/json): one value for a list of it, numbers as
// strings and strings as numbers, whole numbers with decimals, true and false as strings, names in snake_case, null as absent, and a
// byte order mark before all. What the target has no fields for is passed over. Names in maps, and all below a [json.RawMessage] or an
// any, are users' own and stay. The error is a [JSONError].
func ReadJSON(raw []byte, into any) error {
	tree, err := Decode(TrimBOM(raw))
	if err != nil {
		return ExplainJSON(err, "")
	}
	fitted, err := fitValue(tree, reflect.TypeOf(into).Elem(), "")
	if err != nil {
		return err
	}
	return ExplainJSON(json.Unmarshal(Encode(fitted), into), "")
}

// ReadStrictJSON reads one JSON value whose fields the target must all have, as files and requests in which a misspelt limit would be
// none. A byte order mark may stand before it, nothing behind it. The error names no type of Go's.
func ReadStrictJSON(raw []byte, into any) error {
	trimmed := TrimBOM(raw)
	dec := json.NewDecoder(bytes.NewReader(trimmed))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return ExplainJSON(err, "")
	}
	if _, err := dec.Token(); err != io.EOF {
		return &JSONError{Got: behindValue}
	}
	return nil
}

var (
	rawType         = reflect.TypeFor[json.RawMessage]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
	textType        = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// fitValue returns a value in the kind that a type is read from.
func fitValue(value any, t reflect.Type, at string) (any, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil || t == rawType || t.Kind() == reflect.Interface {
		return value, nil
	}
	if p := reflect.PointerTo(t); (p.Implements(unmarshalerType) && t.Kind() != reflect.Slice) || p.Implements(textType) {
		return value, nil
	}
	wrong := func() (any, error) { return nil, &JSONError{at, typeName(t), kindName(value)} }
	switch t.Kind() {
	case reflect.Struct:
		fields, ok := value.(map[string]any)
		if !ok {
			return wrong()
		}
		return fitStruct(fields, t, at)
	case reflect.Map:
		fields, ok := value.(map[string]any)
		if !ok {
			return wrong()
		}
		for name, v := range fields {
			fitted, err := fitValue(v, t.Elem(), join(at, name))
			if err != nil {
				return nil, err
			}
			fields[name] = fitted
		}
		return fields, nil
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			break // base64
		}
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		for i, v := range list {
			place := at
			if ok {
				place = fmt.Sprintf("%s[%d]", at, i)
			}
			fitted, err := fitValue(v, t.Elem(), place)
			if err != nil && !ok {
				return wrong()
			}
			if err != nil {
				return nil, err
			}
			list[i] = fitted
		}
		return list, nil
	}
	if scalar, ok := fitScalar(value, t); ok {
		return scalar, nil
	}
	return wrong()
}

func join(at, name string) string { return strings.TrimPrefix(at+"."+name, ".") }

// fitStruct names the fields of an object as a type does. What the type does not have is left out, and so is null.
func fitStruct(fields map[string]any, t reflect.Type, at string) (any, error) {
	known := map[string]reflect.StructField{}
	collectFields(t, known)
	out := make(map[string]any, len(fields))
	for name, v := range fields {
		if v == nil {
			continue
		}
		field, ok := known[foldName(name)]
		if !ok {
			continue
		}
		fitted, err := fitValue(v, field.Type, join(at, name))
		if err != nil {
			return nil, err
		}
		if _, twice := out[fieldName(field)]; !twice || fieldName(field) == name {
			out[fieldName(field)] = fitted
		}
	}
	return out, nil
}

func collectFields(t reflect.Type, known map[string]reflect.StructField) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct {
			collectFields(f.Type, known)
		} else if f.IsExported() && tag != "-" {
			known[foldName(fieldName(f))] = f
		}
	}
}

func fieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "" {
		return f.Name
	}
	return name
}

// foldName is the same for the forms of a field's name.
func foldName(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// fitScalar returns a text, a number or a truth in the kind that a type is read from.
func fitScalar(value any, t reflect.Type) (any, bool) {
	switch t.Kind() {
	case reflect.String, reflect.Slice:
		switch v := value.(type) {
		case string:
			return v, true
		case json.Number:
			return string(v), t.Kind() == reflect.String
		case bool:
			return strconv.FormatBool(v), t.Kind() == reflect.String
		}
	case reflect.Bool:
		return readBool(value)
	case reflect.Float32, reflect.Float64:
		return readNumber(value)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return WholeNumber(value)
	}
	return nil, false
}

// WholeNumber returns a number without a fraction, which may be written as a text or with decimals: 7.0, "7", 1e3.
func WholeNumber(value any) (json.Number, bool) {
	number, ok := readNumber(value)
	if !ok || sane(number) != nil {
		return "", false
	}
	rat, ok := new(big.Rat).SetString(string(number.(json.Number)))
	if !ok || !rat.IsInt() {
		return "", false
	}
	return json.Number(rat.Num().String()), true
}

// Number returns a number that may be written as a text.
func Number(value any) (json.Number, bool) {
	number, ok := readNumber(value)
	if !ok {
		return "", false
	}
	return number.(json.Number), true
}

// Truth returns true or false, which may be written as a text.
func Truth(value any) (is, ok bool) {
	truth, ok := readBool(value)
	return truth == true, ok
}
