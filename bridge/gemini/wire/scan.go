package wire

import (
	"bytes"
	"encoding/json"
	"errors"
)

// This scanner finds only the ends of JSON values, by brackets and quotes. It is faster than encoding/json, which reads
// each byte three times, and most incoming data is base64 audio inside JSON. encoding/json then validates the small
// values that are kept.

var errSyntax = errors.New("not valid JSON")

func skipSpace(data []byte, i int) (next int) {
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\t' || data[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index after the string that begins with the quote at i.
func skipString(data []byte, i int) (next int, err error) {
	for i++; ; {
		end := bytes.IndexByte(data[i:], '"')
		if end < 0 {
			return 0, errSyntax
		}
		end += i
		slashes := 0
		for end-1-slashes >= i && data[end-1-slashes] == '\\' {
			slashes++
		}
		i = end + 1
		if slashes%2 == 0 {
			return i, nil
		}
	}
}

// skipWord returns the index after the number or literal at i.
func skipWord(data []byte, i int) (next int) {
	for i < len(data) {
		switch data[i] {
		case ' ', '\n', '\t', '\r', ',', ']', '}':
			return i
		}
		i++
	}
	return i
}

// skipValue returns the index after the value that begins at i. It does not validate the content of objects and arrays.
func skipValue(data []byte, i int) (next int, err error) {
	depth := 0
	for i < len(data) {
		switch data[i] {
		case '"':
			end, err := skipString(data, i)
			if err != nil {
				return 0, err
			}
			i = end
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			if depth--; depth < 0 {
				return 0, errSyntax
			}
			i++
		default:
			i++
			if depth == 0 {
				i = skipWord(data, i)
			}
		}
		if depth == 0 {
			return i, nil
		}
	}
	return 0, errSyntax
}

// EachField calls f for every field of a JSON object. value is a slice of data, which f must validate. null counts as
// an empty object.
func EachField(data []byte, f func(name, value []byte) error) error {
	return eachItem(data, '{', '}', f)
}

// EachElement is like EachField, but for the elements of a JSON array.
func EachElement(data []byte, f func(value []byte) error) error {
	return eachItem(data, '[', ']', func(_, value []byte) error { return f(value) })
}

func eachItem(data []byte, open, shut byte, f func(name, value []byte) error) error {
	i := skipSpace(data, 0)
	if string(bytes.TrimSpace(data[i:])) == "null" {
		return nil
	}
	if i == len(data) || data[i] != open {
		return errSyntax
	}
	if i = skipSpace(data, i+1); i < len(data) && data[i] == shut {
		return checkOnlySpace(data, i+1)
	}
	for i < len(data) {
		var name []byte
		if open == '{' {
			if data[i] != '"' {
				return errSyntax
			}
			end, err := skipString(data, i)
			if err != nil {
				return err
			}
			if name, err = unquote(data[i:end]); err != nil {
				return err
			}
			if i = skipSpace(data, end); i == len(data) || data[i] != ':' {
				return errSyntax
			}
			i = skipSpace(data, i+1)
		}
		end, err := skipValue(data, i)
		if err != nil {
			return err
		}
		if err := f(name, data[i:end]); err != nil {
			return err
		}
		i = skipSpace(data, end)
		switch {
		case i == len(data):
			return errSyntax
		case data[i] == shut:
			return checkOnlySpace(data, i+1)
		case data[i] != ',':
			return errSyntax
		}
		i = skipSpace(data, i+1)
	}
	return errSyntax
}

func checkOnlySpace(data []byte, i int) error {
	if skipSpace(data, i) != len(data) {
		return errSyntax
	}
	return nil
}

// unquote returns the text of a JSON string. If the string has no escapes, the text is a slice of data.
func unquote(data []byte) ([]byte, error) {
	if len(data) >= 2 && data[0] == '"' && bytes.IndexByte(data, '\\') < 0 {
		for _, b := range data {
			if b < ' ' {
				return nil, errSyntax
			}
		}
		return data[1 : len(data)-1], nil
	}
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, errSyntax
	}
	return []byte(s), nil
}
