package testkit

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// NewResolver returns a resolver that knows only these records, in the format of zone files.
func NewResolver(t testing.TB, records ...string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, asked *dns.Msg) {
		answer := new(dns.Msg).SetReply(asked)
		for _, text := range records {
			record, err := dns.NewRR(text)
			if err != nil {
				t.Error(err)
			} else if h := record.Header(); strings.EqualFold(h.Name, asked.Question[0].Name) && h.Rrtype == asked.Question[0].Qtype {
				answer.Answer = append(answer.Answer, record)
			}
		}
		if len(answer.Answer) == 0 {
			answer.Rcode = dns.RcodeNameError
		}
		_ = w.WriteMsg(answer)
	})}
	started := make(chan struct{})
	server.NotifyStartedFunc = func() { close(started) }
	ended := make(chan error, 1)
	go func() { ended <- server.ActivateAndServe() }()
	<-started
	t.Cleanup(func() {
		_ = server.Shutdown()
		<-ended
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}
