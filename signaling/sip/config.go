package sip

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"voxgate/agents"
	"voxgate/signaling/phone"
	"voxgate/tools/webhook"
)

// Config is the file that VOXGATE_SIP names: docs/sip.md describes it.
type Config struct {
	Listen   []Listen          `json:"listen"`
	External string            `json:"external"` // the address or the name that peers get; empty: the address that we listen at
	RTP      RTP               `json:"rtp"`
	Trunks   []Trunk           `json:"trunks"`
	Calls    int               `json:"calls"` // at once, in all; 0: 100
	Webhook  *Webhook          `json:"webhook"`
	Collect  phone.Collections `json:"collect"`
	TLS      TLS               `json:"tls"` // of connections that we open
}

// TLS says whom we trust and who we are, where we connect to a trunk. The fields are PEM files.
type TLS struct {
	CA   string `json:"ca"`   // of certificates beside those that the system knows
	Cert string `json:"cert"` // our own, for trunks that ask for one
	Key  string `json:"key"`
}

// Webhook is an endpoint of the operator's that is asked about each call that comes: see [Decision].
type Webhook struct {
	URL    string `json:"url"`
	Secret string `json:"secret"` // what the question is signed with (Standard Webhooks)
}

// Listen is an address for signalling.
type Listen struct {
	Transport string `json:"transport"` // udp, tcp or tls
	Address   string `json:"address"`   // "203.0.113.7:5060"
	Cert      string `json:"cert"`      // files, of tls
	Key       string `json:"key"`
	ClientCA  string `json:"clientCA"` // a file: peers must have a certificate of this authority; empty: they need none
}

// RTP says where sound comes by.
type RTP struct {
	Address string `json:"address"` // empty: all
	Ports   string `json:"ports"`   // "10000-20000"; empty: any
}

// Trunk is where calls come from, and go to.
type Trunk struct {
	Name           string    `json:"name"`
	From           []string  `json:"from"`     // addresses and networks; empty: any, and then it has a password
	Username       string    `json:"username"` // of digest; empty: no password is needed
	Password       string    `json:"password"`
	Digest         string    `json:"digest"` // SHA-256, MD5, or empty: either
	SRTP           string    `json:"srtp"`   // required, off, or empty: where the peer offers it
	NAT            bool      `json:"nat"`    // sound comes from elsewhere than its description says
	Early          bool      `json:"early"`
	Calls          int       `json:"calls"`          // at once; 0: 50
	CallsPerCaller int       `json:"callsPerCaller"` // at once; 0: 3
	CallsPerSecond float64   `json:"callsPerSecond"` // 0: 10
	MaxSeconds     int       `json:"maxSeconds"`     // of a call; 0: 1800
	SilenceSeconds int       `json:"silenceSeconds"` // without a packet, until a call is given up; 0: 30
	Silence        string    `json:"silence"`        // what goes out while the agent says nothing: "send" or "comfort"; empty: nothing
	Music          string    `json:"music"`          // "pass": the model hears music that lasts; empty: silence in its place
	TransferTo     []string  `json:"transferTo"`     // patterns of numbers and URIs
	Transfer       string    `json:"transfer"`       // "warm": a colleague is called and asked first; empty: a REFER
	Listen         bool      `json:"listen"`         // the agent hears those whom it has put through
	Outbound       *Outbound `json:"outbound"`

	networks []netip.Prefix
}

// Outbound is where a trunk takes outgoing calls.
type Outbound struct {
	Server   string   `json:"server"`  // "sip:trunk.example.com;transport=tls"
	From     string   `json:"from"`    // our number or URI
	Callers  []string `json:"callers"` // patterns of other numbers that a call may show
	Username string   `json:"username"`
	Password string   `json:"password"`
	To       []string `json:"to"`       // patterns of numbers that may be called
	Register bool     `json:"register"` // the trunk wants us to register
	Expires  int      `json:"expires"`  // seconds of a registration; 0: 300
}

// The values of Trunk.SRTP.
const (
	srtpRequired = "required"
	srtpOff      = "off"
)

// The values of Trunk.Silence for a trunk that gives up a call without packets.
const (
	silenceSend    = "send"    // packets of silence
	silenceComfort = "comfort" // comfort noise where that was agreed on, else packets of silence
)

// transferWarm is the value of Trunk.Transfer for a trunk whose callers are announced to a colleague.
const transferWarm = "warm"

// Defaults of limits. A call costs as long as it lasts, so it must not last all night.
const (
	defaultCalls          = 100
	defaultTrunkCalls     = 50
	defaultCallsPerCaller = 3
	defaultCallsPerSecond = 10
	defaultMaxSeconds     = 1800
	defaultSilenceSeconds = 30
	defaultExpires        = 300
)

// Load reads and checks a file. "${NAME}" in a string is a variable of the environment.
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

// CheckFiles says which of the files that a configuration names cannot be used, and which agent collects what it does not have.
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
	return answers.AddCheck(doorName, c.Collect.CheckAgent)
}

var hostName = regexp.MustCompile(`^(?i:[a-z0-9]([a-z0-9-]*[a-z0-9])?\.)*(?i:[a-z]([a-z0-9-]*[a-z0-9])?)$`)

func (c *Config) checkFields() error {
	if len(c.Listen) == 0 && len(c.Trunks) > 0 { // neither: there are only telephones in pages
		return errors.New("listen: there is no address for the trunks")
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
	if _, _, err := c.RTP.parsePorts(); err != nil {
		return fmt.Errorf("rtp.%w", err)
	}
	if len(c.Trunks) == 0 && len(c.Listen) > 0 {
		return errors.New("trunks: there is none, so nobody could call at these addresses")
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

func (r *RTP) parsePorts() (first, last int, err error) {
	if r.Ports == "" {
		return 0, 0, nil
	}
	a, b, _ := strings.Cut(r.Ports, "-")
	first, err1 := strconv.Atoi(a)
	last, err2 := strconv.Atoi(b)
	if err1 != nil || err2 != nil || first < 1024 || last > 65535 || last <= first {
		return 0, 0, fmt.Errorf("ports: %q is no range like 10000-20000", r.Ports)
	}
	return first, last, nil
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
	if t.SRTP != "" && t.SRTP != srtpRequired && t.SRTP != srtpOff {
		return fmt.Errorf("srtp: %q is neither required nor off", t.SRTP)
	}
	if t.Silence != "" && t.Silence != silenceSend && t.Silence != silenceComfort {
		return fmt.Errorf("silence: %q is neither send nor comfort", t.Silence)
	}
	if err := cmp.Or(phone.CheckMusic(t.Music), agents.CheckPatterns("transferTo", t.TransferTo)); err != nil {
		return err
	}
	if t.Transfer != "" && t.Transfer != transferWarm {
		return fmt.Errorf("transfer: %q must be \"warm\" or left out", t.Transfer)
	}
	if t.Transfer == transferWarm && (t.Outbound == nil || len(t.TransferTo) == 0) {
		return errors.New("transfer: warm needs outbound, by which colleagues are called, and transferTo, who they are")
	}
	if t.Listen && t.Transfer != transferWarm {
		return errors.New("listen: only a warm transfer leaves an agent that could listen")
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
		phone.Limit{Name: "silenceSeconds", Value: &t.SilenceSeconds, Default: defaultSilenceSeconds},
	)
	if err != nil || t.Outbound == nil {
		return err
	}
	return t.Outbound.checkFields()
}

func (o *Outbound) checkFields() error {
	if _, err := parseURI(o.Server); err != nil {
		return fmt.Errorf("outbound.server: %w", err)
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

// isAsserting reports whether calls come from a network that knows who calls. A telephone that has to prove a password could assert
// anything.
func (t *Trunk) isAsserting() bool { return t.Username == "" }

func (t *Trunk) maxDuration() time.Duration    { return time.Duration(t.MaxSeconds) * time.Second }
func (t *Trunk) silenceTimeout() time.Duration { return time.Duration(t.SilenceSeconds) * time.Second }
