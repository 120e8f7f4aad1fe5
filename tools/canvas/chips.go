package canvas

import (
	"crypto/rand"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxPages bounds the number of search suggestions that are kept for all conversations together. They take 16 MB at
	// most.
	maxPages = 256

	// maxPage bounds one suggestion, in bytes. Google's have 3 to 10 KB.
	maxPage = 64 << 10

	// pageAge is the time for which a suggestion is kept. It is much longer than a user needs the suggestion.
	pageAge = 30 * time.Minute
)

// Chips keeps Google's search suggestions, which a client must show to the user. The suggestions are untrusted HTML, so
// each is served as a page of its own, for a frame. Chips is an http.Handler for GET canvas/chips.
type Chips struct {
	mu    sync.Mutex
	pages []page // newest last
}

type page struct {
	id, html string
	added    time.Time
}

// NewChips returns an empty Chips.
func NewChips() *Chips { return &Chips{} }

// AddPage stores a searchEntryPoint.renderedContent. It returns an unguessable path of the page, relative to the
// gateway's root. If the content is empty or too long, it returns "".
func (c *Chips) AddPage(renderedContent string) (path string) {
	if renderedContent == "" || len(renderedContent) > maxPage {
		return ""
	}
	added := page{id: rand.Text(), html: renderedContent, added: time.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleteExpired()
	c.pages = append(c.pages, added)
	if len(c.pages) > maxPages {
		c.pages = slices.Delete(c.pages, 0, 1)
	}
	return "canvas/chips?id=" + added.id
}

// deleteExpired deletes old pages. The caller must hold mu.
func (c *Chips) deleteExpired() {
	c.pages = slices.DeleteFunc(c.pages, func(p page) bool { return time.Since(p.added) >= pageAge })
}

func (c *Chips) findPage(id string) (html string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleteExpired()
	i := slices.IndexFunc(c.pages, func(p page) bool { return p.id == id })
	if i < 0 {
		return "", false
	}
	return c.pages[i].html, true
}

// chipsPolicy is the page's Content-Security-Policy. It allows only our own script, and no external resources.
// frame-ancestors is not restricted, because unknown origins may show the page. The sandbox applies even if the page is
// not in a frame.
const chipsPolicy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; " +
	"sandbox allow-scripts allow-popups allow-popups-to-escape-sandbox; script-src 'nonce-"

// chipsPage is the beginning of the page, before Google's HTML. The script is here, so that unclosed HTML cannot
// swallow it. It posts the height of the page, and the links that the user chooses, to the parent page, whose origin is
// unknown.
const chipsPage = `<!doctype html>
<html>
<meta charset="utf-8">
<meta name="color-scheme" content="light dark">
<title>Search suggestions</title>
<base target="_blank">
<script nonce="NONCE">
	const tell = (message) => parent.postMessage(message, '*');
	addEventListener('load', () => tell({voxgate: 'height', height: Math.ceil(document.documentElement.offsetHeight)}));
	addEventListener('click', (event) => {
		const link = event.target.closest?.('a[href]');
		if (!link) return;
		if (link.protocol !== 'https:') return event.preventDefault();
		link.target = '_blank';
		link.rel = 'noopener';
		tell({voxgate: 'chip'});
	}, true);
</script>
<body>
`

// ServeHTTP implements http.Handler.
func (c *Chips) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	html, ok := c.findPage(r.URL.Query().Get("id"))
	if !ok {
		http.Error(w, "These search suggestions have expired.", http.StatusNotFound)
		return
	}
	nonce := rand.Text()
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", chipsPolicy+nonce+"'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	header.Set("Cross-Origin-Resource-Policy", "cross-origin") // pages of unknown origins show it: see chipsPolicy
	// The error is ignored, because it means that the client has disconnected.
	_, _ = io.WriteString(w, strings.Replace(chipsPage, "NONCE", nonce, 1)+html)
}
