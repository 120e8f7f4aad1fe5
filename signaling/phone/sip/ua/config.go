package ua

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/emiago/sipgo/sip"

	"voxgate/signaling/phone"
)

// TLS holds the trusted authorities and our certificate for connections to trunks. The fields name PEM files.
type TLS struct {
	CA   string `json:"ca"`   // authorities that are trusted in addition to the system's
	Cert string `json:"cert"` // our certificate, for trunks that request one
	Key  string `json:"key"`
}

// Listen is an address for SIP signalling.
type Listen struct {
	Transport string `json:"transport"` // udp, tcp or tls
	Address   string `json:"address"`   // "203.0.113.7:5060"
	Cert      string `json:"cert"`      // certificate file, required for tls
	Key       string `json:"key"`
	ClientCA  string `json:"clientCA"` // file of an authority for client certificates; if empty, peers need none
}

// Trunk configures the signalling with a SIP trunk or phone system: which calls from the trunk are accepted, and how
// calls to it are made.
type Trunk struct {
	Name           string    `json:"name"`
	From           []string  `json:"from"`     // addresses and networks that may call; if empty, any address may call with the password
	Username       string    `json:"username"` // user name for digest authentication; if empty, no password is required
	Password       string    `json:"password"`
	Digest         string    `json:"digest"`         // digest algorithm: SHA-256 or MD5; if empty, either
	Calls          int       `json:"calls"`          // limit on concurrent calls; 0 means 50
	CallsPerCaller int       `json:"callsPerCaller"` // limit on concurrent calls of a caller; 0 means 3
	CallsPerSecond float64   `json:"callsPerSecond"` // limit on new calls per second; 0 means 10
	Outbound       *Outbound `json:"outbound"`

	networks []netip.Prefix
}

// Outbound configures outgoing calls of a trunk.
type Outbound struct {
	Server   string   `json:"server"`  // "sip:trunk.example.com;transport=tls"
	From     string   `json:"from"`    // our number or URI
	Callers  []string `json:"callers"` // patterns of other allowed caller IDs
	Username string   `json:"username"`
	Password string   `json:"password"`
	To       []string `json:"to"`       // patterns of numbers that may be called
	Register bool     `json:"register"` // whether to register at the trunk
	Expires  int      `json:"expires"`  // length of a registration in seconds; 0 means 300
}

// Defaults of [Trunk] and [Outbound]. defaultExpires is in seconds.
const (
	defaultTrunkCalls     = 50
	defaultCallsPerCaller = 3
	defaultCallsPerSecond = 10
	defaultExpires        = 300
)

// CheckFields validates the listening address.
func (l *Listen) CheckFields() error {
	switch l.Transport {
	case "udp", "tcp":
		if l.Cert != "" || l.Key != "" || l.ClientCA != "" {
			return fmt.Errorf("cert: %s is not encrypted", l.Transport)
		}
	case "tls":
		if l.Cert == "" || l.Key == "" {
			return errors.New("cert: tls needs the files of a certificate and its key")
		}
	default:
		return fmt.Errorf("transport: %q is neither udp nor tcp nor tls", l.Transport)
	}
	if _, _, err := net.SplitHostPort(l.Address); err != nil {
		return fmt.Errorf("address: %w", err)
	}
	return nil
}

// CheckAndSetDefaults validates the trunk and fills in defaults. Its errors begin with the field's name.
func (t *Trunk) CheckAndSetDefaults() error {
	if t.Name == "" {
		return errors.New("name: is missing")
	}
	for i, from := range t.From {
		network, err := netip.ParsePrefix(from)
		if err != nil {
			address, err := netip.ParseAddr(from)
			if err != nil {
				return fmt.Errorf("from[%d]: %q is neither an address nor a network", i, from)
			}
			network = netip.PrefixFrom(address, address.BitLen())
		}
		t.networks = append(t.networks, network.Masked())
	}
	if (t.Username == "") != (t.Password == "") {
		return errors.New("password: a username and a password go together")
	}
	if t.Digest != "" && !slices.Contains(algorithms, t.Digest) {
		return fmt.Errorf("digest: %q is neither SHA-256 nor MD5", t.Digest)
	}
	if len(t.From) == 0 && t.Username == "" {
		return errors.New("from: a trunk needs addresses that calls come from, or a password")
	}
	if t.CallsPerSecond < 0 {
		return errors.New("callsPerSecond: must not be negative")
	}
	if t.CallsPerSecond == 0 {
		t.CallsPerSecond = defaultCallsPerSecond
	}
	err := phone.SetLimitDefaults(
		phone.Limit{Name: "calls", Value: &t.Calls, Default: defaultTrunkCalls},
		phone.Limit{Name: "callsPerCaller", Value: &t.CallsPerCaller, Default: defaultCallsPerCaller},
	)
	if err != nil || t.Outbound == nil {
		return err
	}
	return t.Outbound.checkAndSetDefaults()
}

func (o *Outbound) checkAndSetDefaults() error {
	server, err := ParseURI(o.Server)
	if err != nil {
		return fmt.Errorf("outbound.server: %w", err)
	}
	if t := server.UriParams.GetOr("transport", "udp"); !slices.Contains([]string{"udp", "tcp", "tls"}, strings.ToLower(t)) {
		return fmt.Errorf("outbound.server: transport %q is not supported: use udp, tcp or tls", t)
	}
	if o.From == "" {
		return errors.New("outbound.from: is missing")
	}
	if (o.Username == "") != (o.Password == "") {
		return errors.New("outbound.password: a username and a password go together")
	}
	return phone.SetLimitDefaults(phone.Limit{Name: "outbound.expires", Value: &o.Expires, Default: defaultExpires})
}

func (t *Trunk) hasAddress(a netip.Addr) bool {
	return slices.ContainsFunc(t.networks, func(n netip.Prefix) bool { return n.Contains(a) })
}

// isIdentityTrusted reports whether the caller identities that the trunk asserts are trusted. They are not if the trunk
// has a password, because it then serves phones, which could assert anything.
func (t *Trunk) isIdentityTrusted() bool { return t.Username == "" }

// localURI returns our own URI.
func (o *Outbound) localURI(host string) sip.Uri {
	if uri, err := ParseURI(o.From); err == nil {
		return uri
	}
	return sip.Uri{Scheme: "sip", User: o.From, Host: host, UriParams: sip.NewParams()}
}

// NumberOf returns the number of a transfer target that is called by this trunk. It fails for a SIP URI of a server
// other than the trunk's.
func (t *Trunk) NumberOf(target string) (string, error) {
	uri, err := ParseURI(target)
	if err != nil {
		return target, nil
	}
	server, err := ParseURI(t.Outbound.Server)
	if err != nil || server.Host != uri.Host {
		return "", fmt.Errorf("%q cannot be called by this trunk: it leads to %s", target, server.Host)
	}
	return string(userNumber(uri)), nil
}

// algorithms lists the digest algorithms of our challenges, strongest first.
var algorithms = []string{"SHA-256", "MD5"}

// algorithms returns the digest algorithms for the trunk's phones. Some phones know only MD5, and give up if SHA-256 is
// offered too (libre 1.0).
func (t *Trunk) algorithms() []string {
	if t.Digest != "" {
		return []string{t.Digest}
	}
	return algorithms
}
