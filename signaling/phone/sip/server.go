// Package sip serves phone calls by SIP (RFC 3261), with audio by RTP. It accepts and makes calls only through trunks and phone systems
// that the operator has configured. Package ua implements the signalling, and package media the audio. This package connects them to
// conversations, transfers and answering-machine detection.
//
// A caller can talk to the model only after the call's trunk is identified. The conversation begins when the caller's phone has
// acknowledged our answer or, with early media, before the answer.
package sip

import (
	"cmp"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"voxgate/agents"
	"voxgate/bridge"
	sipmedia "voxgate/signaling/phone/sip/media"
	"voxgate/signaling/phone/sip/ua"
	"voxgate/signaling/rtc"
	"voxgate/tools/webhook"
)

// Server is the SIP endpoint. [New] makes it.
type Server struct {
	host      *bridge.Host
	account   func(trunk string, calls int) bridge.Account
	config    *Config
	agents    *agents.Folder
	log       *slog.Logger
	endpoint  *webhook.Endpoint // the webhook for incoming calls; may be nil
	ports     *sipmedia.PortPool
	resolver  *net.Resolver
	onQuality func(rtc.Quality) // may be nil
	phones    *ua.UserAgent
	registry  callRegistry // outgoing calls
	calls     callTable
	running   sync.WaitGroup // outgoing calls
	timeout   time.Duration
}

// Options configure a Server.
type Options struct {
	Config *Config
	Agents *agents.Folder
	Host   *bridge.Host
	// Account returns the account to which conversations of a trunk are charged; calls is the trunk's limit on
	// concurrent calls. Account may be nil.
	Account func(trunk string, calls int) bridge.Account
	// OnQuality receives the quality of each ended stream, incoming and outgoing. It may be nil.
	OnQuality func(rtc.Quality)
	// Resolver finds the addresses of trunks and hosts. If it is nil, the system's resolver is used.
	Resolver *net.Resolver
	// Timeout limits how long a response is repeated until it is acknowledged, and how long a cancelled outgoing call may take to end.
	// The default is 32 s.
	Timeout time.Duration
	// OnRefused counts refused calls and packets by rule, such as "sip no agent". It may be nil.
	OnRefused func(rule string)
	// OnStatus is called on each status change of an outgoing call. It may be nil, and must not block.
	OnStatus func(CallStatus)
	Logger   *slog.Logger
}

// New listens at the configured addresses and answers calls. Shut down the host before you close the Server.
func New(o Options) (*Server, error) {
	ports, err := sipmedia.NewPortPool(o.Config.RTP)
	if err == nil {
		err = o.Config.CheckFiles(o.Agents)
	}
	if err != nil {
		return nil, err
	}
	s := &Server{
		host: o.Host, account: o.Account, config: o.Config, agents: o.Agents, log: o.Logger.With("door", protocolName),
		ports: ports, resolver: cmp.Or(o.Resolver, net.DefaultResolver), onQuality: o.OnQuality,
		registry: callRegistry{onStatus: o.OnStatus}, calls: callTable{list: map[*ua.Call]*call{}},
		timeout: cmp.Or(o.Timeout, ua.DefaultTimeout),
	}
	if s.account == nil {
		s.account = func(string, int) bridge.Account { return bridge.Unlimited }
	}
	if w := o.Config.Webhook; w != nil {
		if s.endpoint, err = webhook.NewEndpoint(w.URL, w.Secret); err != nil {
			return nil, err
		}
	}
	if len(o.Config.Trunks) > 0 && o.Config.Webhook == nil && len(o.Agents.PhoneAgents(protocolName)) == 0 {
		s.log.Warn("no agent has numbers, so calls from these trunks are not answered")
	}
	s.phones, err = ua.New(ua.Options{
		External: o.Config.External, TLS: o.Config.TLS, Trunks: o.Config.signallingTrunks(), Calls: o.Config.Calls, Resolver: s.resolver,
		Timeout: s.timeout, OnCall: s.serveCall, OnRefused: o.OnRefused, Logger: s.log,
	})
	if err != nil {
		return nil, err
	}
	if err := s.phones.Listen(o.Config.Listen); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Addresses returns the listening addresses, in the order of the configuration.
func (s *Server) Addresses() []netip.AddrPort { return s.phones.Addresses() }

// Close ends the remaining calls, unregisters at the trunks and closes all sockets. It blocks until that is done.
func (s *Server) Close() {
	s.phones.Close(bridge.ErrShutdown)
	s.running.Wait()
	if s.endpoint != nil {
		s.endpoint.Close()
	}
	s.config.Collect.Close()
}

// resolveAgent returns the agent that a backend has chosen, with the backend's values in place of the variables in its
// prompt.
func (s *Server) resolveAgent(c agents.Choice, values map[string]string) (*agents.Agent, error) {
	a, err := s.agents.Resolve(c, protocolName, values)
	if err != nil {
		return nil, err
	}
	if err := s.config.Collect.CheckAgent(a); err != nil {
		return nil, &bridge.Error{Code: bridge.CodeBadMessage, Field: "agent", Message: "agent." + err.Error() + "."}
	}
	return a, nil
}
