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
	// signatureLifetime limits how long a client may fetch the media of a canvas. It is as long as a long conversation.
	signatureLifetime = time.Hour

	// maxBody is the maximum size of an image, audio or video, in bytes. It is enough for a photo of a phone's camera.
	maxBody = 8 << 20

	// fetchTimeout bounds one fetch, from the client's request until the client has the last byte.
	fetchTimeout = 10 * time.Second

	// maxFetches is the maximum number of concurrent fetches, in all conversations together.
	maxFetches = 16

	// sniffLength is the number of bytes that http.DetectContentType uses.
	sniffLength = 512
)

// imageTypes are the types of images that clients may get. Images of these types cannot contain scripts.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// Fetcher fetches the media of canvases for clients, so that clients do not reveal their address to the servers of the
// media. It is an http.Handler for GET canvas/image, and accepts only addresses from SignURL.
type Fetcher struct {
	client *http.Client
	key    []byte
	slots  chan struct{}
}

// NewFetcher returns a fetcher with a random key. So a restart makes all signed URLs invalid. client must be safe for
// untrusted URLs, like the clients of package guard.
func NewFetcher(client *http.Client) *Fetcher {
	return &Fetcher{client: client, key: []byte(rand.Text()), slots: make(chan struct{}, maxFetches)}
}

// SignURL returns the gateway's address for url. The address is a path relative to the gateway's root, and is valid for
// an hour.
func (f *Fetcher) SignURL(url string) string {
	expiry := strconv.FormatInt(time.Now().Add(signatureLifetime).Unix(), 10)
	return "canvas/image?" + buildSignedQuery(url, expiry, f.computeSignature(url, expiry))
}

func buildSignedQuery(u, expiry, sum string) string {
	return "u=" + url.QueryEscape(u) + "&x=" + expiry + "&s=" + sum
}

func (f *Fetcher) computeSignature(url, expiry string) string {
	mac := hmac.New(sha256.New, f.key)
	mac.Write([]byte(expiry + " " + url)) // a space separates the two safely, because the expiry has none
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
	if !hmac.Equal([]byte(values.Get("s")), []byte(f.computeSignature(address, expiry))) {
		http.Error(w, "Invalid signature.", http.StatusForbidden)
		return
	}
	if until, err := strconv.ParseInt(expiry, 10, 64); err != nil || time.Now().Unix() > until {
		http.Error(w, "This address has expired.", http.StatusForbidden)
		return
	}
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	default:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "Too many fetches are in progress.", http.StatusTooManyRequests)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), fetchTimeout)
	defer cancel()
	if deadline, ok := ctx.Deadline(); ok {
		// Without this deadline, a client that stops reading would occupy a slot. Setting it fails only for writers
		// without a network connection.
		control := http.NewResponseController(w)
		_ = control.SetWriteDeadline(deadline)
		defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	}
	f.forward(ctx, w, address)
}

// forward fetches address and forwards the response.
func (f *Fetcher) forward(ctx context.Context, w http.ResponseWriter, address string) {
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
		panic(http.ErrAbortHandler) // aborts the response, so that the client does not mistake a part for the whole
	}
}

// fetch requests address. It returns the type of the content, its first bytes (start), and a reader of the rest (body),
// which the caller must close. Its errors reveal nothing about the network.
func (f *Fetcher) fetch(ctx context.Context, address string) (body io.ReadCloser, kind string, start []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, "", nil, errors.New("the address is invalid")
	}
	request.Header.Set("User-Agent", "Voxgate")
	request.Header.Set("Accept", strings.Join(imageTypes, ", ")+", audio/*, video/*")
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
		return nil, "", nil, fmt.Errorf("it has %d bytes, maximum %d", answer.ContentLength, maxBody)
	}
	if start, err = io.ReadAll(io.LimitReader(answer.Body, sniffLength)); err != nil {
		return nil, "", nil, errors.New("its server broke off")
	}
	if kind = allowedMediaType(answer.Header.Get("Content-Type"), start); kind == "" {
		return nil, "", nil, errors.New("it is not an allowed type of image, audio or video")
	}
	return answer.Body, kind, start, nil
}

// allowedMediaType returns the declared media type if it is allowed and matches the first bytes of the content (start).
// Otherwise it returns "".
func allowedMediaType(declared string, start []byte) string {
	declared, _, err := mime.ParseMediaType(declared)
	if err != nil {
		return ""
	}
	found := http.DetectContentType(start)
	if slices.Contains(imageTypes, declared) && found == declared {
		return declared
	}
	// Audio and video may have the same containers, and DetectContentType has a separate type for Ogg. So a declared
	// audio type also matches a detected video type, and the reverse.
	if isAudioOrVideo(declared) && (isAudioOrVideo(found) || found == "application/ogg") {
		return declared
	}
	return ""
}

func isAudioOrVideo(kind string) bool {
	return strings.HasPrefix(kind, "audio/") || strings.HasPrefix(kind, "video/")
}
