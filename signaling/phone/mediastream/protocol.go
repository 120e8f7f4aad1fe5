package mediastream

import (
	"flag"
	"fmt"

	"voxgate/agents"
	"voxgate/signaling"
)

// Protocol describes the WebSocket streams of telephony providers to the program.
func Protocol() signaling.Protocol {
	var file string // path of the configuration file; "" means no providers
	return signaling.Protocol{
		Name: protocolName,
		AddFlags: func(f *flag.FlagSet) {
			f.StringVar(&file, "telephony", "",
				"JSON `file` of telephony providers and of the agents that answer their calls (docs/telephony.md); empty: none")
		},
		Check: func(folder *agents.Folder, check func(string, string, func() error)) {
			check("telephony", file, func() error {
				c, err := LoadConfig(file)
				if err != nil {
					return err
				}
				if err := c.CheckAgents(folder); err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
				return nil
			})
		},
		Open: func(e *signaling.Environment) ([]signaling.Endpoint, func(), error) {
			s, err := New(file, Options{Host: e.Host, Agents: e.Agents, Gate: e.Gate, OnRefused: e.OnRefused, Logger: e.Logger})
			if err != nil {
				return nil, nil, fmt.Errorf("telephony: %w", err)
			}
			return s.Endpoints(), s.Close, nil
		},
	}
}
