package access

import (
	"encoding/json"
	"testing"
)

// If a key limits the agents, its tokens allow no others: no agent in full, and no pattern that matches more.
func TestAgentsWithin(t *testing.T) {
	read := func(text string) (g Grant) {
		if err := json.Unmarshal([]byte(text), &g); err != nil {
			t.Fatal(err)
		}
		return g
	}
	full := `{"agent":{"prompt":"Sell hats."}}`
	for _, test := range []struct {
		most, asked string
		ok          bool
	}{
		{`{}`, full, true},
		{full, full, true},
		{full, `{}`, true},
		{`{"agents":["desk"]}`, full, false},
		{`{"agents":["*"]}`, full, false},
		{`{"agents":["desk-?"]}`, `{"agent":"desk-1"}`, true},
		{`{"agents":["desk-?"]}`, `{"agent":"desk-*"}`, false},
		{`{"agents":["desk-*"]}`, `{"agent":"desk-*"}`, true},
		{`{}`, `{"agents":["desk"],"agent":{"prompt":"Sell hats."}}`, true},
	} {
		if _, err := read(test.asked).restrictTo(read(test.most), "grant"); (err == nil) != test.ok {
			t.Errorf("%s within %s: %v", test.asked, test.most, err)
		}
	}
}

// A key grants no pattern that matches more than its own.
func TestCovered(t *testing.T) {
	for most, names := range map[string]map[string]bool{
		"find_?":   {"find_a": true, "find_?": true, "find_*": false, "find_": false, "find_ab": false, "find_[a-z]": false, "find_ü": true},
		"find_*":   {"find_": true, "find_a": true, "find_?": true, "find_*": true, "find_a?*": true, "find*": false, "*": false, "find": false},
		"*":        {"": true, "a*": true, "**": true, "?": true, "a/b": false, "a/*": false, "[^a]": false},
		"a*b":      {"a*b": true, "ab": true, "acb": true, "a*": false, "*b": false, "a*c": false, "ab*": false},
		"f_[ab]":   {"f_a": true, "f_c": false, "f_[ab]": true, "f_[^x]": false, "f_?": false, "f_*": false},
		`f_\*`:     {"f_*": false, `f_\*`: true, "f_a": false},
		"get_time": {"get_time": true, "get_*": false, "": false},
	} {
		for name, want := range names {
			if got := isCovered([]string{"other", most}, name); got != want {
				t.Errorf("%q covers %q: %v", most, name, got)
			}
		}
	}
}
