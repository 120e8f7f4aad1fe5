package gemini_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/wire"
)

func TestSend(t *testing.T) {
	got := make(chan string, 1)
	conn := dial(t, tcpClient(t, live(func(t testing.TB, ws *websocket.Conn) {
		for {
			kind, data, err := ws.ReadMessage()
			if err != nil {
				return
			}
			if kind != websocket.TextMessage || !json.Valid(data) {
				t.Errorf("frame of kind %d: %s", kind, data)
			}
			got <- string(data)
		}
	}).handler(t)))
	for _, c := range []struct {
		send func() error
		want string
	}{
		{
			func() error { return conn.SendAudio(t.Context(), []int16{1, -2, 32767, -32768}, 16000) },
			`{"realtimeInput":{"audio":{"data":"AQD+//9/AIA=","mimeType":"audio/pcm;rate=16000"}}}`,
		},
		{
			func() error { return conn.SendAudio(t.Context(), nil, 24000) },
			`{"realtimeInput":{"audio":{"data":"","mimeType":"audio/pcm;rate=24000"}}}`,
		},
		{send(t, conn, wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{Text: "hi"}}), `{"realtimeInput":{"text":"hi"}}`},
		{send(t, conn, wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{ActivityStart: true}}), `{"realtimeInput":{"activityStart":{}}}`},
		{send(t, conn, wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{ActivityEnd: true}}), `{"realtimeInput":{"activityEnd":{}}}`},
		{
			send(t, conn, wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{AudioStreamEnd: true}}),
			`{"realtimeInput":{"audioStreamEnd":true}}`,
		},
		{
			send(t, conn, wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{Video: &wire.Blob{MIMEType: "image/jpeg", Data: []byte{255}}}}),
			`{"realtimeInput":{"video":{"mimeType":"image/jpeg","data":"/w=="}}}`,
		},
		{
			send(t, conn, wire.ClientMessage{ClientContent: &wire.ClientContent{
				Turns: []wire.Content{{Role: "user", Parts: json.RawMessage(`[{"text":"hi"}]`)}}, TurnComplete: true,
			}}),
			`{"clientContent":{"turns":[{"role":"user","parts":[{"text":"hi"}]}],"turnComplete":true}}`,
		},
		{
			send(t, conn, wire.ClientMessage{ToolResponse: &wire.ToolResponse{FunctionResponses: []wire.FunctionResponse{
				{ID: "1", Name: "f", Response: json.RawMessage(`{"n":9007199254740993}`), Scheduling: "SILENT"},
			}}}),
			`{"toolResponse":{"functionResponses":[{"id":"1","name":"f","response":{"n":9007199254740993},"scheduling":"SILENT"}]}}`,
		},
	} {
		if err := c.send(); err != nil {
			t.Fatal(err)
		}
		if frame := <-got; frame != c.want {
			t.Errorf("sent %s\nwant %s", frame, c.want)
		}
	}
	for _, m := range []wire.ClientMessage{{}, {ClientContent: &wire.ClientContent{}, RealtimeInput: &wire.RealtimeInput{}}} {
		if conn.Send(t.Context(), m) == nil {
			t.Errorf("%+v was sent", m)
		}
	}
}

func send(t *testing.T, conn *gemini.Conn, m wire.ClientMessage) func() error {
	return func() error { return conn.Send(t.Context(), m) }
}

func TestServerEnds(t *testing.T) {
	for _, c := range []struct {
		name   string
		end    func(ws *websocket.Conn)
		code   int
		reason string
	}{
		{"close frame", func(ws *websocket.Conn) {
			_ = ws.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(1011, "The service is currently unavailable."))
			untilGone(t, ws)
		}, 1011, "currently unavailable"},
		{"no close frame", func(ws *websocket.Conn) { _ = ws.NetConn().Close() }, 1006, ""},
		{"reset", func(ws *websocket.Conn) {
			_ = ws.NetConn().(*net.TCPConn).SetLinger(0)
			_ = ws.NetConn().Close()
		}, 1006, ""},
		{"garbage", func(ws *websocket.Conn) {
			_, _ = ws.NetConn().Write([]byte{0xff, 0xff, 0xff, 0xff})
			untilGone(t, ws)
		}, 1006, ""},
		{"too big", func(ws *websocket.Conn) {
			_, _ = ws.NetConn().Write([]byte{0x82, 127, 0, 0, 0, 0, 0x40, 0, 0, 0})
			untilGone(t, ws)
		}, 1009, "over our limit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := dial(t, tcpClient(t, live(func(_ testing.TB, ws *websocket.Conn) { c.end(ws) }).handler(t)))
			for range 1200 { // gorilla panics at the thousandth read of a dead connection
				_, err := conn.Recv(t.Context())
				closed, ok := errors.AsType[*wire.CloseError](err)
				if !ok || closed.Code != c.code || !strings.Contains(closed.Reason, c.reason) {
					t.Fatalf("%v, want %d", err, c.code)
				}
			}
		})
	}
}

func TestBadMessagesDoNotEnd(t *testing.T) {
	conn := dial(t, tcpClient(t, live(func(_ testing.TB, ws *websocket.Conn) {
		for _, m := range []string{
			`{"serverContent":`,
			`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"quota of ` + testKey + `"}}`, `{"serverContent":{"turnComplete":true}}`,
		} {
			_ = ws.WriteMessage(websocket.BinaryMessage, []byte(m))
		}
		untilGone(t, ws)
	}).handler(t)))
	_, err := conn.Recv(t.Context())
	if _, ok := errors.AsType[*wire.FrameError](err); !ok {
		t.Errorf("%v, want a FrameError", err)
	}
	_, err = conn.Recv(t.Context())
	if seen, ok := errors.AsType[*wire.ServerError](err); !ok || seen.Code != 429 || strings.Contains(err.Error(), testKey) {
		t.Errorf("%v, want a ServerError", err)
	}
	if m, err := conn.Recv(t.Context()); err != nil || !m.Content.TurnComplete {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestErrorsHideTheKey: an error hides a key that the server echoes, even if its text is cut off in the middle of the key.
func TestErrorsHideTheKey(t *testing.T) {
	for before := range 400 {
		said := strings.Repeat("x", before) + "\n" + testKey + " is no key"
		conn := dial(t, pipeClient(t, live(func(t testing.TB, ws *websocket.Conn) {
			_ = ws.WriteJSON(map[string]any{"error": map[string]any{"code": 400, "message": said}})
			untilGone(t, ws)
		}).handler(t)))
		_, err := conn.Recv(t.Context())
		seen, ok := errors.AsType[*wire.ServerError](err)
		if !ok || strings.Contains(seen.Message, testKey[:8]) || strings.Contains(seen.Message, "\n") ||
			len(seen.Message) > wire.MaxReason+len("…") {
			t.Fatalf("the key after %d bytes: %v", before, err)
		}
		_ = conn.Close()
	}
}

// TestPeerThatDoesNotRead: if the peer does not read, no call blocks for longer than documented.
func TestPeerThatDoesNotRead(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(t *testing.T, conn *gemini.Conn) error
		took time.Duration
	}{
		"Send": {func(t *testing.T, conn *gemini.Conn) error {
			return conn.SendAudio(t.Context(), make([]int16, 320), 16000)
		}, 2 * time.Second},
		"Send with a deadline": {func(t *testing.T, conn *gemini.Conn) error {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			err := conn.SendAudio(ctx, make([]int16, 320), 16000)
			again := conn.Send(ctx, wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{Text: "x"}})
			if !errors.Is(again, context.DeadlineExceeded) {
				t.Errorf("%v with a context that is over", again)
			}
			return err
		}, 300 * time.Millisecond},
		"Close": {func(_ *testing.T, conn *gemini.Conn) error { _ = conn.Close(); return os.ErrDeadlineExceeded }, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				conn := dial(t, pipeClient(t, live(func(testing.TB, *websocket.Conn) { <-release }).handler(t)))
				defer close(release)
				start := time.Now()
				err := c.do(t, conn)
				if late, ok := errors.AsType[net.Error](err); !ok || !late.Timeout() || time.Since(start) != c.took {
					t.Errorf("%v after %v", err, time.Since(start))
				}
			})
		})
	}
}

func TestCloseUnblocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		code := make(chan int, 1)
		conn := dial(t, pipeClient(t, live(func(_ testing.TB, ws *websocket.Conn) {
			for {
				if _, _, err := ws.ReadMessage(); err != nil {
					closed, _ := errors.AsType[*websocket.CloseError](err)
					code <- closed.Code
					return
				}
			}
		}).handler(t)))
		received := make(chan error)
		go func() { _, err := conn.Recv(t.Context()); received <- err }()
		synctest.Wait()
		first := conn.Close()
		if err := <-received; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Recv: %v", err)
		}
		if got := <-code; got != websocket.CloseNormalClosure {
			t.Errorf("the server got %d", got)
		}
		if again := conn.Close(); again != first { //nolint:errorlint // the same value
			t.Errorf("Close: %v, then %v", first, again)
		}
		if err := conn.SendAudio(t.Context(), nil, 16000); !errors.Is(err, net.ErrClosed) {
			t.Errorf("SendAudio: %v", err)
		}
		if _, err := conn.Recv(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Recv: %v", err)
		}
	})
}

func TestPingsAreAnswered(t *testing.T) {
	ponged := make(chan string, 1)
	conn := dial(t, tcpClient(t, live(func(t testing.TB, ws *websocket.Conn) {
		ws.SetPongHandler(func(data string) error { ponged <- data; return nil })
		_ = ws.WriteControl(websocket.PingMessage, []byte("still there?"), time.Now().Add(time.Second))
		untilGone(t, ws)
	}).handler(t)))
	received := make(chan struct{})
	go func() { defer close(received); _, _ = conn.Recv(t.Context()) }()
	if got := <-ponged; got != "still there?" {
		t.Errorf("pong %q", got)
	}
	_ = conn.Close()
	<-received
}

// TestRecvContextPerCall: a context that ends when its call has returned does not end the next one.
func TestRecvContextPerCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		speak := make(chan struct{})
		conn := dial(t, pipeClient(t, live(func(_ testing.TB, ws *websocket.Conn) {
			for range speak {
				_ = ws.WriteMessage(websocket.BinaryMessage, []byte(`{"x":1}`))
			}
			untilGone(t, ws)
		}).handler(t)))
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			for range 2 {
				go func() { time.Sleep(time.Second); speak <- struct{}{} }()
				if _, err := conn.Recv(ctx); err != nil {
					t.Fatal(err)
				}
			}
			cancel()
			synctest.Wait()
		}
		close(speak)
		first, cancelFirst := context.WithCancel(t.Context())
		cancelFirst()
		if _, err := conn.Recv(first); !errors.Is(err, context.Canceled) {
			t.Errorf("%v with a context that is over", err)
		}
		second, cancelSecond := context.WithTimeout(t.Context(), time.Second)
		defer cancelSecond()
		start := time.Now()
		if _, err := conn.Recv(second); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// TestAudioIsOverwritten documents what a further call of Recv overwrites.
func TestAudioIsOverwritten(t *testing.T) {
	message := func(sample byte, more string) []byte {
		data := base64.StdEncoding.EncodeToString([]byte{sample, 0, sample, 0})
		return []byte(
			`{"serverContent":{"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm;rate=24000","data":"` + data + `"}}]}` + more + `}}`,
		)
	}
	conn := dial(t, tcpClient(t, script(func(t testing.TB, ws *websocket.Conn) {
		for _, m := range [][]byte{
			message(1, ""), []byte(`{"setupComplete":{}}`), message(2, ""), message(3, `,"outputTranscription":{"text":"three"}`), message(4, ""),
		} {
			_ = ws.WriteMessage(websocket.BinaryMessage, m)
		}
		untilGone(t, ws)
	}).handler(t)))
	var got []*wire.ServerMessage
	for i := range 4 {
		m, err := conn.Recv(t.Context())
		if err != nil || m.Content.Audio[0] != int16(i+1) || m.Content.AudioRate != 24000 {
			t.Fatalf("message %d: %+v, %v", i, m, err)
		}
		got = append(got, m)
	}
	if early := got[0].Content; early.Audio[0] != 1 {
		t.Error("what came before setupComplete has changed")
	}
	if got[1] != got[3] || &got[1].Content.Audio[0] != &got[2].Content.Audio[0] {
		t.Error("a second message or buffer was made")
	}
	if c := got[2].Content; c.OutputTranscription != "three" || got[3].Content.Fields != nil {
		t.Errorf("%+v and %+v have to do with one another", c, got[3].Content)
	}
}
