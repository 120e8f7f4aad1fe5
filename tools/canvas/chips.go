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
	// maxPages is how many search suggestions are kept for all conversations together: 16 MB at most.
	maxPages = 256

	// maxPage is how long one may be, in bytes. Google's have 3 to 10 KB.
	maxPage = 64 << 10

	// pageAge is how long one is kept: much longer than it is talked of.
	pageAge = 30 * time.Minute
)

// Chips keeps Google's search suggestions, which a client that gets a grounded answer must show. They are HTML of a stranger, so
// each is a page of its own, made for a frame. It is an http.Handler for GET canvas/chips.
type Chips struct {
	mu    sync.Mutex
	pages []page // the newest last
}

type page struct {
	id, html string
	added    time.Time
}

// NewChips returns a Chips without any.
func NewChips() *Chips { return &Chips{} }

// Add keeps searchEntryPoint.renderedContent of an answer's grounding metadata and returns where the gateway serves it: a path
// relative to the gateway's root that cannot be guessed. It returns "" for nothing, and for what is no suggestion by its length.
func (c *Chips) Add(renderedContent string) (path string) {
	if renderedContent == "" || len(renderedContent) > maxPage {
		return ""
	}
	added := page{id: rand.Text(), html: renderedContent, added: time.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
	c.pages = append(c.pages, added)
	if len(c.pages) > maxPages {
		c.pages = slices.Delete(c.pages, 0, 1)
	}
	return "canvas/chips?id=" + added.id
}

// forget lets go of old pages. The caller holds mu.
func (c *Chips) forget() {
	c.pages = slices.DeleteFunc(c.pages, func(p page) bool { return time.Since(p.added) >= pageAge })
}

func (c *Chips) find(id string) (html string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
	i := slices.IndexFunc(c.pages, func(p page) bool { return p.id == id })
	if i < 0 {
		return "", false
	}
	return c.pages[i].html, true
}

// chipsPolicy lets nothing run but our own script, whatever Google's HTML has in it, and nothing load but what it has in
// itself. There is no frame-ancestors: a gateway serves pages of origins it does not know, and the page has nothing that a
// wrong frame could misuse. The sandbox holds also where the page is opened without a frame.
const chipsPolicy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; " +
	"sandbox allow-scripts allow-popups allow-popups-to-escape-sandbox; script-src 'nonce-"

// chipsPage goes around Google's HTML. It comes before it, so that nothing there, as a comment that is not closed, can
// swallow it. It posts to the page around, whose origin is not known, how high it is and that a link was chosen.
const chipsPage = `<!doctype html>
<html>
<meta charset="utf-8">
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
	html, ok := c.find(r.URL.Query().Get("id"))
	if !ok {
		http.Error(w, "There are no such search suggestions any more.", http.StatusNotFound)
		return
	}
	nonce := rand.Text()
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", chipsPolicy+nonce+"'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	header.Set("Cross-Origin-Resource-Policy", "cross-origin") // for the same reason as no frame-ancestors
	// An error is that of a client that has left.
	_, _ = io.WriteString(w, strings.Replace(chipsPage, "NONCE", nonce, 1)+html)
}
