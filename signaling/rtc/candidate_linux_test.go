package rtc

import (
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/stun/v4"
	"github.com/pion/webrtc/v4"
	"golang.org/x/sys/unix"
)

// Addresses of the machine that inNamespace emulates: a public one, an internal one and those of its cloud.
const public4, public6, inner4, inner6 = "198.51.100.1", "2001:db8::1", "10.77.0.1", "fd77::1"

// peer4 and peer6 are the addresses of a client.
const peer4, peer6 = "192.0.2.1", "2001:db8::9"

// openInNamespace opens the sockets of a test on a machine with these addresses: open listens in its own network
// namespace.
func openInNamespace(t *testing.T, open func()) {
	t.Helper()
	impossible := make(chan error)
	go func() {
		defer close(impossible)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the namespace with its last socket
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			impossible <- err
			return
		}
		commands := []string{"link set lo up"}
		for _, a := range []string{public4, inner4, "169.254.169.254", "100.100.100.200", peer4} {
			commands = append(commands, "addr add "+a+"/32 dev lo")
		}
		for _, a := range []string{public6, inner6, "fe80::7", "fd00:ec2::254", peer6} {
			commands = append(commands, "addr add "+a+"/128 dev lo nodad") // else it may be tentative when a socket is opened
		}
		commands = append(commands, "route add 224.0.0.0/4 dev lo")
		for _, c := range commands {
			if out, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput(); err != nil {
				impossible <- fmt.Errorf("ip %s: %w: %s", c, err, out)
				return
			}
		}
		open()
	}()
	if err := <-impossible; err != nil {
		t.Skipf("no namespace: %v", err)
	}
	if t.Failed() { // in open, which ran in another goroutine
		t.FailNow()
	}
}

// trap is a socket at the address of a candidate.
type trap struct {
	name string
	conn *net.UDPConn
	port int
}

func (t *trap) receivedWithin(patience time.Duration) bool {
	t.conn.SetReadDeadline(time.Now().Add(patience))
	_, _, err := t.conn.ReadFrom(make([]byte, 1500))
	return err == nil
}

// TestOnlyPublicCandidatesAreTried: nothing is sent to candidates with addresses of the gateway's own machine, its
// link or its cloud; the client connects by its good candidate.
func TestOnlyPublicCandidatesAreTried(t *testing.T) {
	var api *API
	var conn *net.UDPConn
	var traps []*trap
	openInNamespace(t, func() {
		var err error
		api, err = New(Options{UDPAddr: public4 + ":0", Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
		conn, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP("192.0.2.1")})
		must(t, err)
		for _, name := range []string{
			"127.0.0.1", "127.8.8.8", "::ffff:127.0.0.1", "169.254.169.254", "::ffff:169.254.169.254", "0.0.0.0", "224.0.0.1", "255.255.255.255",
			"100.100.100.200",
			inner4,
		} {
			c, err := net.ListenUDP("udp", nil)
			must(t, err)
			traps = append(traps, &trap{name, c, c.LocalAddr().(*net.UDPAddr).Port})
		}
	})
	t.Cleanup(func() { must(t, api.Close()) })
	mux := ice.NewUDPMuxDefault(ice.UDPMuxParams{UDPConn: conn})
	t.Cleanup(func() { mux.Close() })
	phone := newClientWith(t, func(s *webrtc.SettingEngine) { s.SetICEUDPMux(mux) }, offerOpus, offerOpus)
	offer := phone.offer()
	var lines strings.Builder
	for i, e := range traps {
		defer e.conn.Close()
		fmt.Fprintf(&lines, "a=candidate:%d 1 udp %d %s %d typ host\r\n", i+10, 2130706431-i, e.name, e.port)
	}
	offer = strings.Replace(offer, "a=candidate:", lines.String()+"a=candidate:", 1)
	_, answer, connected := answerWith(t, api, &conversation{}, offer)
	good := traps[len(traps)-1]
	if !good.receivedWithin(10 * time.Second) { // before the phone connects: after that no more candidates are tried
		t.Errorf("nothing was sent to %s", good.name) // otherwise the rest proves nothing
	}
	phone.setAnswer(answer)
	<-connected
	for _, e := range traps[:len(traps)-1] {
		if e.receivedWithin(100 * time.Millisecond) {
			t.Errorf("a packet was sent to %s", e.name)
		}
	}
}

// TestReplySourceAddress sends UDP requests to each address of a gateway that listens on all
// addresses of its machine: each answer comes from the requested address.
func TestReplySourceAddress(t *testing.T) {
	addresses := []string{public4, inner4, public6, inner6}
	var api *API
	var conns []*net.UDPConn
	openInNamespace(t, func() {
		var err error
		api, err = New(Options{UDPAddr: ":0", Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
		for _, address := range addresses { // from elsewhere; otherwise the kernel would prefer the requested address
			at := peer4
			if strings.Contains(address, ":") {
				at = peer6
			}
			conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(at)})
			must(t, err)
			conns = append(conns, conn)
		}
	})
	t.Cleanup(func() { must(t, api.Close()) })
	phone := newClient(t, offerOpus, offerOpus)
	p, answer, _ := answerWith(t, api, &conversation{}, phone.offer())
	for i, address := range addresses {
		defer conns[i].Close()
		var port int
		for line := range strings.Lines(answer) {
			if fields := strings.Fields(line); strings.HasPrefix(line, "a=candidate:") && net.ParseIP(fields[4]).Equal(net.ParseIP(address)) {
				_, err := fmt.Sscan(fields[5], &port)
				must(t, err)
			}
		}
		if port == 0 {
			t.Errorf("%s is no candidate:\n%s", address, answer)
			continue
		}
		local, err := p.pc.GetSenders()[0].Transport().ICETransport().GetLocalParameters()
		must(t, err)
		check, err := stun.Build(stun.BindingRequest, stun.TransactionID, stun.NewUsername(local.UsernameFragment+":"+p.offer.transport.ufrag),
			ice.AttrControlling(1), ice.PriorityAttr(1), stun.NewShortTermIntegrity(local.Password), stun.Fingerprint)
		must(t, err)
		var from *net.UDPAddr
		for range 20 { // a STUN client sends again what has no answer (RFC 8489, section 6.2.1)
			_, err = conns[i].WriteToUDP(check.Raw, &net.UDPAddr{IP: net.ParseIP(address), Port: port})
			must(t, err)
			must(t, conns[i].SetReadDeadline(time.Now().Add(500*time.Millisecond)))
			var answered bool
			if answered, from, err = readAnswer(conns[i], check.TransactionID); answered {
				break
			}
		}
		if err != nil || !from.IP.Equal(net.ParseIP(address)) || from.Port != port {
			t.Errorf("asked at %s, answered from %v (%v)", address, from, err)
		}
	}
}

// readAnswer reads packets until one answers the request. The gateway's own requests are skipped: from each of its
// addresses it checks where the request came from.
func readAnswer(conn *net.UDPConn, request [stun.TransactionIDSize]byte) (answered bool, from *net.UDPAddr, err error) {
	for {
		packet := make([]byte, 1500)
		n, from, err := conn.ReadFromUDP(packet)
		if err != nil {
			return false, nil, err
		}
		answer := stun.Message{Raw: packet[:n]}
		if answer.Decode() == nil && answer.Type == stun.BindingSuccess && answer.TransactionID == request {
			return true, from, nil
		}
	}
}
