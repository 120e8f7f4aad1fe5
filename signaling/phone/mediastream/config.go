package mediastream

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/signaling/phone"
)

// Config is the content of the file named by VOXGATE_TELEPHONY. docs/telephony.md describes it.
type Config struct {
	PublicURL      string            `json:"publicURL"` // URL at which providers reach this gateway: "https://voice.example.com"
	Providers      []Provider        `json:"providers"`
	Collect        phone.Collections `json:"collect"`
	Calls          int               `json:"calls"`          // limit on concurrent calls in total; 0 means 100
	CallsPerSecond int               `json:"callsPerSecond"` // limit on new calls per second; 0 means 10
	MaxSeconds     int               `json:"maxSeconds"`     // maximum length of a call; 0 means 1800
}

// Provider configures one source of calls.
type Provider struct {
	Name       string   `json:"name"`       // name in the provider's URLs; defaults to the name of the profile
	Profile    string   `json:"profile"`    // twilio, telnyx, …
	Verify     string   `json:"verify"`     // verifies the provider's requests: an auth token, a signing key or a public key
	Password   string   `json:"password"`   // password of providers without signatures, sent by Basic or Bearer, or at the end of the URL
	Access     bool     `json:"access"`     // accept server keys and session tokens instead of a password
	Account    string   `json:"account"`    // our account ID at the provider
	APIKey     string   `json:"apiKey"`     // key for the provider's REST API; without a key the API is not used
	API        string   `json:"api"`        // base URL of the provider's REST API; default: the usual one
	Calls      int      `json:"calls"`      // limit on concurrent calls of the provider; 0 means no limit of its own
	TransferTo []string `json:"transferTo"` // allowed targets of transfers: patterns of numbers and SIP URIs

	profile *profile
}

// Default limits. A call costs money for as long as it lasts, so a forgotten call must not last all night.
const (
	defaultCalls          = 100
	defaultCallsPerSecond = 10
	defaultMaxSeconds     = 1800
)

// LoadConfig reads and validates the file. "${NAME}" in a string is replaced by an environment variable.
func LoadConfig(file string) (*Config, error) {
	var c Config
	if err := phone.ReadJSONFile(file, &c); err != nil {
		return nil, err
	}
	if err := c.checkAndSetDefaults(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &c, nil
}

// CheckAgents returns an error if an agent refers to a collection that this configuration lacks.
func (c *Config) CheckAgents(folder *agents.Folder) error {
	return folder.AddAndRunCheck(protocolName, c.Collect.CheckAgent)
}

func (c *Config) checkAndSetDefaults() error {
	if c.PublicURL != "" {
		u, err := url.Parse(c.PublicURL)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.RawQuery != "" {
			return fmt.Errorf("publicURL: %q must be a URL like https://voice.example.com", c.PublicURL)
		}
		c.PublicURL = strings.TrimSuffix(c.PublicURL, "/")
	}
	if len(c.Providers) == 0 {
		return errors.New("providers: must not be empty")
	}
	names := map[string]bool{}
	for i := range c.Providers {
		p := &c.Providers[i]
		if err := p.checkAndSetDefaults(c.PublicURL); err != nil {
			return fmt.Errorf("providers[%d].%w", i, err)
		}
		if names[p.Name] {
			return fmt.Errorf("providers[%d].name: %q is used twice", i, p.Name)
		}
		names[p.Name] = true
	}
	if err := c.Collect.CheckAndSetDefaults(); err != nil {
		return err
	}
	return phone.SetLimitDefaults(
		phone.Limit{Name: "calls", Value: &c.Calls, Default: defaultCalls},
		phone.Limit{Name: "callsPerSecond", Value: &c.CallsPerSecond, Default: defaultCallsPerSecond},
		phone.Limit{Name: "maxSeconds", Value: &c.MaxSeconds, Default: defaultMaxSeconds},
	)
}

var providerName = regexp.MustCompile(`^[a-z0-9-]+$`)

func (p *Provider) checkAndSetDefaults(publicURL string) error {
	p.profile = profiles[p.Profile]
	if p.profile == nil {
		return fmt.Errorf("profile: %q must be one of %s", p.Profile, strings.Join(slices.Sorted(maps.Keys(profiles)), ", "))
	}
	if p.Name == "" {
		p.Name = p.Profile
	}
	if !providerName.MatchString(p.Name) {
		return fmt.Errorf("name: %q may contain only a-z, 0-9 and -", p.Name)
	}
	if err := phone.SetLimitDefaults(phone.Limit{Name: "calls", Value: &p.Calls}); err != nil {
		return err
	}
	if err := p.checkSecrets(publicURL); err != nil {
		return err
	}
	if p.APIKey != "" && p.profile.rest == nil {
		return fmt.Errorf("apiKey: %s has no supported REST API", p.Profile)
	}
	if p.APIKey != "" && p.profile.needsAccount && p.Account == "" {
		return errors.New("account: is missing; the REST API requires it")
	}
	if p.API == "" && p.profile.rest != nil {
		p.API = p.profile.rest.base
	}
	if u, err := url.Parse(p.API); p.APIKey != "" && (err != nil || u.Host == "") {
		return fmt.Errorf("api: %q must be a URL like https://api.example.com", p.API)
	}
	p.API = strings.TrimSuffix(p.API, "/")
	if len(p.TransferTo) > 0 && (p.APIKey == "" || p.profile.rest.transfer == nil) {
		return errors.New("transferTo: requires apiKey and a provider whose REST API can transfer calls")
	}
	return agents.CheckPatterns("transferTo", p.TransferTo)
}

// signatureScheme returns how this provider signs its requests, or nil if it uses a password.
func (p *Provider) signatureScheme() *signatureScheme {
	if p.profile.signatureOptional && p.Verify == "" {
		return nil
	}
	return p.profile.sign
}

// checkSecrets returns an error if the provider's configuration lacks the secret that authenticates its calls, or has
// one that does not fit the profile.
func (p *Provider) checkSecrets(publicURL string) error {
	if p.signatureScheme() == nil {
		if p.Verify != "" && !p.profile.signsUpgrade {
			return fmt.Errorf("verify: %s does not sign requests; set password", p.Profile)
		}
		if _, err := base64.StdEncoding.DecodeString(p.Verify); err != nil {
			return errors.New("verify: must be a secret in base64")
		}
		if p.Password == "" && !p.Access {
			return errors.New(`password: is missing; set it, or "access": true`)
		}
		return nil
	}
	switch {
	case p.Password != "" || p.Access:
		return fmt.Errorf("password: %s signs its requests instead; set verify", p.Profile)
	case p.Verify == "":
		return errors.New("verify: is missing")
	case publicURL == "":
		return fmt.Errorf("profile: %s requires publicURL, which is missing", p.Profile)
	}
	if p.profile.sign.isPublicKey {
		if key, err := base64.StdEncoding.DecodeString(p.Verify); err != nil || len(key) != ed25519.PublicKeySize {
			return errors.New("verify: must be an Ed25519 public key of 32 bytes in base64")
		}
	}
	return nil
}

// limitGrant returns a copy of g that limits conversations to the configured length of a call (maxSeconds). If g is
// nil, the result permits all tools.
func (c *Config) limitGrant(g *bridge.Grant) *bridge.Grant {
	longest := time.Duration(c.MaxSeconds) * time.Second
	if g == nil {
		return &bridge.Grant{Tools: []string{"*"}, MaxDuration: longest}
	}
	limited := *g
	if limited.MaxDuration == 0 || limited.MaxDuration > longest {
		limited.MaxDuration = longest
	}
	return &limited
}
