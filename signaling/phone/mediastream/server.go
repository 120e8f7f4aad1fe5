// Package mediastream serves phone calls whose audio a provider or a phone system streams to us over a WebSocket: as
// JSON (Twilio and providers that copied its format) or as binary messages (Asterisk, jambonz, FreeSWITCH, Vonage).
//
// All providers use dialects of these two formats. Each provider has an entry in the table profiles. Before a
// conversation with the model begins, a call must be authorized in one of three ways: by a single-use ticket from our
// answer to a signed request, by a password, or by a server key or session token of the gateway.
package mediastream

import (
	"cmp"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/tools"
)

// protocolName is the name of this protocol in tools and grants.
var protocolName = bridge.RegisterProtocol("telephony", bridge.InAgents|bridge.InGrants)

// Options configure a [Server].
type Options struct {
	Host      *bridge.Host
	Agents    *agents.Folder
	Gate      *access.Gate      // counts these calls together with those of other protocols
	OnRefused func(rule string) // receives the name of the rule of each rejection; must not block; may be nil
	Logger    *slog.Logger
}

// Server accepts the calls of a configuration. A nil Server accepts none.
type Server struct {
	Options
	config          *Config
	providers       map[string]*Provider
	tickets         tickets
	restClient      *http.Client
	startLimiter    *rate.Limiter
	logLimiter      rate.Sometimes
	failedPasswords *access.FailedAttempts

	mu            sync.Mutex
	providerCalls map[*Provider]int
	totalCalls    int
}

// restTimeout limits a request to a provider's REST API. The caller hears silence meanwhile.
const restTimeout = 5 * time.Second

// New loads the configuration file. It returns a nil Server if file is empty. Shut down the host before closing the Server.
func New(file string, o Options) (*Server, error) {
	if file == "" {
		return nil, nil
	}
	config, err := LoadConfig(file)
	if err != nil {
		return nil, err
	}
	if err := config.CheckAgents(o.Agents); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	d := &Server{
		Options: o, config: config, providers: map[string]*Provider{}, tickets: tickets{pending: map[string]ticket{}},
		restClient:      &http.Client{Timeout: restTimeout, Transport: tools.NewTransport(), CheckRedirect: tools.RefuseRedirect},
		startLimiter:    rate.NewLimiter(rate.Limit(config.CallsPerSecond), config.CallsPerSecond),
		logLimiter:      rate.Sometimes{First: 100, Interval: 100 * time.Millisecond},
		failedPasswords: access.NewFailedAttempts(), providerCalls: map[*Provider]int{},
	}
	for i := range config.Providers {
		p := &config.Providers[i]
		d.providers[p.Name] = p
		if p.Access && !o.Gate.HasKeys() {
			return nil, fmt.Errorf("%s: providers[%d].access: no server keys are configured, so anyone could call", file, i)
		}
	}
	for _, p := range config.Providers {
		at := d.socketURL() + "/telephony/" + p.Name + "/stream"
		if p.signatureScheme() != nil {
			at = config.PublicURL + "/telephony/" + p.Name + "/answer"
		}
		o.Logger.Info("telephony", "provider", p.Name, "connects to", at)
	}
	if len(o.Agents.PhoneAgents(protocolName)) == 0 {
		o.Logger.Warn("telephony: no agent has numbers, so all calls are refused")
	}
	return d, nil
}

// Endpoints returns the HTTP endpoints.
func (srv *Server) Endpoints() []signaling.Endpoint {
	if srv == nil {
		return nil
	}
	return []signaling.Endpoint{
		{Pattern: "POST /telephony/{provider}/answer", Handler: http.HandlerFunc(srv.serveAnswer)},
		{Pattern: "POST /telephony/{provider}/transfer/{token}", Handler: http.HandlerFunc(srv.serveTransfer)},
		{Pattern: "GET /telephony/{provider}/stream", Socket: http.HandlerFunc(srv.serveStream)},
		{Pattern: "GET /telephony/{provider}/stream/{token}", Socket: http.HandlerFunc(srv.serveStream)},
	}
}

// Close closes idle connections to REST APIs and to the webhooks of collections.
func (srv *Server) Close() {
	if srv == nil {
		return
	}
	srv.restClient.CloseIdleConnections()
	srv.config.Collect.Close()
}

// authorizeClient checks a server key or a session token. Limits by IP address do not apply, because all calls of a
// telephone system come from one address.
func (srv *Server) authorizeClient(open *bridge.SessionRequest, r *http.Request, token string) error {
	open.Origin.Protocol = protocolName
	return access.From(srv.Gate.WithClient(&http.Request{Header: r.Header})).Admit(open, token)
}

// countRefusal counts and logs a rejection.
func (srv *Server) countRefusal(from, rule string, why error) {
	if srv.OnRefused != nil {
		srv.OnRefused("telephony " + rule)
	}
	srv.logLimiter.Do(func() { // rate-limited, so that strangers cannot fill the disk; OnRefused counts all rejections
		srv.Logger.Warn("call refused", "rule", rule, "from", from, "why", why)
	})
}

// rejectRequest counts and logs a rejection, and sends the error response, which does not reveal the reason.
func (srv *Server) rejectRequest(w http.ResponseWriter, r *http.Request, status int, rule string, why error) {
	srv.countRefusal(r.RemoteAddr, rule, why)
	http.Error(w, http.StatusText(status), status)
}

// checkCapacity returns an error if the limits do not permit another call of this provider.
func (srv *Server) checkCapacity(p *Provider) error {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	return srv.checkCapacityLocked(p)
}

// checkCapacityLocked is checkCapacity for callers that hold mu.
func (srv *Server) checkCapacityLocked(p *Provider) error {
	switch {
	case srv.totalCalls >= srv.config.Calls:
		return fmt.Errorf("the limit of %d concurrent calls is reached", srv.totalCalls)
	case p.Calls > 0 && srv.providerCalls[p] >= p.Calls:
		return fmt.Errorf("the limit of %d concurrent calls of %s is reached", srv.providerCalls[p], p.Name)
	}
	return nil
}

// countCall counts a new call, or returns an error if the limits do not permit it. Call release when the call has ended.
func (srv *Server) countCall(p *Provider) (release func(), err error) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if err := srv.checkCapacityLocked(p); err != nil {
		return nil, err
	}
	if !srv.startLimiter.Allow() {
		return nil, fmt.Errorf("more than %d new calls per second", srv.config.CallsPerSecond)
	}
	srv.totalCalls++
	srv.providerCalls[p]++
	return func() {
		srv.mu.Lock()
		defer srv.mu.Unlock()
		srv.totalCalls--
		srv.providerCalls[p]--
	}, nil
}

// serveStream handles the WebSocket of a call.
func (srv *Server) serveStream(w http.ResponseWriter, r *http.Request) {
	p := srv.providers[r.PathValue("provider")]
	if p == nil {
		http.NotFound(w, r)
		return
	}
	t, rule, err := srv.authorizeStream(p, r)
	if errors.Is(err, errTooManyGuesses) {
		srv.rejectRequest(w, r, http.StatusTooManyRequests, rule, err)
		return
	}
	if err != nil {
		srv.rejectRequest(w, r, http.StatusForbidden, rule, err)
		return
	}
	release, err := srv.countCall(p)
	if err != nil {
		srv.rejectRequest(w, r, http.StatusServiceUnavailable, "calls", err)
		return
	}
	defer release()
	c := srv.newCall(t, &dialectCodec{dialect: &p.profile.dialect})
	signaling.ServeSocket(w, r, signaling.SocketOptions{Limit: maxMessage, OnRoundTrip: c.recordRoundTrip}, c.run)
}

var (
	errPassword       = errors.New("wrong password")
	errTooManyGuesses = errors.New("this address has tried too many wrong passwords; wait a minute")
)

// authorizeStream decides, before the upgrade, whether a WebSocket may be opened. If not, rule names the failed check.
func (srv *Server) authorizeStream(p *Provider, r *http.Request) (t ticket, rule string, err error) {
	t.open.Account = srv.Gate.TrunkAccount(protocolName+" "+p.Name, p.Calls) // key names have no spaces, so they differ from this name
	if s := p.signatureScheme(); s != nil {
		if s.signsUpgrade {
			if err := s.verifyRequest(p.Verify, r, nil, srv.candidateURLs(srv.socketURL(), r)...); err != nil {
				return t, "signature", err
			}
		}
		taken, ok := srv.tickets.redeem(r.PathValue("token"), p)
		if !ok || taken.target != "" {
			return t, "token", errToken
		}
		taken.open = t.open
		return taken, "", nil
	}
	query := r.URL.Query()
	t.provider, t.call, t.party = p, query.Get("call"), p.profile.dialect.newParty(query.Get("from"), query.Get("to"), query.Get("name"))
	rule, err = srv.checkPassword(p, r, &t.open)
	if err == nil && p.Verify != "" {
		rule, err = "signature", verifyAudioHook(p.Verify, srv.config.PublicURL, r, time.Now())
	}
	return t, rule, err
}

// checkPassword checks the credentials of a request from a provider that does not sign requests. Too many wrong
// credentials block an IP address for a while. failedCheck names the check that failed.
func (srv *Server) checkPassword(p *Provider, r *http.Request, open *bridge.SessionRequest) (failedCheck string, err error) {
	secret, from := readCredential(r), access.From(r.Context()).Address()
	switch {
	case srv.failedPasswords.IsBlocked(time.Now(), from):
		return "guesses", errTooManyGuesses
	case p.Password != "" && subtle.ConstantTimeCompare([]byte(secret), []byte(p.Password)) == 1:
		return "", nil
	case secret == "":
		return "password", errPassword
	case p.Access:
		failedCheck, err = "access", srv.authorizeClient(open, r, secret)
	default:
		failedCheck, err = "password", errPassword
	}
	if err != nil {
		srv.failedPasswords.RecordFailure(time.Now(), from)
	}
	return failedCheck, err
}

// readCredential returns the credential in a request. It may be the password of Basic authentication, a bearer token,
// AudioHook's API key, the token at the end of the path, or the query parameter "token".
func readCredential(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	if token := access.BearerToken(r.Header.Get("Authorization")); token != "" {
		return token
	}
	if token := cmp.Or(r.Header.Get("X-API-KEY"), r.PathValue("token")); token != "" {
		return token
	}
	return r.URL.Query().Get("token")
}
