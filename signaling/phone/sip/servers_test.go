package sip_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"voxgate/internal/testkit"
	"voxgate/signaling/phone/sip"
)

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
	o.setResolver(testkit.NewResolver(t, record(30, last, "a"), record(5, last, "gone"), record(20, busy, "a"), record(10, first, "a"),
		"a.carrier.test. 60 IN A 127.0.0.1"))
	called := make(chan error, 1)
	go func() {
		_, err := o.server.CallUntilRinging(context.Background(), "app", sip.Dial{To: "+49302", Trunk: "lab", Agent: talker})
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
	o.setResolver(testkit.NewResolver(t, "a.carrier.test. 60 IN A 127.0.0.1",
		fmt.Sprintf("_sip._tcp.carrier.test. 60 IN SRV 1 1 %d a.carrier.test.", closed.Addr().(*net.TCPAddr).Port)))
	dial := sip.Dial{To: "+49302", Trunk: "lab", Agent: talker}
	_, err = o.server.CallUntilRinging(t.Context(), "app", dial)
	if err == nil || !strings.Contains(err.Error(), "the server does not answer") {
		t.Errorf("%v", err)
	}
	o.setResolver(testkit.NewResolver(t))
	var unknown *net.DNSError
	if _, err := o.server.CallUntilRinging(t.Context(), "app", dial); !errors.As(err, &unknown) {
		t.Errorf("a name without records: %v", err)
	}
}
