package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pion/rtp"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/media/g711"
)

// serveTrunk answers calls by the last digit of the number. 0 to 2 are people, who hang up after the greeting. 3 and 4 are
// answering machines with a beep, 5 and 6 are busy, 7 and 8 ring without an answer, and 9 is unknown.
func serveTrunk(trunk, sound net.PacketConn) {
	sdp := fmt.Sprintf(callSDP, sound.LocalAddr().(*net.UDPAddr).Port)
	var greeted sync.Map // channels of the callees that wait for a greeting, by the RTP port of the gateway
	go func() {
		for b := make([]byte, 1500); ; {
			_, from, err := sound.ReadFrom(b)
			if err != nil {
				return
			}
			if one, ok := greeted.LoadAndDelete(from.(*net.UDPAddr).Port); ok {
				close(one.(chan struct{}))
			}
		}
	}()
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
			bye := fmt.Appendf(nil, "BYE sip:voxgate@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP %s;branch=z9hG4bKbye%s\r\n"+
				"Max-Forwards: 70\r\nFrom: %s\r\nTo: %s\r\n%s\r\nCSeq: 1 BYE\r\nContent-Length: 0\r\n\r\n",
				trunk.LocalAddr(), field("Call-ID"), field("To"), field("From"), id)
			port, _ := strconv.Atoi(regexp.MustCompile(`m=audio (\d+)`).FindStringSubmatch(invites[id])[1])
			says, over := mediatest.SynthesizeSpeech(800*time.Millisecond, 8000), make(chan struct{})
			if called.FindStringSubmatch(request)[1] > "2" {
				says = mediatest.Tone(500*time.Millisecond, 8000, 1000, 8000)
			}
			greeted.Store(port, over)
			go func() {
				speak(sound, port, says, over)
				send(bye)
			}()
		case "CANCEL":
			send(responseTo(trunk, request, "200 OK", ""))
			send(responseTo(trunk, invites[id], "487 Request Terminated", ""))
		case "BYE":
			send(responseTo(trunk, request, "200 OK", ""))
		}
	}
}

// speak sends the audio pcm, and then silence, until the callee is greeted or the test is over.
func speak(sound net.PacketConn, port int, pcm []int16, greeted <-chan struct{}) {
	tick := time.NewTicker(media.FrameDuration)
	defer tick.Stop()
	packet := rtp.Packet{Header: rtp.Header{Version: 2, SSRC: 7}}
	for {
		frame := make([]int16, 160)
		pcm = pcm[copy(frame, pcm):]
		packet.Payload = g711.MuLaw.AppendEncoded(nil, frame)
		packet.SequenceNumber++
		packet.Timestamp += 160
		raw, _ := packet.Marshal() // these packets can be encoded
		if _, err := sound.WriteTo(raw, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-greeted:
			return
		}
	}
}

// The campaign of examples/ ends with a table of the results of its calls.
func TestCampaign(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	trunk, sound := listenUDP(t), listenUDP(t)
	go serveTrunk(trunk, sound)
	p, key := startDialler(t, trunk)
	numbers := ""
	for i := range 20 {
		numbers += fmt.Sprintf("+493020%02d\n", i)
	}
	script := exec.CommandContext(t.Context(), "python3", filepath.Join("..", "examples", "campaign", "campaign.py"),
		p.url, "line", writeTempFile(t, numbers), "1", "Remind them of the concert.")
	script.Env = append(os.Environ(), "VOXGATE_KEY="+key)
	table, err := script.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, table)
	}
	lines := strings.Split(strings.TrimSpace(string(table)), "\n")
	for i, line := range lines {
		want, by := "ended", "person"
		switch i % 10 {
		case 3, 4:
			by = "machine"
		case 5, 6:
			want = "busy"
		case 7, 8:
			want = "no-answer"
		case 9:
			want = "failed"
		}
		if want != "ended" {
			by = ""
		}
		if fields := regexp.MustCompile(` +`).Split(line, 4); !strings.HasPrefix(line, fmt.Sprintf("+493020%02d ", i)) || len(fields) < 3 ||
			fields[1] != want || by != "" && fields[2] != by {
			t.Errorf("%q, want %s %s", line, want, by)
		}
	}
	if len(lines) != 20 || t.Failed() {
		t.Errorf("the table is\n%s", table)
	}
}
