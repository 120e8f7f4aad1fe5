package media

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"voxgate/signaling/phone"
)

// RTP holds the local address and ports for media.
type RTP struct {
	Address string `json:"address"` // local address; default: all addresses
	Ports   string `json:"ports"`   // "10000-20000"; default: any
}

// Settings are the audio settings of a trunk in the configuration file.
type Settings struct {
	SRTP           string `json:"srtp"`           // "required" or "off"; if empty, SRTP is used if the peer offers it
	NAT            bool   `json:"nat"`            // the peer's packets may come from another address than its SDP says
	SilenceSeconds int    `json:"silenceSeconds"` // time without packets after which a call ends; 0 means 30
	Silence        string `json:"silence"`        // sent in pauses of the agent: "send" or "comfort"; if empty, nothing
}

// Values of [Settings.SRTP]. The empty value is valid, too.
const (
	srtpRequired = "required"
	srtpOff      = "off"
)

// Values of [Settings.Silence], for trunks that end a call when they receive no packets. With the empty value, nothing
// is sent in pauses.
const (
	silenceSend    = "send"    // encoded silence
	silenceComfort = "comfort" // comfort noise if negotiated, else encoded silence
)

// defaultSilenceSeconds is the default of [Settings.SilenceSeconds].
const defaultSilenceSeconds = 30

// CheckAndSetDefaults validates the settings and fills in defaults. Its errors begin with the field's name.
func (s *Settings) CheckAndSetDefaults() error {
	if s.SRTP != "" && s.SRTP != srtpRequired && s.SRTP != srtpOff {
		return fmt.Errorf("srtp: %q is neither required nor off", s.SRTP)
	}
	if s.Silence != "" && s.Silence != silenceSend && s.Silence != silenceComfort {
		return fmt.Errorf("silence: %q is neither send nor comfort", s.Silence)
	}
	return phone.SetLimitDefaults(phone.Limit{Name: "silenceSeconds", Value: &s.SilenceSeconds, Default: defaultSilenceSeconds})
}

func (s *Settings) silenceTimeout() time.Duration {
	return time.Duration(s.SilenceSeconds) * time.Second
}

// CheckFields validates the configuration.
func (r *RTP) CheckFields() error {
	_, _, err := r.parsePorts()
	return err
}

// parsePorts returns the configured range of ports. first and last are 0 if the system may choose any port.
func (r *RTP) parsePorts() (first, last int, err error) {
	if r.Ports == "" {
		return 0, 0, nil
	}
	a, b, _ := strings.Cut(r.Ports, "-")
	first, err1 := strconv.Atoi(a)
	last, err2 := strconv.Atoi(b)
	if err1 != nil || err2 != nil || first < 1024 || last > 65535 || last <= first {
		return 0, 0, fmt.Errorf("ports: %q is not a range like 10000-20000", r.Ports)
	}
	return first, last, nil
}
