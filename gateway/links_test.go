package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	markdownLink  = regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`)
	heading       = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnchors  = regexp.MustCompile(`[^\w\- ]`)
	beginsAScheme = regexp.MustCompile(`^[a-z]+:`)
)

// TestLinksBetweenDocuments finds links to files and headings that do not exist.
func TestLinksBetweenDocuments(t *testing.T) {
	out, err := exec.Command("git", "-C", "..", "ls-files", "*.md").Output()
	if err != nil {
		t.Skip("not a git repository: ", err)
	}
	for file := range strings.Lines(string(out)) {
		file = filepath.Join("..", strings.TrimSpace(file))
		for _, m := range markdownLink.FindAllStringSubmatch(readFile(t, file), -1) {
			if beginsAScheme.MatchString(m[1]) {
				continue
			}
			target := file
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(file), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which does not exist", file, m[1])
			} else if m[2] != "" && strings.HasSuffix(target, ".md") && !hasAnchor(readFile(t, target), m[2][1:]) {
				t.Errorf("%s links to %s%s, which has no such heading", file, m[1], m[2])
			}
		}
	}
}

// hasAnchor reports whether a document has a heading for which GitHub creates this anchor.
func hasAnchor(document, anchor string) bool {
	for _, m := range heading.FindAllStringSubmatch(document, -1) {
		name := strings.ToLower(strings.TrimSpace(notInAnchors.ReplaceAllString(m[1], "")))
		if strings.ReplaceAll(name, " ", "-") == anchor {
			return true
		}
	}
	return false
}
