package telephony

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"voxgate/signaling"
)

// closing is a transport whose other side goes on to send after our goodbye, and then ends.
type closing struct {
	messages []string
	opened   bool
	parted   bool
}

func (c *closing) Next() (message io.Reader, text bool, err error) {
	if len(c.messages) == 0 {
		return nil, false, io.EOF
	}
	first := c.messages[0]
	c.messages = c.messages[1:]
	return strings.NewReader(first), true, nil
}

func (c *closing) Write([]byte, bool) error { return nil }
func (c *closing) Spent(time.Duration)      {}
func (c *closing) Opened()                  { c.opened = true }
func (c *closing) Goodbye(int, string)      { c.parted = true }
func (c *closing) Close()                   {}

// What the other side has sent is read to its end after our goodbye: a socket that is closed with something unread is
// reset, and what we have sent last is lost.
func TestARefusedCallIsReadToItsEnd(t *testing.T) {
	media := `{"event":"media","media":{"payload":"AAAA"}}`
	for name, messages := range map[string][]string{
		"of nobody's number": {twilioStart, media, media},
		"that is no call":    {media, media, media},
	} {
		line := &closing{messages: messages}
		d := &Door{Options: Options{Logger: slog.New(slog.DiscardHandler)}, config: &Config{}}
		c := d.newCall(
			ticket{call: "CA1", provider: &Provider{profile: profiles["twilio"]}},
			&dialectCodec{dialect: &profiles["twilio"].dialect},
			bridgeLead,
		)
		signaling.ServeConn(t.Context(), line, signaling.SocketOptions{Limit: maxMessage}, c.run)
		if line.opened || !line.parted || len(line.messages) > 0 {
			t.Errorf("a call %s: taken %v, goodbye %v, and %d messages are unread", name, line.opened, line.parted, len(line.messages))
		}
	}
}
