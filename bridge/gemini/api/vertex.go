package api

import (
	"cmp"
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
	"golang.org/x/sync/singleflight"

	"voxgate/bridge/gemini/wire"
	"voxgate/tools"
)

// Vertex is the place of Vertex AI's models, and our identity there. It keeps the token for all clients that share it,
// and must not be copied.
type Vertex struct {
	// Project is billed. There is no default.
	Project string

	// Location is a region, "us", "eu" or "global". Google's SDKs take "" for "global" as well.
	Location string

	// Fetch gets a fresh token. Nil asks Application Default Credentials anew each time, so that a replaced key file is
	// noticed.
	Fetch func(context.Context) (*oauth2.Token, error)

	fetches singleflight.Group

	mu   sync.Mutex
	last *oauth2.Token // the newest; nil: there is none. Guarded by mu
}

// Emulated is a project of nobody's, with a token that the emulator takes.
func Emulated() *Vertex {
	return &Vertex{Project: "emulated", Fetch: func(context.Context) (*oauth2.Token, error) {
		return &oauth2.Token{AccessToken: "of the emulator"}, nil
	}}
}

const (
	// cloudScope is what the SDKs ask for.
	cloudScope = "https://www.googleapis.com/auth/cloud-platform"

	// renewal is how long before its end a token is replaced. Google's live for an hour, and the metadata server is said
	// (not measured) to have a new one in the last 5 minutes; with a longer renewal a dial would fetch in vain.
	renewal = 5 * time.Minute

	// tokenSpare is how long before its end a token is no longer good for a handshake, if there is no other.
	tokenSpare = 10 * time.Second

	// fetchTimeout bounds one fetch of a token.
	fetchTimeout = 10 * time.Second
)

var (
	// projectName matches ids, numbers and the old form with a domain, "example.com:project". Other characters could
	// change the URL.
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

func (v *Vertex) location() string { return cmp.Or(v.Location, "global") }

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

// Format implements fmt.Formatter: fmt would look into the token.
func (v *Vertex) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "Vertex AI, project %s, location %s", v.Project, v.location())
}

var errNoToken = fmt.Errorf("no token within %v: %w", fetchTimeout, context.DeadlineExceeded)

// token returns the token in use, fetching it if there is none or its end is near. Concurrent callers share a fetch,
// which goes on when they leave. While no new token can be had, the old one is used to its end.
func (v *Vertex) token(ctx context.Context) (Secret, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if token := v.lasting(renewal); token != "" {
		return token, nil
	}
	var err error
	select {
	case got := <-v.fetches.DoChan("", v.renew):
		if err = got.Err; err == nil {
			return got.Val.(Secret), nil
		}
	case <-time.After(fetchTimeout): // the search for credentials does not look at its context everywhere
		v.fetches.Forget("") // the next caller begins anew
		err = errNoToken
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if token := v.lasting(tokenSpare); token != "" {
		return token, nil
	}
	return "", err
}

// lasting returns the newest token if it is good for longer than d, or "". A token without an expiry never ends.
func (v *Vertex) lasting(d time.Duration) Secret {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.last == nil || !v.last.Expiry.IsZero() && time.Until(v.last.Expiry) <= d {
		return ""
	}
	return Secret(v.last.AccessToken)
}

// renew fetches a token, unless another caller has done so just now.
func (v *Vertex) renew() (any, error) {
	if token := v.lasting(renewal); token != "" {
		return token, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	token, err := v.fetch(ctx)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last = token
	return Secret(token.AccessToken), nil
}

// tokenTransport records the last exchange with the token server, since errors of the oauth2 package say it as text only.
type tokenTransport struct {
	*http.Transport
	status  int   // of the answer; 0: none came
	failure error // nil: an answer came
}

// RoundTrip implements [http.RoundTripper].
func (t *tokenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.Transport.RoundTrip(r)
	if t.status, t.failure = 0, err; err == nil {
		t.status = answer.StatusCode
	}
	return answer, err
}

// fetch gets a token.
func (v *Vertex) fetch(ctx context.Context) (*oauth2.Token, error) {
	transport := &tokenTransport{Transport: tools.NewTransport()}
	transport.DisableKeepAlives = true // the next token is fetched in an hour
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: transport, CheckRedirect: tools.RefuseRedirect})
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
		// Its text contains the whole answer, which may hold anything.
		said := wire.OneLine(refused.ErrorCode+" "+refused.ErrorDescription, wire.MaxReason)
		if r := refused.Response; r != nil && r.StatusCode >= http.StatusInternalServerError {
			return nil, fmt.Errorf("the token server answered with HTTP %d: %s", r.StatusCode, said)
		}
		return nil, fmt.Errorf("%w: the token server refuses them: %s", ErrCredentials, said)
	}
	switch {
	case transport.failure != nil:
		return nil, fmt.Errorf("the token server cannot be reached: %w", tools.Unaddressed(transport.failure))
	case transport.status == http.StatusOK:
		return nil, errors.New("the token server's answer cannot be read")
	}
	if _, network := errors.AsType[*url.Error](err); network || errors.Is(err, ErrCredentials) {
		return nil, err
	}
	return nil, fmt.Errorf("%w: %s", ErrCredentials, wire.OneLine(err.Error(), wire.MaxReason)) // an invalid key, a missing account
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
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.last != nil && Secret(v.last.AccessToken) == token {
		v.last = nil
	}
}
