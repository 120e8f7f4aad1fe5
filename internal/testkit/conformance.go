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

// Conformance holds the clients of one protocol with which the tests check the rules that apply to all protocols. Each
// endpoint defines one in its test package, such as whiptest; see protocols_test.go. An empty field means that its rule
// does not apply to the protocol.
type Conformance struct {
	Name string // name of the protocol

	// Serve returns the option with which the gateway of a test serves the protocol. If Serve is nil, no option is
	// needed.
	Serve func(t *testing.T) Option

	// Talkers maps names to clients that begin conversations. They are for tests of budgets, and of the end of a
	// conversation.
	Talkers map[string]Talker

	// SoundClients maps names to clients that send speech. They are for tests of push-to-talk, and of audio that is cut
	// into pieces.
	SoundClients map[string]SoundClient

	// PostOffer posts an SDP offer to a gateway without authentication. It returns the answer, or the text of the
	// refusal.
	PostOffer func(t *testing.T, g *Gateway, offer string) (text string, isAnswer bool)
	// NeedsAudio requires sound in each answer.
	NeedsAudio bool

	// FillQueues maps names to functions that overload a call: while its loop is busy, they send more messages than any
	// queue holds. Each function returns when the call has continued. leave ends the call.
	FillQueues map[string]func(t *testing.T, g *Gateway) (leave func())

	// DialCallControl begins a call with a token. It is for protocols in which the secret address of a call suffices to
	// control the call. control reports whether a request to this address with a token, or with none (""), succeeds.
	DialCallControl func(t *testing.T, l *LockedGateway, token string) (control func(token string) bool)

	// Malformed lists the kinds of broken messages that the protocol is tested with.
	Malformed []Malformed

	// Floods are clients that send as much as they can over one connection.
	Floods []Flood

	// StartPaths lists paths of endpoints where a POST request starts something. These endpoints must reject
	// unauthenticated requests before they parse the body.
	StartPaths map[string]string // content type of the request, by path
}

// Talker is a client that begins a conversation with a token.
type Talker struct {
	Begin func(t *testing.T, l *LockedGateway, token string) Speaker

	SoundOnly bool    // the client receives only sound by UDP, so it cannot be too slow
	Dollars   float64 // budget in dollars that lasts for a few turns; 0 means 0.026
	Tokens    int     // budget in tokens that lasts for a few turns; 0 means 500
}

// Speaker is a client in a conversation.
type Speaker struct {
	More     func()         // makes the model take one more turn
	AwaitEnd func(code int) // waits for the end of the conversation, as its protocol reports it; code is the close code of a socket
	Conn     *Client        // its socket or data channel, or nil
	Vanish   func()         // makes the client vanish
	Ask      func()         // sends a request that the gateway answers by Conn
}

// NewSocketSpeaker returns a speaker that uses a WebSocket. Its More sends moreMessages. At the end of the
// conversation, the gateway must send lastMessage, unless that is "", and then close the socket.
func NewSocketSpeaker(c *Client, lastMessage string, moreMessages ...string) Speaker {
	say := func() {
		for _, m := range moreMessages {
			_ = c.Conn.WriteMessage(websocket.TextMessage, []byte(m)) // fails if the conversation has just ended
		}
	}
	return Speaker{
		More: say,
		Ask:  say,
		AwaitEnd: func(code int) {
			c.T.Helper()
			if got := c.AwaitCloseCode(); got != code || lastMessage != "" && c.CountMessages(lastMessage) != 1 {
				c.T.Errorf("closed with %d, want %d; got %v", got, code, c.Messages())
			}
		},
		Conn: c, Vanish: c.IgnorePings,
	}
}

// NewPhoneSpeaker returns a speaker that uses WebRTC.
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
	ManualTurns bool // the model gets the speech only after Release
	ByWebRTC    bool // the speech cannot be cut into pieces
}

// SoundCall is a call of a SoundClient. The sound has 16 bits, little-endian.
type SoundCall struct {
	*Client
	Rate     int                                       // in Hz
	Press    func()                                    // called before the speech is sent, or nil
	Send     func(piece []byte, encode Base64Encoding) // encode is for protocols with sound in JSON
	Phone    *Phone                                    // sends the sound by WebRTC in place of Send
	Release  func()                                    // sends the end of speech, or nil
	HasVoice func(Message) bool                        // reports whether a message has voice
}

// Base64Encoding encodes bytes as the text of a JSON string.
type Base64Encoding func([]byte) string

// Say sends samples: in pieces of 100 ms as fast as possible, or over WebRTC in real time.
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

// Malformed is a kind of broken messages. Send sends them to a gateway. Logs bounds the number of log lines for each
// broken message.
type Malformed struct {
	Name string
	Logs int
	Send func(t *testing.T, l *LockedGateway, token string) (cases int)
}

// Flood describes a client that sends as much as it can.
type Flood struct {
	Name  string
	Every time.Duration // pause between two messages, or 0
	Long  bool          // each message has the maximum length, or is longer
	Dial  func(*testing.T, *Gateway) Flooder
}

// Flooder is a client that floods a gateway.
type Flooder struct {
	Send func(n int) bool // sends the n-th message, and reports whether another one can be sent
	End  func()
	Web  *Client // a client of the client protocol, which receives a warning; may be nil
	Stop func()  // ends a Send that blocks, or nil

	// Cores limits the number of cores that a test with this flood may use after the initial burst; 0 means no limit.
	// The gateway itself allows a connection only a tenth of a core. The limit must be higher, because it includes the
	// flooding client, the race detector and other calls: five connections have used 1.0 to 1.4 cores.
	Cores float64
}

// NewSocketFlooder returns a flooder that sends these messages, or pings if there are none, over a client's socket. At the end it closes
// the connection.
func NewSocketFlooder(c *Client, messages ...string) Flooder {
	return Flooder{Send: FloodSender(c, messages), End: func() { DropConnection(c) }, Stop: WriteAborter(c)}
}

// WriteAborter returns a function that makes a blocked write to a client's socket fail, and all later writes, too.
func WriteAborter(c *Client) (stop func()) {
	return func() { _ = c.Conn.UnderlyingConn().SetWriteDeadline(time.Unix(1, 0)) }
}

// FloodSender returns a function that sends one of the messages, or a ping if there are none. The messages are encoded as frames in
// advance, so that sending costs little.
func FloodSender(c *Client, messages []string) (send func(n int) (ok bool)) {
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
