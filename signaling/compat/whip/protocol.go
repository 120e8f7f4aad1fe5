package whip

import "voxgate/signaling"

// Protocol declares WHIP and WHEP to the program. They are served only if there are agents.
func Protocol() signaling.Protocol {
	return signaling.Protocol{Name: protocolName, Open: func(e *signaling.Environment) ([]signaling.Endpoint, func(), error) {
		if e.Agents == nil {
			return nil, nil, nil
		}
		s := Server{
			Agents: e.Agents, Host: e.Host, RTC: e.RTC, OpusDecoder: e.OpusDecoder, ICEServers: e.ICEServers, Logger: e.Logger,
		}
		return s.Endpoints(), nil, nil
	}}
}
