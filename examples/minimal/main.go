// Command minimal is a small client for Voxgate: what an app on a phone does, in one file, written from signaling/PROTOCOL.md alone. It
// reads the sound of a microphone from its standard input, as 16-bit samples at 48 kHz, and writes the voice to its standard output in the
// same format:
//
//	arecord -q -t raw -f S16_LE -r 48000 | go run ./examples/minimal | aplay -q -t raw -f S16_LE -r 48000
//
// It sends frames of 10 ms, so it is heard 10 ms earlier than with the usual frames of 20 ms. When the phone changes its network it
// restarts ICE. If that does not help, it opens another connection and continues the same conversation. What was said is printed to
// standard error.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"
	"voxgate/media/opus/libopus"
)

const (
	rate  = 48_000
	frame = 10 * time.Millisecond

	goneAfter    = 2 * time.Second  // time without a packet after which ICE is restarted
	silentSocket = 12 * time.Second // without a message or ping the socket counts as lost; the gateway pings every 5 s
	giveUp       = time.Minute      // how long gateways keep a lost conversation by default
)

func main() {
	log.SetFlags(0)
	var a app
	flag.StringVar(&a.url, "url", "ws://localhost:3001/ws", "the gateway's `WebSocket`")
	flag.StringVar(&a.token, "token", "", "`token` from your backend, where the gateway wants one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	a.transcript, a.ear = os.Stderr, os.Stdout
	if err := a.run(ctx, os.Stdin); err != nil {
		log.Fatal(err)
	}
}

// app is one conversation.
type app struct {
	url, token string
	transcript io.Writer // what was said

	mic *webrtc.TrackLocalStaticSample
	mu  sync.Mutex
	ear io.Writer

	resume    string // token with which another connection continues this conversation
	lastEvent int64
}

// run talks until the conversation is over or ctx is done.
func (a *app) run(ctx context.Context, mic io.Reader) error {
	format := webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus, ClockRate: rate, Channels: 2, SDPFmtpLine: "minptime=10;useinbandfec=1"}
	var err error
	if a.mic, err = webrtc.NewTrackLocalStaticSample(format, "audio", "microphone"); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var microphone sync.WaitGroup
	defer microphone.Wait()
	defer stop()
	microphone.Go(func() {
		if err := a.speak(ctx, mic); err != nil {
			log.Print("microphone: ", err)
		}
	})
	var lost time.Time
	for {
		began := time.Now()
		err := a.connect(ctx)
		var over overError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &over), a.resume == "":
			return err
		case lost.IsZero() || time.Since(began) > giveUp:
			lost = time.Now()
		case time.Since(lost) > giveUp:
			return err
		}
		log.Print("connecting again: ", err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// overError holds the reason why the gateway has ended the conversation.
type overError string

func (e overError) Error() string { return "the conversation is over: " + string(e) }

// speak sends the sound of the microphone. After its end it sends silence, so that the model can hear the end of speech.
func (a *app) speak(ctx context.Context, mic io.Reader) error {
	encoder, err := libopus.NewEncoder(rate, 1, libopus.VoIP)
	if err != nil {
		return err
	}
	pcm := make([]int16, rate/100)
	packet := make([]byte, 1000)
	clock := time.NewTicker(frame)
	defer clock.Stop()
	for {
		if err := binary.Read(mic, binary.LittleEndian, pcm); err != nil {
			clear(pcm)
		}
		n, err := encoder.Encode(pcm, packet)
		if err != nil {
			return err
		}
		select {
		case <-clock.C:
		case <-ctx.Done():
			return nil
		}
		if err := a.mic.WriteSample(media.Sample{Data: packet[:n], Duration: frame}); err != nil {
			return err
		}
	}
}

// listen decodes the sound of a track and writes it to a.ear. A phone would use its own jitter buffer here.
func (a *app) listen(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
	decoder, err := libopus.NewDecoder(rate, 1)
	if err != nil {
		log.Print("voice: ", err)
		return
	}
	pcm := make([]int16, rate*120/1000) // the longest packet, RFC 6716, section 2.1.4
	for {
		p, _, err := track.ReadRTP()
		if err != nil {
			return
		}
		n, err := decoder.Decode(p.Payload, pcm)
		if err != nil {
			continue
		}
		var out bytes.Buffer
		binary.Write(&out, binary.LittleEndian, pcm[:n]) // into memory
		a.mu.Lock()
		a.ear.Write(out.Bytes()) // ignores errors: the conversation goes on without the player
		a.mu.Unlock()
	}
}

// message is a message of the client protocol, in either direction.
type message struct {
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload,omitempty"`
	Event   int64           `json:"event,omitempty"`
}

// connection is a WebSocket and the peer that was negotiated over it.
type connection struct {
	app *app
	pc  *webrtc.PeerConnection

	mu      sync.Mutex // one writer at a time
	ws      *websocket.Conn
	offered bool                      // an offer has no answer yet
	early   []webrtc.ICECandidateInit // candidates that came before the answer
}

// connect talks over one connection until it is lost, or the conversation is over.
func (a *app) connect(ctx context.Context) error {
	ws, _, err := websocket.DefaultDialer.DialContext(ctx, a.url, nil)
	if err != nil {
		return err
	}
	defer ws.Close()
	c := &connection{app: a, ws: ws}
	defer context.AfterFunc(ctx, func() {
		c.send("DISCONNECT_GEMINI", nil)
		ws.Close()
	})()
	hello := map[string]any{
		"initialConfig": map[string]any{},
		"resumable":     true,
		"resumeToken":   a.resume,
		"lastEvent":     a.lastEvent,
		"token":         a.token,
	}
	if err := c.send("CONNECT_GEMINI", hello); err != nil {
		return err
	}
	if err := c.openPeer(); err != nil {
		return err
	}
	defer c.pc.Close()
	if err := c.offer(nil); err != nil {
		return err
	}
	ws.SetPingHandler(func(data string) error {
		ws.SetReadDeadline(time.Now().Add(silentSocket))
		return ws.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(time.Second))
	})
	for {
		ws.SetReadDeadline(time.Now().Add(silentSocket))
		var m message
		if err := ws.ReadJSON(&m); err != nil {
			return err
		}
		if m.Event > 0 {
			a.lastEvent = m.Event
		}
		if err := c.received(m); err != nil {
			return err
		}
	}
}

// openPeer creates the WebRTC peer of the connection. On a phone, libwebrtc's GATHER_CONTINUALLY finds new networks before the old one is
// gone.
func (c *connection) openPeer() error {
	var settings webrtc.SettingEngine
	settings.SetICETimeouts(goneAfter, giveUp, goneAfter/4)
	pc, err := webrtc.NewAPI(webrtc.WithSettingEngine(settings)).NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		return err
	}
	c.pc = pc
	pc.OnTrack(c.app.listen)
	pc.OnICECandidate(func(found *webrtc.ICECandidate) {
		var candidate any = map[string]any{"candidate": nil} // there are no more
		if found != nil {
			candidate = found.ToJSON()
		}
		c.send("WEBRTC_ICE_CANDIDATE", candidate)
	})
	pc.OnICEConnectionStateChange(func(state webrtc.ICEConnectionState) {
		if state != webrtc.ICEConnectionStateDisconnected {
			return
		}
		if err := c.offer(&webrtc.OfferOptions{ICERestart: true}); err != nil {
			log.Print("restarting ICE: ", err)
		}
	})
	_, err = pc.AddTrack(c.app.mic)
	return err
}

func (c *connection) send(kind string, payload any) error {
	data, err := json.Marshal(payload)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ws.SetWriteDeadline(time.Now().Add(goneAfter))
	return c.ws.WriteJSON(message{Type: kind, Payload: data})
}

// offer sends an SDP offer, which may restart ICE. It does nothing while an earlier offer waits for its answer.
func (c *connection) offer(options *webrtc.OfferOptions) error {
	c.mu.Lock()
	waits := c.offered
	c.offered = true
	c.mu.Unlock()
	if waits {
		return nil
	}
	offer, err := c.pc.CreateOffer(options)
	if err != nil {
		return err
	}
	if err := c.pc.SetLocalDescription(offer); err != nil {
		return err
	}
	return c.send("WEBRTC_OFFER", map[string]string{"sdp": offer.SDP})
}

func (c *connection) received(m message) error {
	var p struct {
		SDP           string
		ResumeToken   string
		Resumed       bool
		Reason        string
		Message       string
		Error         struct{ Message string }
		ServerContent struct {
			InputTranscription, OutputTranscription struct{ Text string }
		}
	}
	if len(m.Payload) > 0 && m.Type != "WEBRTC_ICE_CANDIDATE" {
		if err := json.Unmarshal(m.Payload, &p); err != nil {
			return fmt.Errorf("%s: %w", m.Type, err)
		}
	}
	switch m.Type {
	case "SETUP_COMPLETE":
		if p.Error.Message != "" {
			return overError(p.Error.Message)
		}
		if c.app.resume != "" && !p.Resumed {
			c.app.lastEvent = 0
			log.Print("The conversation could not be kept; this is a new one.")
		}
		c.app.resume = p.ResumeToken
	case "WEBRTC_ANSWER":
		return c.answered(p.SDP)
	case "WEBRTC_ICE_CANDIDATE":
		return c.candidate(m.Payload)
	case "CONTENT_MESSAGE":
		io.WriteString(c.app.transcript, p.ServerContent.InputTranscription.Text+p.ServerContent.OutputTranscription.Text)
	case "TURN_COMPLETE", "INTERRUPTED":
		fmt.Fprintln(c.app.transcript)
	case "GEMINI_ERROR":
		log.Print(p.Message)
	case "GEMINI_DISCONNECTED":
		return overError(p.Reason)
	}
	return nil
}

func (c *connection) answered(sdp string) error {
	c.mu.Lock()
	c.offered = false
	early := c.early
	c.early = nil
	c.mu.Unlock()
	if err := c.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: sdp}); err != nil {
		return err
	}
	for _, candidate := range early {
		if err := c.pc.AddICECandidate(candidate); err != nil {
			return err
		}
	}
	return nil
}

func (c *connection) candidate(payload []byte) error {
	var candidate webrtc.ICECandidateInit
	if err := json.Unmarshal(payload, &candidate); err != nil || candidate.Candidate == "" { // null means that there are no more
		return err
	}
	c.mu.Lock()
	waits := c.offered
	if waits {
		c.early = append(c.early, candidate)
	}
	c.mu.Unlock()
	if waits {
		return nil
	}
	return c.pc.AddICECandidate(candidate)
}
