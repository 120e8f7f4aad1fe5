package main

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/media"
)

// model is a server of the Live API: it hands on what it hears, and says what the benchmark has it say.
type model struct {
	server *http.Server
	hear   func(*session, []int16) // takes what a session hears at modelRate; nil: it does not listen

	mu       sync.Mutex
	sessions map[string]chan *session // by the caller's system instruction
}

// session is one call's connection to the model.
type session struct {
	recording // where the model listens by it
	write     sync.Mutex
	conn      *websocket.Conn
}

// startModel starts a model and a gateway before it.
func (o options) startModel(ctx context.Context, hear func(*session, []int16)) (*model, *process, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	m := &model{hear: hear, sessions: map[string]chan *session{}}
	m.server = &http.Server{Handler: m}
	go m.server.Serve(listener) // until it is closed
	gateway, err := o.startGateway(ctx, "http://"+listener.Addr().String())
	if err != nil {
		m.server.Close()
		return nil, nil, err
	}
	return m, gateway, nil
}

// session returns where the sessions of a name come out, once the gateway has opened them.
func (m *model) session(name string) chan *session {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sessions[name] == nil {
		m.sessions[name] = make(chan *session, 8) // a few more than the connections of a call
	}
	return m.sessions[name]
}

// ServeHTTP takes a Live connection.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	s := &session{conn: conn}
	var first struct {
		Setup struct {
			SystemInstruction struct{ Parts []struct{ Text string } }
		}
	}
	if conn.ReadJSON(&first) != nil || s.send(`{"setupComplete":{}}`) != nil {
		return
	}
	for _, part := range first.Setup.SystemInstruction.Parts {
		m.session(part.Text) <- s
	}
	for {
		_, raw, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if m.hear == nil {
			continue
		}
		var input struct {
			RealtimeInput struct{ Audio struct{ Data []byte } }
		}
		if json.Unmarshal(raw, &input) != nil || len(input.RealtimeInput.Audio.Data) == 0 {
			continue
		}
		m.hear(s, media.AppendSamples(nil, input.RealtimeInput.Audio.Data))
	}
}

func (s *session) send(messages ...string) error {
	s.write.Lock()
	defer s.write.Unlock()
	for _, m := range messages {
		if err := s.conn.WriteMessage(websocket.TextMessage, []byte(m)); err != nil {
			return err
		}
	}
	return nil
}

// saying is a message with a piece of the voice, at voiceRate, and what it says in words.
func saying(pcm []int16, words string) string {
	raw, _ := binary.Append(nil, binary.LittleEndian, pcm)
	return fmt.Sprintf(
		`{"serverContent":{"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm;rate=%d","data":%q}}]},"outputTranscription":{"text":%q}}}`,
		voiceRate,
		base64.StdEncoding.EncodeToString(raw),
		words,
	)
}

// What the model says of a turn besides.
const (
	interrupted = `{"serverContent":{"interrupted":true}}`
	generated   = `{"serverContent":{"generationComplete":true}}`
	turnOver    = `{"serverContent":{"turnComplete":true},"usageMetadata":{` +
		`"promptTokenCount":100,"responseTokenCount":45,"totalTokenCount":145,` +
		`"promptTokensDetails":[{"modality":"AUDIO","tokenCount":100}],"responseTokensDetails":[{"modality":"AUDIO","tokenCount":45}]}}`
)

// The voice comes faster than it is spoken, as Gemini's: so much at first, and then so much at a time.
const (
	voiceLead  = 600 * time.Millisecond
	voicePiece = 200 * time.Millisecond
)

// turn says a voice at voiceRate as a turn. It returns when all was sent, or ctx is done.
func (s *session) turn(ctx context.Context, voice []int16) error {
	for ahead := voiceLead; len(voice) > 0 && ctx.Err() == nil; ahead = voicePiece {
		n := min(len(voice), media.Samples(ahead, voiceRate))
		if err := s.send(saying(voice[:n], "")); err != nil {
			return err
		}
		voice = voice[n:]
		sleep(ctx, voicePiece)
	}
	return s.send(generated, turnOver)
}

// chatterLength is that of a turn of chatter.
const chatterLength = 1800 * time.Millisecond

// chatterTurn is a turn as it is sent: pieces of the voice with words, in lengths that are seen from Google, four times as fast as
// they are spoken, as the emulator does. Made once, it costs the callers' machine little.
var chatterTurn = sync.OnceValue(func() (messages []timed) {
	lengths := []int{2, 6, 12, 4, 10} // frames: 40 to 240 ms
	const frames = int(chatterLength / frame)
	for i, from := 0, 0; from < frames; i++ {
		to := min(frames, from+lengths[i%len(lengths)])
		messages = append(messages, timed{time.Duration(from) * frame / 4, saying(speech().voiced(from, to), "telecommunication ")})
		from = to
	}
	return append(messages, timed{chatterLength / 4, generated}, timed{chatterLength - voicePiece, turnOver})
})

// timed is a message that is sent so long after the begin of its turn.
type timed struct {
	at   time.Duration
	text string
}

// chatter talks without a pause until ctx is done, after a while: each turn begins when the one before it has been played but
// for a piece.
func (s *session) chatter(ctx context.Context, after time.Duration) error {
	for begin, ahead := time.Now().Add(after), voicePiece; ctx.Err() == nil; ahead = 0 {
		for _, m := range chatterTurn() {
			if sleep(ctx, time.Until(begin.Add(m.at))) != nil {
				return nil
			}
			if err := s.send(m.text); err != nil {
				return err
			}
		}
		begin = begin.Add(chatterLength - ahead)
	}
	return nil
}
