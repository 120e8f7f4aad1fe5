package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"voxgate/bridge/gemini/wire"
)

// Vertex is where Vertex AI's models are, and who asks for them. It keeps the token of all clients that share it, and must
// not be copied.
type Vertex struct {
	// Project is billed. There is no default.
	Project string

	// Location is a region, "us", "eu" or "global". Google's SDKs take "" for "global" as well.
	Location string

	// Fetch gets a fresh token. Nil asks Application Default Credentials anew each time, so that a replaced key file is
	// noticed.
	Fetch func(context.Context) (*oauth2.Token, error)

	tokens tokenCache
}

const (
	// cloudScope is what the SDKs ask for.
	cloudScope = "https://www.googleapis.com/auth/cloud-platform"

	// tokenUse is how long a token is used before the next one is fetched, in the background of its use. Google's live
	// for an hour.
	tokenUse = 50 * time.Minute

	// tokenSpare is how long before its end a token is no longer good for a handshake.
	tokenSpare = 10 * time.Second

	// fetchTimeout bounds one fetch of a token.
	fetchTimeout = 10 * time.Second
)

var (
	// projectName has ids, numbers and the old form with a domain, "example.com:project". What does not fit would change
	// the URL.
	projectName  = regexp.MustCompile(`^[a-z0-9][a-z0-9.:-]{0,99}$`)
	locationName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
)

// check returns an error if the project or the location cannot be used.
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

func (v *Vertex) location() string {
	if v.Location == "" {
		return "global"
	}
	return v.Location
}

// url is Google's server for the location.
func (v *Vertex) url() string {
	switch l := v.location(); l {
	case "global":
		return "https://aiplatform.googleapis.com"
	case "us", "eu": // each has many regions
		return "https://aiplatform." + l + ".rep.googleapis.com"
	default:
		return "https://" + l + "-aiplatform.googleapis.com"
	}
}

// Format implements fmt.Formatter: fmt would look into the cache.
func (v *Vertex) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "Vertex AI, project %s, location %s", v.Project, v.location())
}

var errNoToken = fmt.Errorf("no token within %v: %w", fetchTimeout, context.DeadlineExceeded)

// tokenCache keeps the token in use. Its zero value is empty.
type tokenCache struct {
	mu      sync.Mutex
	token   Secret
	renew   time.Time // from then on the next one is fetched
	expires time.Time // from then on it is of no use; zero: not known
	under   *fetch    // the one under way, or nil
}

// fetch is a token being fetched for everybody who waits.
type fetch struct {
	done   chan struct{}
	over   <-chan struct{} // it has taken too long, or nobody wants it any more
	token  Secret
	err    error
	users  int // who wait; needs the cache's mu
	cancel context.CancelFunc
}

// token returns the token in use, fetching it if there is none. Callers who come at the same time share a fetch, which ends
// when the last of them has left. One that is renewed ahead runs by itself for fetchTimeout at most.
func (v *Vertex) token(ctx context.Context) (Secret, error) {
	if err := ctx.Err(); err != nil {
		return "", ctx.Err()
	}
	c := &v.tokens
	c.mu.Lock()
	now := time.Now()
	if c.token != "" && (c.expires.IsZero() || now.Before(c.expires.Add(-tokenSpare))) {
		defer c.mu.Unlock()
		if c.under == nil && !now.Before(c.renew) {
			v.begin(ctx).users = 1 // nobody: it must not end with a caller who joins and leaves
		}
		return c.token, nil
	}
	f := c.under
	if f == nil {
		f = v.begin(ctx)
	}
	f.users++
	c.mu.Unlock()
	select {
	case <-f.done:
		return f.token, f.err
	case <-f.over:
		select {
		case <-f.done:
			return f.token, f.err
		default: // the search for credentials does not look at its context everywhere
			return "", errNoToken
		}
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.users--; f.users == 0 {
		f.cancel()
		if c.under == f {
			c.under = nil // who comes now begins anew
		}
	}
	return "", ctx.Err()
}

// begin starts a fetch. It needs the cache's mu.
func (v *Vertex) begin(ctx context.Context) *fetch {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	f := &fetch{done: make(chan struct{}), over: ctx.Done(), cancel: cancel}
	v.tokens.under = f
	go func() {
		token, err := v.fetch(ctx)
		c := &v.tokens
		c.mu.Lock()
		defer c.mu.Unlock()
		defer cancel()
		defer close(f.done)
		if c.under == f {
			c.under = nil
		}
		if f.err = err; err != nil {
			return
		}
		f.token = Secret(token.AccessToken)
		c.token, c.expires = f.token, token.Expiry
		use := tokenUse
		if !token.Expiry.IsZero() { // the metadata server hands out tokens that are not new
			use = min(use, time.Until(token.Expiry)*5/6)
		}
		c.renew = time.Now().Add(use)
	}()
	return f
}

// fetch gets a token.
func (v *Vertex) fetch(ctx context.Context) (*oauth2.Token, error) {
	get := v.Fetch
	if get == nil {
		get = defaultCredentials
	}
	token, err := get(ctx)
	switch {
	case err == nil && (token == nil || token.AccessToken == ""):
		return nil, fmt.Errorf("%w: there is no token in the answer", ErrCredentials)
	case err == nil:
		return token, nil
	case ctx.Err() != nil:
		return nil, errNoToken
	}
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		// Its text has the whole answer in it, in which anything may stand.
		status, said := 0, refused.ErrorCode+" "+refused.ErrorDescription
		if refused.Response != nil {
			status = refused.Response.StatusCode
		}
		if status >= http.StatusInternalServerError {
			return nil, fmt.Errorf("the token server answered with HTTP %d: %s", status, wire.OneLine(said, wire.MaxReason))
		}
		return nil, fmt.Errorf("%w: the token server answered with HTTP %d: %s", ErrCredentials, status, wire.OneLine(said, wire.MaxReason))
	}
	if _, network := errors.AsType[*url.Error](err); network || errors.Is(err, ErrCredentials) {
		return nil, err
	}
	return nil, fmt.Errorf("%w: %s", ErrCredentials, wire.OneLine(err.Error(), wire.MaxReason)) // a key that is none, a missing account
}

// defaultCredentials asks Application Default Credentials: the file that GOOGLE_APPLICATION_CREDENTIALS names, gcloud's own,
// or the metadata server of Google Cloud.
func defaultCredentials(ctx context.Context) (*oauth2.Token, error) {
	credentials, err := google.FindDefaultCredentials(ctx, cloudScope)
	if err != nil {
		return nil, err
	}
	return credentials.TokenSource.Token()
}

// drop forgets a token that was refused, unless another one has taken its place.
func (v *Vertex) drop(token Secret) {
	v.tokens.mu.Lock()
	defer v.tokens.mu.Unlock()
	if v.tokens.token == token {
		v.tokens.token = ""
	}
}

// cached returns the token in use, or "".
func (v *Vertex) cached() Secret {
	v.tokens.mu.Lock()
	defer v.tokens.mu.Unlock()
	return v.tokens.token
}
