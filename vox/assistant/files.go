package assistant

import (
	"errors"
	"fmt"
	"html"
	"regexp"
	"slices"
	"strings"

	"voxgate/tools"
)

const (
	// maxApp is the maximum size of an app, in bytes.
	maxApp = 2 << 20

	// maxFiles bounds the number of files of an app, and maxDepth the depth of its folders. maxPath bounds the length
	// of a path, in bytes.
	maxFiles = 40
	maxDepth = 4
	maxPath  = 64
)

// file is one file of a generated app. All files are text.
type file struct{ path, text string }

var titleElement = regexp.MustCompile(`(?is)<title\b[^>]*>(.*?)</title>`)

// usedTools returns the names of those tools whose packages an app's files load, by an address or an import. The result is
// never nil.
func usedTools(files []file, known []Entry) []string {
	names := []string{}
	for _, e := range known {
		loads := regexp.MustCompile("(?i)(?:https?://[^\\s\"'`<>]+/|\\b(?:from|import)\\b\\s*\\(?\\s*[\"'`])" +
			regexp.QuoteMeta(e.Package) + "(?:[@/\"'`]|(?:\\.min)?\\.m?js)")
		if e.Registry == "npm" && slices.ContainsFunc(files, func(f file) bool { return loads.MatchString(f.text) }) {
			names = append(names, e.Name)
		}
	}
	return names
}

// pageTitle returns the title of an app's page as one line, cut to maxName bytes. It returns "" if the page has no
// title.
func pageTitle(files []file) string {
	for _, f := range files {
		if f.path != "index.html" {
			continue
		}
		if m := titleElement.FindStringSubmatch(f.text); m != nil {
			line := strings.Join(strings.Fields(html.UnescapeString(m[1])), " ")
			return strings.ToValidUTF8(tools.Truncate(line, maxName), "")
		}
	}
	return ""
}

// The markers around each file in the answer of a writing model. The prompt asks the model to write them as lines.
const (
	beginFile = "<<<file "
	beginEnd  = ">>>"
	endFile   = "<<<end>>>"
)

// parseApp parses a writing model's answer: files between markers, or one HTML document, perhaps in a Markdown fence.
// It ignores other text. It fails if the answer is incomplete, or if the app cannot be stored: it has an invalid path or
// no index.html, or exceeds a limit.
//
// old contains the files of the version that is being changed. They are kept unless the answer replaces them.
func parseApp(answer string, old []file) ([]file, error) {
	answer = strings.ReplaceAll(answer, "\r\n", "\n")
	files, err := parseMarkedFiles(answer)
	if err == nil && len(files) == 0 {
		files, err = parseDocument(answer)
	}
	if err != nil {
		return nil, err
	}
	files = mergeFiles(files, old)
	if len(files) > maxFiles {
		return nil, fmt.Errorf("the app has %d files; at most %d are allowed", len(files), maxFiles)
	}
	size := 0
	var paths []string
	for _, f := range files {
		if err := checkPath(f.path); err != nil {
			return nil, err
		}
		if slices.Contains(paths, strings.ToLower(f.path)) {
			return nil, fmt.Errorf("the app has %s twice", f.path)
		}
		paths = append(paths, strings.ToLower(f.path)) // some file systems ignore case
		size += len(f.text)
	}
	switch {
	case !slices.ContainsFunc(files, func(f file) bool { return f.path == "index.html" }):
		return nil, errors.New("the app has no index.html")
	case size > maxApp:
		return nil, errTooBig
	}
	return files, nil
}

var errTooBig = fmt.Errorf("the app is larger than %d MB, which is the maximum", maxApp>>20)

// mergeFiles returns the new files, and those old files whose path no new file has.
func mergeFiles(files, old []file) []file {
	for _, o := range old {
		if !slices.ContainsFunc(files, func(f file) bool { return f.path == o.path }) {
			files = append(files, o)
		}
	}
	return files
}

// diffFiles returns how many lines of each file were added and removed. It omits unchanged files.
func diffFiles(old, files []file) (list []Change) {
	for _, f := range files {
		c := Change{File: f.path}
		lines := map[string]int{}
		for _, o := range old {
			if o.path == f.path {
				for line := range strings.Lines(o.text) {
					lines[line]++
				}
			}
		}
		for line := range strings.Lines(f.text) {
			if lines[line] > 0 {
				lines[line]--
			} else {
				c.Added++
			}
		}
		for _, n := range lines {
			c.Removed += n
		}
		if c.Added+c.Removed > 0 {
			list = append(list, c)
		}
	}
	return list
}

// parseMarkedFiles returns the files between markers, or nil if the answer has no markers.
func parseMarkedFiles(answer string) (files []file, err error) {
	var open *file
	var lines []string
	for line := range strings.Lines(answer) {
		bare := strings.TrimSpace(line)
		name, begins := strings.CutPrefix(bare, beginFile)
		if begins {
			name, begins = strings.CutSuffix(name, beginEnd)
		}
		switch {
		case begins && open != nil:
			return nil, fmt.Errorf("the answer of the writing model begins another file within %.100q", open.path)
		case begins:
			open, lines = &file{path: strings.TrimPrefix(strings.TrimSpace(name), "./")}, nil
		case bare == endFile && open != nil:
			open.text = unfence(strings.Join(lines, ""))
			files, open = append(files, *open), nil
		case open != nil:
			lines = append(lines, line)
		}
	}
	if open != nil {
		return nil, fmt.Errorf("the answer of the writing model broke off in the file %.100q", open.path)
	}
	return files, nil
}

// fence matches a text that consists of one fenced Markdown block.
var fence = regexp.MustCompile("^\\s*```[A-Za-z0-9_+-]*[ \t]*\n((?s).*\n)```\\s*$")

// unfence returns the content of a text that is fenced. It is needed because models put fences around files in spite of
// their instructions.
func unfence(text string) string {
	if m := fence.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return text
}

var (
	documentStart = regexp.MustCompile(`(?i)<!doctype\s+html|<html[\s>]`)
	documentEnd   = regexp.MustCompile(`(?i)</html\s*>`)
)

// parseDocument returns the HTML document of an answer, as index.html.
func parseDocument(answer string) ([]file, error) {
	begin := documentStart.FindStringIndex(answer)
	if begin == nil {
		return nil, errors.New("the writing model has answered without an app")
	}
	ends := documentEnd.FindAllStringIndex(answer, -1) // only the last tag counts, because a script may contain the tag in a string
	if len(ends) == 0 || ends[len(ends)-1][0] < begin[0] {
		return nil, errors.New("the answer of the writing model broke off in its HTML document")
	}
	return []file{{path: "index.html", text: answer[begin[0]:ends[len(ends)-1][1]] + "\n"}}, nil
}

// validPath matches the path of a file, with or without folders. All names consist of plain characters and are not hidden.
var validPath = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$`)

// checkPath returns an error if the path of an app's file is invalid.
func checkPath(name string) error {
	switch {
	case len(name) > maxPath:
		return fmt.Errorf("the app has a file whose path is longer than %d characters: %.20q…", maxPath, name)
	case !validPath.MatchString(name):
		return fmt.Errorf("the app has a file with the path %q; a path is relative, not hidden, and of letters, digits, dots, dashes and _", name)
	case strings.Count(name, "/") >= maxDepth:
		return fmt.Errorf("the app has the file %s, which lies deeper than %d folders", name, maxDepth-1)
	}
	return nil
}

// partBeingWritten returns which part of an app the end of an incomplete answer belongs to, for the progress messages:
// "style" or "script" in a file or element of that kind, otherwise "page". It returns "" before the app begins.
func partBeingWritten(answer string) string {
	text := strings.ToLower(answer)
	if i := strings.LastIndex(text, beginFile); i >= 0 {
		text = text[i+len(beginFile):]
		path, _, _ := strings.Cut(text, beginEnd)
		switch {
		case strings.HasSuffix(path, ".css"):
			return "style"
		case strings.HasSuffix(path, ".js"), strings.HasSuffix(path, ".mjs"):
			return "script"
		}
	} else if !strings.Contains(text, "<") {
		return ""
	}
	for _, element := range []string{"style", "script"} {
		if strings.LastIndex(text, "<"+element) > strings.LastIndex(text, "</"+element) {
			return element
		}
	}
	return "page"
}
