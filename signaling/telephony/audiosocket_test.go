package telephony_test

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/media/mediatest"
)

// announce announces a call, and returns its UUID.
func (g *gateway) announce(key, body string) (status int, uuid string) {
	g.t.Helper()
	r, err := http.NewRequest("POST", g.http+"/telephony/audiosocket", strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct{ UUID string }
	_ = json.NewDecoder(resp.Body).Decode(&answer)
	return resp.StatusCode, answer.UUID
}

// asterisk is a fake Asterisk's side of an AudioSocket.
type asterisk struct {
	t    testing.TB
	conn net.Conn
	rate int
	kind byte
	done chan struct{}

	news
	pcm   []int16
	kinds []byte // of all messages
}

func (g *gateway) dialAsterisk(uuid string, kind byte, rate int) *asterisk {
	g.t.Helper()
	conn, err := net.Dial("tcp", g.door.AudioSocket().String())
	if err != nil {
		g.t.Fatal(err)
	}
	a := &asterisk{t: g.t, conn: conn, kind: kind, rate: rate, done: make(chan struct{})}
	go a.read()
	g.t.Cleanup(func() {
		conn.Close()
		<-a.done
	})
	id, err := hex.DecodeString(strings.ReplaceAll(uuid, "-", ""))
	if err != nil {
		g.t.Fatal(err)
	}
	a.send(0x01, id)
	return a
}

func (a *asterisk) send(kind byte, payload []byte) {
	_, _ = a.conn.Write(append(binary.BigEndian.AppendUint16([]byte{kind}, uint16(len(payload))), payload...))
}

func (a *asterisk) say(pcm []int16) {
	for part := range slices.Chunk(pcm, a.rate/50) {
		a.send(a.kind, media.AppendBytes(nil, part))
	}
}

func (a *asterisk) read() {
	defer close(a.done)
	header := make([]byte, 3)
	for {
		if _, err := io.ReadFull(a.conn, header); err != nil {
			return
		}
		payload := make([]byte, binary.BigEndian.Uint16(header[1:]))
		if _, err := io.ReadFull(a.conn, payload); err != nil {
			return
		}
		a.change(func() {
			a.kinds = append(a.kinds, header[0])
			if header[0] == a.kind {
				a.pcm = media.AppendSamples(a.pcm, payload)
			}
		})
	}
}

func (a *asterisk) hears(hz float64, least time.Duration) {
	a.t.Helper()
	if !a.until(func() bool {
		voice := loud(a.pcm)
		return len(voice) > media.Samples(least, a.rate) && toneShare(voice, a.rate, hz) > 0.5
	}) {
		a.t.Fatalf("no tone of %.0f Hz", hz)
	}
}

func (a *asterisk) closed() {
	a.t.Helper()
	select {
	case <-a.done:
	case <-time.After(patience):
		a.t.Fatal("the call goes on")
	}
}

// An announced call has voice in both directions and keys, and ends with a message.
func TestAudioSocket(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name       string
		kind       byte
		rate, said int
	}{
		{"8 kHz", 0x10, 8000, 8000},
		{"16 kHz", 0x12, 16000, 16000},
		{"16 kHz of an early Asterisk", 0x11, 16000, 16000},
		{"44.1 kHz", 0x15, 44100, 44100},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, nil)
			status, uuid := g.announce(g.key, `{"from":"+4917012345","to":"+100","name":"Ada"}`)
			if status != 200 || len(uuid) != 36 || uuid[14] != '4' {
				t.Fatalf("%d %q", status, uuid)
			}
			a := g.dialAsterisk(uuid, test.kind, test.rate)
			a.say(make([]int16, test.rate/50))
			session, ear := g.session()
			a.say(sentence(440, time.Second, test.rate))
			a.hears(440, 900*time.Millisecond)
			for _, key := range "7#" {
				a.send(0x03, []byte{byte(key)})
			}
			ear.hears(t, "keys", func(b bridge.EventBody) bool {
				x, ok := b.(bridge.AssistantText)
				return ok && strings.Contains(x.Text, "7#")
			})
			if err := session.Do(bridge.EndAfterSpeaking{}); err != nil {
				t.Fatal(err)
			}
			a.closed()
			if last := a.kinds[len(a.kinds)-1]; last != 0x00 {
				t.Errorf("the last message is of the kind %#x", last)
			}
		})
	}
}

// Sent voice cannot be cleared, so little is sent ahead of real time: an interrupted answer goes on for 60 ms and one frame.
func TestAudioSocketIsNotAhead(t *testing.T) {
	t.Parallel()
	g, machine := newGateway(t, nil), mediatest.MeasureLateness(t)
	_, uuid := g.announce(g.key, `{"to":"+100"}`)
	a := g.dialAsterisk(uuid, 0x10, 8000)
	a.say(make([]int16, 160))
	session, ear := g.session()
	a.say(sentence(440, 4*time.Second, 8000))
	a.hears(440, 500*time.Millisecond)
	if err := session.Do(bridge.Interrupt{}); err != nil {
		t.Fatal(err)
	}
	var cut bridge.Interrupted
	waited := false
	ear.hears(t, "interruption", func(b bridge.EventBody) (ok bool) {
		state, _ := b.(bridge.StateChange)
		waited = waited || state.Message != ""
		cut, ok = b.(bridge.Interrupted)
		return ok
	})
	_ = session.Do(bridge.Goodbye{})
	a.closed()
	if waited {
		t.Log("not judged: this machine is so busy that the caller heard the tone for waiting, which was sent, too")
		return
	}
	const ahead = 80 * time.Millisecond
	if sent := media.Duration(len(a.pcm), 8000); sent < cut.Played || sent > cut.Played+ahead && machine.CanJudge(t, ahead) {
		t.Errorf("%v of an answer were sent, of which %v count as heard", sent, cut.Played)
	}
}

// A UUID must have been issued by an announcement, and is valid for one call.
func TestUUIDs(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	if status, _ := g.announce("vgk_wrong", `{"to":"+100"}`); status != 401 {
		t.Errorf("a wrong key: %d", status)
	}
	if status, _ := g.announce(g.key, `{"to":"+999"}`); status != 404 {
		t.Errorf("no agent: %d", status)
	}
	if status, _ := g.announce(g.key, `{"too":"+100"}`); status != 400 {
		t.Errorf("an unknown field: %d", status)
	}
	other, err := http.NewRequest("POST", g.http+"/telephony/audiosocket", strings.NewReader(`{"to":"+100"}`))
	if err != nil {
		t.Fatal(err)
	}
	other.Header.Set("X-Goog-Api-Key", g.key) // the gateway accepts keys in this header, too
	if resp, err := http.DefaultClient.Do(other); err != nil || resp.StatusCode != 200 || resp.Body.Close() != nil {
		t.Errorf("a key in another header: %v %v", resp, err)
	}
	g.dialAsterisk("40325ec2-5efd-4bd3-805f-53576e581d13", 0x10, 8000).closed()
	_, uuid := g.announce(g.key, `{"to":"+100"}`)
	first := g.dialAsterisk(uuid, 0x10, 8000)
	first.say(make([]int16, 160))
	g.session()
	g.dialAsterisk(uuid, 0x10, 8000).closed()
	g.logged("rule=token", 2)
	first.send(0x00, nil)
	first.closed()
}
