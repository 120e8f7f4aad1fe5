package mediatest

import (
	"net"
	"testing"
	"time"
)

func socket(t *testing.T) net.PacketConn {
	t.Helper()
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestSocket(t *testing.T) {
	far := socket(t)
	c := NewSocket(socket(t), 1)
	defer c.Close()
	say := func(from, to net.PacketConn, text string) net.Addr {
		t.Helper()
		if _, err := from.WriteTo([]byte(text), to.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 100)
		if err := to.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, addr, err := to.ReadFrom(buf)
		if err != nil || string(buf[:n]) != text {
			t.Fatalf("%q, %v; want %q", buf[:n], err, text)
		}
		return addr
	}
	if from := say(c, far, "up"); from.String() != c.LocalAddr().String() {
		t.Errorf("from %v, want %v", from, c.LocalAddr())
	}
	say(far, c, "down")
	c.SetImpairments(Impairment{Delay: 100 * time.Millisecond}, Impairment{})
	began := time.Now()
	say(c, far, "late")
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("a delay of %v, want 100 ms", took)
	}
	c.SetImpairments(Impairment{}, Impairment{})

	c.SetImpairments(Impairment{Down: true}, Impairment{})
	if _, err := c.WriteTo([]byte("lost"), far.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	c.SetImpairments(Impairment{}, Impairment{})
	say(c, far, "next") // only this packet arrives, not those that were lost before
}
