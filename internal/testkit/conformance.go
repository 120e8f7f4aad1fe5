package testkit

import (
	"encoding/base64"
	"slices"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/pion/webrtc/v4"

	"voxgate/media"
)

// Conformance holds the clients of a protocol with which the tests of this package check the rules for all protocols. Each endpoint has one
// in a package of its folder, named like whiptest, and protocols_test.go lists them. A field is empty if its rule does not apply.
type Conformance struct {
	Name string // of the protocol

	// Serve returns the option that serves the protocol in the gateway of a test. It is nil if every such gateway serves it.
	Serve func(t *testing.T) Option

	// Talkers begin conversations, by name: for the ends of conversations and for budgets.
	Talkers map[string]Talker

	// SoundClients send speech, by name: for sound in pieces and for push-to-talk.
	SoundClients map[string]SoundClient

	// AnswerOffer posts an SDP offer to a gateway that admits everybody, and returns the answer or the refusal.
	AnswerOffer func(t *testing.T, g *Gateway, offer string) (text string, isAnswer bool)
	// NeedsAudio requires sound in each answer.
	NeedsAudio bool

	// FillQueues send more than any queue holds while the loop of a call is busy, by name. Each returns once the call has gone on; leave
	// ends it.
	FillQueues map[string]func(t *testing.T, g *Gateway) (leave func())

	// ControlCall begins a call with a token and returns a function that reports whether a request with a token, or with "", controls it.
	// The address of the call must be a secret that suffices.
	ControlCall func(t *testing.T, l *LockedGateway, token string) (control func(token string) bool)

	// Malformed sends broken messages, by name. Each returns the number of cases.
	Malformed []Malformed

	// Floods send as much as they can by one connection.
	Floods []Flood

	// StartPaths take a POST that begins something, and must refuse strangers before they parse it.
	StartPaths map[string]string // with the content type
}

// Talker is a client that begins a conversation with a token.
type Talker struct {
	Begin func(t *testing.T, l *LockedGateway, token string) Speaker

	SoundOnly bool    // the client gets nothing but sound by UDP, so it cannot be too slow
	Dollars   float64 // a budget of a few turns, or 0 for 0.026
	Tokens    int     // a budget of a few turns, or 0 for 500
}

// Speaker is a client in a conversation.
type Speaker struct {
	More     func()         // makes the model take one more turn
	AwaitEnd func(code int) // waits for the end of the conversation, as its protocol reports it; code is the close code of a socket
	Conn     *Client        // its socket or data channel, or nil
	Vanish   func()         // makes the client vanish
	Ask      func()         // sends what the gateway answers by Conn
}

// NewSocketSpeaker returns a speaker that sends these messages for more. A last message, unless it is "", and a close code report the end.
func NewSocketSpeaker(c *Client, last string, more ...string) Speaker {
	say := func() {
		for _, m := range more {
			_ = c.Conn.WriteMessage(websocket.TextMessage, []byte(m)) // fails if it ends meanwhile
		}
	}
	return Speaker{
		More: say,
		Ask:  say,
		AwaitEnd: func(code int) {
			c.T.Helper()
			if got := c.CloseCode(); got != code || last != "" && c.CountMessages(last) != 1 {
				c.T.Errorf("closed with %d, want %d; got %v", got, code, c.Messages())
			}
		},
		Conn: c, Vanish: c.IgnorePings,
	}
}

// NewPhoneSpeaker returns a speaker by WebRTC.
func NewPhoneSpeaker(p *Phone) Speaker {
	return Speaker{
		More: func() { p.Talk <- MakeSentence(440, time.Second, 48000) },
		AwaitEnd: func(int) {
			p.T.Helper()
			Eventually(p.T, "end of the connection", func() bool { return p.PC.ConnectionState() != webrtc.PeerConnectionStateConnected })
		},
		Vanish: p.DropNetwork,
	}
}

// SoundClient is a client that sends speech.
type SoundClient struct {
	Begin func(t *testing.T, l *LockedGateway, token string) SoundCall

	NoRelease   bool // the protocol has no message for the end of speech
	ManualTurns bool // the model hears nothing before that message
	ByWebRTC    bool // the speech cannot be cut into pieces
}

// SoundCall is a call of a SoundClient. The sound has 16 bits, little-endian.
type SoundCall struct {
	*Client
	Rate     int                                       // in Hz
	Press    func()                                    // called before it speaks, or nil
	Send     func(piece []byte, encode Base64Encoding) // encode is for protocols with sound in JSON
	Phone    *Phone                                    // sends the sound by WebRTC in place of Send
	Release  func()                                    // sends the end of speech, or nil
	HasVoice func(Message) bool                        // reports whether a message has voice
}

// Base64Encoding makes the text of a JSON string of bytes.
type Base64Encoding func([]byte) string

// Say sends samples in pieces of 100 ms, or by WebRTC in real time.
func (c SoundCall) Say(pcm []int16) {
	if c.Press != nil {
		c.Press()
	}
	if c.Phone != nil {
		c.Phone.SpeakAudio(pcm)
		return
	}
	for piece := range slices.Chunk(pcm, c.Rate/10) {
		c.Send(media.AppendBytes(nil, piece), base64.StdEncoding.EncodeToString)
	}
}

// Malformed sends broken messages to a gateway. Logs bounds the lines of log for each case.
type Malformed struct {
	Name string
	Logs int
	Send func(t *testing.T, l *LockedGateway, token string) (cases int)
}

// Flood sends as much as it can.
type Flood struct {
	Name  string
	Every time.Duration // between two messages, or 0
	Long  bool          // each message is as long as one may be, or longer
	Dial  func(*testing.T, *Gateway) Flooder
}

// Flooder is a client that floods a gateway.
type Flooder struct {
	Send func(n int) bool // sends the n-th time, and reports whether another time is possible
	End  func()
	Web  *Client // of the client protocol, which is warned, or nil
	Stop func()  // ends a Send that blocks, or nil

	// Cores is the processor time that it may take once it has used up what a client may do at once, or 0. A connection has a tenth of a
	// core for what it sends. The rest is for the flooder itself, the race detector and the calls beside it, on a machine that has other
	// work to do as well: five connections have taken 1.0 to 1.4. Without a limit one would take a core, and two all of the smallest machine.
	Cores float64
}

// NewSocketFlooder returns a flooder that sends these messages by a client's socket, or pings if there are none, and cuts it in the end.
func NewSocketFlooder(c *Client, messages ...string) Flooder {
	return Flooder{Send: FloodSocket(c, messages), End: func() { DropConnection(c) }, Stop: StopWriting(c)}
}

// StopWriting returns a function that ends a write to a client's socket that blocks, and all later ones.
func StopWriting(c *Client) func() {
	return func() { _ = c.Conn.UnderlyingConn().SetWriteDeadline(time.Unix(1, 0)) }
}

// FloodSocket returns a function that sends one of the messages, or a ping if there are none. Each is a frame already, so that sending it
// costs little.
func FloodSocket(c *Client, messages []string) func(n int) bool {
	frames := [][]byte{EncodeFrame(websocket.PingMessage, "")}
	if messages != nil {
		frames = nil
	}
	for _, m := range messages {
		frames = append(frames, EncodeFrame(websocket.TextMessage, m))
	}
	conn := c.Conn.UnderlyingConn()
	return func(n int) bool {
		_, err := conn.Write(frames[n%len(frames)])
		return err == nil
	}
}
