package mediastream

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"voxgate/media/g711"
	"voxgate/signaling"
)

// A refused call gets its close frame, however much the provider has sent: closing a socket with unread data resets the connection, and
// then the frame is lost.
func TestRefusedCallGetsCloseFrame(t *testing.T) {
	media := `{"event":"media","media":{"payload":"` + strings.Repeat("A", 16<<10) + `"}}`
	for name, first := range map[string]string{"a number without an agent": twilioStart, "no start message": media} {
		ended := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(ended)
			d := &Server{Options: Options{Logger: slog.New(slog.DiscardHandler)}, config: &Config{}}
			c := d.newCall(
				ticket{call: "CA1", provider: &Provider{profile: profiles["twilio"]}},
				&dialectCodec{dialect: &profiles["twilio"].dialect},
			)
			signaling.ServeSocket(w, r, signaling.SocketOptions{Limit: maxMessage}, c.run)
		}))
		conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(server.URL, "http"), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range append([]string{first}, slices.Repeat([]string{media}, 2*maxPrelude)...) {
			if err = conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
				break
			}
		}
		if err == nil {
			_, _, err = conn.ReadMessage()
		}
		if !websocket.IsCloseError(err, signaling.ClosePolicy) {
			t.Errorf("%s: the socket ended with %v", name, err)
		}
		conn.Close()
		<-ended
		server.Close()
	}
}

// Providers, and those that copied their formats, use many names for one encoding.
func TestParseFormat(t *testing.T) {
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
