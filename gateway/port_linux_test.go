package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// The system chooses a port that is free for TCP. If its number is in use for UDP, the gateway chooses another port.
func TestChosenPortIsFreeForUDPToo(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may make a network whose ports are few")
	}
	runtime.LockOSThread() // never unlocked: the thread, with its network namespace, ends with the test
	if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
		t.Skip(err)
	}
	// Linux chooses from the lower half of the range first: 2 of 16 numbers are taken, so ten tries hardly ever fail.
	const first, last = 40000, 40031
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", fmt.Appendf(nil, "%d %d", first, last), 0); err != nil {
		t.Skip(err)
	}
	for port := first; port < first+2; port++ {
		taken, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
	}
	for range 30 {
		page, webrtc, err := openPorts(settings{addr: ":0"}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if port := page.Addr().(*net.TCPAddr).Port; port < first+2 {
			t.Errorf("port %d is somebody else's", port)
		}
		webrtc.Close()
		page.Close()
	}
	_, _, err := openPorts(settings{addr: fmt.Sprintf(":%d", first)}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "listen for WebRTC") {
		t.Errorf("a port that was asked for: %v", err)
	}
}
