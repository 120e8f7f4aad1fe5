package canvas

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// signedFor is how long a client may fetch what a canvas names: as long as a long conversation.
	signedFor = time.Hour

	// maxBody is how long a picture, sound or film is at most, in bytes: a photo of a telephone's camera fits in.
	maxBody = 8 << 20

	// fetchTime bounds one fetch, to the last byte for the client.
	fetchTime = 10 * time.Second

	// maxFetches is how many there are at a time, in all conversations together.
	maxFetches = 16

	// sniffed is how many bytes http.DetectContentType looks at.
	sniffed = 512
)

// images are the types of pictures that a client gets: those that cannot have scripts.
var images = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// Fetcher fetches what the elements of canvases name, so that no client shows a stranger's server its address. It is an
// http.Handler for GET canvas/image, which serves only what Sign has signed.
type Fetcher struct {
	client *http.Client
	key    []byte
	places chan struct{}
}

// NewFetcher returns a fetcher with a key of its own: what was signed before a restart is not served after it. The client must
// be one that strangers' URLs may be given to, as those of package guard.
func NewFetcher(client *http.Client) *Fetcher {
	return &Fetcher{client: client, key: []byte(rand.Text()), places: make(chan struct{}, maxFetches)}
}

// Sign returns where the gateway serves what is at url: a path relative to the gateway's root, good for an hour.
func (f *Fetcher) Sign(url string) string {
	expiry := strconv.FormatInt(time.Now().Add(signedFor).Unix(), 10)
	return "canvas/image?" + query(url, expiry, f.sum(url, expiry))
}

func query(u, expiry, sum string) string {
	return "u=" + url.QueryEscape(u) + "&x=" + expiry + "&s=" + sum
}

func (f *Fetcher) sum(url, expiry string) string {
	mac := hmac.New(sha256.New, f.key)
	mac.Write([]byte(expiry + " " + url)) // the expiry has no spaces
	return hex.EncodeToString(mac.Sum(nil))
}

// ServeHTTP implements http.Handler.
func (f *Fetcher) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	header.Set("Cross-Origin-Resource-Policy", "cross-origin") // pages of other origins show it
	header.Set("Cache-Control", "no-store")
	values := r.URL.Query()
	address, expiry := values.Get("u"), values.Get("x")
	if !hmac.Equal([]byte(values.Get("s")), []byte(f.sum(address, expiry))) {
		http.Error(w, "This address was not signed here.", http.StatusForbidden)
		return
	}
	if until, err := strconv.ParseInt(expiry, 10, 64); err != nil || time.Now().Unix() > until {
		http.Error(w, "This address has expired.", http.StatusForbidden)
		return
	}
	select {
	case f.places <- struct{}{}:
		defer func() { <-f.places }()
	default:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "Too much is being fetched.", http.StatusTooManyRequests)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), fetchTime)
	defer cancel()
	if deadline, ok := ctx.Deadline(); ok {
		// A client that does not read holds its place no longer. Where this cannot be set, nothing is served over a network.
		control := http.NewResponseController(w)
		_ = control.SetWriteDeadline(deadline)
		defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	}
	f.serve(ctx, w, address)
}

// serve fetches address and passes it on.
func (f *Fetcher) serve(ctx context.Context, w http.ResponseWriter, address string) {
	body, kind, start, err := f.fetch(ctx, address)
	if err != nil {
		http.Error(w, "This could not be fetched: "+err.Error()+".", http.StatusBadGateway)
		return
	}
	defer func() { _ = body.Close() }()
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "private, max-age=3600")
	rest := io.LimitReader(body, maxBody-int64(len(start)))
	_, err = w.Write(start)
	if err == nil {
		_, err = io.Copy(w, rest)
	}
	if err == nil {
		_, err = io.ReadFull(body, make([]byte, 1))
	}
	if !errors.Is(err, io.EOF) {
		panic(http.ErrAbortHandler) // else the client would take a part for the whole
	}
}

// fetch returns the body of an answer that is good, after its start, and its type. What an error says anybody may read:
// it says nothing of the network.
func (f *Fetcher) fetch(ctx context.Context, address string) (body io.ReadCloser, kind string, start []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, "", nil, errors.New("the address is none")
	}
	request.Header.Set("User-Agent", "Voxgate")
	request.Header.Set("Accept", strings.Join(images, ", ")+", audio/*, video/*")
	answer, err := f.client.Do(request)
	if err != nil {
		return nil, "", nil, errors.New("its server could not be reached")
	}
	defer func() {
		if err != nil {
			_ = answer.Body.Close()
		}
	}()
	if answer.StatusCode != http.StatusOK {
		return nil, "", nil, fmt.Errorf("its server answered %d", answer.StatusCode)
	}
	if answer.ContentLength > maxBody {
		return nil, "", nil, fmt.Errorf("it has %d bytes, and %d are allowed", answer.ContentLength, maxBody)
	}
	if start, err = io.ReadAll(io.LimitReader(answer.Body, sniffed)); err != nil {
		return nil, "", nil, errors.New("its server broke off")
	}
	if kind = mediaType(answer.Header.Get("Content-Type"), start); kind == "" {
		return nil, "", nil, errors.New("it is no picture, sound or film of a kind that is allowed")
	}
	return answer.Body, kind, start, nil
}

// mediaType returns the type of what begins with start and was declared to be something, "" if it is not allowed or the two do
// not agree.
func mediaType(declared string, start []byte) string {
	declared, _, err := mime.ParseMediaType(declared)
	if err != nil {
		return ""
	}
	found := http.DetectContentType(start)
	if slices.Contains(images, declared) && found == declared {
		return declared
	}
	// The same containers are for sounds and films, and Ogg has a type of its own.
	if isFilm(declared) && (isFilm(found) || found == "application/ogg") {
		return declared
	}
	return ""
}

func isFilm(kind string) bool {
	return strings.HasPrefix(kind, "audio/") || strings.HasPrefix(kind, "video/")
}
