package backend

import "voxgate/signaling"

// Protocol declares the operator's API to the program.
func Protocol() signaling.Protocol {
	return signaling.Protocol{Name: "sideband", Open: func(e *signaling.Environment) ([]signaling.Endpoint, func(), error) {
		s := Server{Host: e.Host, Logger: e.Logger}
		return s.Endpoints(), nil, nil
	}}
}
