// Package model is the other side of the Live wire where a call is measured at both ends.
package model

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/gateway/bench/harness"
	"voxgate/gateway/bench/speech"
	"voxgate/media"
)

const frame = media.FrameDuration

// Model is the other side of the Live wire, with nothing of a model but its ear and its voice: it keeps what it hears to the
// sample, and says what it is told to.
type Model struct {
	server *http.Server

	mu    sync.Mutex
	lines map[string]chan *Line // by the name that the caller's instruction gives
}

// Line is one call's connection to the model.
type Line struct {
	speech.Recording // of the microphone
	deaf             bool
	write            sync.Mutex
	conn             *websocket.Conn
}

// deafPrefix begins the names of calls in which the model does not listen, to leave the machine to others.
const deafPrefix = "deaf "

// DeafTo is the name of a call in which the model does not listen, by its number.
func DeafTo(call int) string { return deafPrefix + strconv.Itoa(call) }

// Start starts a model and a gateway before it: a binary, "" for the program that runs. The gateway's watch for silent models
// never bites: this one does not answer, it talks. Both are the caller's to stop.
func Start(ctx context.Context, binary string) (*Model, *harness.Process, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	m := &Model{lines: map[string]chan *Line{}}
	m.server = &http.Server{Handler: m}
	go m.server.Serve(listener) // until Close
	gateway, err := harness.StartGateway(ctx, binary, "http://"+listener.Addr().String(), "serve", "-stall", "1h")
	if err != nil {
		m.Close()
		return nil, nil, err
	}
	return m, gateway, nil
}

// Close ends it. The connections end when the gateway hangs up.
func (m *Model) Close() { m.server.Close() }

// Opening is the payload of CONNECT_GEMINI for a call whose line has a name.
func Opening(name string) string {
	return fmt.Sprintf(`{"initialConfig":{"systemInstruction":%q}}`, name)
}

// Line returns where the call of a name comes out, once it has been made.
func (m *Model) Line(name string) chan *Line {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lines[name] == nil {
		m.lines[name] = make(chan *Line, 8) // a few more than the connections of a call
	}
	return m.lines[name]
}

// ServeHTTP takes a Live connection.
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "BidiGenerateContent") {
		http.Error(w, "{}", http.StatusNotFound) // the gateway asks for the model's name, and goes on without
		return
	}
	upgrader := websocket.Upgrader{}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	var setup struct {
		Setup struct {
			SystemInstruction struct{ Parts []struct{ Text string } }
		}
	}
	if err := conn.ReadJSON(&setup); err != nil {
		return
	}
	l := &Line{conn: conn}
	parts := setup.Setup.SystemInstruction.Parts
	if l.send(`{"setupComplete":{}}`) != nil {
		return
	}
	if len(parts) > 0 {
		l.deaf = strings.HasPrefix(parts[0].Text, deafPrefix)
		m.Line(parts[0].Text) <- l
	}
	l.listen()
}

// listen keeps the microphone until the connection ends.
func (l *Line) listen() {
	var pcm []int16
	for {
		_, raw, err := l.conn.ReadMessage()
		if err != nil {
			return
		}
		if l.deaf {
			continue
		}
		var m struct {
			RealtimeInput struct{ Audio struct{ Data []byte } }
		}
		if json.Unmarshal(raw, &m) != nil {
			continue
		}
		data := m.RealtimeInput.Audio.Data
		pcm = pcm[:0]
		for ; len(data) >= 2; data = data[2:] {
			pcm = append(pcm, int16(binary.LittleEndian.Uint16(data)))
		}
		if len(pcm) > 0 {
			l.WritePCM(pcm)
		}
	}
}

func (l *Line) send(text string) error {
	l.write.Lock()
	defer l.write.Unlock()
	return l.conn.WriteMessage(websocket.TextMessage, []byte(text))
}

// Say sends a piece of the voice, at speech.EarRate.
func (l *Line) Say(pcm []int16) error {
	return l.send(voiceMessage(pcm))
}

func voiceMessage(pcm []int16) string {
	raw := make([]byte, 0, 2*len(pcm))
	for _, s := range pcm {
		raw = binary.LittleEndian.AppendUint16(raw, uint16(s))
	}
	return fmt.Sprintf(`{"serverContent":{"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm;rate=%d","data":%q}}]}}}`,
		speech.EarRate, base64.StdEncoding.EncodeToString(raw))
}

// Interrupt says that the person has interrupted the model.
func (l *Line) Interrupt() error {
	if err := l.send(interrupted); err != nil {
		return err
	}
	return l.send(turnDone)
}

// Turn says a voice at speech.EarRate as a turn. It returns when all was sent, or ctx is done.
func (l *Line) Turn(ctx context.Context, voice []int16) error {
	size, ahead := speech.FrameSamples(speech.EarRate), voiceLead
	for len(voice) > 0 && ctx.Err() == nil {
		n := min(len(voice), size*int(ahead/frame))
		if err := l.Say(voice[:n]); err != nil {
			return err
		}
		voice, ahead = voice[n:], voicePiece
		harness.Sleep(ctx, voicePiece)
	}
	for _, text := range []string{turnOver, turnDone} {
		if err := l.send(text); err != nil {
			return err
		}
	}
	return nil
}

// ChatterLength is that of a turn of [Line.Chatter].
const ChatterLength = 2 * time.Second

// chatterTurn is a turn as it is sent: pieces of the voice, and its end. Made once, it costs the callers' machine little.
var chatterTurn = sync.OnceValues(func() ([]string, error) {
	s, err := speech.Recite()
	if err != nil {
		return nil, err
	}
	var messages []string
	const size = int(voicePiece / frame)
	for i := range int(ChatterLength / voicePiece) {
		messages = append(messages, voiceMessage(s.Voice(i*size, (i+1)*size)))
	}
	return append(messages, turnOver, turnDone), nil
})

// Chatter talks without a pause, after a while, until ctx is done: each turn at once, when the one before has been played but
// for some.
func (l *Line) Chatter(ctx context.Context, after time.Duration) error {
	turn, err := chatterTurn()
	if err != nil {
		return err
	}
	for next := time.Now().Add(after); harness.Sleep(ctx, time.Until(next)) == nil; next = next.Add(ChatterLength) {
		for _, text := range turn {
			if err := l.send(text); err != nil {
				return err
			}
		}
		if after >= 0 { // the first turn: from now on a piece ahead
			next, after = next.Add(-voicePiece), -1
		}
	}
	return nil
}

// What the model says of a turn besides.
const (
	turnOver    = `{"serverContent":{"generationComplete":true}}`
	turnDone    = `{"serverContent":{"turnComplete":true}}`
	interrupted = `{"serverContent":{"interrupted":true}}`
)

// The voice comes faster than it is spoken, as Gemini's: so much at first, and then so much at a time.
const (
	voiceLead  = 600 * time.Millisecond
	voicePiece = 200 * time.Millisecond
)
