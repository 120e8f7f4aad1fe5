package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"sync"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	"golang.org/x/sync/singleflight"

	"voxgate/bridge/gemini/wire"
	"voxgate/tools"
)

// Vertex is a project and location of Vertex AI, with the gateway's credentials there. It caches the access token, and
// must not be copied. It does not use the token cache of package auth, because that cache has three weaknesses:
//
//   - it cannot discard a revoked token
//   - a caller whose context ends still waits for the fetch
//   - after a failed fetch, it does not try again before the token has expired
type Vertex struct {
	// Project is the billed project. It is required.
	Project string

	// Location is a region, or "us", "eu" or "global". "" means "global", as in Google's SDKs.
	Location string

	// Fetch returns a new token. nil means Application Default Credentials. These are read for each token, so that a
	// replaced key file takes effect.
	Fetch func(context.Context) (*auth.Token, error)

	fetches singleflight.Group

	mu     sync.Mutex
	cached *auth.Token // the newest token or nil; guarded by mu
}

// Emulated returns a fictitious project, with a token that package emulator accepts.
func Emulated() *Vertex {
	return &Vertex{Project: "emulated", Fetch: func(context.Context) (*auth.Token, error) {
		return &auth.Token{Value: "of the emulator"}, nil
	}}
}

const (
	// cloudScope is the scope that Google's SDKs request.
	cloudScope = "https://www.googleapis.com/auth/cloud-platform"

	// renewal is the remaining lifetime at which a token is replaced. Google's tokens live for an hour. The metadata
	// server reportedly issues a new token only in the last 5 minutes of the old token's lifetime.
	renewal = 5 * time.Minute

	// tokenSpare is the minimum remaining lifetime of a cached token that is used because no new token could be
	// fetched. The token must remain valid until the handshake is over.
	tokenSpare = 10 * time.Second

	// fetchTimeout limits the time to fetch a token.
	fetchTimeout = 10 * time.Second
)

var (
	// projectName matches project IDs, project numbers and the old form with a domain, "example.com:project". Other
	// characters could change the URL.
	projectName  = regexp.MustCompile(`^[a-z0-9][a-z0-9.:-]{0,99}$`)
	locationName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
)

// check returns an error if the project or the location is invalid.
func (v *Vertex) check() error {
	switch {
	case v.Project == "":
		return fmt.Errorf("gemini: %w", ErrNoProject)
	case !projectName.MatchString(v.Project):
		return fmt.Errorf("gemini: %q is not the id of a project", v.Project)
	case !locationName.MatchString(v.location()):
		return fmt.Errorf("gemini: %q is not a location of Google Cloud", v.Location)
	}
	return nil
}

func (v *Vertex) location() string { return cmp.Or(v.Location, "global") }

// url returns the URL of Google's server for the location.
func (v *Vertex) url() string {
	switch l := v.location(); l {
	case "global":
		return "https://aiplatform.googleapis.com"
	case "us", "eu": // us and eu are multi-regions
		return "https://aiplatform." + l + ".rep.googleapis.com"
	default:
		return "https://" + l + "-aiplatform.googleapis.com"
	}
}

// Format implements fmt.Formatter, because fmt would otherwise print the token.
func (v *Vertex) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "Vertex AI, project %s, location %s", v.Project, v.location())
}

var errNoToken = fmt.Errorf("no token within %v: %w", fetchTimeout, context.DeadlineExceeded)

// fetchTokenIfStale returns the cached token, or fetches a new one if the cached one expires soon. Concurrent callers
// share one fetch, which blocks for fetchTimeout at most. If it fails, the cached token is used until it expires.
func (v *Vertex) fetchTokenIfStale(ctx context.Context) (Secret, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if token := v.cachedToken(renewal); token != "" {
		return token, nil
	}
	var err error
	select {
	case got := <-v.fetches.DoChan("", v.renew):
		if err = got.Err; err == nil {
			return got.Val.(Secret), nil
		}
	case <-time.After(fetchTimeout): // needed because the search for credentials does not always respect its context
		v.fetches.Forget("") // the next caller starts a new fetch
		err = errNoToken
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if token := v.cachedToken(tokenSpare); token != "" {
		return token, nil
	}
	return "", err
}

// cachedToken returns the cached token if it is valid for longer than minLifetime, or "". A token without an expiry
// time never expires.
func (v *Vertex) cachedToken(minLifetime time.Duration) Secret {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cached == nil || !v.cached.Expiry.IsZero() && time.Until(v.cached.Expiry) <= minLifetime {
		return ""
	}
	return Secret(v.cached.Value)
}

// renew fetches a token and caches it, unless another caller has just done so. It returns the token, a [Secret].
func (v *Vertex) renew() (token any, err error) {
	if token := v.cachedToken(renewal); token != "" {
		return token, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	fresh, err := v.fetchToken(ctx)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cached = fresh
	return Secret(fresh.Value), nil
}

// tokenTransport records the result of the last request to the token server, because package auth reports it only as
// text.
type tokenTransport struct {
	*http.Transport
	status  int   // HTTP status of the response; 0 if there was none
	failure error // network error of the last request; nil if there was a response
}

// RoundTrip implements [http.RoundTripper].
func (t *tokenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.Transport.RoundTrip(r)
	if t.status, t.failure = 0, err; err == nil {
		t.status = answer.StatusCode
	}
	return answer, err
}

// fetchToken fetches a token. Its error does not contain secrets.
func (v *Vertex) fetchToken(ctx context.Context) (*auth.Token, error) {
	transport := &tokenTransport{Transport: tools.NewTransport()}
	transport.DisableKeepAlives = true // a kept connection would be idle for an hour, until the next token
	get := v.Fetch
	if get == nil {
		get = defaultCredentials(&http.Client{Transport: transport, CheckRedirect: tools.RefuseRedirect})
	}
	token, err := get(ctx)
	switch {
	case err == nil && (token == nil || token.Value == ""):
		return nil, fmt.Errorf("%w: there is no token in the answer", ErrCredentials)
	case err == nil:
		return token, nil
	case ctx.Err() != nil:
		return nil, errNoToken
	}
	if refused, ok := errors.AsType[*auth.Error](err); ok {
		// The text of the error is not used, because it contains the whole response, and this error must not contain secrets.
		var answer struct {
			Error       string
			Description string `json:"error_description"`
		}
		_ = json.Unmarshal(refused.Body, &answer)
		said := wire.OneLine(answer.Error+" "+answer.Description, wire.MaxReason)
		if r := refused.Response; r != nil && r.StatusCode >= http.StatusInternalServerError {
			return nil, fmt.Errorf("the token server answered with HTTP %d: %s", r.StatusCode, said)
		}
		return nil, fmt.Errorf("%w: the token server refuses them: %s", ErrCredentials, said)
	}
	switch {
	case transport.failure != nil:
		return nil, fmt.Errorf("the token server cannot be reached: %w", tools.WithoutAddress(transport.failure))
	case transport.status == http.StatusOK:
		return nil, errors.New("the token server's answer cannot be read")
	}
	if _, network := errors.AsType[*url.Error](err); network || errors.Is(err, ErrCredentials) {
		return nil, err
	}
	return nil, fmt.Errorf("%w: %s", ErrCredentials, wire.OneLine(err.Error(), wire.MaxReason)) // for example, the key file is invalid
}

// defaultCredentials returns a function that fetches a token with Application Default Credentials. These come from a
// key file, from gcloud, or from Google Cloud's metadata server.
func defaultCredentials(client *http.Client) func(context.Context) (*auth.Token, error) {
	return func(ctx context.Context) (*auth.Token, error) {
		found, err := credentials.DetectDefault(&credentials.DetectOptions{
			Scopes: []string{cloudScope}, Client: client,
			Logger: slog.New(slog.DiscardHandler), // the default logger logs tokens if an environment variable is set
		})
		if err != nil {
			return nil, err
		}
		return found.Token(ctx)
	}
}

// discardToken removes a refused token from the cache, unless a new token has already replaced it.
func (v *Vertex) discardToken(token Secret) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cached != nil && Secret(v.cached.Value) == token {
		v.cached = nil
	}
}
