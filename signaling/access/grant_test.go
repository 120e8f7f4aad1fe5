package access

import "testing"

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
			if got := covered([]string{"other", most}, name); got != want {
				t.Errorf("%q covers %q: %v", most, name, got)
			}
		}
	}
}
