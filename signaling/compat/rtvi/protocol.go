package rtvi

import "voxgate/signaling"

// Protocol declares Pipecat's protocol to the program.
func Protocol() signaling.Protocol {
	return signaling.Protocol{Name: protocolName, Open: func(e *signaling.Environment) ([]signaling.Endpoint, func(), error) {
		s := Server{Host: e.Host, RTC: e.RTC, OpusDecoder: e.OpusDecoder, ICEServers: e.ICEServers, Logger: e.Logger}
		return s.Endpoints(), nil, nil
	}}
}
