package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// carrier answers calls by the last digit of the number: 0 to 4 take it and hang up, 5 and 6 are busy, 7 and 8 ring on, and 9 is unknown.
func carrier(trunk net.PacketConn, port int) {
	sdp := fmt.Sprintf(callSDP, port)
	called := regexp.MustCompile(`To: <sip:\+493020\d(\d)@`)
	invites := map[string]string{} // by Call-ID
	for b := make([]byte, 65535); ; {
		n, from, err := trunk.ReadFrom(b)
		if err != nil {
			return // the test is over
		}
		send := func(packet []byte) { _, _ = trunk.WriteTo(packet, from) }
		request := string(b[:n])
		id := regexp.MustCompile(`Call-ID: \S+`).FindString(request)
		method, _, _ := strings.Cut(request, " ")
		switch method {
		case "INVITE":
			invites[id] = request
			switch digit := called.FindStringSubmatch(request)[1]; {
			case digit <= "4":
				send(responseTo(trunk, request, "180 Ringing", ""))
				send(responseTo(trunk, request, "200 OK", sdp))
			case digit <= "6":
				send(responseTo(trunk, request, "486 Busy Here", ""))
			case digit <= "8":
				send(responseTo(trunk, request, "180 Ringing", ""))
			default:
				send(responseTo(trunk, request, "404 Not Found", ""))
			}
		case "ACK":
			if digit := called.FindStringSubmatch(request); digit == nil || digit[1] > "4" {
				continue
			}
			field := func(name string) string {
				return regexp.MustCompile(name + `: ([^\r]*)`).FindStringSubmatch(request)[1]
			}
			send(fmt.Appendf(nil, "BYE sip:voxgate@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP %s;branch=z9hG4bKbye%s\r\n"+
				"Max-Forwards: 70\r\nFrom: %s\r\nTo: %s\r\n%s\r\nCSeq: 1 BYE\r\nContent-Length: 0\r\n\r\n", trunk.LocalAddr(), field("Call-ID"), field("To"), field("From"), id))
		case "CANCEL":
			send(responseTo(trunk, request, "200 OK", ""))
			send(responseTo(trunk, invites[id], "487 Request Terminated", ""))
		case "BYE":
			send(responseTo(trunk, request, "200 OK", ""))
		}
	}
}

// The campaign of examples/ ends with a table of what became of its calls.
func TestCampaign(t *testing.T) {
	trunk, sound := listenUDP(t), listenUDP(t)
	go carrier(trunk, sound.LocalAddr().(*net.UDPAddr).Port)
	p, key := startDialler(t, trunk)
	numbers := ""
	for i := range 20 {
		numbers += fmt.Sprintf("+493020%02d\n", i)
	}
	script := exec.CommandContext(t.Context(), "python3", filepath.Join("..", "examples", "campaign", "campaign.py"),
		p.url, "line", written(t, numbers), "1", "Remind them of the concert.")
	script.Env = append(os.Environ(), "VOXGATE_KEY="+key)
	table, err := script.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, table)
	}
	lines := strings.Split(strings.TrimSpace(string(table)), "\n")
	for i, line := range lines {
		want := "ended"
		switch i % 10 {
		case 5, 6:
			want = "busy"
		case 7, 8:
			want = "no-answer"
		case 9:
			want = "failed"
		}
		if !strings.HasPrefix(line, fmt.Sprintf("+493020%02d ", i)) || !strings.Contains(line, " "+want+" ") {
			t.Errorf("%s, want %s", line, want)
		}
	}
	if len(lines) != 20 || t.Failed() {
		t.Errorf("the table is\n%s", table)
	}
}
