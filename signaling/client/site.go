package client

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

// csp is the page's Content-Security-Policy: only our own files, and no HTML from strings.
const csp = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"media-src 'self' blob:; frame-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// Site holds the files of a website, ready to be served. It is immutable.
type Site struct {
	files   map[string]*file // by path
	version string           // changes with any file
}

// file is a file of the site.
type file struct {
	mediaType string // for the header Content-Type
	etag      string // ETag without its quotes: it changes with the content
	plain     []byte
	gzipped   []byte // nil if gzip does not make the content smaller
}

// Status describes the gateway to a page, as JSON at /status.
type Status struct {
	Backend string   `json:"backend"` // what answers: gemini, vertex or emulator
	Models  []string `json:"models"`  // models that the backend has, the default first

	HasAgent func(name string) bool `json:"-"` // answers /status?agent=NAME; nil if only admitted clients may know
}

// withAgent returns the status with an additional field "agent": whether an agent with this name exists.
func (s Status) withAgent(name string) any {
	answer := struct {
		Status
		Agent *bool `json:"agent,omitempty"`
	}{Status: s}
	if name != "" && s.HasAgent != nil {
		known := s.HasAgent(name)
		answer.Agent = &known
	}
	return answer
}

// Handler serves the pages, the status at /status, and the npm package at /voxgate.tgz. library is the package that
// [BuildPackage] has built, or nil. Pages of other origins may import the scripts.
//
// Browsers may cache scripts and styles under /v/VERSION/ permanently. They revalidate other files (RFC 9110, section
// 13).
func (s *Site) Handler(status Status, library []byte) http.Handler {
	site := s.withBackend(status.Backend)
	if library != nil {
		site.files["voxgate.tgz"] = &file{mediaType: "application/gzip", plain: library, etag: computeETag(library)}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", csp)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Permissions-Policy", "microphone=(self), camera=(self)")
		h.Set("Cache-Control", "no-cache")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "Only GET is supported.", http.StatusMethodNotAllowed)
			return
		}
		if r.URL.Path == "/status" {
			h.Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(status.withAgent(r.URL.Query().Get("agent")))
			return
		}
		name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
		if versioned, ok := strings.CutPrefix(name, "v/"); ok {
			var version string
			if version, name, _ = strings.Cut(versioned, "/"); version == site.version {
				h.Set("Cache-Control", "public, max-age=31536000, immutable") // a page opened before an update gets the current files
			}
		}
		if f := site.files[name]; f != nil {
			f.serveFile(w, r)
			return
		}
		h.Set("Cache-Control", "no-cache")
		f := site.files[path.Join(name, "index.html")]
		switch {
		case f == nil:
			http.NotFound(w, r)
		case !strings.HasSuffix(r.URL.Path, "/"): // without the slash, its scripts would be requested from the parent folder
			to := url.URL{Path: path.Base(name) + "/", RawQuery: r.URL.RawQuery}
			http.Redirect(w, r, to.String(), http.StatusMovedPermanently)
		default:
			f.serveFile(w, r)
		}
	})
}

// ReadSite makes one site of folders. The path of a file in its folder is its path on the site. ReadSite bundles,
// minifies and compresses the files. If one of these steps fails, it returns an error.
func ReadSite(bundles Bundles, folders ...fs.FS) (*Site, error) {
	sources := map[string][]byte{}
	for _, folder := range folders {
		if err := fs.WalkDir(folder, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			sources[name], err = fs.ReadFile(folder, name)
			return err
		}); err != nil {
			return nil, fmt.Errorf("reading the files of the page: %w", err)
		}
	}
	joinStyles(sources)
	if err := bundles.bundleScripts(sources); err != nil {
		return nil, err
	}
	s := &Site{files: map[string]*file{}}
	small := minify.New() // takes 17 ms, and saves a third of the transfer
	small.AddFunc("text/javascript", js.Minify)
	small.AddFunc("text/css", css.Minify)
	all := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		f := &file{mediaType: mime.TypeByExtension(path.Ext(name)), plain: sources[name]}
		if path.Ext(name) == ".webmanifest" { // mime.TypeByExtension does not know it
			f.mediaType = "application/manifest+json"
		}
		if base, _, _ := mime.ParseMediaType(f.mediaType); base == "text/javascript" || base == "text/css" {
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
		f.compressAndTag(z)
	}
	return s, nil
}

// withBackend returns a copy of the site whose pages contain the name of the backend, so that they need not wait for
// /status.
func (s *Site) withBackend(backend string) *Site {
	site := &Site{maps.Clone(s.files), s.version}
	z := newCompressor()
	for name, f := range s.files {
		if path.Ext(name) == ".html" {
			page := *f
			page.plain = bytes.Replace(f.plain, []byte("<html "), fmt.Appendf(nil, `<html data-backend="%s" `, html.EscapeString(backend)), 1)
			page.compressAndTag(z)
			site.files[name] = &page
		}
	}
	return site
}

var reference = regexp.MustCompile(`\b(href|src)="([^":]+\.(?:js|css))"`)

// withVersion returns a page of a folder in which all references to scripts and styles begin with /v/VERSION/. Browsers
// may cache files under that path permanently.
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

// computeETag returns the ETag of a content.
func computeETag(content []byte) string {
	sum := sha256.Sum256(content)
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// newCompressor returns a gzip writer. A writer takes 1.2 MB, so use the same one for many files.
func newCompressor() *gzip.Writer {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestCompression) // the level is valid
	return z
}

// compressAndTag compresses the content with z, and sets the ETag.
func (f *file) compressAndTag(z *gzip.Writer) {
	f.etag = computeETag(f.plain)
	var gzipped bytes.Buffer
	z.Reset(&gzipped)
	z.Write(f.plain) // into memory, which does not fail
	z.Close()
	f.gzipped = nil
	if gzipped.Len() < len(f.plain) {
		f.gzipped = gzipped.Bytes()
	}
}

func (f *file) serveFile(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.mediaType)
	h.Add("Vary", "Accept-Encoding")
	if strings.HasPrefix(f.mediaType, "text/javascript") {
		// Pages of other origins can load the scripts, and show why a call is refused. Scripts hold no secrets.
		h.Set("Access-Control-Allow-Origin", "*")
	}
	if strings.HasPrefix(f.mediaType, "text/javascript") || strings.HasPrefix(f.mediaType, "text/css") {
		for _, name := range []string{"Content-Security-Policy", "Referrer-Policy", "Permissions-Policy"} {
			h.Del(name) // matters only for documents; sent with all files of a page, these headers took 10 KB
		}
	}
	content, tag := f.plain, f.etag
	if f.gzipped != nil && acceptsGzip(r.Header.Get("Accept-Encoding")) {
		h.Set("Content-Encoding", "gzip")
		content, tag = f.gzipped, f.etag+"-gzip" // another representation has another tag (RFC 9110, section 8.8.3)
	}
	h.Set("ETag", `"`+tag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// acceptsGzip parses an Accept-Encoding header (RFC 9110, section 12.5.3).
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
