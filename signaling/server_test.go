package signaling_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"voxgate/signaling"
)

// A connection that does not end is named at the shutdown, which does not wait for it without limit.
func TestWhatHangsAtADoorIsNamed(t *testing.T) {
	t.Parallel()
	there, hang := make(chan struct{}), make(chan struct{})
	server := signaling.NewServer(signaling.Options{Logger: slog.New(slog.DiscardHandler)}, signaling.Endpoint{
		Pattern: "POST /hang", Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, leave := signaling.OutliveRequest(r.Context())
			close(there)
			<-hang
			leave()
		}),
	})
	front := httptest.NewServer(server)
	defer front.Close()
	var asking sync.WaitGroup
	asking.Go(func() {
		if resp, err := http.Post(front.URL+"/hang", "", nil); err == nil {
			resp.Body.Close()
		}
	})
	<-there
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the shutdown may take no time at all
	if err := server.Close(ctx); err == nil || !strings.Contains(err.Error(), "POST /hang from 127.0.0.1") {
		t.Errorf("named: %v", err)
	}
	close(hang)
	asking.Wait()
	if err := server.Close(t.Context()); err != nil {
		t.Errorf("then: %v", err)
	}
}
