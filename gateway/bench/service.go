package bench

import (
	"context"

	"voxgate/gateway/bench/harness"
	"voxgate/gateway/bench/peer"
)

// The commands that make `gateway bench` one of its own children.
const (
	echoCommand     = "echo-server"
	codecsFlag      = "codecs"   // makes the echo server decode what comes and encode what it sends, as the gateway does
	profiledCommand = "profiled" // FILE: serves, and writes a CPU profile when told to
	linkCommand     = "link"     // a bad network between two namespaces, for tests with a browser; it needs root
)

// service is a server whose cost is measured, and whatever it needs.
type service struct {
	*harness.Process
	emulator *harness.Process // what a gateway talks to; may be nil
	echo     bool             // it is no gateway, but the echo server
	profiled bool             // it writes a CPU profile when told to
}

// stop ends the server before what it talks to.
func (s *service) stop() {
	s.Stop()
	if s.emulator != nil {
		s.emulator.Stop()
	}
}

// call calls the server.
func (s *service) call(ctx context.Context, o peer.Options) (*peer.Peer, error) {
	if s.echo {
		return peer.CallEcho(ctx, s.URL, o)
	}
	return peer.Call(ctx, s.URL, o)
}

// startGateway starts a gateway with an emulator behind it. It writes a CPU profile into a file if one is named.
func startGateway(ctx context.Context, persona, profile string) (*service, error) {
	emulator, err := harness.StartEmulator(ctx, "-persona", persona)
	if err != nil {
		return nil, err
	}
	args := []string{"serve"}
	if profile != "" {
		args = []string{"bench", profiledCommand, profile}
	}
	gateway, err := harness.StartGateway(ctx, "", emulator.URL, args...)
	if err != nil {
		emulator.Stop()
		return nil, err
	}
	return &service{Process: gateway, emulator: emulator, profiled: profile != ""}, nil
}

// startEcho starts the echo server.
func startEcho(ctx context.Context, args ...string) (*service, error) {
	echo, err := harness.Start(ctx, "", nil, append([]string{"bench", echoCommand}, args...)...)
	if err != nil {
		return nil, err
	}
	return &service{Process: echo, echo: true}, nil
}
