package signaling

import (
	"encoding/json"
	"io/fs"
	"net/http"
)

// csp is the page's Content-Security-Policy: nothing but our own files, and no markup made of strings.
const csp = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"media-src 'self' blob:; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// Page serves the files of the page, and the state of the gateway at /status: an object that tells which backend answers.
func Page(files fs.FS, backend string) http.Handler {
	pages := http.FileServerFS(files)
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
		pages.ServeHTTP(w, r)
	})
}
