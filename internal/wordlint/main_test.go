package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckFile finds each kind of word that is ruled out, and none in what is plain.
func TestCheckFile(t *testing.T) {
	for source, want := range map[string]int{
		"package p\n\nfunc asked() {}\n":                                                          1,
		"package p\n\ntype Own struct{ heard, sent int }\n":                                       2,
		"package p\n\n// limit is how many calls run.\nvar limit int\n":                           1,
		"package p\n\n// find finds a call by its ID; nil: there is none.\nfunc find() {}\n":      1,
		"package p\n\n// x: this is no event that is served.\nvar x int\n":                        1,
		"package p\n\n// wait waits until nobody is left.\nfunc wait() {}\n":                      1,
		"package p\n\n// findCall returns the call with an ID, or nil.\nfunc findCall() {}\n":     0,
		"package p\n\n// isLost reports whether the connection is lost.\nfunc isLost() bool {}\n": 0,
	} {
		path := filepath.Join(t.TempDir(), "p.go")
		if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := checkFile(path)
		if err != nil || len(list) != want {
			t.Errorf("%s: %v, %v, want %d findings", strings.TrimSpace(source), list, err, want)
		}
	}
}
