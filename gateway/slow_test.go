package main

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestSlowHeaders: a client that sends a request byte by byte, or sends nothing, is soon disconnected. Meanwhile other clients
// are served.
func TestSlowHeaders(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	p := startGateway(t, nil, env("VOXGATE_ADDR", "127.0.0.1:0"))
	var slow sync.WaitGroup
	for n := range 100 {
		slow.Go(func() {
			conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			closed := make(chan error, 1)
			go func() {
				_, err := io.Copy(io.Discard, conn)
				closed <- err
			}()
			tick := time.NewTicker(headerTimeout / 10)
			defer tick.Stop()
			late := time.After(2 * headerTimeout)
			for sent := 0; ; {
				select {
				case <-closed:
					return
				case <-late:
					t.Errorf("still there after %d bytes", sent)
					conn.Close()
					<-closed
					return
				case <-tick.C:
					const request = "GET /ws HTTP/1.1\r\nHost: localhost\r\nX: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"
					if n%2 == 0 && sent < len(request) {
						io.WriteString(conn, request[sent:sent+1])
						sent++
					}
				}
			}
		})
	}
	if got := p.askOnce(`{}`); !strings.Contains(got, "AUDIO_CHUNK") {
		t.Errorf("the conversation was %.2000s", got)
	}
	slow.Wait()
}
