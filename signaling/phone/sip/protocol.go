package sip

import (
	"flag"
	"fmt"
	"net/http"

	"voxgate/agents"
	"voxgate/signaling"
	"voxgate/signaling/access"
)

// Protocol describes SIP to the program. It reports each [CallStatus] of an outgoing call to the program's observers.
// If no trunks are configured, its only endpoint refuses requests for outgoing calls.
func Protocol() signaling.Protocol {
	var file string // path of the configuration file; "" means no trunks
	return signaling.Protocol{
		Name: protocolName,
		AddFlags: func(f *flag.FlagSet) {
			f.StringVar(&file, "sip", "", "JSON `file` of SIP lines and the agents that answer them (docs/sip.md); empty: no SIP")
		},
		Check: func(folder *agents.Folder, check func(string, string, func() error)) {
			check("sip", file, func() error {
				c, err := Load(file)
				if err != nil {
					return err
				}
				if err := c.CheckFiles(folder); err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
				return nil
			})
		},
		Open: func(e *signaling.Environment) ([]signaling.Endpoint, func(), error) {
			if file == "" {
				return []signaling.Endpoint{{Pattern: "/v1/calls", Handler: http.HandlerFunc(refuseCalls)}}, nil, nil
			}
			c, err := Load(file)
			if err != nil {
				return nil, nil, fmt.Errorf("sip: %w", err)
			}
			o := Options{
				Config: c, Agents: e.Agents, Host: e.Host, Account: e.Gate.TrunkAccount, OnQuality: e.RTC.ReportQuality,
				OnRefused: e.OnRefused, Logger: e.Logger,
			}
			if e.Observe != nil {
				o.OnStatus = func(s CallStatus) { e.Observe(s.ID, s) }
			}
			server, err := New(o)
			if err != nil {
				return nil, nil, fmt.Errorf("sip: %w", err)
			}
			return server.Endpoints(), server.Close, nil
		},
	}
}

// refuseCalls refuses a request for an outgoing call when there are no trunks.
func refuseCalls(w http.ResponseWriter, _ *http.Request) {
	access.WriteNotFound(w, "This gateway cannot make calls: VOXGATE_SIP is not set.")
}
