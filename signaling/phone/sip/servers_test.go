package sip_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"voxgate/signaling/phone/sip"
)

// newTestResolver returns a resolver that knows only these records, in the format of zone files.
func newTestResolver(t *testing.T, records ...string) *net.Resolver {
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

// A trunk with only SRV records is called by them, in order. The next server is used if one is unreachable, silent or overloaded. A server
// that answers after another one has gets a BYE.
func TestTrunkServerFailover(t *testing.T) {
	t.Parallel()
	first, o := startCarrier(t, nil, map[string]any{"server": "sip:carrier.test"})
	busy, last := newCallerPhone(t, o, "127.0.0.1"), newCallerPhone(t, o, "127.0.0.1")
	record := func(priority int, h *handset, name string) string {
		port := h.signals.LocalAddr().(*net.UDPAddr).Port
		return fmt.Sprintf("_sip._udp.carrier.test. 60 IN SRV %d 10 %d %s.carrier.test.", priority, port, name)
	}
	o.server.SetResolver(newTestResolver(t, record(30, last, "a"), record(5, last, "gone"), record(20, busy, "a"), record(10, first, "a"),
		"a.carrier.test. 60 IN A 127.0.0.1"))
	called := make(chan error, 1)
	go func() {
		_, err := o.server.Call(context.Background(), "app", sip.Dial{To: "+49302", Trunk: "lab", Agent: talker})
		called <- err
	}()
	late := first.awaitRequest("INVITE sip:\\+49302@carrier.test")
	invite := busy.awaitRequest("INVITE")
	busy.respond(invite, "503 Service Unavailable", "b")
	busy.awaitRequest("ACK")
	invite = last.awaitRequest("INVITE")
	last.respond(invite, "180 Ringing", "c")
	if err := <-called; err != nil {
		t.Fatal(err)
	}
	last.respond(invite, "200 OK", "c")
	last.awaitRequest("ACK")
	first.respond(late, "200 OK", "a")
	first.awaitRequest("ACK")
	first.respond(first.awaitRequest("BYE"), "200 OK", "a")
	last.hangUp(invite, "c")
}

// If external is a name, signalling carries the name, and media its address.
func TestExternalHostName(t *testing.T) {
	t.Parallel()
	o := startGateway(t, configWith(t, func(c map[string]any) { c["external"] = "localhost" }))
	h := newCallerPhone(t, o, "127.0.0.1")
	_, accepted := h.sendInvite(1, "")
	contact := fmt.Sprintf("Contact: <sip:voxgate@localhost:%d>", o.server.Addresses()[0].Port())
	if !strings.Contains(accepted, contact) || !strings.Contains(accepted, "c=IN IP4 127.0.0.1\r\n") {
		t.Errorf("without %s or the address: %s", contact, accepted)
	}
	found, lost := newTestResolver(t, "gateway.test. 60 IN AAAA ::1", "gateway.test. 60 IN A 127.0.0.2"), newTestResolver(t)
	moved := newTestResolver(t, "gateway.test. 60 IN A 127.0.0.3")
	if list, err := sip.OwnAddresses("gateway.test", found, lost, moved); err != nil || fmt.Sprint(list) != "[127.0.0.2 127.0.0.2 127.0.0.3]" {
		t.Errorf("%v %v", list, err)
	}
	if _, err := sip.OwnAddresses("gateway.test", lost); err == nil {
		t.Error("a name without an address is taken")
	}
}

// If none of a trunk's servers can be reached, the error says so.
func TestAllTrunkServersUnreachable(t *testing.T) {
	t.Parallel()
	_, o := startCarrier(t, nil, map[string]any{"server": "sip:carrier.test;transport=tcp"})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	o.server.SetResolver(newTestResolver(t, "a.carrier.test. 60 IN A 127.0.0.1",
		fmt.Sprintf("_sip._tcp.carrier.test. 60 IN SRV 1 1 %d a.carrier.test.", closed.Addr().(*net.TCPAddr).Port)))
	dial := sip.Dial{To: "+49302", Trunk: "lab", Agent: talker}
	if _, err := o.server.Call(t.Context(), "app", dial); err == nil || !strings.Contains(err.Error(), "the server does not answer") {
		t.Errorf("%v", err)
	}
	o.server.SetResolver(newTestResolver(t))
	var unknown *net.DNSError
	if _, err := o.server.Call(t.Context(), "app", dial); !errors.As(err, &unknown) {
		t.Errorf("a name without records: %v", err)
	}
}
