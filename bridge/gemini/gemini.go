// Package gemini implements the connection to Google's Gemini Live API, on the Gemini API or Vertex AI. Package wire has the
// messages and classifies errors; package api has Google's URLs and the gateway's credentials; package liveconfig builds the setup
// of a connection; package bridge runs the conversation.
//
// Google's Go SDK is not used for connections: its Live client ignores contexts, sets no deadlines, drops unknown fields, and makes
// 72 allocations to receive 20 ms of audio and 41 to send them, where Conn makes 1 and 4 (BenchmarkFrame).
package gemini

import "time"

const (
	// handshakeTimeout covers DNS, TCP, TLS and the upgrade. Google responds within a second; after this time a caller has hung up.
	handshakeTimeout = 10 * time.Second

	// setupTimeout covers the time from the setup message to setupComplete. Google's own SDK waits for it without a
	// limit.
	setupTimeout = 10 * time.Second

	// writeTimeout bounds one write. It detects a connection that is cut while audio flows after about 4 s, because the
	// socket buffers two seconds. Without it, the loss would never be detected.
	writeTimeout = 2 * time.Second

	// closeTimeout bounds the close frame. A peer that does not read must not delay the close. While the old connection
	// is open, a new one of the same session is refused.
	closeTimeout = 500 * time.Millisecond

	// userTimeout is TCP_USER_TIMEOUT: how long sent data may stay unacknowledged by the peer's kernel. Pings cannot
	// tell a dead connection from a slow server. Gemini has taken up to 30 s to answer them.
	userTimeout = 8 * time.Second

	// readLimit limits a received message, in bytes. The longest audio message seen is below 100 kB. A faulty server
	// must not exhaust the memory.
	readLimit = 16 << 20

	// maxCloseReason is the maximum length of the reason in a close frame, in bytes: RFC 6455 section 5.5.
	maxCloseReason = 123

	// maxSessionID limits the server's session ID in logs, in bytes. A real ID is a UUID.
	maxSessionID = 100

	// keepBuffer is the size, in bytes, of the largest buffer that is kept for reuse.
	keepBuffer = 1 << 20

	// writeBuffer is the size of the write buffer, in bytes. 100 ms of 24 kHz audio in base64 fit, so an audio message
	// is one write.
	writeBuffer = 8 << 10
)
