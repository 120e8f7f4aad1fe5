package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// Encode encodes JSON without escaping HTML, so text stays a third shorter. Values that cannot be encoded become {}.
func Encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return json.RawMessage("{}")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Decode decodes one JSON value, with numbers as [json.Number]: integers above 2^53 keep their digits.
func Decode(data []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errors.New("unexpected data after the value")
	}
	return value, nil
}

// ToCamelCase converts a field name from snake_case, which proto3 JSON also accepts, to camelCase
// (https://protobuf.dev/programming-guides/json).
func ToCamelCase(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}
