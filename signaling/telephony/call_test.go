package telephony

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"voxgate/media/g711"
	"voxgate/signaling"
)

// closing is a transport whose other side continues to send after our goodbye, and then closes.
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
func (c *closing) ChargeTime(time.Duration) {}
func (c *closing) MarkOpened()              { c.opened = true }
func (c *closing) SendGoodbye(int, string)  { c.parted = true }
func (c *closing) Close()                   {}

// After our goodbye, everything that the other side has sent is still read: closing a socket with unread data resets the connection,
// and then our last message is lost.
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

// Providers, and those that copied their formats, use many names for one encoding.
func TestEncodings(t *testing.T) {
	for _, c := range []struct{ encoding, rate, want string }{
		{"audio/x-mulaw", "8000", "mulaw 8000"},
		{"audio/x-mulaw", "8000.0", "mulaw 8000"},
		{"audio/x-mulaw", "8000 Hz", "mulaw 8000"},
		{"audio/x-mulaw", "0", "mulaw 8000"},
		{"audio/x-mulaw", "", "mulaw 8000"},
		{"Audio/X-Mulaw ; channels=1; rate = 8000", "", "mulaw 8000"},
		{"audio/PCMU", "8000", "mulaw 8000"},
		{"PCMU/8000", "8000", "mulaw 8000"},
		{"audio/basic", "8000", "mulaw 8000"},
		{"g711_ulaw", "8000", "mulaw 8000"},
		{"G.711-ulaw", "8000", "mulaw 8000"},
		{"mu-law", "8000", "mulaw 8000"},
		{"audio/x-alaw", "8000", "alaw 8000"},
		{"g711_alaw", "8000", "alaw 8000"},
		{"audio/l16;rate=16000", "", "linear 16000"},
		{"audio/L16; rate=16000", "8000", "linear 16000"},
		{"linear16", "24000", "linear 24000"},
		{"raw/slin", "8000", "linear 8000"},
		{"slin16", "", "linear 16000"},
		{"audio/x-mulaw", "16000", ""},
		{"audio/x-mulaw", "-8000", ""},
		{"audio/x-mulaw", "8000.5", ""},
		{"audio/x-mulaw", "NaN", ""},
		{"audio/l16;rate=x", "", ""},
		{"audio/l16;rate=96000", "", ""},
		{"audio/opus", "48000", ""},
	} {
		got := ""
		rate, err := parseRate(c.rate)
		if err == nil {
			var f format
			if f, err = parseFormat(c.encoding, rate, mulaw); err == nil {
				name := map[*g711.Codec]string{nil: "linear", &g711.MuLaw: "mulaw", &g711.ALaw: "alaw"}[f.law]
				got = fmt.Sprint(name, " ", f.rate)
			}
		}
		if got != c.want {
			t.Errorf("%q at %q is %q (%v), not %q", c.encoding, c.rate, got, err, c.want)
		}
	}
}
