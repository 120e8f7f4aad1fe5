// Package whip serves clients of WHIP (RFC 9725): encoders, media servers and devices that start a WebRTC call with one
// HTTP request. The audio of the stream goes to an agent. If the offer is sendrecv, the agent's voice is sent back; if it
// is sendonly, a WHEP client that has the session's URL may listen to the voice.
//
// A call is an encoder's peer and a [bridge.Caller]. /whip/NAME is the endpoint of the agent NAME. /whip/NAME/ID is a
// session: PATCH sends candidates or restarts ICE, DELETE ends it. /whep/NAME?session=ID accepts the offer of a listener,
// whose own session is /whep/NAME/NUMBER~ID.
package whip

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/media/opus"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/rtc"
)

// protocolName identifies this endpoint in grants and tools.
var protocolName = bridge.RegisterProtocol("whip", bridge.InAgents|bridge.InGrants)

// maxBody limits a request, in bytes.
const maxBody = 64 << 10

// Content types of requests: RFC 8866 and RFC 8840.
const (
	sdpType      = "application/sdp"
	fragmentType = "application/trickle-ice-sdpfrag"
)

// Server serves WHIP and WHEP.
type Server struct {
	Agents      *agents.Folder // served at /whip/NAME
	Host        *bridge.Host
	RTC         *rtc.API
	OpusDecoder opus.DecoderChoice
	ICEServers  func() []signaling.ICEServer // ICE servers for clients
	Logger      *slog.Logger

	calls signaling.PeerRegistry[*call]
}

// Endpoints returns the endpoints.
func (srv *Server) Endpoints() (list []signaling.Endpoint) {
	for pattern, serve := range map[string]func(http.ResponseWriter, *http.Request) error{
		"POST /whip/{agent}":         srv.startCall,
		"OPTIONS /whip/{agent}":      srv.listMethods,
		"GET /whip/{agent}":          srv.answerGet,
		"PATCH /whip/{agent}/{id}":   srv.proxyToOwner(srv.patchSession),
		"DELETE /whip/{agent}/{id}":  srv.proxyToOwner(srv.endSession),
		"OPTIONS /whip/{agent}/{id}": srv.listMethods,
		"GET /whip/{agent}/{id}":     srv.answerGet,
		"POST /whep/{agent}":         srv.proxyToOwner(srv.handleListenOffer),
		"OPTIONS /whep/{agent}":      srv.listMethods,
		"PATCH /whep/{agent}/{id}":   srv.proxyToOwner(srv.patchSession),
		"DELETE /whep/{agent}/{id}":  srv.proxyToOwner(srv.endSession),
		"OPTIONS /whep/{agent}/{id}": srv.listMethods,
	} {
		list = append(list, signaling.Endpoint{Pattern: pattern, Handler: signaling.NewHandler(srv.Logger, protocolName,
			func(w http.ResponseWriter, r *http.Request) error {
				w.Header().Set("Access-Control-Expose-Headers", "Location, ETag, Link, Accept-Patch, Accept-Post")
				return serve(w, r)
			}, writeError)})
	}
	return list
}

// statusError is an HTTP status with a message.
type statusError struct {
	status  int
	message string
}

func (s *statusError) Error() string { return s.message }

func newStatusError(status int, format string, args ...any) error {
	return &statusError{status, fmt.Sprintf(format, args...)}
}

func writeError(w http.ResponseWriter, err error) {
	var statusErr *statusError
	var long *http.MaxBytesError
	e := bridge.AsError(err)
	status, message := cmp.Or(access.RefusalStatusOrZero(e), http.StatusBadGateway), e.Message
	switch {
	case errors.As(err, &statusErr):
		status, message = statusErr.status, statusErr.message
	case errors.As(err, &long):
		status, message = http.StatusRequestEntityTooLarge, fmt.Sprintf("The body is too long: at most %d bytes are allowed.", long.Limit)
	case errors.Is(err, bridge.ErrShutdown):
		status, message = http.StatusServiceUnavailable, "The gateway is shutting down."
	case e.Field == agents.ErrorField:
		status = e.Status
	case e.Code == bridge.CodeBadConfig:
		status = http.StatusInternalServerError // the agent's file, which the operator has written, is invalid
	case status == http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer") // RFC 6750, section 3
	}
	// An overloaded gateway answers 503 (RFC 9725). A client that sends too many requests gets 429 (RFC 6585).
	if e.Retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(access.RetrySeconds(e.Retry)))
	}
	http.Error(w, message, status)
}

// listMethods answers OPTIONS with the supported methods and content types. It does not get CORS preflight requests,
// because [signaling.Server] answers them.
func (srv *Server) listMethods(w http.ResponseWriter, r *http.Request) error {
	if r.PathValue("id") != "" {
		w.Header().Set("Accept-Patch", fragmentType)
	} else {
		w.Header().Set("Accept-Post", sdpType)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// answerGet answers GET and HEAD with 204 (RFC 9725, section 4.2).
func (srv *Server) answerGet(w http.ResponseWriter, r *http.Request) error {
	if srv.Agents.Find(r.PathValue("agent"), protocolName) == nil {
		return agents.NewUnknownAgentError(r.PathValue("agent"))
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// readBody reads the body of a request and checks its content type.
func readBody(w http.ResponseWriter, r *http.Request, contentType string) (string, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != contentType {
		return "", newStatusError(http.StatusUnsupportedMediaType, "The body must be %s.", contentType)
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if long := (*http.MaxBytesError)(nil); err != nil && !errors.As(err, &long) {
		return "", newStatusError(http.StatusBadRequest, "The body cannot be read.")
	}
	return string(raw), err
}

// authorizeClient authenticates a client that may begin a session.
func authorizeClient(r *http.Request) (open bridge.SessionRequest, err error) {
	open.Origin = bridge.Origin{Protocol: protocolName, Agent: r.PathValue("agent")}
	err = access.From(r.Context()).Authorize(&open, "")
	return open, err
}

// startCall answers an encoder's offer and starts a call.
func (srv *Server) startCall(w http.ResponseWriter, r *http.Request) error {
	open, err := authorizeClient(r)
	if err != nil {
		return err
	}
	text, offer, err := readOffer(w, r)
	if err != nil {
		return err
	}
	if !offer.SendsAudio() {
		return newStatusError(http.StatusNotAcceptable, "The offer must have an audio section that sends, because an agent listens.")
	}
	log := srv.Logger.With("door", protocolName, "remote", access.From(r.Context()).Address())
	c := &call{
		HTTPCall: signaling.HTTPCall{Offer: offer}, server: srv, log: log, agent: r.PathValue("agent"), offerText: text,
		listenLimiter: rtc.NewOfferLimiter(),
	}
	c.id = signaling.OwnedID(srv.Host, rand.Text())
	sdp, err := srv.calls.StartCall(r, srv.Host, c.id, c, open)
	switch {
	case err != nil && bridge.DescribeEnd(err) == "":
		return newStatusError(http.StatusBadGateway, "The call has ended.")
	case err != nil:
		return err
	}
	srv.writeCreated(w, "/whip/"+c.agent+"/"+c.id, sdp)
	return nil
}

// handleListenOffer answers a WHEP offer for the voice of a WHIP session. The secret session ID in the URL authorizes it.
func (srv *Server) handleListenOffer(w http.ResponseWriter, r *http.Request) error {
	c, err := srv.findCall(r)
	if err != nil {
		return err
	}
	text, offer, err := readOffer(w, r)
	if err != nil {
		return err
	}
	if !offer.ReceivesAudio() || offer.SendsAudio() {
		return newStatusError(http.StatusNotAcceptable, "The offer must have an audio section that is recvonly; use WHIP to send audio.")
	}
	var number int
	var sdp string
	err = c.RunInCall(r.Context(), errNoSession, func() (err error) {
		number, sdp, err = c.addListener(offer, text)
		return err
	})
	if err != nil {
		return err
	}
	srv.writeCreated(w, fmt.Sprintf("/whep/%s/%d~%s", c.agent, number, c.id), sdp)
	return nil
}

// readOffer reads and parses the offer of a request.
func readOffer(w http.ResponseWriter, r *http.Request) (offerText string, offer rtc.Offer, err error) {
	offerText, err = readBody(w, r, sdpType)
	if err == nil {
		if offer, err = rtc.ParseOffer(offerText); err != nil {
			err = newStatusError(http.StatusBadRequest, "The offer %v.", err)
		}
	}
	return offerText, offer, err
}

// writeCreated sends the response for a new session.
func (srv *Server) writeCreated(w http.ResponseWriter, location, sdp string) {
	h := w.Header()
	h.Set("Content-Type", sdpType)
	h.Set("Location", location)
	h.Set("ETag", strconv.Quote(iceTag(sdp)))
	h.Set("Accept-Patch", fragmentType)
	for _, s := range srv.ICEServers() {
		for _, link := range formatLinks(s) {
			h.Add("Link", link)
		}
	}
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, sdp)
}

// formatLinks formats an ICE server as Link headers (RFC 9725, section 4.6).
func formatLinks(s signaling.ICEServer) (list []string) {
	for _, url := range s.URLs {
		link := "<" + url + `>; rel="ice-server"`
		if s.Username != "" {
			link += fmt.Sprintf(`; username=%q; credential=%q; credential-type="password"`, s.Username, s.Credential)
		}
		list = append(list, link)
	}
	return list
}

// parseSessionPath parses the path of a session: the ID of the encoder's session, and the number of a listener, or 0 for the encoder.
func parseSessionPath(r *http.Request) (id string, listener int) {
	id = cmp.Or(r.PathValue("id"), r.URL.Query().Get("session"))
	if number, rest, ok := strings.Cut(id, "~"); ok {
		if n, err := strconv.Atoi(number); err == nil {
			return rest, n
		}
	}
	return id, 0
}

// findCall returns the call of a request. No token is required, because the ID in the URL is a secret of 128 bits, and
// the encoder's token may have expired.
func (srv *Server) findCall(r *http.Request) (*call, error) {
	id, _ := parseSessionPath(r)
	c, ok := srv.calls.FindCall(id)
	if !ok || c.agent != r.PathValue("agent") {
		return nil, errNoSession
	}
	return c, nil
}

// proxyToOwner forwards requests for calls on another gateway to that gateway.
func (srv *Server) proxyToOwner(serve func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) (err error) {
		id, _ := parseSessionPath(r)
		if signaling.ProxyToOwner(w, r, srv.Host, id, "", func(away error) {
			srv.Logger.Warn("another gateway does not answer", "err", away)
			err = errNoSession
		}) {
			return err
		}
		return serve(w, r)
	}
}

var errNoSession = newStatusError(http.StatusNotFound, "This session does not exist, or it has ended.")

// endSession ends a call, or a listener's connection.
func (srv *Server) endSession(w http.ResponseWriter, r *http.Request) error {
	id, listener := parseSessionPath(r)
	c, err := srv.findCall(r)
	switch {
	case err != nil:
		if !srv.calls.HasEnded(id) { // the call has ended, which is not an error: pages often close the peer connection before this request
			return err
		}
	case listener > 0:
		err = c.RunInCall(r.Context(), errNoSession, func() error {
			if c.findConnection(listener) != nil {
				c.closeListener()
			}
			return nil
		})
		if err != nil {
			return err
		}
	default:
		srv.calls.HangUp(id)
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// patchSession handles ICE candidates. If the user fragment has changed, it performs an ICE restart (RFC 9725, section 4.3).
func (srv *Server) patchSession(w http.ResponseWriter, r *http.Request) error {
	c, err := srv.findCall(r)
	if err != nil {
		return err
	}
	text, err := readBody(w, r, fragmentType)
	if err != nil {
		return err
	}
	f, err := parseFragment(text)
	if err != nil {
		return newStatusError(http.StatusBadRequest, "The fragment %v.", err)
	}
	_, listener := parseSessionPath(r)
	var sdp string
	err = c.RunInCall(r.Context(), errNoSession, func() (err error) {
		p := c.findConnection(listener)
		if p == nil {
			return errNoSession
		}
		given, matches := parseIfMatch(r, p.tag)
		restarts := f.ufrag != "" && f.ufrag != p.ufrag
		switch {
		case restarts && !given:
			return newStatusError(http.StatusPreconditionRequired, "If-Match must have the session's ETag, or * for an ICE restart.")
		case given && !matches: // without If-Match, as players and pages send it, candidates belong to this ICE session
			return newStatusError(http.StatusPreconditionFailed, "The ETag is outdated, because ICE was restarted.")
		case restarts:
			sdp, err = p.restartICE(f)
			return err
		}
		return p.addCandidates(f.candidates)
	})
	if err != nil {
		return err
	}
	if sdp == "" {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	w.Header().Set("Content-Type", fragmentType)
	w.Header().Set("ETag", strconv.Quote(iceTag(sdp)))
	io.WriteString(w, formatFragment(sdp))
	return nil
}

// iceTag returns the ETag of an ICE session. It is the gateway's user fragment, because an ICE restart changes it.
func iceTag(sdp string) string { return sdpAttribute(sdp, "ice-ufrag") }

// parseIfMatch reports whether a request has an If-Match header, and whether the header matches tag. It also accepts
// weak tags, tags without quotes, and lists, because some clients send them.
func parseIfMatch(r *http.Request, tag string) (isPresent, isMatch bool) {
	for _, header := range r.Header.Values("If-Match") {
		for one := range strings.SplitSeq(header, ",") {
			one = strings.TrimSpace(one)
			isPresent = isPresent || one != ""
			one = strings.Trim(strings.TrimPrefix(one, "W/"), `"`)
			isMatch = isMatch || one == "*" || one == tag
		}
	}
	return isPresent, isMatch
}

// sdpAttribute returns the first value of an SDP attribute, or "".
func sdpAttribute(sdp, name string) string {
	for line := range strings.Lines(sdp) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "a="+name+":"); ok {
			return value
		}
	}
	return ""
}

// iceFragment holds the client's ICE data of a PATCH request.
type iceFragment struct {
	ufrag, pwd string
	candidates []string // lines without "a="
}

// parseFragment parses an SDP fragment (RFC 8840, section 9). If the fragment has no ice-ufrag and ice-pwd, its
// candidates belong to the current ICE session.
func parseFragment(text string) (f iceFragment, err error) {
	f.ufrag, f.pwd = sdpAttribute(text, "ice-ufrag"), sdpAttribute(text, "ice-pwd")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "a=candidate:") {
			f.candidates = append(f.candidates, strings.TrimPrefix(line, "a="))
		}
	}
	switch {
	case (f.ufrag == "") != (f.pwd == ""):
		return f, errors.New("has only one of ice-ufrag and ice-pwd")
	case f.ufrag == "" && len(f.candidates) == 0 && !strings.Contains(text, "a=end-of-candidates"):
		return f, errors.New("has no ice-ufrag and ice-pwd, and no candidate")
	case len(f.candidates) > rtc.MaxCandidates:
		return f, fmt.Errorf("has %d candidates; at most %d are allowed", len(f.candidates), rtc.MaxCandidates)
	}
	return f, nil
}

// formatFragment returns the gateway's ICE data from an answer, as an SDP fragment.
func formatFragment(sdp string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "a=ice-ufrag:%s\r\na=ice-pwd:%s\r\n", sdpAttribute(sdp, "ice-ufrag"), sdpAttribute(sdp, "ice-pwd"))
	for section := range strings.SplitSeq(sdp, "\r\nm=") { // with BUNDLE, all sections use the same candidates, which only one of them lists
		if !strings.Contains(section, "\r\na=candidate:") {
			continue
		}
		for line := range strings.Lines("m=" + section) {
			line = strings.TrimSpace(line)
			for _, prefix := range []string{"m=", "a=mid:", "a=candidate:", "a=end-of-candidates"} {
				if strings.HasPrefix(line, prefix) {
					b.WriteString(line + "\r\n")
				}
			}
		}
	}
	return b.String()
}

// withICECredentials returns the client's offer with new ICE credentials. It sets them at the session level, where they
// apply to all media sections.
func withICECredentials(offer string, f iceFragment) string {
	lines := []string{}
	for line := range strings.Lines(offer) {
		line = strings.TrimSpace(line)
		isICELine := slices.ContainsFunc([]string{"a=candidate:", "a=end-of-candidates", "a=ice-ufrag:", "a=ice-pwd:"}, func(prefix string) bool {
			return strings.HasPrefix(line, prefix)
		})
		if strings.HasPrefix(line, "m=") && !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "m=") }) {
			lines = append(lines, "a=ice-ufrag:"+f.ufrag, "a=ice-pwd:"+f.pwd)
			for _, c := range f.candidates {
				lines = append(lines, "a="+c)
			}
		}
		if !isICELine && line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\r\n") + "\r\n"
}
