package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"voxgate/tools"
)

// peer is a server of the older protocol, for tests with a fake clock. Its tool "slow" sends a value to runs, ignores
// cancellation, and returns when the test sends to answer. The peer must be closed, which ends all open calls.
type peer struct {
	*sdk.Server
	link *link
	log  *strings.Builder

	runs   chan struct{}
	answer chan struct{}
}

func newPeer(t *testing.T) *peer {
	t.Helper()
	options := &sdk.ServerOptions{SupportedProtocolVersions: []string{legacyVersion}}
	p := &peer{
		Server: sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, options),
		log:    &strings.Builder{},
		runs:   make(chan struct{}), answer: make(chan struct{}),
	}
	p.add("slow", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		p.runs <- struct{}{}
		<-p.answer
		return &sdk.CallToolResult{}, nil
	})
	p.add("quick", nothing)
	here, there := sdk.NewInMemoryTransports()
	if _, err := p.Connect(t.Context(), there, nil); err != nil {
		t.Fatal(err)
	}
	server := &Server{options: Options{Name: "test", URL: "in memory", Logger: slog.New(slog.NewTextHandler(p.log, nil))}}
	server.lifetime, server.stop = context.WithCancel(context.Background())
	p.link = newLink(server)
	if err := p.link.connect(t.Context(), here, false); err != nil {
		t.Fatal(err)
	}
	go p.link.serve()
	return p
}

func nothing(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	return &sdk.CallToolResult{}, nil
}

func (p *peer) add(name string, handler sdk.ToolHandler) {
	p.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, handler)
}

func (p *peer) close() {
	close(p.answer)
	p.link.server.stop()
	<-p.link.closed
}

// abandoned starts a call and cancels it while it runs. Its user must not be asked anything.
func (p *peer) abandoned(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(tools.WithEnv(t.Context(), &tools.Env{
		AskPerson: func(context.Context, json.RawMessage) (json.RawMessage, error) {
			t.Error("a person is asked")
			return nil, io.EOF
		},
	}))
	go func() {
		<-p.runs
		cancel(tools.ErrCancelled)
	}()
	if _, err := p.link.callTool(ctx, "slow", nil); !errors.Is(err, tools.ErrCancelled) {
		t.Error(err)
	}
}

func (p *peer) quick(t *testing.T) error {
	_, err := p.link.callTool(t.Context(), "quick", nil)
	return err
}

// TestCallAfterItsEnd: a call whose context is done before it begins does not reach the server.
func TestCallAfterItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		defer p.close()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(tools.ErrCancelled)
		if _, err := p.link.callTool(ctx, "slow", nil); !errors.Is(err, tools.ErrCancelled) {
			t.Error(err)
		}
		synctest.Wait()
		select {
		case <-p.runs:
			t.Error("it runs")
		default:
		}
	})
}

// TestManyAbandonedCalls: a link is closed after many abandoned calls in a row, but not while a user waits for a call,
// and not if the server has answered one in between.
func TestManyAbandonedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		defer p.close()
		for range maxUnanswered - 1 {
			p.abandoned(t)
		}
		if err := p.quick(t); err != nil {
			t.Error(err)
		}
		done := make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := p.link.callTool(ctx, "slow", nil)
			done <- err
		}()
		<-p.runs
		for range maxUnanswered {
			p.abandoned(t)
		}
		if !p.link.isAlive() {
			t.Error("it ends under a call that runs")
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := p.quick(t); !errors.Is(err, errLinkEnded) || !errors.Is(p.link.endErr, errUnanswered) {
			t.Errorf("%v, %v", err, p.link.endErr)
		}
	})
}

// TestServerThatAnnouncesChangesEndlessly: the list of a server that changes on each read is read every few seconds only.
func TestServerThatAnnouncesChangesEndlessly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		defer p.close()
		var listed atomic.Int64
		var settled atomic.Bool
		p.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
			return func(ctx context.Context, method string, r sdk.Request) (sdk.Result, error) {
				result, err := next(ctx, method, r)
				if method == "tools/list" {
					if n := listed.Add(1); !settled.Load() {
						p.add(fmt.Sprint("tool-", n), nothing)
					}
				}
				return result, err
			}
		})
		p.add("first", nothing)
		time.Sleep(time.Minute)
		if got := listed.Load(); got < 10 || got > 13 {
			t.Errorf("the list was read %d times in a minute", got)
		}
		settled.Store(true)
		p.add("last", nothing)
		time.Sleep(2 * relistPause)
		if all := fmt.Sprint(p.link.server.Tools()); !strings.Contains(all, "last") {
			t.Errorf("the last state was not seen: %s", all)
		}
		synctest.Wait()
		if got := strings.Count(p.log.String(), "have changed"); got > 15 {
			t.Errorf("%d lines of the log", got)
		}
	})
}
