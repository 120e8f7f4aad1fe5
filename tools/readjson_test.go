package tools_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"voxgate/tools"
)

type googleMessage struct {
	Contents []struct {
		Role  string
		Parts []struct {
			Text *string         `json:"text"`
			Args json.RawMessage `json:"args"`
		} `json:"parts"`
	} `json:"contents"`
	TopK   int               `json:"topK"`
	Exact  float64           `json:"exact"`
	On     bool              `json:"on"`
	Labels map[string]string `json:"userLabels"`
}

// TestReadLenientJSON: JSON that Google's servers accept for a message is read, and errors about other JSON name no Go
// type.
func TestReadLenientJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"contents":[{"role":"user","parts":[{"text":"a"}]}]}`:         `[user a]`,
		`{"contents":{"parts":{"text":"a"}}}`:                           `[ a]`,
		"\xef\xbb\xbf" + `{"contents":[{"parts":{"text":"a"}}]}`:        `[ a]`,
		`{"contents":[{"parts":{"text":5}}],"top_k":"7","exact":"1.5"}`: `[ 5] 7 1.5`,
		`{"top_k":7.0,"on":"true","unknown":{"a":[1]}}`:                 `7 true`,
		`{"topK":1e1,"contents":null,"on":null}`:                        `10`,
		`{"user_labels":{"my_key":"a","n":3}}`:                          `map[my_key:a n:3]`,
		`{"contents":{"parts":{"args":{"my_key":{"other_key":null}}}}}`: `[ ] {"my_key":{"other_key":null}}`,
		`{"contents":5}`:                         `contents must be an array, not a number`,
		`{"contents":[{"parts":[{"text":{}}]}]}`: `contents[0].parts[0].text must be a string, not an object`,
		`{"topK":"many"}`:                        `topK must be a whole number, not a string`,
		`{"topK":1.5}`:                           `topK must be a whole number, not a number`,
		`{"on":7}`:                               `on must be true or false, not a number`,
		`{"user_labels":[]}`:                     `user_labels must be an object, not an array`,
		`[]`:                                     `it must be an object, not an array`,
		`{"topK":1`:                              `not valid JSON`,
		`x`:                                      `not valid JSON`,
		``:                                       `not valid JSON`,
	} {
		var m googleMessage
		got := ""
		if err := tools.ReadLenientJSON([]byte(text), &m); err != nil {
			got = err.Error()
			for _, bad := range []string{"Go ", "json:", "unmarshal", "googleMessage", "tools."} {
				if strings.Contains(got, bad) {
					t.Errorf("%s: %q has %q", text, got, bad)
				}
			}
		} else {
			for _, c := range m.Contents {
				said := ""
				if len(c.Parts) > 0 && c.Parts[0].Text != nil {
					said = *c.Parts[0].Text
				}
				got += fmt.Sprintf(" [%s %s] %s", c.Role, said, c.Parts[0].Args)
			}
			for _, v := range []any{m.TopK, m.Exact, m.On, m.Labels} {
				if text := fmt.Sprint(v); text != "0" && text != "false" && text != "map[]" {
					got += " " + text
				}
			}
			got = strings.Join(strings.Fields(got), " ")
		}
		if want = strings.Join(strings.Fields(want), " "); got != want && !(want == "not valid JSON" && strings.Contains(got, want)) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
