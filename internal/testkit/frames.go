package testkit

import (
	"encoding/binary"
	"strings"

	"github.com/gorilla/websocket"
)

// EncodeFrame returns a client's frame (RFC 6455 section 5.2). Its masking key is zero, so that the payload stays readable.
func EncodeFrame(kind int, payload string) []byte {
	const final, masked = 0x80, 0x80
	b := []byte{final | byte(kind), masked | 127}
	if len(payload) < 126 {
		b[1] = masked | byte(len(payload))
	} else {
		b = binary.BigEndian.AppendUint64(b, uint64(len(payload)))
	}
	return append(append(b, 0, 0, 0, 0), payload...)
}

// MoreThanAnyQueue is a number of messages that is larger than the capacity of every queue of an endpoint.
const MoreThanAnyQueue = 400

// SendBurst sends the first message and [MoreThanAnyQueue] others with one write. The others are the repeated messages in
// turn.
func SendBurst(c *Client, first string, repeated ...string) {
	c.T.Helper()
	frames := EncodeFrame(websocket.TextMessage, first)
	for n := range MoreThanAnyQueue {
		frames = append(frames, EncodeFrame(websocket.TextMessage, repeated[n%len(repeated)])...)
	}
	if _, err := c.Conn.UnderlyingConn().Write(frames); err != nil {
		c.T.Fatal(err)
	}
}

// RepeatJSON returns n values for a JSON array, without its brackets.
func RepeatJSON(n int, value string) string {
	return strings.TrimSuffix(strings.Repeat(value+",", n), ",")
}
