package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io/fs"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tdewolff/minify/v2"
	"github.com/tdewolff/minify/v2/css"
	"github.com/tdewolff/minify/v2/js"
)

// csp is the page's Content-Security-Policy: nothing but our own files, and no markup made of strings.
const csp = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"media-src 'self' blob:; frame-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// Site is the files of pages, ready to be served. It does not change.
type Site struct {
	files   map[string]*file // by path
	version string           // changes with any of them
}

// file is one that is served.
type file struct {
	kind    string // its media type
	tag     string // an ETag without its quotes: it changes with the content
	plain   []byte
	gzipped []byte // nil: it is not worth it
}

// Status is what a page learns of the gateway, as JSON at /status.
type Status struct {
	Backend string   `json:"backend"` // what answers: gemini, vertex or emulator
	Models  []string `json:"models"`  // that it has, the default first
}

// Page serves a site, status at /status, and library, a [Package], at /voxgate.tgz (nil: none). Pages load their scripts and styles from
// /v/VERSION/, where they may be kept for ever; of everything else a browser asks whether it has changed (RFC 9110, section 13). Pages of
// other origins may import the scripts.
func (s *Site) Page(status Status, library []byte) http.Handler {
	site := s.withBackend(status.Backend)
	if library != nil {
		site.files["voxgate.tgz"] = &file{kind: "application/gzip", plain: library, tag: tagOf(library)}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", csp)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Permissions-Policy", "microphone=(self), camera=(self)")
		h.Set("Cache-Control", "no-cache")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "Only GET is served here.", http.StatusMethodNotAllowed)
			return
		}
		if r.URL.Path == "/status" {
			h.Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(status)
			return
		}
		name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
		if versioned, ok := strings.CutPrefix(name, "v/"); ok {
			var version string
			if version, name, _ = strings.Cut(versioned, "/"); version == site.version {
				h.Set("Cache-Control", "public, max-age=31536000, immutable") // a page that was opened before an update gets what there is
			}
		}
		if f := site.files[name]; f != nil {
			f.serve(w, r)
			return
		}
		h.Set("Cache-Control", "no-cache")
		f := site.files[path.Join(name, "index.html")]
		switch {
		case f == nil:
			http.NotFound(w, r)
		case !strings.HasSuffix(r.URL.Path, "/"): // or its scripts would be looked for beside it
			to := url.URL{Path: path.Base(name) + "/", RawQuery: r.URL.RawQuery}
			http.Redirect(w, r, to.String(), http.StatusMovedPermanently)
		default:
			f.serve(w, r)
		}
	})
}

// Read reads the files of folders, each from the root of the site, bundles them, frees them of comments, and compresses them. An error is
// one of reading.
func Read(bundles Bundles, folders ...fs.FS) (*Site, error) {
	sources := map[string][]byte{}
	for _, folder := range folders {
		if err := fs.WalkDir(folder, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			sources[name], err = fs.ReadFile(folder, name)
			return err
		}); err != nil {
			return nil, fmt.Errorf("the files of the page cannot be read: %w", err)
		}
	}
	joinStyles(sources)
	if err := bundles.bundle(sources); err != nil {
		return nil, err
	}
	s := &Site{files: map[string]*file{}}
	small := minify.New() // it takes 17 ms, and off what travels a third
	small.AddFunc("text/javascript", js.Minify)
	small.AddFunc("text/css", css.Minify)
	all := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		f := &file{kind: mime.TypeByExtension(path.Ext(name)), plain: sources[name]}
		if path.Ext(name) == ".webmanifest" { // no table of types has it
			f.kind = "application/manifest+json"
		}
		if base, _, _ := mime.ParseMediaType(f.kind); base == "text/javascript" || base == "text/css" {
			var err error
			if f.plain, err = small.Bytes(base, f.plain); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		fmt.Fprintf(all, "%s %d\n%s", name, len(f.plain), f.plain)
		s.files[name] = f
	}
	s.version = hex.EncodeToString(all.Sum(nil)[:6])
	z := newCompressor()
	for name, f := range s.files {
		if path.Ext(name) == ".html" {
			f.plain = s.withVersion(path.Dir(name), f.plain)
		}
		f.compress(z)
	}
	return s, nil
}

// withBackend is the site whose pages know what answers, and need not wait for /status to say it.
func (s *Site) withBackend(backend string) *Site {
	known := &Site{maps.Clone(s.files), s.version}
	z := newCompressor()
	for name, f := range s.files {
		if path.Ext(name) == ".html" {
			told := *f
			told.plain = bytes.Replace(f.plain, []byte("<html "), fmt.Appendf(nil, `<html data-backend="%s" `, html.EscapeString(backend)), 1)
			told.compress(z)
			known.files[name] = &told
		}
	}
	return known
}

var reference = regexp.MustCompile(`\b(href|src)="([^":]+\.(?:js|css))"`)

// withVersion has a page in a folder of the site load its scripts and styles from where they may be kept.
func (s *Site) withVersion(folder string, html []byte) []byte {
	top := strings.Repeat("../", strings.Count(path.Join("/", folder, "x"), "/")-1)
	return reference.ReplaceAllFunc(html, func(found []byte) []byte {
		m := reference.FindSubmatch(found)
		name := path.Join(folder, string(m[2]))
		if s.files[name] == nil {
			return found
		}
		return fmt.Appendf(nil, `%s="%sv/%s/%s"`, m[1], top, s.version, name)
	})
}

// tagOf is the ETag of a content.
func tagOf(content []byte) string {
	sum := sha256.Sum256(content)
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// newCompressor takes 1.2 MB: one is enough for many files.
func newCompressor() *gzip.Writer {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestCompression) // the level is one
	return z
}

// compress makes the form that travels, with z, and the tag.
func (f *file) compress(z *gzip.Writer) {
	f.tag = tagOf(f.plain)
	var gzipped bytes.Buffer
	z.Reset(&gzipped)
	z.Write(f.plain) // into memory, which does not fail
	z.Close()
	f.gzipped = nil
	if gzipped.Len() < len(f.plain) {
		f.gzipped = gzipped.Bytes()
	}
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Add("Vary", "Accept-Encoding")
	if strings.HasPrefix(f.kind, "text/javascript") {
		h.Set("Access-Control-Allow-Origin", "*") // a page that may not talk can still say why; there is nothing secret in them
	}
	if strings.HasPrefix(f.kind, "text/javascript") || strings.HasPrefix(f.kind, "text/css") {
		for _, name := range []string{"Content-Security-Policy", "Referrer-Policy", "Permissions-Policy"} {
			h.Del(name) // documents' alone; with all the files of a page it was 10 KB
		}
	}
	content, tag := f.plain, f.tag
	if f.gzipped != nil && acceptsGzip(r.Header.Get("Accept-Encoding")) {
		h.Set("Content-Encoding", "gzip")
		content, tag = f.gzipped, f.tag+"-gzip" // another representation has another tag (RFC 9110, section 8.8.3)
	}
	h.Set("ETag", `"`+tag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// acceptsGzip reads an Accept-Encoding header (RFC 9110, section 12.5.3).
func acceptsGzip(header string) bool {
	for one := range strings.SplitSeq(header, ",") {
		coding, weight, _ := strings.Cut(one, ";")
		weight = strings.ReplaceAll(weight, " ", "")
		if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			return strings.Trim(strings.TrimPrefix(weight, "q="), "0.") != "" || weight == ""
		}
	}
	return false
}
