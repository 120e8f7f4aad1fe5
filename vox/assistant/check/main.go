// Check asks the package registries whether the entries of vox/assistant/registry.json exist, and compares their homepages with those
// of the packages. Run it after changing the registry:
//
//	go run ./vox/assistant/check -npm URL -pypi URL -go URL -crates URL  # all entries
//	go run ./vox/assistant/check -npm URL stripe pg                      # the entries with these ids
//
// It asks the registries at these URLs, which may also be in NPM_REGISTRY and so on. It prints each package that does not exist or
// could not be queried, and each homepage that the package does not name, which may still be right. The exit code is 1 if a package
// does not exist or could not be queried.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/module"

	"voxgate/vox/assistant"
)

const (
	// pause is the time between two requests. It is needed because crates.io allows only one request per second
	// (https://crates.io/data-access#api).
	pause = time.Second

	timeout   = 30 * time.Second
	maxAnswer = 32 << 20 // bytes; all versions of a large package
)

func main() {
	file := flag.String("registry", "vox/assistant/registry.json", "the file of the registry")
	hosts := map[string]*string{
		"npm":    flag.String("npm", os.Getenv("NPM_REGISTRY"), "the npm registry; or NPM_REGISTRY"),
		"pypi":   flag.String("pypi", os.Getenv("PYPI_REGISTRY"), "the Python package index; or PYPI_REGISTRY"),
		"go":     flag.String("go", os.Getenv("GO_REGISTRY"), "the Go module proxy; or GO_REGISTRY"),
		"crates": flag.String("crates", os.Getenv("CRATES_REGISTRY"), "the registry of Rust crates; or CRATES_REGISTRY"),
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c := checker{hosts: map[string]string{}, client: &http.Client{Timeout: timeout}, pause: pause, out: os.Stdout}
	for name, host := range hosts {
		c.hosts[name] = strings.TrimSuffix(*host, "/")
	}
	entries, err := readEntries(*file, flag.Args())
	if err == nil {
		err = c.checkAll(ctx, entries)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// readEntries returns the entries of a file that have one of these IDs. If no IDs are given, it returns all entries.
func readEntries(file string, ids []string) ([]assistant.Entry, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var entries []assistant.Entry
	if err := json.Unmarshal(data, &entries); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, id := range ids {
		if !slices.ContainsFunc(entries, func(e assistant.Entry) bool { return e.ID == id }) {
			return nil, fmt.Errorf("%s has no entry %s", file, id)
		}
	}
	return slices.DeleteFunc(entries, func(e assistant.Entry) bool { return len(ids) > 0 && !slices.Contains(ids, e.ID) }), nil
}

type checker struct {
	hosts  map[string]string // URLs of the package registries, by name: npm, pypi, go, crates
	client *http.Client
	pause  time.Duration
	out    io.Writer
}

var errMissing = errors.New("does not exist")

// checkAll checks the entries one after the other and prints problems.
func (c *checker) checkAll(ctx context.Context, entries []assistant.Entry) error {
	for _, e := range entries {
		if host, known := c.hosts[e.Registry]; known && host == "" {
			return fmt.Errorf("-%s is missing: the URL of that registry (or %s_REGISTRY)", e.Registry, strings.ToUpper(e.Registry))
		}
	}
	wrong, other := 0, 0
	for i, e := range entries {
		if i > 0 && !sleep(ctx, c.pause) {
			return context.Cause(ctx)
		}
		pages, err := c.homepages(ctx, e)
		switch {
		case err != nil:
			wrong++
			fmt.Fprintf(c.out, "%s: %s %s: %v\n", e.ID, e.Registry, e.Package, err)
		case len(pages) > 0 && !slices.ContainsFunc(pages, func(p string) bool { return isSamePage(p, e.Homepage) }):
			other++
			fmt.Fprintf(c.out, "%s: the homepage is %s; the package says %s\n", e.ID, e.Homepage, strings.Join(pages, ", "))
		}
	}
	fmt.Fprintf(c.out, "%d entries: %d that do not exist or could not be asked for, %d with another homepage\n", len(entries), wrong, other)
	if wrong > 0 {
		return errors.New("the registry has entries that are not right")
	}
	return nil
}

// sleep waits for d. It returns false if the context ends before that.
func sleep(ctx context.Context, d time.Duration) (ok bool) {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// metadata holds the fields of a package's metadata that are needed, for all four registries.
type metadata struct {
	Homepage   string          `json:"homepage"`   // npm
	Repository json.RawMessage `json:"repository"` // npm: an object with url, or a string
	Info       struct {
		HomePage    string            `json:"home_page"`
		ProjectURLs map[string]string `json:"project_urls"`
	} `json:"info"` // PyPI
	Crate struct {
		Homepage      string `json:"homepage"`
		Repository    string `json:"repository"`
		Documentation string `json:"documentation"`
	} `json:"crate"` // crates.io
	Origin struct{ URL string } // Go
}

// homepages returns the homepages that a package names, including its repository. It returns errMissing if the package
// does not exist.
func (c *checker) homepages(ctx context.Context, e assistant.Entry) ([]string, error) {
	host := c.hosts[e.Registry]
	var address string
	switch e.Registry {
	case "npm":
		address = host + "/" + url.PathEscape(e.Package) + "/latest"
	case "pypi":
		address = host + "/pypi/" + url.PathEscape(e.Package) + "/json"
	case "go":
		escaped, err := module.EscapePath(e.Package)
		if err != nil {
			return nil, err
		}
		address = host + "/" + escaped + "/@latest"
	case "crates":
		address = host + "/api/v1/crates/" + url.PathEscape(e.Package)
	default:
		return nil, fmt.Errorf("there is no registry %q", e.Registry)
	}
	var m metadata
	if err := c.getJSON(ctx, address, &m); err != nil {
		return nil, err
	}
	var repository struct {
		URL string `json:"url"`
	}
	if json.Unmarshal(m.Repository, &repository.URL) != nil {
		_ = json.Unmarshal(m.Repository, &repository) // may be missing
	}
	pages := []string{m.Homepage, repository.URL, m.Info.HomePage, m.Crate.Homepage, m.Crate.Repository, m.Crate.Documentation, m.Origin.URL}
	pages = append(pages, slices.Sorted(maps.Values(m.Info.ProjectURLs))...)
	return slices.DeleteFunc(pages, func(p string) bool { return p == "" }), nil
}

func (c *checker) getJSON(ctx context.Context, address string, target any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "voxgate-registry-check") // crates.io rejects requests without one
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusNotFound, response.StatusCode == http.StatusGone:
		return errMissing
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("the registry answered %s", response.Status)
	}
	return json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(target)
}

// isSamePage reports whether two URLs are the same page. If our URL has no path, it also returns true for all pages of
// the same site.
func isSamePage(theirs, ours string) bool {
	a, b := normalizeURL(theirs), normalizeURL(ours)
	return a == b || strings.HasPrefix(a, b+"/") && !strings.Contains(b, "/")
}

// normalizeURL returns the host and path of a URL. It omits parts that make no difference: www, a trailing slash, .git.
func normalizeURL(address string) string {
	u, err := url.Parse(strings.TrimPrefix(address, "git+"))
	if err != nil {
		return address
	}
	name := strings.TrimPrefix(strings.ToLower(u.Hostname()), "www.")
	return name + strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(u.Path), "/"), ".git")
}
