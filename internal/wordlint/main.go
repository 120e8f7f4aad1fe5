// Command wordlint checks names and comments for words that CONTRIBUTING.md (Words) rules out: participles and bare
// verbs as names, definitions by a riddle ("X is what ..."), and the colon tail ("; nil: there is none"). The file
// limits.txt lists the folders that still have such words, and how many. These numbers may only fall. The flag -update
// writes the file.
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// badNames are words without meaning as the name of a declaration: participles, verbs in the third person and pronouns.
var badNames = func() map[string]bool {
	set := map[string]bool{}
	for _, name := range strings.Fields(`asked told said heard kept left gone over due owed seen shown known made came begun spoken taken given
		wanted unwanted ended answered asks says takes gets wants knows tells means sees hears mine theirs ours own late early dialled
		reached meant held lost noted edited lower inner`) {
		set[name] = true
	}
	return set
}()

// badComments are patterns of comments that are ruled out, each with the message that explains the problem.
var badComments = []struct {
	pattern *regexp.Regexp
	reason  string
}{
	{
		regexp.MustCompile(`^\w+ (is|are|was) (what|how|who|whom|whether|why|where|when|which|by what|of what|that which)\b`),
		"defines by a riddle; say what it does, returns or holds",
	},
	{regexp.MustCompile(`; (nil|false|true|empty|0|none)( means)?: `), "has a colon tail; say \"or nil\", \"nil if ...\""},
	{regexp.MustCompile(`\bis (no|none|none of)\b [a-z]`), "says \"is no\"; say \"is not a\""},
	{
		regexp.MustCompile(`\b(nobody|somebody|whoever|anew|likewise|by which|to whom|of whom|by whom|what there is|there is not)\b`),
		"has words that a colleague would not write here",
	},
}

// finding is a word that is ruled out.
type finding struct {
	position token.Position
	text     string
}

func main() {
	update := flag.Bool("update", false, "write the present numbers to limits.txt")
	list := flag.Bool("list", false, "print every finding, within the limits or not")
	flag.Parse()
	if err := run(*update, *list, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const limitsFile = "internal/wordlint/limits.txt"

// run checks the module in the working directory, or the folders that are named.
func run(update, list bool, folders []string) error {
	if len(folders) == 0 {
		folders = []string{"."}
	}
	found := map[string][]finding{} // by folder
	for _, folder := range folders {
		if err := walkGoFiles(folder, found); err != nil {
			return err
		}
	}
	if update {
		return writeLimits(found)
	}
	limits, err := readLimits()
	if err != nil {
		return err
	}
	failed := false
	for _, folder := range slices.Sorted(maps.Keys(found)) {
		over := len(found[folder]) > limits[folder]
		if over || list {
			for _, f := range found[folder] {
				fmt.Printf("%s: %s\n", f.position, f.text)
			}
		}
		if over {
			failed = true
			fmt.Printf("%s: %d findings, at most %d are allowed\n", folder, len(found[folder]), limits[folder])
		}
	}
	if failed {
		return fmt.Errorf("reword what is new (CONTRIBUTING.md, Words)")
	}
	return nil
}

// walkGoFiles adds the findings in the Go files below a folder, except tests.
func walkGoFiles(root string, found map[string][]finding) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		switch {
		case entry.IsDir() && path != root && (name == "node_modules" || name == "testdata" || strings.HasPrefix(name, ".")):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		list, err := checkFile(path)
		folder := filepath.ToSlash(filepath.Dir(path))
		if len(list) > 0 {
			found[folder] = append(found[folder], list...)
		}
		return err
	})
}

// checkFile returns the findings in a Go file.
func checkFile(path string) (list []finding, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	checkName := func(name *ast.Ident) {
		if name != nil && badNames[strings.ToLower(name.Name)] {
			list = append(list, finding{files.Position(name.Pos()), fmt.Sprintf("name %q: use a noun, or verb and object", name.Name)})
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.FuncDecl:
			checkName(n.Name)
		case *ast.TypeSpec:
			checkName(n.Name)
		case *ast.ValueSpec:
			for _, name := range n.Names {
				checkName(name)
			}
		case *ast.StructType:
			for _, field := range n.Fields.List {
				for _, name := range field.Names {
					checkName(name)
				}
			}
		}
		return true
	})
	for _, group := range file.Comments {
		text := strings.Join(strings.Fields(group.Text()), " ")
		for _, bad := range badComments {
			if bad.pattern.MatchString(text) {
				list = append(list, finding{files.Position(group.Pos()), "comment " + bad.reason + ": " + text[:min(len(text), 100)]})
				break
			}
		}
	}
	return list, nil
}

// readLimits reads how many findings a folder may have.
func readLimits() (map[string]int, error) {
	raw, err := os.ReadFile(limitsFile)
	if err != nil {
		return nil, err
	}
	limits := map[string]int{}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		var folder string
		var n int
		if _, err := fmt.Sscan(lines.Text(), &folder, &n); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", limitsFile, lines.Text(), err)
		}
		limits[folder] = n
	}
	return limits, nil
}

// writeLimits writes the number of findings in each folder.
func writeLimits(found map[string][]finding) error {
	var text bytes.Buffer
	for _, folder := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintln(&text, folder, len(found[folder]))
	}
	return os.WriteFile(limitsFile, text.Bytes(), 0o644)
}
