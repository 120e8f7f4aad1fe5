package signaling_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit"
	"voxgate/signaling"
	"voxgate/signaling/rtc"
)

// streamer reads a body and then answers line by line, for longer than the timeout of bodies.
func streamer(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	tick := time.NewTicker(signaling.BodyTimeout / 10)
	defer tick.Stop()
	for n := range 12 {
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
		fmt.Fprintln(w, n)
		http.NewResponseController(w).Flush()
	}
}

// TestBodiesThatNeverCome checks that a client that announces a body and does not send it is disconnected after any
// request. Slow answers and WebSockets must not be disconnected.
func TestBodiesThatNeverCome(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	g := testkit.StartGateway(t, func(d *testkit.Endpoints, _ *bridge.Options) {
		d.AddEndpoints(func(*bridge.Host, *rtc.API) []signaling.Endpoint {
			return []signaling.Endpoint{{Pattern: "POST /stream", Handler: http.HandlerFunc(streamer)}}
		})
	})
	c := testkit.OpenConversation(t, g, `{}`)
	long := make(chan string)
	go func() {
		resp, err := http.Post(g.HTTP+"/stream", "text/plain", strings.NewReader("all of it"))
		if err != nil {
			long <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		long <- fmt.Sprint(strings.Count(string(text), "\n"), err)
	}()
	upgrade := "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
	requests := []string{
		"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n",
		"GET /status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n12345",
		"GET / HTTP/1.1\r\nHost: stranger.example\r\nContent-Length: 10\r\n\r\n",
		"POST /stream HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n",
		"POST /stream HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n123",
		"POST /stream HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n",
		"GET /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n" + upgrade + "\r\n",
		"OPTIONS /ws HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n",
	}
	var silent sync.WaitGroup
	var gone atomic.Int64
	for n := range 200 {
		silent.Go(func() {
			conn, err := net.Dial("tcp", strings.TrimPrefix(g.HTTP, "http://"))
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(2 * signaling.BodyTimeout))
			io.WriteString(conn, requests[n%len(requests)])
			if _, err := io.Copy(io.Discard, bufio.NewReader(conn)); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Errorf("still there: %q", requests[n%len(requests)])
				return
			}
			gone.Add(1)
		})
	}
	silent.Wait()
	t.Logf("%d of 200 are gone", gone.Load())
	if got := <-long; got != "12 <nil>" {
		t.Errorf("of 12 lines of an answer came %s", got)
	}
	c.AskText("Are you there?")
}
