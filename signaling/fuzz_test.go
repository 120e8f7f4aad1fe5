package signaling

import (
	"testing"
)

// FuzzMessage reads what a stranger may send, up to the point where a session would get it.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{
		`{"type":"CONNECT_GEMINI","payload":{"initialConfig":{},"resumeToken":"x"}}`,
		`{"type":"SEND_MESSAGE","payload":{"parts":[{"text":"a"},{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}}`,
		`{"type":"SEND_REALTIME_INPUT","payload":{"audio":{"mimeType":"audio/pcm;rate=8000","data":"AAA="}}}`,
		`{"type":"SEND_REALTIME_INPUT","payload":{"mediaChunks":[{"mimeType":"image/jpeg","data":"AAAA"}]}}`,
		`{"type":"SEND_TOOL_RESPONSE","payload":{"toolResponse":{"parts":[{"functionResponse":{"name":"f","response":1}}]}}}`,
		`{"type":"GET_CONTEXT","id":"7"}`,
		`{"type":"PIECE","payload":{"id":"1","index":0,"count":1,"data":"{}"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := parseEnvelope(raw)
		if err != nil {
			return
		}
		if e.ID != nil && (*e.ID == "" || len(*e.ID) > maxID) {
			t.Errorf("id %q", *e.ID)
		}
		var (
			connect connectPayload
			message messagePayload
			input   realtimePayload
			tool    toolResponsePayload
		)
		_ = e.decode(&connect)
		if e.decode(&message) == nil {
			if command, err := message.command(); err == nil && command == nil {
				t.Error("neither a command nor an error")
			}
		}
		if e.decode(&input) == nil {
			if _, err := input.modernise(); err == nil && input.Audio != nil {
				if pcm, rate, err := input.Audio.pcm("payload.audio"); err == nil && (len(pcm) == 0 || rate < 8000 || rate > 48000) {
					t.Errorf("%d samples at %d Hz", len(pcm), rate)
				}
			}
		}
		if e.decode(&tool) == nil {
			_, _ = tool.commands()
		}
		if whole, err := (puzzles{}).add(e); err == nil && len(whole) > maxLarge {
			t.Errorf("a message of %d bytes", len(whole))
		}
	})
}

// FuzzOffer reads offers; what is accepted must be answerable, so it has a fingerprint and a sane message size.
func FuzzOffer(f *testing.F) {
	f.Add("v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\nc=IN IP4 0.0.0.0\r\n" +
		"a=rtpmap:111 opus/48000/2\r\na=fingerprint:sha-256 00:11\r\na=ice-ufrag:a\r\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\na=max-message-size:0\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		o, err := parseOffer(text)
		if err == nil && (o.fingerprint == "" || o.maxMessage <= 0 || o.maxMessage > maxChannelMessage) {
			t.Errorf("%+v", o)
		}
		wireAnswer(text, text)
		firstMid(text)
	})
}

func TestPiecesAreCutBetweenCharacters(t *testing.T) {
	text := []byte("aé漢字🙂z")
	for size := 4; size < 20; size++ {
		var joined []byte
		for _, p := range split(text, size) {
			if len(p) == 0 || len(p) > size || string(p) != string([]rune(string(p))) {
				t.Errorf("size %d: piece %q", size, p)
			}
			joined = append(joined, p...)
		}
		if string(joined) != string(text) {
			t.Errorf("size %d: %q", size, joined)
		}
	}
}
