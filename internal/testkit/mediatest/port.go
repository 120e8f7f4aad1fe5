package mediatest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// FreePort returns a port of 127.0.0.1 that is free for UDP and TCP. The next port is free for TCP. Both are below the
// ephemeral ports (from 32768 on Linux), so that no other program gets them by chance.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 50 {
		port := 10000 + 2*rand.IntN(10000)
		udp, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		udp.Close()
		tcp, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		tcp.Close()
		next, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+1))
		if err == nil {
			next.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}
