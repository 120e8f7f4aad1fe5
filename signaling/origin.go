package signaling

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"voxgate/signaling/access"
)

// Origin identifies the source of a page (RFC 6454) by scheme, host and port. The parts are normalized, and the
// scheme's default port is filled in, so that origins can be compared by ==.
type Origin struct{ scheme, host, port string }

// opaqueOrigins lists the origins that browsers send for pages without a host: files (Electron), and sandboxed frames.
var opaqueOrigins = []string{"null", "file://"}

// ParseOrigin parses an origin such as "https://app.example.com". It ignores letter case, a final slash and the default
// port.
func ParseOrigin(text string) (Origin, error) {
	if slices.Contains(opaqueOrigins, text) {
		return Origin{scheme: text}, nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme == "" || u.Opaque != "":
		return Origin{}, fmt.Errorf("%q is not an origin: write scheme and host, like https://app.example.com", text)
	case u.Host == "" || u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return Origin{}, fmt.Errorf("%q is not an origin: only scheme, host and port, like https://app.example.com", text)
	case strings.Contains(u.Host, "*"):
		return Origin{}, fmt.Errorf("%q has a wildcard: list each origin in full", text)
	}
	if err := checkPort(u.Port()); err != nil {
		return Origin{}, fmt.Errorf("%q: %w", text, err)
	}
	scheme := strings.ToLower(u.Scheme)
	return Origin{scheme, normalizeHost(u.Hostname()), cmp.Or(u.Port(), defaultPort(scheme))}, nil
}

// String returns the origin as a browser sends it.
func (o Origin) String() string {
	if o.host == "" {
		return o.scheme
	}
	host := o.host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if o.port != defaultPort(o.scheme) {
		host += ":" + o.port
	}
	return o.scheme + "://" + host
}

func defaultPort(scheme string) string {
	switch scheme {
	case "http", "ws":
		return "80"
	case "https", "wss":
		return "443"
	}
	return ""
}

func checkPort(port string) error {
	if n, err := strconv.Atoi(port); port != "" && (err != nil || n < 1 || n > 65535) {
		return fmt.Errorf("%q is not a port number from 1 to 65535", port)
	}
	return nil
}

// normalizeHost lower-cases a host name, drops a trailing dot (RFC 1034 section 3.1), and writes an address in its
// shortest form.
func normalizeHost(host string) string {
	host = strings.ToLower(strings.Trim(host, "[]"))
	if address, err := netip.ParseAddr(host); err == nil {
		return address.Unmap().String()
	}
	if len(host) > 1 {
		host = strings.TrimSuffix(host, ".")
	}
	return host
}

// ParseHost reads a host name of the gateway, and returns its normal form. It rejects a scheme, a port, a path and a
// wildcard, because such a text would never match a request.
func ParseHost(text string) (string, error) {
	switch {
	case strings.Contains(text, "*"):
		return "", fmt.Errorf("%q has a wildcard: list each name in full", text)
	case strings.ContainsAny(text, "/\\?#@\"' \t"):
		return "", fmt.Errorf("%q is not a host name: leave out the scheme and the path", text)
	}
	if _, err := netip.ParseAddr(strings.Trim(text, "[]")); err != nil && strings.Contains(text, ":") {
		return "", fmt.Errorf("%q is not a host name: leave out the port", text)
	}
	host := normalizeHost(text)
	if host == "" {
		return "", errors.New("a host name is empty")
	}
	return host, nil
}

// requestAddress is the host and port of a request. port is "" if the client uses the default port of its scheme.
type requestAddress struct{ host, port string }

func splitAddress(text string) requestAddress {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, ""
	}
	return requestAddress{normalizeHost(host), port}
}

// requestedAddress returns the host and port that the client of a request has used. X-Forwarded-Host and
// X-Forwarded-Port of a trusted proxy take precedence over Host. If they list several values, the first value is used,
// because it is from the proxy that the client has reached.
func requestedAddress(r *http.Request) requestAddress {
	requested := splitAddress(r.Host)
	if !access.From(r.Context()).IsProxied() {
		return requested
	}
	forwardedPort := firstValue(r, "X-Forwarded-Port")
	if checkPort(forwardedPort) != nil {
		forwardedPort = ""
	}
	forwarded := splitAddress(firstValue(r, "X-Forwarded-Host"))
	if forwarded.host == "" || forwarded.host == requested.host {
		return requestAddress{requested.host, cmp.Or(forwarded.port, forwardedPort, requested.port)}
	}
	return requestAddress{forwarded.host, cmp.Or(forwarded.port, forwardedPort)}
}

// firstValue returns the first element of a header that is a comma-separated list.
func firstValue(r *http.Request, header string) string {
	first, _, _ := strings.Cut(r.Header.Get(header), ",")
	return strings.TrimSpace(first)
}

// usesTLS reports whether the client of a request has used TLS, to the gateway or to a trusted proxy in front of it.
func usesTLS(r *http.Request) bool {
	return r.TLS != nil || access.From(r.Context()).IsProxied() && strings.EqualFold(firstValue(r, "X-Forwarded-Proto"), "https")
}

// isSameOrigin reports whether a page of origin o was loaded from the requested host. If the request has used TLS, the
// scheme of o must be https, too, because anyone on the network path can forge a page without TLS.
func (a requestAddress) isSameOrigin(o Origin, requestHasTLS bool) bool {
	return o.host != "" && o.host == a.host && o.port == cmp.Or(a.port, defaultPort(o.scheme)) && (!requestHasTLS || o.scheme == "https")
}

// RejectUnknownHost answers a request for an unknown host with 421, to prevent DNS rebinding. The known hosts are
// localhost, all IP addresses (which cannot be rebound), and hosts (see [ParseHost]).
func RejectUnknownHost(w http.ResponseWriter, r *http.Request, hosts []string) (isRejected bool) {
	isKnown := func(host string) bool {
		return host == "localhost" || net.ParseIP(host) != nil || slices.Contains(hosts, host)
	}
	if isKnown(splitAddress(r.Host).host) && isKnown(requestedAddress(r).host) {
		return false
	}
	http.Error(w, "Unknown host name; VOXGATE_HOSTS lists the names of this gateway.", http.StatusMisdirectedRequest)
	return true
}

// isAllowedOrigin reports whether a request comes from the gateway's own page or from one of origins. A request without
// Origin does not come from a page.
func isAllowedOrigin(r *http.Request, origins []Origin) bool {
	values := r.Header.Values("Origin")
	if len(values) == 0 {
		return true
	}
	if len(values) > 1 {
		return false
	}
	origin, err := ParseOrigin(values[0])
	return err == nil && (requestedAddress(r).isSameOrigin(origin, usesTLS(r)) || slices.Contains(origins, origin))
}
