package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

const legacy = "2025-11-25"

// TestMain runs the tests, or an MCP server on stdin and stdout if TEST_MCP_SERVER is set.
func TestMain(m *testing.M) {
	if kind := os.Getenv("TEST_MCP_SERVER"); kind != "" {
		serve(kind)
		return
	}
	if err := os.Setenv("VOXGATE_SECRET", "hidden"); err != nil { // children must not get this variable
		panic(err)
	}
	// The tests mostly wait for children that end slowly, so many run in parallel.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func serve(kind string) {
	fmt.Fprintln(os.Stderr, "the server", kind, "starts")
	var versions []string
	switch kind {
	case "broken":
		os.Exit(3)
	case "legacy":
		versions = []string{legacy}
	case "stubborn": // ignores SIGTERM and the end of its input, and has a child process
		signal.Ignore(syscall.SIGTERM)
		_ = exec.Command("sh", "-c", `exec sleep 1000 > "$TEST_MCP_FIFO"`).Start()
	case "noisy":
		server := newServer(nil, nil)
		server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
			return func(ctx context.Context, method string, r sdk.Request) (sdk.Result, error) {
				fmt.Print("\x1b[33mDeprecationWarning: old\x1b[0m\n\n42\n\"text\"\nnull\n" + `{"level":"info","msg":{}}` + "\n[1,{}]\n{\n\xff\xfe\n")
				fmt.Print("listening on {") // without a newline
				return next(ctx, method, r)
			}
		})
		fmt.Print("Server 1.0 started on stdio\n\r\n")
		_ = server.Run(context.Background(), &sdk.StdioTransport{})
		return
	case "abrupt": // exits unless the first message is "initialize", like servers with older SDKs
		abrupt()
		return
	}
	_ = newServer(versions, nil).Run(context.Background(), &sdk.StdioTransport{})
	if kind == "stubborn" {
		select {}
	}
}

func abrupt() {
	transport := &sdk.StdioTransport{}
	connection, err := transport.Connect(context.Background())
	if err != nil {
		panic(err)
	}
	first, err := connection.Read(context.Background())
	if err != nil {
		panic(err)
	}
	if r, ok := first.(*jsonrpc.Request); !ok || r.Method != "initialize" {
		os.Exit(1)
	}
	_ = newServer([]string{legacy}, nil).Run(context.Background(), &replay{connection, first})
}

// newServer returns a server with tools for all tests, which it lists in pages of two. All calls end when quit is closed.
func newServer(versions []string, quit <-chan struct{}) *sdk.Server {
	options := &sdk.ServerOptions{PageSize: 2, SupportedProtocolVersions: versions}
	server := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, options)
	cancelled, released, asked := make(chan struct{}, 1), make(chan struct{}, 1), make(chan string, 1)
	add := func(name string, handler sdk.ToolHandler) {
		server.AddTool(&sdk.Tool{
			Name: name, Title: name + "…", Description: "does " + name,
			InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`),
		}, handler)
	}
	add("echo", func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		said, err := json.Marshal(map[string]any{"args": r.Params.Arguments, "session": r.Params.Meta["voxgate/session"]})
		return &sdk.CallToolResult{
			Content: []sdk.Content{&sdk.TextContent{Text: string(said)}}, StructuredContent: json.RawMessage(said),
		}, err
	})
	add("structured", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{
			Content: []sdk.Content{&sdk.TextContent{Text: "two"}}, StructuredContent: json.RawMessage(`{"n":2}`),
		}, nil
	})
	add("text", func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(r.Params.Arguments)}}}, nil
	})
	add("parts", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{
			&sdk.TextContent{Text: "{}"},
			&sdk.ImageContent{MIMEType: "image/png", Data: []byte("x")},
			&sdk.AudioContent{MIMEType: "audio/wav", Data: []byte("x")},
			&sdk.ResourceLink{Name: "a", URI: "file:///a", MIMEType: "text/plain"},
			&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "file:///b", Text: "inline"}},
			&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "file:///c", MIMEType: "application/zip", Blob: []byte("x")}},
		}}, nil
	})
	add("nothing", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{}, nil
	})
	add("fail", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: "sold out"}}}, nil
	})
	add("refuse", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return nil, errors.New("not today")
	})
	add("progress", func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		err := r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
			ProgressToken: r.Params.GetProgressToken(), Progress: 1, Total: 3, Message: "one",
		})
		select {
		case <-released:
		case <-quit:
		}
		return &sdk.CallToolResult{}, err
	})
	add("release", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		released <- struct{}{}
		return &sdk.CallToolResult{}, nil
	})
	add("hang", func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		_ = r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken()})
		select {
		case <-ctx.Done():
			cancelled <- struct{}{}
		case <-quit:
		}
		return nil, errors.New("ended")
	})
	add("cancelled", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		<-cancelled
		return &sdk.CallToolResult{}, nil
	})
	add("ask", answerElicitation)
	add("late", func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) { // ignores its cancellation
		_ = r.Session.NotifyProgress(context.Background(), &sdk.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken()})
		select {
		case <-released:
		case <-quit:
		}
		got, err := r.Session.Elicit(context.Background(), &sdk.ElicitParams{
			Message: "Ada, what is your PIN?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"pin":{"type":"string"}}}`),
		})
		asked <- fmt.Sprint(got, err)
		return &sdk.CallToolResult{}, nil
	})
	add("asked", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { // lets "late" ask, and returns its result
		released <- struct{}{}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: <-asked}}}, nil
	})
	add("grow", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		add("new", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{}, nil
		})
		return &sdk.CallToolResult{}, nil
	})
	add("crash", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		os.Exit(7)
		return nil, nil
	})
	add("process", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		said, err := json.Marshal(map[string]any{"pid": os.Getpid(), "env": os.Environ()})
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(said)}}}, err
	})
	return server
}

// answerElicitation elicits values with the schema in its arguments, and returns the answer. For clients of the older
// protocol, the SDK sends the question as a request.
func answerElicitation(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	if len(r.Params.InputResponses) == 0 {
		var args struct {
			Schema  json.RawMessage `json:"schema"`
			Message string          `json:"message"`
		}
		if err := json.Unmarshal(r.Params.Arguments, &args); err != nil {
			return nil, err
		}
		return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{
			"input": &sdk.ElicitParams{Mode: "form", Message: args.Message, RequestedSchema: args.Schema},
		}}, nil
	}
	said, err := json.Marshal(r.Params.InputResponses["input"])
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(said)}}}, err
}

// overHTTP serves an MCP server over HTTP until the test ends, and returns its URL. seen is called with each request.
func overHTTP(t *testing.T, versions []string, seen func(*http.Request)) string {
	t.Helper()
	quit := make(chan struct{})
	server := newServer(versions, quit)
	handler := sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
		seen(r)
		return server
	}, &sdk.StreamableHTTPOptions{Stateless: versions == nil, PropagateRequestCancellation: true})
	end := sync.OnceFunc(func() { close(quit) })
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete { // the SDK answers only after the session's calls have ended, and its client waits 5 s
			end()
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		end()
		endSessions(server)
		web.CloseClientConnections()
		web.Close()
	})
	return web.URL
}

// endSessions ends all sessions that are still open, because their client has not ended them or the server has not noticed.
func endSessions(server *sdk.Server) {
	for session := range server.Sessions() {
		_ = session.Close()
	}
}

// replay is a transport on a connection from which the first message was already read: it returns that message first.
type replay struct {
	sdk.Connection
	first jsonrpc.Message
}

func (r *replay) Connect(context.Context) (sdk.Connection, error) { return r, nil }

func (r *replay) Read(ctx context.Context) (jsonrpc.Message, error) {
	if first := r.first; first != nil {
		r.first = nil
		return first, nil
	}
	return r.Connection.Read(ctx)
}
