package sip

import (
	"context"
	"slices"

	"voxgate/signaling/phone/sip/ua"
)

// UDPConnections returns the number of UDP addresses for which sipgo stores a connection.
func (s *Server) UDPConnections() int { return s.phones.Connections("udp") }

// TCPConnections is [Server.UDPConnections] for TCP.
func (s *Server) TCPConnections() int { return s.phones.Connections("tcp") }

// RefreshSession refreshes the session timer of the only call now. done is closed when that is over.
func (s *Server) RefreshSession() (done <-chan struct{}) { return s.calls.all()[0].RefreshNow() }

// Transfer transfers the only call.
func (s *Server) Transfer(target string) <-chan error {
	result := make(chan error, 1)
	for _, c := range s.calls.all() {
		go func() { result <- c.transferCall(context.Background(), target, "") }()
	}
	return result
}

// EndCalls gives all calls a reason to end.
func (s *Server) EndCalls(reason error) {
	for _, c := range s.calls.all() {
		c.End(reason)
	}
}

// EndUnanswered ends the call to a number as if it had rung for too long.
func (s *Server) EndUnanswered(number string) {
	for _, c := range s.calls.all() {
		if c.isTo(number) {
			c.End(ua.ErrNoAnswer)
		}
	}
}

// HasCall reports whether there is a call to a number.
func (s *Server) HasCall(number string) bool {
	return slices.ContainsFunc(s.calls.all(), func(c *call) bool { return c.isTo(number) })
}

func (c *call) isTo(number string) bool {
	return c.party.IsOutbound && string(c.party.Number) == number
}

// HangUp ends the only call.
func (s *Server) HangUp() {
	for _, c := range s.calls.all() {
		c.End(errByBackend)
	}
}
