package sip

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"voxgate/agents"
	"voxgate/signaling/phone"
	sipmedia "voxgate/signaling/phone/sip/media"
	"voxgate/tools/webhook"
)

// Config is the content of the file in VOXGATE_SIP, described in docs/sip.md.
type Config struct {
	Listen   []Listen          `json:"listen"`
	External string            `json:"external"` // address or host name that peers use; default: the address that we listen at
	RTP      sipmedia.RTP      `json:"rtp"`
	Trunks   []Trunk           `json:"trunks"`
	Calls    int               `json:"calls"` // concurrent calls of all trunks; 0 means 100
	Webhook  *Webhook          `json:"webhook"`
	Collect  phone.Collections `json:"collect"`
	TLS      TLS               `json:"tls"` // for outgoing connections
}

// TLS holds the trusted authorities and our certificate for connections to trunks. The fields name PEM files.
type TLS struct {
	CA   string `json:"ca"`   // trusted in addition to the system's authorities
	Cert string `json:"cert"` // our own, for trunks that request one
	Key  string `json:"key"`
}

// Webhook is the operator's endpoint that decides about each incoming call: see [Decision].
type Webhook struct {
	URL    string `json:"url"`
	Secret string `json:"secret"` // key for signing requests (Standard Webhooks)
}

// Listen is an address for SIP signalling.
type Listen struct {
	Transport string `json:"transport"` // udp, tcp or tls
	Address   string `json:"address"`   // "203.0.113.7:5060"
	Cert      string `json:"cert"`      // files, for tls
	Key       string `json:"key"`
	ClientCA  string `json:"clientCA"` // file of an authority for client certificates; if empty, peers need none
}

// Trunk is a SIP trunk or phone system: a source and destination of calls.
type Trunk struct {
	sipmedia.Settings
	Name           string    `json:"name"`
	From           []string  `json:"from"`     // addresses and networks; if empty, any, and a password is required
	Username       string    `json:"username"` // for digest; if empty, no password is required
	Password       string    `json:"password"`
	Digest         string    `json:"digest"`         // SHA-256 or MD5; if empty, either
	EarlyMedia     bool      `json:"early"`          // dial the model while the call rings, and answer when it begins to speak
	Calls          int       `json:"calls"`          // concurrent; 0 means 50
	CallsPerCaller int       `json:"callsPerCaller"` // concurrent; 0 means 3
	CallsPerSecond float64   `json:"callsPerSecond"` // 0 means 10
	MaxSeconds     int       `json:"maxSeconds"`     // limit on the length of a call; 0 means 1800
	TransferTo     []string  `json:"transferTo"`     // allowed targets: patterns of numbers and URIs
	Transfer       string    `json:"transfer"`       // "warm": call and ask a colleague first; if empty, send a REFER
	Listen         bool      `json:"listen"`         // the agent keeps listening after a transfer
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
	To       []string `json:"to"`       // patterns of allowed numbers
	Register bool     `json:"register"` // whether to register at the trunk
	Expires  int      `json:"expires"`  // seconds of a registration; 0 means 300
}

// transferWarm is the value of Trunk.Transfer for transfers that are announced to a colleague first.
const transferWarm = "warm"

// Default limits. A call costs money as long as it lasts, so a forgotten one must not last all night.
const (
	defaultCalls          = 100
	defaultTrunkCalls     = 50
	defaultCallsPerCaller = 3
	defaultCallsPerSecond = 10
	defaultMaxSeconds     = 1800
	defaultExpires        = 300
)

// Load reads and validates a configuration file. "${NAME}" in a string is replaced by the environment variable.
func Load(file string) (*Config, error) {
	var c Config
	if err := phone.ReadJSONFile(file, &c); err != nil {
		return nil, err
	}
	if err := c.checkFields(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &c, nil
}

// CheckFiles returns an error if a file of the configuration cannot be used, or an agent refers to a collection that it lacks.
func (c *Config) CheckFiles(answers *agents.Folder) error {
	log := slog.New(slog.DiscardHandler)
	if _, err := c.trunkTLS(log); err != nil {
		return err
	}
	for i, l := range c.Listen {
		if l.Transport != "tls" {
			continue
		}
		if _, err := l.config(log); err != nil {
			return fmt.Errorf("listen[%d].%w", i, err)
		}
	}
	return answers.AddCheck(protocolName, c.Collect.CheckAgent)
}

var hostName = regexp.MustCompile(`^(?i:[a-z0-9]([a-z0-9-]*[a-z0-9])?\.)*(?i:[a-z]([a-z0-9-]*[a-z0-9])?)$`)

func (c *Config) checkFields() error {
	if len(c.Trunks) == 0 {
		return errors.New("trunks: at least one is required")
	}
	if len(c.Listen) == 0 {
		return errors.New("listen: at least one address is required")
	}
	for i := range c.Listen {
		if err := c.Listen[i].checkFields(); err != nil {
			return fmt.Errorf("listen[%d].%w", i, err)
		}
	}
	if _, err := netip.ParseAddr(c.External); c.External != "" && err != nil && !hostName.MatchString(c.External) {
		return fmt.Errorf("external: %q is neither an address nor a name", c.External)
	}
	if c.Webhook != nil {
		endpoint, err := webhook.NewEndpoint(c.Webhook.URL, c.Webhook.Secret)
		if err != nil {
			return fmt.Errorf("webhook: %w", err)
		}
		endpoint.Close()
	}
	if err := c.RTP.CheckFields(); err != nil {
		return fmt.Errorf("rtp.%w", err)
	}
	names := map[string]bool{}
	for i := range c.Trunks {
		t := &c.Trunks[i]
		if err := t.checkFields(); err != nil {
			return fmt.Errorf("trunks[%d].%w", i, err)
		}
		if names[t.Name] {
			return fmt.Errorf("trunks[%d].name: %q is another's", i, t.Name)
		}
		names[t.Name] = true
	}
	if err := c.Collect.Check(); err != nil {
		return err
	}
	return phone.CheckLimits(phone.Limit{Name: "calls", Value: &c.Calls, Default: defaultCalls})
}

func (l *Listen) checkFields() error {
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

func (t *Trunk) checkFields() error {
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
	if err := t.Settings.CheckFields(); err != nil {
		return err
	}
	if err := agents.CheckPatterns("transferTo", t.TransferTo); err != nil {
		return err
	}
	if t.Transfer != "" && t.Transfer != transferWarm {
		return fmt.Errorf("transfer: %q must be \"warm\" or left out", t.Transfer)
	}
	if t.Transfer == transferWarm && (t.Outbound == nil || len(t.TransferTo) == 0) {
		return errors.New("transfer: warm requires outbound and transferTo")
	}
	if t.Listen && t.Transfer != transferWarm {
		return errors.New("listen: requires a warm transfer")
	}
	if t.CallsPerSecond < 0 {
		return errors.New("callsPerSecond: must not be negative")
	}
	if t.CallsPerSecond == 0 {
		t.CallsPerSecond = defaultCallsPerSecond
	}
	err := phone.CheckLimits(
		phone.Limit{Name: "calls", Value: &t.Calls, Default: defaultTrunkCalls},
		phone.Limit{Name: "callsPerCaller", Value: &t.CallsPerCaller, Default: defaultCallsPerCaller},
		phone.Limit{Name: "maxSeconds", Value: &t.MaxSeconds, Default: defaultMaxSeconds},
	)
	if err != nil || t.Outbound == nil {
		return err
	}
	return t.Outbound.checkFields()
}

func (o *Outbound) checkFields() error {
	server, err := parseURI(o.Server)
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
	for field, patterns := range map[string][]string{"outbound.to": o.To, "outbound.callers": o.Callers} {
		if err := agents.CheckPatterns(field, patterns); err != nil {
			return err
		}
	}
	return phone.CheckLimits(phone.Limit{Name: "outbound.expires", Value: &o.Expires, Default: defaultExpires})
}

func (t *Trunk) hasAddress(a netip.Addr) bool {
	return slices.ContainsFunc(t.networks, func(n netip.Prefix) bool { return n.Contains(a) })
}

// isAsserting reports whether the trunk's caller identity is trusted. A phone that needs a password could assert any identity.
func (t *Trunk) isAsserting() bool { return t.Username == "" }

func (t *Trunk) maxDuration() time.Duration { return time.Duration(t.MaxSeconds) * time.Second }
