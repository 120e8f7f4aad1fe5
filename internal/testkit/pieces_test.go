package testkit_test

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit"
	"voxgate/media"
)

// wrapped returns base64 with line breaks, as some libraries write it, for a JSON string.
func wrapped(raw []byte) string {
	var lines []string
	for line := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(raw)), 76) {
		lines = append(lines, string(line))
	}
	return strings.Join(lines, `\r\n`)
}

// The model receives the same samples, however a client splits its audio into pieces and encodes it. A piece may end in the
// middle of a sample.
func TestSoundInPieces(t *testing.T) {
	t.Parallel()
	const few = 401 // bytes sent in small pieces; the rest follows in two pieces, the first of odd length
	standard := testkit.Base64Encoding(base64.StdEncoding.EncodeToString)
	for name, client := range soundClients() {
		if client.ManualTurns || client.ByWebRTC {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var whole []int16
			for _, test := range []struct {
				way    string
				size   int // size of the small pieces, in bytes
				encode testkit.Base64Encoding
			}{
				{"one piece", 0, standard},
				{"bytes", 1, standard},
				{"three bytes", 3, standard},
				{"odd pieces", 161, standard},
				{"empty pieces", -1, standard},
				{"URL-safe", 0, base64.URLEncoding.EncodeToString},
				{"no padding", 3, base64.RawStdEncoding.EncodeToString},
				{"URL-safe, no padding", 1, base64.RawURLEncoding.EncodeToString},
				{"line ends", 0, wrapped},
			} {
				seen := &testkit.SeenByModel{}
				l := startTalkativeGatewayWith(t, seen)
				e := client.Begin(t, l, l.MintToken(`{}`))
				send := e.Send
				raw := media.AppendBytes(nil, testkit.MakeSentence(440, time.Second, e.Rate))
				switch {
				case test.size < 0:
					send(nil, test.encode)
					send(raw[:few], test.encode)
					send(nil, test.encode)
					raw = raw[few:]
				case test.size > 0:
					for piece := range slices.Chunk(raw[:few], test.size) {
						send(piece, test.encode)
					}
					raw = raw[few:]
				}
				for piece := range slices.Chunk(raw, 8191) {
					send(piece, test.encode)
				}
				testkit.Eventually(t, test.way+": speech at the model", func() bool { return len(seen.EventsOf(emulator.EventUserTurn)) > 0 })
				got := testkit.TrimSilence(seen.EventsOf(emulator.EventUserTurn)[0].PCM)
				switch {
				case whole == nil:
					whole = got
				case !slices.Equal(got, whole):
					t.Errorf("%s: the model heard %d samples, in one piece %d, or others", test.way, len(got), len(whole))
				}
			}
		})
	}
}

// soundClients returns the SoundClients of all protocols.
func soundClients() map[string]testkit.SoundClient {
	all := map[string]testkit.SoundClient{}
	for _, p := range protocols {
		maps.Copy(all, p.SoundClients)
	}
	return all
}
