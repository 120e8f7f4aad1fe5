package main

import (
	"bufio"
	"cmp"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"

	"voxgate/internal/testkit"
	"voxgate/internal/testkit/mediatest"
	"voxgate/internal/testkit/rtctest"
	"voxgate/media"
	"voxgate/media/g711"
	"voxgate/media/opus"
)

// beep is the tone that the model of these tests plays, in Hz, and spoken the tone that callers send to it.
const beep, spoken = 880, 440

// voiceReceiver waits for the model's beep in the received audio.
type voiceReceiver struct {
	t     *testing.T
	heard chan struct{}
	pcm   []int16
	rate  int

	mu   sync.Mutex
	ends []func() // functions that end the call
}

// hangUp ends the call. Otherwise the gateway would reconnect to the model, which plays no second beep.
func (v *voiceReceiver) hangUp() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, end := range v.ends {
		end()
	}
}

// without returns the results of a call without RTP: the endpoint's answer, and a receiver that only ends the call.
func without(c *testkit.Client, said string) (string, *voiceReceiver) {
	return said, &voiceReceiver{ends: []func(){func() { c.Conn.Close() }}}
}

func newVoiceReceiver(t *testing.T, rate int) *voiceReceiver {
	return &voiceReceiver{t: t, heard: make(chan struct{}), rate: rate}
}

// listen decodes the packets that next returns, until next fails.
func (v *voiceReceiver) listen(decoder media.Decoder, err error, next func() (*rtp.Packet, error)) {
	if err != nil {
		v.t.Error(err)
		return
	}
	frame := make([]int16, media.Samples(media.MaxPacketDuration, v.rate))
	for found := false; ; {
		packet, err := next()
		if err != nil {
			return
		}
		n, err := decoder.Decode(packet.Payload, frame)
		if err != nil || found {
			continue
		}
		v.pcm = append(v.pcm, frame[:n]...)
		newest := v.pcm[max(0, len(v.pcm)-v.rate/5):]
		if found = media.RMS(newest) > 1000 && mediatest.ToneLevel(newest, v.rate, beep) > 0.5; found {
			close(v.heard)
		}
	}
}

// track receives a voice over WebRTC until the track ends.
func (v *voiceReceiver) track(track *webrtc.TrackRemote) {
	decoder, err := opus.NewDecoder(v.rate, "libopus")
	v.listen(decoder, err, func() (*rtp.Packet, error) {
		p, _, err := track.ReadRTP()
		return p, err
	})
}

// says sends a tone in packets of 20 ms, until stop is called or the test ends. If err is not nil, it fails the test.
func says(t *testing.T, encoder media.Encoder, err error, rate int, send func(packet []byte)) (stop func()) {
	if err != nil {
		t.Error(err)
		return func() {}
	}
	ended, running := make(chan struct{}), sync.WaitGroup{}
	stop = sync.OnceFunc(func() { close(ended); running.Wait() })
	t.Cleanup(stop)
	running.Go(func() {
		tone, packet := mediatest.Tone(time.Second, rate, spoken, 16000), make([]byte, media.MaxPacketBytes)
		n := media.Samples(media.FrameDuration, rate)
		tick := time.NewTicker(media.FrameDuration)
		defer tick.Stop()
		for at := 0; ; at = (at + n) % len(tone) {
			select {
			case <-tick.C:
			case <-ended:
				return
			}
			if size, err := encoder.Encode(tone[at:at+n], packet); err == nil {
				send(packet[:size])
			}
		}
	})
	return stop
}

// callByWebRTC calls over WebRTC. The function send sends the offer and returns the answer of the endpoint, which contains
// an SDP answer or an error. back receives the model's voice.
func (p *program) callByWebRTC(send func(offer string) (answer string)) (answer string, back *voiceReceiver) {
	p.t.Helper()
	back = newVoiceReceiver(p.t, 24000)
	caller, err := rtctest.New(rtctest.Options{Track: back.track})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(caller.Close)
	offer, err := caller.Offer(p.t.Context(), false)
	if err != nil {
		p.t.Fatal(err)
	}
	answer = send(offer)
	sdp := answer
	if _, within, ok := strings.Cut(answer, `"sdp":`); ok {
		_ = json.NewDecoder(strings.NewReader(within)).Decode(&sdp)
	}
	if !strings.HasPrefix(sdp, "v=0") {
		return answer, back
	}
	if err := caller.SetAnswer(sdp); err != nil {
		p.t.Fatal(err)
	}
	encoder, err := opus.NewEncoder(48000)
	back.ends = append(back.ends, says(p.t, encoder, err, 48000, func(packet []byte) { _ = caller.Speak(packet) }), caller.Close)
	return answer, back
}

// line sends and receives the audio of a telephone: G.711 over RTP.
type line struct {
	conn net.PacketConn
	port int
	back *voiceReceiver
}

func newLine(t *testing.T) *line {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{conn, conn.LocalAddr().(*net.UDPAddr).Port, newVoiceReceiver(t, 8000)}
	var running sync.WaitGroup
	t.Cleanup(func() { conn.Close(); running.Wait() })
	running.Go(func() {
		decoder, err := g711.MuLaw.NewDecoder(8000)
		buf := make([]byte, 2000)
		l.back.listen(decoder, err, func() (*rtp.Packet, error) {
			n, _, err := conn.ReadFrom(buf)
			p := &rtp.Packet{}
			if err == nil {
				err = p.Unmarshal(buf[:n])
			}
			return p, err
		})
	})
	return l
}

// talk starts to send a tone to the address in an SDP, and returns. The receiver's hangUp calls bye, which ends the call, and
// stops the tone.
func (l *line) talk(sdp string, bye func()) {
	to := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}
	_, port, _ := strings.Cut(sdp, "m=audio ")
	if _, err := fmt.Sscanf(port, "%d", &to.Port); err != nil {
		l.back.t.Errorf("%v in %s", err, sdp)
		return
	}
	encoder, err := g711.MuLaw.NewEncoder(8000)
	p := rtp.Packet{Header: rtp.Header{Version: 2, SSRC: 7}}
	l.back.mu.Lock() // held until ends is complete: the answer may be heard at once
	defer l.back.mu.Unlock()
	l.back.ends = append(l.back.ends, bye, says(l.back.t, encoder, err, 8000, func(packet []byte) {
		p.SequenceNumber++
		p.Timestamp += 160
		p.Payload = packet
		if raw, err := p.Marshal(); err == nil {
			_, _ = l.conn.WriteTo(raw, to)
		}
	}))
}

// twilioAt is the public URL in the signatures of Twilio's requests, and twilioSecret the key of these signatures.
const twilioAt, twilioSecret = "https://voice.example.org", "twilio's"

// callAsTwilio calls a number as Twilio does. It sends a signed report of the call, and then a signed stream of G.711 in
// JSON to the URL in the answer. answer is the answer to the report.
func (p *program) callAsTwilio(number string) (answer string, back *voiceReceiver) {
	p.t.Helper()
	signed := func(at, fields string) string {
		mac := hmac.New(sha1.New, []byte(twilioSecret))
		io.WriteString(mac, at+fields)
		return base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	const report = "/telephony/twilio/answer"
	form := url.Values{"CallSid": {"CA1"}, "From": {"+4917012345"}, "To": {number}}
	r, _ := http.NewRequest(http.MethodPost, p.url+report, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-Twilio-Signature", signed(twilioAt+report, "CallSidCA1From+4917012345To"+number))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	stream := regexp.MustCompile(`wss://voice\.example\.org([^"]+)`).FindStringSubmatch(string(raw))
	if stream == nil {
		return string(raw), &voiceReceiver{}
	}
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(p.url, "http")+stream[1],
		http.Header{"X-Twilio-Signature": {signed(stream[0], "")}})
	if err != nil {
		p.t.Fatal(err)
	}
	back = newVoiceReceiver(p.t, 8000)
	var listening sync.WaitGroup
	p.t.Cleanup(func() { conn.Close(); listening.Wait() })
	listening.Go(func() {
		decoder, err := g711.MuLaw.NewDecoder(8000)
		back.listen(decoder, err, func() (*rtp.Packet, error) {
			for {
				var m struct {
					Event string
					Media struct{ Payload []byte }
				}
				if err := conn.ReadJSON(&m); err != nil || m.Event == "media" {
					return &rtp.Packet{Payload: m.Media.Payload}, err
				}
			}
		})
	})
	err = cmp.Or(conn.WriteMessage(websocket.TextMessage, []byte(`{"event":"connected","protocol":"Call","version":"1.0.0"}`)),
		conn.WriteMessage(websocket.TextMessage, []byte(`{"event":"start","sequenceNumber":"1","streamSid":"MZ1","start":{"accountSid":"AC1",`+
			`"streamSid":"MZ1","callSid":"CA1","tracks":["inbound"],"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000,"channels":1}}}`)))
	if err != nil {
		p.t.Fatal(err)
	}
	encoder, err := g711.MuLaw.NewEncoder(8000)
	n := 0
	stop := says(p.t, encoder, err, 8000, func(packet []byte) {
		n++
		_ = conn.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"event":"media","sequenceNumber":"%d","streamSid":"MZ1",`+
			`"media":{"track":"inbound","chunk":"%d","timestamp":"%d","payload":%q}}`, n+1, n, 20*n, base64.StdEncoding.EncodeToString(packet)))
	})
	back.ends = append(back.ends, stop, func() { conn.Close() })
	return "", back
}

// callByTrunk calls a number from the trunk by SIP, with the audio of sound. It reports whether the gateway answered.
func (p *program) callByTrunk(trunk, number string, sound *line) (answered bool) {
	p.t.Helper()
	request := func(method, tag string, cseq int, body string) string {
		return fmt.Sprintf("<send><![CDATA[\n%[1]s sip:[service]@[remote_ip] SIP/2.0\nVia: SIP/2.0/UDP [local_ip]:[local_port];branch=[branch]\n"+
			"From: <sip:ada@[local_ip]>;tag=1\nTo: <sip:[service]@[remote_ip]>%[2]s\nCall-ID: [call_id]\nCSeq: %[3]d %[1]s\n"+
			"Contact: <sip:ada@[local_ip]:[local_port]>\n%[4]s]]></send>\n", method, tag, cseq, body)
	}
	const none = "Content-Length: 0\n\n"
	sdp := fmt.Sprintf("v=0\no=- 1 1 IN IP4 127.0.0.1\ns=-\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio %d RTP/AVP 0\n", sound.port)
	scenario := `<?xml version="1.0" encoding="UTF-8" ?><scenario name="agent">` +
		request("INVITE", "", 1, "Content-Type: application/sdp\nContent-Length: [len]\n\n"+sdp) +
		`<recv response="100" optional="true"/><recv response="180" optional="true"/><recv response="183" optional="true"/>` +
		`<recv response="200"><action>` +
		`<ereg regexp="m=audio [0-9]+" search_in="body" check_it="true" assign_to="1"/><log message="[$1]"/></action></recv>` +
		request("ACK", "[peer_tag_param]", 1, none) + `<recv request="INFO"/>` + request("BYE", "[peer_tag_param]", 2, none) +
		`<recv response="200"/></scenario>`
	answers, log, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	at, id := fmt.Sprintf("127.0.0.1:%d", mediatest.FreePort(p.t)), "a-"+number
	host, port, _ := net.SplitHostPort(at)
	cmd := exec.Command("sipp", "-sf", writeTempFile(p.t, scenario), "-m", "1", "-i", host, "-p", port, "-s", number, "-cid_str", id,
		"-nostdin",
		"-trace_logs", "-log_file", "/dev/fd/3", trunk)
	cmd.ExtraFiles, cmd.Dir = []*os.File{log}, p.t.TempDir()
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	log.Close()
	p.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); answers.Close() })
	answer, err := bufio.NewReader(answers).ReadString('\n')
	if err != nil {
		return false // sipp ends at any answer but 200
	}
	sound.talk(answer, func() { // sipp hangs up at an INFO
		if conn, err := net.Dial("udp", at); err == nil {
			fmt.Fprintf(conn, "INFO sip:ada@%[1]s SIP/2.0\r\nVia: SIP/2.0/UDP %[1]s;branch=z9hG4bK9\r\nFrom: <sip:a@%[1]s>;tag=2\r\n"+
				"To: <sip:ada@%[1]s>;tag=1\r\nCall-ID: %[2]s\r\nCSeq: 9 INFO\r\nContent-Length: 0\r\n\r\n", at, id)
			conn.Close()
		}
	})
	return true
}
