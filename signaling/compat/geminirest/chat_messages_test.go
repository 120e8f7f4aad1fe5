package geminirest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestStreamedCallPiecesAreMerged gathers the function calls of streams in the forms of different servers.
func TestStreamedCallPiecesAreMerged(t *testing.T) {
	for name, test := range map[string]struct{ pieces, want string }{
		"by index": {`{"index":0,"id":"a","function":{"name":"read","arguments":""}}
			{"index":1,"id":"b","function":{"name":"list","arguments":"{}"}}
			{"index":0,"function":{"arguments":"{\"a\":"}} {"index":0,"function":{"arguments":"1}"}}`, `a read {"a":1}, b list {}`},
		"all of index 0": {
			`{"index":0,"id":"a","function":{"name":"read","arguments":"{}"}} {"index":0,"id":"b","function":{"name":"list","arguments":"{}"}}`,
			"a read {}, b list {}",
		},
		"index 0, no ids": {
			`{"index":0,"function":{"name":"read","arguments":"{}"}} {"index":0,"function":{"name":"list","arguments":"{}"}}`,
			" read {},  list {}",
		},
		"one function twice": {
			`{"index":0,"id":"a","function":{"name":"read","arguments":"{}"}} {"index":0,"id":"b","function":{"name":"read","arguments":"{}"}}`,
			"a read {}, b read {}",
		},
		"a name again": {
			`{"index":0,"id":"a","function":{"name":"read","arguments":"{\"a\":"}} {"index":0,"id":"a","function":{"name":"read","arguments":"1}"}}`,
			`a read {"a":1}`,
		},
		"a name in pieces": {
			`{"index":0,"id":"a","function":{"name":"re","arguments":""}} {"index":0,"function":{"name":"ad","arguments":"{}"}}`,
			"a read {}",
		},
		"no index": {
			`{"id":"a","function":{"name":"read","arguments":"{"}} {"function":{"arguments":"}"}}
			{"id":"b","function":{"name":"list","arguments":"{}"}}`,
			"a read {}, b list {}",
		},
		"an object":    {`{"index":0,"id":"a","function":{"name":"read","arguments":{"a":1}}}`, `a read {"a":1}`},
		"null":         {`{"index":0,"id":"a","function":{"name":"read","arguments":null}}`, "a read "},
		"a late index": {`{"index":1,"id":"a","function":{"name":"read","arguments":"{}"}}`, "a read {}"},
	} {
		var calls []chatCall
		in := json.NewDecoder(strings.NewReader(test.pieces))
		for in.More() {
			var p chatCall
			err := in.Decode(&p)
			if err == nil {
				calls, err = mergeCallPieces(calls, []chatCall{p})
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		var got []string
		for _, c := range calls {
			got = append(got, fmt.Sprintf("%s %s %s", c.ID, c.Function.Name, c.Function.Arguments))
		}
		if s := strings.Join(got, ", "); s != test.want {
			t.Errorf("%s: %s, want %s", name, s, test.want)
		}
	}
}

// TestLenientServerResponses parses answers and failures in the forms of different servers.
func TestLenientServerResponses(t *testing.T) {
	for form, want := range map[string]string{
		`{"choices":[{"message":{"content":"Hi"}}]}`:                                          "Hi, ",
		`{"choices":[{"message":{"content":null}}]}`:                                          ", ",
		`{"choices":[{"message":{"content":["Hi",{"text":" you"}]}}]}`:                        "Hi you, ",
		`{"choices":[{"message":{"content":{"type":"text","text":"Hi"}}}]}`:                   "Hi, ",
		`{"choices":[{"message":{"content":[{"type":"text","text":"Hi"},{"text":" you"}]}}]}`: "Hi you, ",
		`{"choices":[{}],"error":"model not found"}`:                                          ", model not found",
		`{"choices":[{}],"error":{"message":"model not found"}}`:                              ", model not found",
	} {
		var a chatResponse
		if err := json.Unmarshal([]byte(form), &a); err != nil {
			t.Errorf("%s: %v", form, err)
			continue
		}
		said := ""
		if a.Error != nil {
			said = a.Error.Message
		}
		if got := string(a.Choices[0].Message.Content) + ", " + said; got != want {
			t.Errorf("%s: %s", form, got)
		}
	}
}

// TestLenientUsageCounts parses the usage in the forms of different servers. None makes the answer fail.
func TestLenientUsageCounts(t *testing.T) {
	for form, want := range map[string]chatUsage{
		`{"prompt_tokens":7,"completion_tokens":9}`:                                      {Prompt: 7, Completion: 9},
		`{"prompt_tokens":7.0,"completion_tokens":9.0}`:                                  {Prompt: 7, Completion: 9},
		`{"prompt_tokens":7e0,"completion_tokens":0.9e1}`:                                {Prompt: 7, Completion: 9},
		`{"prompt_tokens":"7","completion_tokens":"9.0"}`:                                {Prompt: 7, Completion: 9},
		`{"prompt_tokens":null,"completion_tokens":9}`:                                   {Completion: 9},
		`{"prompt_tokens":-1,"completion_tokens":1e400}`:                                 {},
		`{"prompt_tokens":{},"completion_tokens":[]}`:                                    {},
		`{"prompt_tokens":7,"prompt_tokens_details":null}`:                               {Prompt: 7},
		`{"prompt_tokens":7,"prompt_tokens_details":[]}`:                                 {Prompt: 7},
		`{"prompt_tokens":7,"prompt_tokens_details":{"cached_tokens":2.0}}`:              {Prompt: 7, Cached: 2},
		`{"completion_tokens":9,"completion_tokens_details":{"reasoning_tokens":"4.0"}}`: {Completion: 9, Reasoning: 4},
		`"none"`: {}, `[]`: {}, `{}`: {}, `7.5`: {},
	} {
		for _, answer := range []string{
			`{"choices":[{"message":{"content":"Hi","tool_calls":[{"index":"0","function":{"name":"f"}}]}}],"usage":` + form + `}`,
			`{"choices":[{"delta":{"content":"Hi","tool_calls":[{"index":0.0,"function":{"name":"f"}}]}}],"usage":` + form + `}`,
		} {
			var a chatResponse
			if err := json.Unmarshal([]byte(answer), &a); err != nil || a.Usage == nil || *a.Usage != want {
				t.Errorf("%s: %+v, %v", form, a.Usage, err)
			}
		}
	}
}

// TestSingleObjectInPlaceOfList parses Google's own sample, which has one object in place of a list.
func TestSingleObjectInPlaceOfList(t *testing.T) {
	var q generateRequest
	err := json.Unmarshal([]byte(`{"contents":{"parts":{"text":"Hello there"}}}`), &q)
	if err != nil || q.Contents[0].joinTextWithoutThoughts("") != "Hello there" {
		t.Errorf("%+v, %v", q.Contents, err)
	}
	err = json.Unmarshal([]byte(`{"contents":5}`), &q)
	if said := unreadableRequest(err).Error(); strings.Contains(said, "Go ") || strings.Contains(said, "geminirest.") {
		t.Errorf("it says %q", said)
	}
}
