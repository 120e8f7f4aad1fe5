package ua

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"voxgate/internal/testkit"
)

// Our address is that of the external name. It is looked up again from time to time, and kept if that fails.
func TestExternalName(t *testing.T) {
	t.Parallel()
	found := testkit.NewResolver(t, "gateway.test. 60 IN AAAA ::1", "gateway.test. 60 IN A 127.0.0.2")
	lost, moved := testkit.NewResolver(t), testkit.NewResolver(t, "gateway.test. 60 IN A 127.0.0.3")
	own, err := newLocalAddr("gateway.test", found, quiet)
	if err != nil {
		t.Fatal(err)
	}
	var list []netip.Addr
	for _, r := range []*net.Resolver{found, lost, moved} {
		own.resolver, own.lookedUpAt = r, time.Time{}
		list = append(list, own.address(netip.IPv4Unspecified()))
	}
	if fmt.Sprint(list) != "[127.0.0.2 127.0.0.2 127.0.0.3]" {
		t.Error(list)
	}
	if _, err := newLocalAddr("gateway.test", lost, quiet); err == nil {
		t.Error("a name without an address is taken")
	}
}
