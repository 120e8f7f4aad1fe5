package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// Encode writes JSON, and HTML in it as it is: text arrives as it was sent, and a third shorter. What has no JSON, such as arguments of a
// tool that are none, becomes {}.
func Encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return json.RawMessage("{}")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Decode reads one JSON value, its numbers as [json.Number]: integers above 2^53 keep their digits.
func Decode(data []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errors.New("there is more behind the value")
	}
	return value, nil
}

// Camel is the name of a field in camelCase, which proto3 JSON has in snake_case as well
// (https://protobuf.dev/programming-guides/json).
func Camel(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}
