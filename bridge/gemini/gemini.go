// Package gemini implements the connection to Google's Gemini Live API, on the Gemini API or Vertex AI. Package wire
// has the messages and classifies errors. Package api has Google's URLs and the gateway's credentials. Package
// liveconfig builds the setup of a connection. Package bridge runs the conversation.
//
// Google's Go SDK is not used for connections: its Live client ignores contexts, sets no deadlines, drops unknown
// fields, and allocates often. It makes 72 allocations to receive 20 ms of audio, and 41 to send them. Conn makes 1 and
// 4 (BenchmarkFrame).
package gemini

import "time"

const (
	// handshakeTimeout limits DNS, TCP, TLS and the upgrade together. Google responds within a second. A caller does
	// not wait longer than this.
	handshakeTimeout = 10 * time.Second

	// setupTimeout limits the time from the setup message to setupComplete. Google's own SDK waits for setupComplete
	// without a limit.
	setupTimeout = 10 * time.Second

	// writeTimeout limits one write, because the loss of a connection would otherwise not be detected. While audio is
	// sent, the loss is detected after about 4 s: the socket buffers two seconds of audio, and then a write fails after
	// this limit.
	writeTimeout = 2 * time.Second

	// closeTimeout limits the write of the close frame. A peer that does not read must not delay the close, because
	// Google refuses a new connection of the same session while the old one is open.
	closeTimeout = 500 * time.Millisecond

	// userTimeout is TCP_USER_TIMEOUT: how long the peer's kernel may leave data unacknowledged. WebSocket pings would
	// not do, because they cannot distinguish a dead connection from a slow server: Gemini has taken up to 30 s to
	// answer them.
	userTimeout = 8 * time.Second

	// readLimit limits a received message, in bytes, so that a faulty server cannot exhaust the memory. The longest
	// audio message observed had less than 100 kB.
	readLimit = 16 << 20

	// maxCloseReason is the maximum length of the reason in a close frame, in bytes: RFC 6455 section 5.5.
	maxCloseReason = 123

	// maxSessionID limits the server's session ID in logs, in bytes. A real ID is a UUID.
	maxSessionID = 100

	// keepBuffer is the size, in bytes, of the largest buffer that is kept for reuse.
	keepBuffer = 1 << 20

	// writeBuffer is the size of the write buffer, in bytes. 100 ms of 24 kHz audio in base64 fit into it, so that an
	// audio message is one write.
	writeBuffer = 8 << 10
)
