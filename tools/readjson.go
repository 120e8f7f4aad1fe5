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

// JSONError describes invalid JSON in words for its sender.
type JSONError struct {
	Field string // path, such as "contents[0].parts"; empty for the whole document
	Want  string // expected type, such as "a number"; empty for a syntax error
	Got   string // actual type, such as "a string", or the syntax error
}

// Error implements error.
func (j *JSONError) Error() string {
	switch {
	case j.Want == "" && j.Field == "":
		return "not valid JSON: " + j.Got
	case j.Want == "":
		return j.Field + " is not valid JSON: " + j.Got
	}
	field := j.Field
	if field == "" {
		field = "it"
	}
	return fmt.Sprintf("%s must be %s, not %s", field, j.Want, j.Got)
}

// ExplainJSON converts an error of encoding/json to an error that names no Go type. It returns other errors unchanged.
// path is the path of the value.
func ExplainJSON(err error, path string) error {
	var jsonErr *JSONError
	var typeErr *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &jsonErr):
		return &JSONError{strings.Trim(path+"."+jsonErr.Field, "."), jsonErr.Want, jsonErr.Got}
	case errors.As(err, &typeErr):
		word, _, _ := strings.Cut(typeErr.Value, " ")
		want := "of another type"
		if typeErr.Type != nil {
			want = goTypeName(typeErr.Type)
		}
		return &JSONError{strings.Trim(path+"."+typeErr.Field, "."), want, withArticle(word)}
	case errors.As(err, &syntax) && syntax.Error() == "unexpected end of JSON input":
		return &JSONError{Field: path, Got: "unexpected end"}
	case errors.As(err, &syntax) && strings.HasSuffix(syntax.Error(), " after top-level value"):
		return &JSONError{Field: path, Got: trailingData}
	case errors.As(err, &syntax):
		return &JSONError{Field: path, Got: fmt.Sprintf("%s at byte %d", strings.TrimPrefix(syntax.Error(), "json: "), syntax.Offset)}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &JSONError{Field: path, Got: "unexpected end"}
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		return errors.New(strings.TrimPrefix(err.Error(), "json: ")) // this error does not say where the field is
	case strings.HasPrefix(err.Error(), "json: "):
		return &JSONError{Field: path, Got: "unreadable value"}
	}
	return err
}

const trailingData = "unexpected data after the value"

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

func goTypeName(t reflect.Type) string {
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

func jsonTypeName(value any) string {
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

// TrimBOM removes the byte order mark that some programs write at the start of a file.
func TrimBOM(raw []byte) []byte { return bytes.TrimPrefix(bytes.TrimSpace(raw), byteOrderMark) }

// ReadLenientJSON reads JSON as leniently as Google's servers (https://protobuf.dev/programming-guides/json). It accepts
// the names of fields in snake_case and in camelCase, and ignores unknown fields. Names in maps, in a [json.RawMessage]
// and in an any stay as they are. The error is a [JSONError].
func ReadLenientJSON(raw []byte, into any) error {
	tree, err := Decode(TrimBOM(raw))
	if err != nil {
		return ExplainJSON(err, "")
	}
	fitted, err := fitValue(tree, reflect.TypeOf(into).Elem(), "")
	if err != nil {
		return err
	}
	return ExplainJSON(json.Unmarshal(EncodeOrEmpty(fitted), into), "")
}

// ReadStrictJSON reads one JSON value. It rejects unknown fields, because a misspelt limit must not be ignored. The
// value may follow a byte order mark. Errors name no Go type.
func ReadStrictJSON(raw []byte, into any) error {
	trimmed := TrimBOM(raw)
	dec := json.NewDecoder(bytes.NewReader(trimmed))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return ExplainJSON(err, "")
	}
	if _, err := dec.Token(); err != io.EOF {
		return &JSONError{Got: trailingData}
	}
	return nil
}

var (
	rawType         = reflect.TypeFor[json.RawMessage]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
	textType        = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// fitValue converts a value to the JSON type from which a Go type can be decoded.
func fitValue(value any, t reflect.Type, path string) (any, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil || t == rawType || t.Kind() == reflect.Interface {
		return value, nil
	}
	if p := reflect.PointerTo(t); (p.Implements(unmarshalerType) && t.Kind() != reflect.Slice) || p.Implements(textType) {
		return value, nil
	}
	wrong := func() (any, error) { return nil, &JSONError{path, goTypeName(t), jsonTypeName(value)} }
	switch t.Kind() {
	case reflect.Struct:
		fields, ok := value.(map[string]any)
		if !ok {
			return wrong()
		}
		return fitStruct(fields, t, path)
	case reflect.Map:
		fields, ok := value.(map[string]any)
		if !ok {
			return wrong()
		}
		for name, v := range fields {
			fitted, err := fitValue(v, t.Elem(), joinPath(path, name))
			if err != nil {
				return nil, err
			}
			fields[name] = fitted
		}
		return fields, nil
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			break // bytes are a string in base64
		}
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		for i, v := range list {
			place := path
			if ok {
				place = fmt.Sprintf("%s[%d]", path, i)
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

func joinPath(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

// fitStruct renames the fields of an object to the field names of a struct type. It removes unknown fields and nulls.
func fitStruct(fields map[string]any, t reflect.Type, path string) (any, error) {
	byName := map[string]reflect.StructField{}
	indexFieldsByNormalName(t, byName)
	out := make(map[string]any, len(fields))
	for name, v := range fields {
		if v == nil {
			continue
		}
		field, ok := byName[normalizeFieldName(name)]
		if !ok {
			continue
		}
		fitted, err := fitValue(v, field.Type, joinPath(path, name))
		if err != nil {
			return nil, err
		}
		if _, twice := out[fieldName(field)]; !twice || fieldName(field) == name {
			out[fieldName(field)] = fitted
		}
	}
	return out, nil
}

// indexFieldsByNormalName adds the JSON fields of a struct to known, by the normal form of their names.
func indexFieldsByNormalName(t reflect.Type, known map[string]reflect.StructField) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct {
			indexFieldsByNormalName(f.Type, known)
		} else if f.IsExported() && tag != "-" {
			known[normalizeFieldName(fieldName(f))] = f
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

// normalizeFieldName returns a normal form of a field name. All spellings of the name have the same normal form.
func normalizeFieldName(name string) string {
	return strings.ToLower(strings.ReplaceAll(name, "_", ""))
}

// fitScalar converts a string, number or boolean to the JSON type from which a Go type can be decoded.
func fitScalar(value any, t reflect.Type) (converted any, ok bool) {
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
		return ParseWholeNumber(value)
	}
	return nil, false
}

// ParseWholeNumber converts a value to an integer. The value may be a string, or have decimals: 7.0, "7", 1e3. ok is
// false for any other value.
func ParseWholeNumber(value any) (number json.Number, ok bool) {
	number, ok = ParseNumber(value)
	if !ok || checkNumbers(number) != nil {
		return "", false
	}
	rat, ok := new(big.Rat).SetString(string(number))
	if !ok || !rat.IsInt() {
		return "", false
	}
	return json.Number(rat.Num().String()), true
}

// ParseNumber returns the number in a value, which may be a number or a string. ok is false for any other value.
func ParseNumber(value any) (number json.Number, ok bool) {
	n, ok := readNumber(value)
	if !ok {
		return "", false
	}
	return n.(json.Number), true
}

// ParseBool returns the boolean in a value, which may be a boolean or a string. ok is false for any other value.
func ParseBool(value any) (b, ok bool) {
	truth, ok := readBool(value)
	return truth == true, ok
}
