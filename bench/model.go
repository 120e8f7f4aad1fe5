package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/media"
)

// model is a server of the Live API: it hands on what it hears, and says what the benchmark has it say.
type model struct {
	url, secure string // where it serves: http, and https for clients that insist on it
	servers     [2]*http.Server
	roots       []byte // the certificate of secure, as PEM

	mu      sync.Mutex
	hear    func(*session, []int16) // takes what a session hears at modelRate; nil: it does not listen
	open    map[string][]*session   // by the caller's system instruction
	tools   chan toolRun            // what the tool does
	changed chan struct{}           // is closed when a session has begun
}

// session is one call's connection to the model.
type session struct {
	recording // where the model listens by it
	began     time.Time
	write     sync.Mutex
	conn      *websocket.Conn
	lastLoud  time.Time     // that it has heard: for beepForBeep
	silent    atomic.Bool   // it hears, and replies no more
	resumes   bool          // the client wants to know what resumes it
	over      chan struct{} // is closed at its end
	ignored   chan time.Time
}

// instruction is the system's to the model, by which a model knows the calls of subjects that have only one.
const instruction = "Be brief."

// startModel starts a model.
func startModel() (*model, error) {
	m := &model{open: map[string][]*session{}, changed: make(chan struct{}), tools: make(chan toolRun, 64)}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	secure, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		plain.Close()
		return nil, err
	}
	var certificate tls.Certificate
	certificate, m.roots = selfSigned()
	m.url, m.secure = "http://"+plain.Addr().String(), "https://"+secure.Addr().String()
	for i, l := range []net.Listener{plain, tls.NewListener(secure, &tls.Config{Certificates: []tls.Certificate{certificate}})} {
		m.servers[i] = &http.Server{Handler: m, ErrorLog: log.New(io.Discard, "", 0)}
		go m.servers[i].Serve(l) // until it is closed
	}
	return m, nil
}

func (m *model) close() {
	for _, s := range m.servers {
		s.Close()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, open := range m.open {
		for _, s := range open {
			s.conn.Close()
		}
	}
}

// selfSigned returns a certificate for 127.0.0.1 of this hour, also as PEM.
func selfSigned() (tls.Certificate, []byte) {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "bench"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// listen has all sessions heard by hear.
func (m *model) listen(hear func(*session, []int16)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hear = hear
}

// all returns the sessions that are open.
func (m *model) all() (all []*session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, open := range m.open {
		all = append(all, open...)
	}
	return all
}

// session returns the newest open session of a name that began after a time, and waits for it.
func (m *model) session(ctx context.Context, name string, after time.Time) (*session, error) {
	for {
		m.mu.Lock()
		open, changed := m.open[name], m.changed
		m.mu.Unlock()
		if n := len(open); n > 0 && open[n-1].began.After(after) {
			return open[n-1], nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("no connection to the model: %w", context.Cause(ctx))
		}
	}
}

// begin takes a session into the list, and end out of it.
func (m *model) begin(name string, s *session) (end func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open[name] = append(m.open[name], s)
	close(m.changed)
	m.changed = make(chan struct{})
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.open[name] = slices.DeleteFunc(slices.Clone(m.open[name]), func(other *session) bool { return other == s })
		close(s.over)
	}
}

// ServeHTTP takes a Live connection.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/tool" {
		m.lookup(w, r)
		return
	}
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
	s := &session{
		conn: conn, began: time.Now(), over: make(chan struct{}), ignored: make(chan time.Time, 1024),
	}
	var first struct {
		Setup struct {
			SystemInstruction struct{ Parts []struct{ Text string } }
			SessionResumption *struct{}
		}
	}
	_, raw, err := conn.ReadMessage()
	if err != nil || json.Unmarshal([]byte(camelCase.Replace(string(raw))), &first) != nil || s.send(`{"setupComplete":{}}`) != nil {
		return
	}
	if s.resumes = first.Setup.SessionResumption != nil; s.resumes && s.send(resumable) != nil {
		return
	}
	var name strings.Builder
	for _, part := range first.Setup.SystemInstruction.Parts {
		name.WriteString(part.Text)
	}
	defer m.begin(name.String(), s)()
	for {
		_, raw, err := conn.ReadMessage()
		if err != nil {
			return
		}
		m.take(s, raw)
	}
}

// camelCase are the names of fields that Google's SDK for Python sends with underscores, as Google allows.
var camelCase = strings.NewReplacer(`"system_instruction"`, `"systemInstruction"`, `"session_resumption"`, `"sessionResumption"`,
	`"realtime_input"`, `"realtimeInput"`, `"media_chunks"`, `"mediaChunks"`)

// camel rewrites a message if its first name needs it.
func camel(raw []byte) []byte {
	if !bytes.Contains(raw[:min(len(raw), 40)], []byte("_")) {
		return raw
	}
	return []byte(camelCase.Replace(string(raw)))
}

// sound is bytes in either alphabet of base64, as Google takes them.
type sound []byte

var oneAlphabet = strings.NewReplacer("-", "+", "_", "/")

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *sound) UnmarshalText(text []byte) (err error) {
	*s, err = base64.StdEncoding.DecodeString(oneAlphabet.Replace(string(text)))
	return err
}

// take takes a message of a session.
func (m *model) take(s *session, raw []byte) {
	m.mu.Lock()
	hear := m.hear
	m.mu.Unlock()
	if hear == nil {
		return
	}
	var input struct {
		RealtimeInput struct {
			Audio       struct{ Data sound }
			MediaChunks []struct{ Data sound } // what older clients send
		}
	}
	if json.Unmarshal(camel(raw), &input) != nil {
		return
	}
	for _, chunk := range append(input.RealtimeInput.MediaChunks, input.RealtimeInput.Audio) {
		if len(chunk.Data) > 0 {
			hear(s, media.AppendSamples(nil, chunk.Data))
		}
	}
}

// send sends messages, and with the end of a turn what resumes the session, where the client asked for that.
func (s *session) send(messages ...string) error {
	s.write.Lock()
	defer s.write.Unlock()
	if s.resumes && slices.Contains(messages, turnOver) {
		messages = append(messages, resumable)
	}
	for _, m := range messages {
		if err := s.conn.WriteMessage(websocket.TextMessage, []byte(m)); err != nil {
			return err
		}
	}
	return nil
}

// saying is a message with a piece of the voice, at voiceRate, and what it says in words.
func saying(pcm []int16, words string) string {
	return fmt.Sprintf(
		`{"serverContent":{"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm;rate=%d","data":%q}}]},"outputTranscription":{"text":%q}}}`,
		voiceRate,
		base64.StdEncoding.EncodeToString(media.AppendBytes(nil, pcm)),
		words,
	)
}

// What the model says of a turn besides.
const (
	understood  = `{"serverContent":{"inputTranscription":{"text":" Hello?"}}}`
	interrupted = `{"serverContent":{"interrupted":true}}`
	generated   = `{"serverContent":{"generationComplete":true}}`
	resumable   = `{"sessionResumptionUpdate":{"newHandle":"bench","resumable":true}}`
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
