// Package gemini is the connection to Google's Gemini Live API: it opens one, on the Gemini API or on Vertex AI, sends
// and receives on it. Package wire has the messages, and what an end means for the next dial; package api Google's
// addresses and our credentials; package setup the setup of a connection; and package bridge decides what is said.
//
// Google's Go SDK is not used to connect: its Live client ignores contexts, sets no deadlines, drops fields it does not know, and
// spends 38 allocations on 20 ms of audio.
package gemini

import "time"

const (
	// handshakeTimeout covers DNS, TCP, TLS and the upgrade. Google answers within a second; a person who waits
	// longer than this has hung up.
	handshakeTimeout = 10 * time.Second

	// setupTimeout covers the time from the setup message to setupComplete. A server that never sends one blocks
	// Google's own SDK for good.
	setupTimeout = 10 * time.Second

	// writeTimeout bounds one write. A link cut while audio flows is noticed after about 4 s with it (two seconds
	// fill the socket's buffer) and not at all without.
	writeTimeout = 2 * time.Second

	// closeTimeout bounds the close frame. A peer that reads takes it at once, and a new connection for the same
	// session is refused while the old one is open, so a peer that does not read must not hold it up.
	closeTimeout = 500 * time.Millisecond

	// userTimeout is TCP_USER_TIMEOUT: how long sent data may stay unacknowledged by the peer's kernel. Gemini's answers
	// to WebSocket pings were seen to take 30 s, so pings cannot distinguish a dead link from a slow server;
	// acknowledgements can.
	userTimeout = 8 * time.Second

	// readLimit is far above anything the API sends (the longest audio message seen is below 100 kB) and small
	// enough to survive a mad server.
	readLimit = 16 << 20

	// maxCloseReason is what a close frame holds besides its code, in bytes: RFC 6455 section 5.5.
	maxCloseReason = 123

	// maxSessionID bounds what is logged of the server's session ID, in bytes: it is a UUID.
	maxSessionID = 100

	// keepBuffer is the largest buffer of inputs that is kept for another message.
	keepBuffer = 1 << 20

	// writeBuffer holds 100 ms of 24 kHz audio in base64, so that an audio message is one frame and one write.
	writeBuffer = 8 << 10
)
