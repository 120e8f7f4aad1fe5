package sip

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/signaling/phone"
	sipmedia "voxgate/signaling/phone/sip/media"
	"voxgate/signaling/phone/sip/ua"
	"voxgate/tools/webhook"
)

// Config is the content of the configuration file, whose path is in VOXGATE_SIP. docs/sip.md describes it.
type Config struct {
	Listen   []ua.Listen       `json:"listen"`
	External string            `json:"external"` // address or host name that peers use to reach us; default: the address that we listen at
	RTP      sipmedia.RTP      `json:"rtp"`
	Trunks   []Trunk           `json:"trunks"`
	Calls    int               `json:"calls"` // concurrent calls of all trunks; 0 means 100
	Webhook  *Webhook          `json:"webhook"`
	Collect  phone.Collections `json:"collect"`
	TLS      ua.TLS            `json:"tls"` // certificates for outgoing connections
}

// Webhook configures the operator's endpoint that decides about each incoming call: see [Decision].
type Webhook struct {
	URL    string `json:"url"`
	Secret string `json:"secret"` // key for signing requests (Standard Webhooks)
}

// Trunk is a SIP trunk or phone system: a source and destination of calls.
type Trunk struct {
	ua.Trunk
	sipmedia.Settings

	EarlyMedia bool     `json:"early"`      // connect the model while the call rings, and answer the call when the model begins to speak
	MaxSeconds int      `json:"maxSeconds"` // limit on the length of a call; 0 means 1800
	TransferTo []string `json:"transferTo"` // allowed targets of transfers: patterns of numbers and URIs
	Transfer   string   `json:"transfer"`   // "warm": call and ask a colleague first; if empty, send a REFER
	Listen     bool     `json:"listen"`     // the agent keeps listening after a transfer
}

// transferWarm is the value of Trunk.Transfer for transfers in which the model first tells a colleague about the
// caller.
const transferWarm = "warm"

// Default limits on the concurrent calls of all trunks and on the length of a call. A call costs money as long as it
// lasts, so a forgotten call must not last all night.
const (
	defaultCalls      = 100
	defaultMaxSeconds = 1800
)

// Load reads and validates a configuration file. "${NAME}" in a string is replaced by the environment variable.
func Load(file string) (*Config, error) {
	var c Config
	if err := phone.ReadJSONFile(file, &c); err != nil {
		return nil, err
	}
	if err := c.checkAndSetDefaults(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &c, nil
}

// CheckFiles returns an error if a file of the configuration cannot be used, or an agent refers to a collection that is
// not configured.
func (c *Config) CheckFiles(folder *agents.Folder) error {
	log := slog.New(slog.DiscardHandler)
	if _, err := c.TLS.Config(c.signallingTrunks(), log); err != nil {
		return err
	}
	for i, l := range c.Listen {
		if l.Transport != "tls" {
			continue
		}
		if _, err := l.Config(log); err != nil {
			return fmt.Errorf("listen[%d].%w", i, err)
		}
	}
	return folder.AddAndRunCheck(protocolName, c.Collect.CheckAgent)
}

var hostName = regexp.MustCompile(`^(?i:[a-z0-9]([a-z0-9-]*[a-z0-9])?\.)*(?i:[a-z]([a-z0-9-]*[a-z0-9])?)$`)

func (c *Config) checkAndSetDefaults() error {
	if len(c.Trunks) == 0 {
		return errors.New("trunks: at least one is required")
	}
	if len(c.Listen) == 0 {
		return errors.New("listen: at least one address is required")
	}
	for i := range c.Listen {
		if err := c.Listen[i].CheckFields(); err != nil {
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
		if err := t.checkAndSetDefaults(); err != nil {
			return fmt.Errorf("trunks[%d].%w", i, err)
		}
		if names[t.Name] {
			return fmt.Errorf("trunks[%d].name: %q is the name of another trunk", i, t.Name)
		}
		names[t.Name] = true
	}
	if err := c.Collect.CheckAndSetDefaults(); err != nil {
		return err
	}
	return phone.SetLimitDefaults(phone.Limit{Name: "calls", Value: &c.Calls, Default: defaultCalls})
}

func (t *Trunk) checkAndSetDefaults() error {
	if err := t.Trunk.CheckAndSetDefaults(); err != nil {
		return err
	}
	if err := t.Settings.CheckAndSetDefaults(); err != nil {
		return err
	}
	patterns := map[string][]string{"transferTo": t.TransferTo}
	if t.Outbound != nil {
		patterns["outbound.to"], patterns["outbound.callers"] = t.Outbound.To, t.Outbound.Callers
	}
	for field, list := range patterns {
		if err := agents.CheckPatterns(field, list); err != nil {
			return err
		}
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
	return phone.SetLimitDefaults(phone.Limit{Name: "maxSeconds", Value: &t.MaxSeconds, Default: defaultMaxSeconds})
}

func (t *Trunk) maxDuration() time.Duration { return time.Duration(t.MaxSeconds) * time.Second }

// signallingTrunks returns the part of each trunk's configuration that the user agent needs.
func (c *Config) signallingTrunks() (list []*ua.Trunk) {
	for i := range c.Trunks {
		list = append(list, &c.Trunks[i].Trunk)
	}
	return list
}

// findTrunk returns the trunk with a name, or nil.
func (c *Config) findTrunk(name string) *Trunk {
	i := slices.IndexFunc(c.Trunks, func(t Trunk) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Trunks[i]
}

// protocolName is the name of the SIP protocol in tools and grants.
var protocolName = bridge.RegisterProtocol("sip", bridge.InAgents)
