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

// model is a server of the Live API. It passes received audio to a listener, and sends only what a measurement tells it to send.
type model struct {
	url, secure string // base URLs: http, and https for clients that require it
	servers     [2]*http.Server
	roots       []byte // certificate of secure in PEM

	mu      sync.Mutex
	hear    func(*session, []int16) // receives the audio of sessions at modelRate; nil to ignore it
	open    map[string][]*session   // open sessions by the caller's system instruction
	tools   chan toolRun            // starts and ends of tool runs
	changed chan struct{}           // closed and replaced when a session has begun
}

// session is the connection of one call to the model.
type session struct {
	recording // audio of the session, if the model's listener stores it
	began     time.Time
	write     sync.Mutex
	conn      *websocket.Conn
	lastLoud  time.Time     // time of the newest loud audio, for answerBeeps and answerSentences
	silent    atomic.Bool   // the session does not reply any more
	resumes   bool          // the subject has requested resumption handles
	done      chan struct{} // closed at the end
	ignored   chan time.Time
}

// instruction is the system instruction of subjects that cannot use a different instruction for each call.
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
	certificate, m.roots = newSelfSignedCertificate()
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

// newSelfSignedCertificate returns a new certificate for 127.0.0.1, valid for a day, and its text in PEM.
func newSelfSignedCertificate() (certificate tls.Certificate, pemText []byte) {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "lab"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// setListener sets the function that receives the audio of all sessions.
func (m *model) setListener(onAudio func(*session, []int16)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hear = onAudio
}

// currentSessions returns the open sessions.
func (m *model) currentSessions() (all []*session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, open := range m.open {
		all = append(all, open...)
	}
	return all
}

// awaitSession waits for an open session with this system instruction that began after the given time. It waits until
// ctx is done, and returns the newest such session.
func (m *model) awaitSession(ctx context.Context, name string, after time.Time) (*session, error) {
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
			return nil, fmt.Errorf("the subject opened no connection to the model: %w", context.Cause(ctx))
		}
	}
}

// addSession adds a session to the list, and removeSession removes it.
func (m *model) addSession(name string, s *session) (removeSession func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open[name] = append(m.open[name], s)
	close(m.changed)
	m.changed = make(chan struct{})
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.open[name] = slices.DeleteFunc(slices.Clone(m.open[name]), func(other *session) bool { return other == s })
		close(s.done)
	}
}

// ServeHTTP serves a Live connection, or a request of the tool.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/tool" {
		m.serveTool(w, r)
		return
	}
	if !strings.HasSuffix(r.URL.Path, "BidiGenerateContent") {
		http.Error(w, "{}", http.StatusNotFound) // the gateway requests the model's description, and continues without it
		return
	}
	upgrader := websocket.Upgrader{}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	s := &session{
		conn: conn, began: time.Now(), done: make(chan struct{}), ignored: make(chan time.Time, 1024),
	}
	var first struct {
		Setup struct {
			SystemInstruction struct{ Parts []struct{ Text string } }
			SessionResumption *struct{}
		}
	}
	_, raw, err := conn.ReadMessage()
	if err != nil || json.Unmarshal([]byte(camelCase.Replace(string(raw))), &first) != nil || s.sendToSubject(`{"setupComplete":{}}`) != nil {
		return
	}
	if s.resumes = first.Setup.SessionResumption != nil; s.resumes && s.sendToSubject(resumptionMessage) != nil {
		return
	}
	var name strings.Builder
	for _, part := range first.Setup.SystemInstruction.Parts {
		name.WriteString(part.Text)
	}
	defer m.addSession(name.String(), s)()
	for {
		_, raw, err := conn.ReadMessage()
		if err != nil {
			return
		}
		m.handleMessage(s, raw)
	}
}

// camelCase replaces the field names that Google's Python SDK sends in snake_case, which Google accepts.
var camelCase = strings.NewReplacer(`"system_instruction"`, `"systemInstruction"`, `"session_resumption"`, `"sessionResumption"`,
	`"realtime_input"`, `"realtimeInput"`, `"media_chunks"`, `"mediaChunks"`)

// toCamelCase rewrites a message if its first field name is in snake_case.
func toCamelCase(raw []byte) []byte {
	if !bytes.Contains(raw[:min(len(raw), 40)], []byte("_")) {
		return raw
	}
	return []byte(camelCase.Replace(string(raw)))
}

// sound is data in the standard or the URL alphabet of base64; Google accepts both.
type sound []byte

var oneAlphabet = strings.NewReplacer("-", "+", "_", "/")

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *sound) UnmarshalText(text []byte) (err error) {
	*s, err = base64.StdEncoding.DecodeString(oneAlphabet.Replace(string(text)))
	return err
}

// handleMessage handles a message of a session.
func (m *model) handleMessage(s *session, raw []byte) {
	m.mu.Lock()
	hear := m.hear
	m.mu.Unlock()
	if hear == nil {
		return
	}
	var input struct {
		RealtimeInput struct {
			Audio       struct{ Data sound }
			MediaChunks []struct{ Data sound } // audio of older clients
		}
	}
	if json.Unmarshal(toCamelCase(raw), &input) != nil {
		return
	}
	for _, chunk := range append(input.RealtimeInput.MediaChunks, input.RealtimeInput.Audio) {
		if len(chunk.Data) > 0 {
			hear(s, media.AppendSamples(nil, chunk.Data))
		}
	}
}

// sendToSubject sends messages to the subject. After the end of a turn it adds a resumption handle if the subject has requested handles.
func (s *session) sendToSubject(messages ...string) error {
	s.write.Lock()
	defer s.write.Unlock()
	if s.resumes && slices.Contains(messages, turnCompleteMessage) {
		messages = append(messages, resumptionMessage)
	}
	for _, m := range messages {
		if err := s.conn.WriteMessage(websocket.TextMessage, []byte(m)); err != nil {
			return err
		}
	}
	return nil
}

// voiceMessage returns a message with a piece of the voice, at voiceRate, and its transcript.
func voiceMessage(pcm []int16, words string) string {
	return fmt.Sprintf(
		`{"serverContent":{"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm;rate=%d","data":%q}}]},"outputTranscription":{"text":%q}}}`,
		voiceRate,
		base64.StdEncoding.EncodeToString(media.AppendBytes(nil, pcm)),
		words,
	)
}

// The model's other messages about a turn.
const (
	transcriptMessage         = `{"serverContent":{"inputTranscription":{"text":" Hello?"}}}`
	interruptedMessage        = `{"serverContent":{"interrupted":true}}`
	generationCompleteMessage = `{"serverContent":{"generationComplete":true}}`
	resumptionMessage         = `{"sessionResumptionUpdate":{"newHandle":"lab","resumable":true}}`
	turnCompleteMessage       = `{"serverContent":{"turnComplete":true},"usageMetadata":{` +
		`"promptTokenCount":100,"responseTokenCount":45,"totalTokenCount":145,` +
		`"promptTokensDetails":[{"modality":"AUDIO","tokenCount":100}],"responseTokensDetails":[{"modality":"AUDIO","tokenCount":45}]}}`
)

// The model sends its voice faster than real time, as Gemini does. It sends voiceLead at once, and the rest in pieces
// of voicePiece.
const (
	voiceLead  = 600 * time.Millisecond
	voicePiece = 200 * time.Millisecond
)

// sendTurn sends a voice at voiceRate as a turn. It returns when all was sent, or ctx is done.
func (s *session) sendTurn(ctx context.Context, voice []int16) error {
	for ahead := voiceLead; len(voice) > 0 && ctx.Err() == nil; ahead = voicePiece {
		n := min(len(voice), media.Samples(ahead, voiceRate))
		if err := s.sendToSubject(voiceMessage(voice[:n], "")); err != nil {
			return err
		}
		voice = voice[n:]
		sleep(ctx, voicePiece)
	}
	return s.sendToSubject(generationCompleteMessage, turnCompleteMessage)
}

// chatterLength is the length of a turn of chatter.
const chatterLength = 1800 * time.Millisecond

// chatterTurn returns the messages of a turn: voice with transcripts, four times faster than real time, in pieces as
// long as Google's. The messages are built only once, to save CPU time.
var chatterTurn = sync.OnceValue(func() (messages []timedMessage) {
	lengths := []int{2, 6, 12, 4, 10} // frames: 40 to 240 ms
	const frames = int(chatterLength / frame)
	for i, from := 0, 0; from < frames; i++ {
		to := min(frames, from+lengths[i%len(lengths)])
		voice := voiceMessage(speech().voiceFrames(from, to), "telecommunication ")
		messages = append(messages, timedMessage{time.Duration(from) * frame / 4, voice})
		from = to
	}
	generated := timedMessage{chatterLength / 4, generationCompleteMessage}
	return append(messages, generated, timedMessage{chatterLength - voicePiece, turnCompleteMessage})
})

// timedMessage is a message with its time after the start of its turn.
type timedMessage struct {
	at   time.Duration
	text string
}

// sendChatter waits for delay, and then talks without a pause until ctx is done. It begins a turn while the subject
// still has to play the last voicePiece of the previous turn.
func (s *session) sendChatter(ctx context.Context, delay time.Duration) error {
	for begin, ahead := time.Now().Add(delay), voicePiece; ctx.Err() == nil; ahead = 0 {
		for _, m := range chatterTurn() {
			if sleep(ctx, time.Until(begin.Add(m.at))) != nil {
				return nil
			}
			if err := s.sendToSubject(m.text); err != nil {
				return err
			}
		}
		begin = begin.Add(chatterLength - ahead)
	}
	return nil
}
