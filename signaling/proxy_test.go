package signaling_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"voxgate/signaling"
	"voxgate/signaling/access"
)

// An answer of another gateway may take longer than the server's own deadline for an answer.
func TestAnAnswerOfAnotherGatewayGoesOn(t *testing.T) {
	t.Parallel()
	const timeout = 100 * time.Millisecond
	more := make(chan struct{})
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-more
		fmt.Fprintln(w, "second")
	}))
	defer other.Close()
	fleet, err := access.NewClusterKey("a secret of these gateways")
	if err != nil {
		t.Fatal(err)
	}
	gate, err := access.New(access.Options{ClusterKey: fleet, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	node := fleet.SignNode("other", other.URL)
	server := signaling.NewServer(signaling.Options{Access: gate, Logger: slog.New(slog.DiscardHandler)}, signaling.Endpoint{
		Pattern: "GET /sound",
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !signaling.ProxyTo(w, r, node, "", func(err error) { t.Error(err) }) {
				t.Error("the other gateway is not known")
			}
		}),
	})
	front := httptest.NewUnstartedServer(server)
	front.Config.WriteTimeout = timeout
	front.Start()
	defer front.Close()
	answer, err := http.Get(front.URL + "/sound")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.ReadFull(answer.Body, make([]byte, len("first\n"))); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(2*timeout, func() { close(more) })
	if rest, err := io.ReadAll(answer.Body); err != nil || string(rest) != "second\n" {
		t.Errorf("%q %v", rest, err)
	}
}
