package openai

import "voxgate/signaling"

// Protocol declares OpenAI's Realtime API to the program.
func Protocol() signaling.Protocol {
	return signaling.Protocol{Name: protocolName, Open: func(e *signaling.Environment) ([]signaling.Endpoint, func(), error) {
		s := Server{Host: e.Host, Agents: e.Agents, RTC: e.RTC, OpusDecoder: e.OpusDecoder, Secrets: e.Secrets, Logger: e.Logger}
		return s.Endpoints(), nil, nil
	}}
}
