package signaling_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"voxgate/bridge"
	"voxgate/signaling"
)

// TestSocketEnds checks the ends of calls over a WebSocket. A client that continues to read gets all queued messages, and then
// the close frame.
func TestSocketEnds(t *testing.T) {
	t.Parallel()
	const limit = 10
	shout := func(s *signaling.Socket, n int) {
		for range n {
			s.PutText(make([]byte, 1<<20))
		}
	}
	for name, test := range map[string]struct {
		sends  []string
		serve  func(ctx context.Context, s *signaling.Socket) error
		code   int
		reason string
		least  int // MiB of messages before the close frame
	}{
		"nothing to say": {serve: func(context.Context, *signaling.Socket) error { return nil }, code: signaling.CloseNormal},
		"an error": {
			serve: func(context.Context, *signaling.Socket) error {
				return &bridge.Error{Code: bridge.CodeBusy, Message: "Not now."}
			},
			code:   signaling.CloseTryLater,
			reason: "Not now.",
		},
		"what was put": {
			serve: func(_ context.Context, s *signaling.Socket) error { shout(s, 3); return nil },
			code:  signaling.CloseNormal,
			least: 3,
		},
		"too slow": {
			serve: func(ctx context.Context, s *signaling.Socket) error {
				shout(s, 20)
				<-ctx.Done()
				return context.Cause(ctx)
			},
			code:   signaling.CloseTryLater,
			reason: signaling.ErrSlow.Error(),
		},
		"messages": {
			sends: []string{"one", "far too long", "two"},
			serve: func(ctx context.Context, s *signaling.Socket) error {
				first, err := s.ReadFirst(ctx, limit)
				if err != nil {
					return err
				}
				said := string(first.Data)
				err = s.Receive(ctx, func(m signaling.Message) error {
					if m.Err == nil {
						return fmt.Errorf("%s, %s", said, m.Data)
					}
					said += fmt.Sprint(", ", errors.Is(m.Err, signaling.ErrTooLong))
					return nil
				})
				return &bridge.Error{Code: bridge.CodeForbidden, Message: err.Error()}
			},
			code:   signaling.ClosePolicy,
			reason: "one, true, two",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				signaling.ServeSocket(w, r, signaling.SocketOptions{Limit: limit}, test.serve)
			}))
			defer server.Close()
			conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(server.URL, "http"), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			for _, m := range test.sends {
				if err := conn.WriteMessage(websocket.TextMessage, []byte(m)); err != nil {
					t.Fatal(err)
				}
			}
			got := 0
			for err == nil {
				var m []byte
				_, m, err = conn.ReadMessage()
				got += len(m) >> 20
			}
			if closed := (*websocket.CloseError)(nil); !errors.As(err, &closed) || closed.Code != test.code || closed.Text != test.reason ||
				got < test.least {
				t.Errorf("%d MiB, then %v, want %d %s", got, err, test.code, test.reason)
			}
			<-ended
		})
	}
}
