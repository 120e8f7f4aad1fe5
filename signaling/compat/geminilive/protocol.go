package geminilive

import "voxgate/signaling"

// Protocol declares Google's Live API to the program.
func Protocol() signaling.Protocol {
	return signaling.Protocol{Name: protocolName, Open: func(e *signaling.Environment) ([]signaling.Endpoint, func(), error) {
		s := Server{Host: e.Host, Agents: e.Agents, Secrets: e.Secrets, Logger: e.Logger}
		return s.Endpoints(), nil, nil
	}}
}
