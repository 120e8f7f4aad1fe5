package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// EncodeOrEmpty encodes a value as JSON. It does not escape HTML characters, so text is up to a third shorter. A value
// that cannot be encoded becomes {}.
func EncodeOrEmpty(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return json.RawMessage("{}")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Decode decodes one JSON value. Numbers become [json.Number], so that integers above 2^53 keep all digits.
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

// ToCamelCase converts a field name from snake_case to camelCase. It is needed because proto3 JSON accepts both
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
