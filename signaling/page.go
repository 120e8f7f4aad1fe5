package signaling

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/tdewolff/minify/v2"
	"github.com/tdewolff/minify/v2/css"
	"github.com/tdewolff/minify/v2/js"
)

// csp is the page's Content-Security-Policy: nothing but our own files, and no markup made of strings.
const csp = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"media-src 'self' blob:; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// file is one that is served.
type file struct {
	kind    string // its media type
	tag     string // an ETag without its quotes: it changes with the content
	plain   []byte
	gzipped []byte // nil: it is not worth it
}

// Page serves the files of the page, and the state of the gateway at /status: an object that tells which backend answers. The files
// are read once, freed of comments, and compressed; a browser asks whether they have changed (RFC 9110, section 13). Pages of other
// origins may import the scripts. An error is one of reading them.
func Page(files fs.FS, backend string) (http.Handler, error) {
	site, err := readSite(files)
	if err != nil {
		return nil, err
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
			json.NewEncoder(w).Encode(map[string]string{"backend": backend})
			return
		}
		name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
		if f := site[name]; f != nil {
			f.serve(w, r)
			return
		}
		f := site[path.Join(name, "index.html")]
		switch {
		case f == nil:
			http.NotFound(w, r)
		case !strings.HasSuffix(r.URL.Path, "/"): // or its scripts would be looked for beside it
			to := url.URL{Path: path.Base(name) + "/", RawQuery: r.URL.RawQuery}
			http.Redirect(w, r, to.String(), http.StatusMovedPermanently)
		default:
			f.serve(w, r)
		}
	}), nil
}

// readSite reads every file, by its path.
func readSite(files fs.FS) (map[string]*file, error) {
	site := map[string]*file{}
	small := minify.New() // it takes 17 ms, and off what travels a third
	small.AddFunc("text/javascript", js.Minify)
	small.AddFunc("text/css", css.Minify)
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		plain, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		f := &file{kind: mime.TypeByExtension(path.Ext(name)), plain: plain}
		if kind, _, _ := mime.ParseMediaType(f.kind); kind == "text/javascript" || kind == "text/css" {
			if f.plain, err = small.Bytes(kind, plain); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		sum := sha256.Sum256(f.plain)
		f.tag = base64.RawURLEncoding.EncodeToString(sum[:9])
		var gzipped bytes.Buffer
		z, _ := gzip.NewWriterLevel(&gzipped, gzip.BestCompression) // the level is one
		if _, err := z.Write(f.plain); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		if gzipped.Len() < len(f.plain) {
			f.gzipped = gzipped.Bytes()
		}
		site[name] = f
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("the files of the page cannot be read: %w", err)
	}
	return site, nil
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Add("Vary", "Accept-Encoding")
	if strings.HasPrefix(f.kind, "text/javascript") {
		h.Set("Access-Control-Allow-Origin", "*") // a page that may not talk can still say why; there is nothing secret in them
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
