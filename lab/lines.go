package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha1"
	_ "embed"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorilla/websocket"
	"github.com/pion/rtp"

	"voxgate/client"
	"voxgate/media"
	"voxgate/media/g711"
)

// line is the connection of a caller without WebRTC.
type line struct {
	rate      int                 // sample rate for sendFrame, in Hz
	sendFrame func([]int16) error // sends 20 ms of audio
	end       func()
	closed    <-chan struct{} // closed when the other side has ended it; nil if that is not detected
}

// lineOpeners maps a subject's caller and the kind of line to the function that opens it.
var lineOpeners = map[string]map[string]lineOpener{
	"voxgate":     {"websocket": openVoxgateSocket, "twilio": openVoxgateTwilio, "sip": openSippLine},
	"smallwebrtc": {"websocket": openPipecatSocket, "twilio": openPipecatTwilio},
}

// measureLines measures the replies to beeps over each kind of line.
func (c *comparison) measureLines(ctx context.Context) error {
	c.model.answerBeeps()
	for kind, open := range lineOpeners[c.caller] {
		cell := "beep." + kind
		if !c.isSelectedCell(cell) {
			continue
		}
		l, err := c.measureBeeps(ctx, open, c.trials)
		if len(l.mouthToEar) > 0 {
			c.addFigure(cell, c.trials, "no reply", allInMilliseconds(l.mouthToEar)...)
		} else {
			c.addMissing(cell, err)
		}
	}
	return nil
}

// measureChromium measures a call of a browser whose microphone plays the beeps in a loop (compare/browser.mjs).
func (c *comparison) measureChromium(ctx context.Context) error {
	c.model.answerBeeps()
	_, frames := c.trialTiming.makeBeeps(c.trials, micRate)
	pcm := media.AppendBytes(nil, slices.Concat(frames...))
	header := must(binary.Append([]byte("RIFF"), binary.LittleEndian, uint32(36+len(pcm))))
	header = append(header, "WAVEfmt "...)
	header = must(binary.Append(header, binary.LittleEndian, struct {
		Size               uint32
		Format, Channels   uint16
		Rate, Bytes        uint32
		PerFrame, PerValue uint16
	}{16, 1, 1, micRate, 2 * micRate, 2, 16}))
	header = must(binary.Append(append(header, "data"...), binary.LittleEndian, uint32(len(pcm))))
	file := filepath.Join(c.folder, "beeps.wav")
	if err := os.WriteFile(file, append(header, pcm...), 0o600); err != nil {
		return err
	}
	lasts := time.Duration(c.trials) * c.trialTiming.trial
	ctx, cancel := context.WithTimeoutCause(ctx, lasts+time.Minute, errors.New("the browser does not end"))
	defer cancel()
	at, err := url.Parse(c.url)
	if err != nil {
		return err
	}
	environment := append(os.Environ(), fmt.Sprintf("SECONDS=%.0f", lasts.Seconds()))
	if at.User != nil {
		environment, at.User = append(environment, "TOKEN="+liveKitToken(at.User)), nil
	}
	cmd := exec.CommandContext(ctx, "node", "lab/compare/browser.mjs", c.caller, at.String(), file)
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, stopTimeout // the signal also ends Chromium
	cmd.Env = environment
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w\n%s", errors.Join(err, context.Cause(ctx)), stderr.String())
	}
	var took []*float64 // ms
	if err := json.Unmarshal(out, &took); err != nil {
		return err
	}
	took = took[min(len(took), warmUp):]
	var values []float64
	for _, ms := range took {
		if ms != nil {
			values = append(values, *ms)
		}
	}
	if len(values) == 0 {
		return errors.New("no beep was answered")
	}
	c.addFigure("beep.chromium", len(took), "no reply", values...)
	return nil
}

// lineOpener opens a line to a subject. heard is called with received audio, at any sample rate, by one goroutine.
type lineOpener func(ctx context.Context, s *stage, heard func([]int16)) (*line, error)

// measureBeeps measures the replies to n beeps over a line.
func (c *comparison) measureBeeps(ctx context.Context, open lineOpener, n int) (latency, error) {
	opening, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	voice := &loudness{}
	l, err := open(opening, c.stage, func(pcm []int16) {
		if isLoud(pcm) {
			voice.recordLoud(time.Now())
		}
	})
	if err != nil {
		return latency{}, fmt.Errorf("%w\n%s", err, c.newestLog())
	}
	defer l.end()
	trials, frames := c.trialTiming.makeBeeps(n+warmUp, l.rate)
	var sent []time.Time
	var failed error
	c.delays = append(c.delays, paceFrames(ctx, frame, 1, len(frames), func(_, i int) {
		sent = append(sent, time.Now())
		if err := l.sendFrame(frames[i]); err != nil {
			failed = err
		}
	})...)
	if err := sleep(ctx, replyLength); err != nil || failed != nil {
		return latency{}, errors.Join(err, failed)
	}
	return c.trialTiming.matchReplies(trials[warmUp:], sent, voice.startTimes())
}

// startSocketLine returns a line over a WebSocket, after it has sent the initialMessages. sendFrame becomes
// [line.sendFrame]. A goroutine calls onMessage with each message. [line.end] waits for that goroutine.
func startSocketLine(
	conn *websocket.Conn, rate int, sendFrame func([]int16) error, onMessage func([]byte), initialMessages ...any,
) (*line, error) {
	for _, message := range initialMessages {
		if err := conn.WriteJSON(message); err != nil {
			conn.Close()
			return nil, err
		}
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for {
			_, message, err := conn.ReadMessage()
			if err != nil {
				return
			}
			onMessage(message)
		}
	}()
	return &line{rate, sendFrame, func() { conn.Close(); <-closed }, closed}, nil
}

func dialSocket(ctx context.Context, s *stage, path string, header http.Header) (*websocket.Conn, error) {
	dialer := websocket.Dialer{NetDialContext: s.dial}
	conn, _, err := dialer.DialContext(ctx, "ws"+strings.TrimPrefix(s.url, "http")+path, header)
	return conn, err
}

// openVoxgateSocket opens a line like that of an app without WebRTC.
func openVoxgateSocket(ctx context.Context, s *stage, heard func([]int16)) (*line, error) {
	conversation, err := client.Dial(ctx, client.Options{
		URL: "ws" + strings.TrimPrefix(s.url, "http") + "/ws", NetDial: s.dial, MicrophoneRate: modelRate,
		Config: map[string]any{"systemInstruction": instruction},
	})
	if err != nil {
		return nil, err
	}
	closed := make(chan struct{})
	lose := sync.OnceFunc(func() { close(closed) })
	go func() {
		defer lose()
		for event := range conversation.Events() {
			switch e := event.(type) {
			case client.Audio:
				heard(e.PCM)
			case client.ConnectionLost:
				lose()
			}
		}
	}()
	return &line{modelRate, conversation.SendAudio, func() { conversation.Close(); <-closed }, closed}, nil
}

// openPipecatSocket opens a line to Pipecat's FastAPIWebsocketTransport with the ProtobufFrameSerializer (frames.proto).
func openPipecatSocket(ctx context.Context, s *stage, heard func([]int16)) (*line, error) {
	conn, err := dialSocket(ctx, s, "/ws", nil)
	if err != nil {
		return nil, err
	}
	const audioFrame, audioBytes, sampleRate, channels = 2, 3, 4, 5
	say := func(pcm []int16) error {
		audio := appendBytesField(nil, audioBytes, string(media.AppendBytes(nil, pcm)))
		audio = appendVarintField(appendVarintField(audio, sampleRate, modelRate), channels, 1)
		return conn.WriteMessage(websocket.BinaryMessage, appendBytesField(nil, audioFrame, string(audio)))
	}
	return startSocketLine(conn, modelRate, say, func(raw []byte) {
		if audio := parseFields(raw)[audioFrame]; audio != nil {
			heard(media.AppendSamples(nil, parseFields(audio)[audioBytes]))
		}
	})
}

// twilioRate is the sample rate of Twilio's streams, in Hz.
const twilioRate = 8000

// newTwilioLine emulates Twilio's side of a Media Stream (https://www.twilio.com/docs/voice/media-streams/websocket-messages).
func newTwilioLine(conn *websocket.Conn, heard func([]int16)) (*line, error) {
	const connected = `{"event":"connected","protocol":"Call","version":"1.0.0"}`
	const start = `{"event":"start","sequenceNumber":"1","streamSid":"MZ1","start":{"accountSid":"AC1","streamSid":"MZ1","callSid":"CA1",` +
		`"tracks":["inbound"],"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000,"channels":1},"customParameters":{}}}`
	n := 0
	say := func(pcm []int16) error {
		n++
		return conn.WriteMessage(websocket.TextMessage, fmt.Appendf(nil,
			`{"event":"media","sequenceNumber":"%d","streamSid":"MZ1","media":{"track":"inbound","chunk":"%d","timestamp":"%d","payload":%q}}`,
			n+1, n, 20*n, base64.StdEncoding.EncodeToString(g711.MuLaw.AppendEncoded(nil, pcm))))
	}
	return startSocketLine(conn, twilioRate, say, func(raw []byte) {
		var m struct {
			Event string
			Media struct{ Payload []byte }
		}
		if json.Unmarshal(raw, &m) == nil && m.Event == "media" {
			heard(g711.MuLaw.AppendDecoded(nil, m.Media.Payload))
		}
	}, json.RawMessage(connected), json.RawMessage(start))
}

func openPipecatTwilio(ctx context.Context, s *stage, heard func([]int16)) (*line, error) {
	conn, err := dialSocket(ctx, s, "/twilio", nil)
	if err != nil {
		return nil, err
	}
	return newTwilioLine(conn, heard)
}

// publicURL is the gateway's configured URL for Twilio, and twilioSecret signs Twilio's requests.
const publicURL, twilioSecret = "https://bench.example", "only-for-this-machine-and-this-hour"

// openVoxgateTwilio announces a call by a signed webhook, and streams to the URL in the response.
func openVoxgateTwilio(ctx context.Context, s *stage, heard func([]int16)) (*line, error) {
	signed := func(text string) string {
		mac := hmac.New(sha1.New, []byte(twilioSecret))
		io.WriteString(mac, text)
		return base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	const path = "/telephony/twilio/answer"
	form := url.Values{"CallSid": {"CA1"}, "From": {"+4917012345"}, "To": {"+49301"}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("X-Twilio-Signature", signed(publicURL+path+"CallSidCA1From+4917012345To+49301"))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	stream := regexp.MustCompile(`wss(://bench\.example)([^"]+)`).FindSubmatch(answer)
	if err != nil || stream == nil {
		return nil, fmt.Errorf("no stream in %s %w", answer, err)
	}
	conn, err := dialSocket(ctx, s, string(stream[2]), http.Header{"X-Twilio-Signature": {signed(string(stream[0]))}})
	if err != nil {
		return nil, err
	}
	return newTwilioLine(conn, heard)
}

// signalsScenario is the scenario in which sipp only signals the call. It announces a port of this program for the audio.
//
//go:embed signals.xml
var signalsScenario string

// lineIP is the address of the telephone. The gateway has a trunk for this address that sends packets during pauses,
// too.
const lineIP = "127.0.0.2"

// hangUp is the SIP message that makes the scenario continue with its BYE.
const hangUp = "INFO sip:bench SIP/2.0\r\nVia: SIP/2.0/UDP " + lineIP + ";branch=z9hG4bK1\r\nFrom: <sip:bench>;tag=1\r\n" +
	"To: <sip:bench>;tag=1\r\nCall-ID: line\r\nCSeq: 1 INFO\r\nContent-Length: 0\r\n\r\n"

// openSippLine makes a call in which sipp only handles the signalling. The line itself sends and receives the audio, as
// PCMU. It sends to the address from which the gateway's first packet came.
func openSippLine(ctx context.Context, s *stage, heard func([]int16)) (*line, error) {
	conn, err := net.ListenPacket("udp4", lineIP+":0")
	if err != nil {
		return nil, err
	}
	free, err := net.ListenPacket("udp4", lineIP+":0")
	if err != nil {
		conn.Close()
		return nil, err
	}
	signals := free.LocalAddr().(*net.UDPAddr)
	free.Close()
	file, port := filepath.Join(s.folder, "signals.xml"), fmt.Sprint(conn.LocalAddr().(*net.UDPAddr).Port)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "sipp", "-sf", file, "-m", "1", "-i", lineIP, "-p", fmt.Sprint(signals.Port),
		"-cid_str", "line", "-nostdin", s.sip)
	cmd.Env, cmd.Dir = append(os.Environ(), "TERM=dumb"), s.folder
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err = os.WriteFile(file, []byte(strings.ReplaceAll(signalsScenario, "PORT", port)), 0o600)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	var to atomic.Pointer[net.Addr]
	there := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		var packet rtp.Packet
		for buf := make([]byte, 1500); ; {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if packet.Unmarshal(buf[:n]) != nil {
				continue
			}
			if to.Swap(&from) == nil {
				close(there)
			}
			heard(g711.MuLaw.AppendDecoded(nil, packet.Payload))
		}
	})
	end := func() {
		kill := time.AfterFunc(stopTimeout, func() { cmd.Process.Kill() })
		conn.WriteTo([]byte(hangUp), signals)
		cmd.Wait() // an error is in its output
		kill.Stop()
		conn.Close()
		reading.Wait()
	}
	select {
	case <-there:
	case <-ctx.Done():
		end()
		return nil, fmt.Errorf("no sound came: %w\n%s", context.Cause(ctx), output.String())
	}
	header := rtp.Header{Version: 2, SSRC: 7}
	say := func(pcm []int16) error {
		packet := rtp.Packet{Header: header, Payload: g711.MuLaw.AppendEncoded(nil, pcm)}
		header.SequenceNumber++
		header.Timestamp += uint32(len(pcm))
		raw, err := packet.Marshal()
		if err == nil {
			_, err = conn.WriteTo(raw, *to.Load())
		}
		return err
	}
	return &line{twilioRate, say, end, nil}, nil
}
