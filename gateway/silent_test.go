package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"voxgate/internal/testkit"
	"voxgate/internal/testkit/mediatest"

	"github.com/gorilla/websocket"
)

// hearsAndIsSilent starts a fake Gemini. It transcribes each question as soon as it has heard 300 ms of it, and never
// answers.
func hearsAndIsSilent(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer ws.Close()
		send := func(text string) { _ = ws.WriteMessage(websocket.BinaryMessage, []byte(text)) }
		if _, _, err := ws.ReadMessage(); err != nil {
			return
		}
		send(`{"setupComplete":{}}`)
		send(`{"sessionResumptionUpdate":{"newHandle":"h","resumable":true}}`)
		var heard, quiet int // samples of 16 kHz
		for {
			_, raw, err := ws.ReadMessage()
			if err != nil {
				return
			}
			var m struct {
				RealtimeInput struct{ Audio struct{ Data []byte } }
			}
			if err := json.Unmarshal(raw, &m); err != nil {
				t.Error(err)
			}
			for pcm := m.RealtimeInput.Audio.Data; len(pcm) > 1; pcm = pcm[2:] {
				if binary.LittleEndian.Uint16(pcm) == 0 {
					if quiet++; quiet == 8000 {
						heard = 0
					}
					continue
				}
				quiet = 0
				if heard++; heard == 4800 {
					send(`{"serverContent":{"inputTranscription":{"text":"What time is it?"}}}`)
				}
			}
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// askWithPause speaks a question with a pause of 0.4 s in the middle, in real time.
func askWithPause(c *testkit.Client) {
	c.T.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for _, sample := range []int16{8000, 8000, 8000, 8000, 8000, 0, 0, 0, 0, 8000, 8000, 8000, 8000, 8000, 0, 0, 0, 0, 0, 0} {
		pcm := make([]byte, 0, 2*1600)
		for i := range 1600 {
			if i%20 == 0 {
				sample = -sample
			}
			pcm = binary.LittleEndian.AppendUint16(pcm, uint16(sample))
		}
		c.SendTextFrame(
			`{"type":"SEND_REALTIME_INPUT","payload":{"audio":{"mimeType":"audio/pcm;rate=16000","data":"` + base64.StdEncoding.EncodeToString(
				pcm,
			) + `"}}}`,
		)
		<-tick.C
	}
}

// A model that hears two questions in a row and answers neither counts as dead, although the default model may choose not
// to answer. The third connection is a fresh session. The test waits for the end of all attempts, or asks again earlier.
func TestModelThatHearsAndIsSilent(t *testing.T) {
	t.Parallel()
	model := hearsAndIsSilent(t)
	cmd, p := startProcess(t, "GOOGLE_GEMINI_BASE_URL="+model.URL, "VOXGATE_STALL=1s")
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	tried, machine := regexp.MustCompile(`"stall":"(\w+)"`), mediatest.MeasureLateness(t)
	for name, until := range map[string][]string{
		"all is tried":         {"none", "none"},
		"the next comes early": {"resume", "fresh"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := p.openConversation(`{}`)
			c.T = t // the test of p has already returned
			defer c.Conn.Close()
			c.AwaitEvent("SETUP_COMPLETE")
			for i, last := range until {
				asked := c.At
				askWithPause(c)
				c.AwaitEventWith("LOG_MESSAGE", fmt.Sprintf(`"stall":%q`, last))
				var got []string
				for _, m := range tried.FindAllStringSubmatch(testkit.JoinMessages(c.Messages()[asked:c.At]), -1) {
					got = append(got, m[1])
				}
				want := []string{"nudge resume none", "nudge fresh none"}[i]
				if all := strings.Join(got, " "); !strings.HasPrefix(want, all) && machine.CanJudge(t, time.Second) {
					t.Errorf("question %d: tried %s, want %s", i+1, all, want)
				}
			}
		})
	}
}
