// Package mcp makes tools of those of a server that speaks the Model Context Protocol (https://modelcontextprotocol.io): a child
// process at the end of a pipe (stdio), or an address (streamable HTTP).
package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"voxgate/tools"
)

const (
	// startTimeout bounds a start after the first: what a program from a package cache needs, and then some.
	startTimeout = 20 * time.Second

	// A server that ends is started again at the next call; one that keeps ending not before a pause, which doubles.
	minPause, maxPause = time.Second, 30 * time.Second

	// maxTools is more than any model can choose from; a server that lists more does so by mistake.
	maxTools = 1000
)

// Options says which server it is and what of it is used.
type Options struct {
	Name string // for people: in errors and in the log

	Command []string          // a program and its arguments, or
	Env     map[string]string // its environment, besides PATH and HOME, which are the gateway's

	URL     string            // an endpoint of streamable HTTP, which may be a private one
	Headers map[string]string // sent along, to the host of URL only

	Only   []string // the names of the tools that are offered; nil: all
	Prefix string   // put before the tools' names

	Timeout    time.Duration    // of each of its tools; 0: the usual one
	Behavior   tools.Behavior   // of each of its tools
	Scheduling tools.Scheduling // of each of its tools

	Logger *slog.Logger // nil: slog.Default()
}

// Server is a connection to an MCP server, which all conversations share.
//
// Its tools return when their context is done, whatever the server does. A server that has ended, that does not take a call from its
// input in the call's time, or that leaves too many cancelled calls unanswered, is ended with all that runs in it and started again at
// the next call; a call that has not reached it is made then.
type Server struct {
	o      Options
	stop   context.CancelFunc
	done   chan struct{} // closed when run has ended
	wanted chan want     // to run: a call needs a link
	serial atomic.Int64  // of the last call: its progress token
	asks   atomic.Bool   // see link.ask
	mu     sync.Mutex    // guards what follows
	link   *link         // nil: the server is not running
	tools  []tools.Tool  // as the server listed them last
}

// want asks for a link that is not spent.
type want struct {
	spent *link
	reply chan<- granted
}

type granted struct {
	link *link
	err  error
}

// Connect starts the server, or reaches it, and reads the list of its tools; ctx bounds that. Call Close when it is not needed
// any more.
func Connect(ctx context.Context, o Options) (*Server, error) {
	if (len(o.Command) == 0) == (o.URL == "") {
		return nil, fmt.Errorf("MCP server %q: needs either a command or a url", o.Name)
	}
	if o.URL != "" {
		// The text of an error would hold the URL, which may hold a token.
		if to, err := url.Parse(o.URL); err != nil || (to.Scheme != "http" && to.Scheme != "https") || to.Host == "" {
			return nil, fmt.Errorf("MCP server %q: url: must be http://host/… or https://host/…", o.Name)
		}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Logger = o.Logger.With("mcp", o.Name)
	// The lifetime is not ctx's, and nothing that a context carries may reach the server's questions: see link.ask.
	lifetime, stop := context.WithCancel(context.Background())
	s := &Server{o: o, stop: stop, done: make(chan struct{}), wanted: make(chan want)}
	keeper := &keeper{Server: s}
	_, err := keeper.dial(ctx)
	if err == nil {
		err = s.missing()
	}
	if err != nil {
		stop()
		_ = keeper.set(nil)
		return nil, fmt.Errorf("MCP server %q: %w", o.Name, err)
	}
	go func() {
		defer close(s.done)
		keeper.run(lifetime)
	}()
	return s, nil
}

// Close ends the server and what runs in it, and waits until nothing of it is left.
func (s *Server) Close() error {
	s.stop()
	<-s.done
	return nil
}

// Tools returns the tools as the server listed them last.
func (s *Server) Tools() []tools.Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tools)
}

// missing says which of the wanted tools the server does not have.
func (s *Server) missing() error {
	for _, name := range s.o.Only {
		if !slices.ContainsFunc(s.Tools(), func(t tools.Tool) bool { return t.Name == toolName(s.o.Prefix+name) }) {
			return fmt.Errorf("it has no tool %q", name)
		}
	}
	return nil
}

// list reads all pages of the list of tools.
func (s *Server) list(ctx context.Context, session *mcp.ClientSession) error {
	var all []tools.Tool
	listed := 0
	for t, err := range session.Tools(ctx, nil) {
		if err != nil {
			return fmt.Errorf("list tools: %w", plain(err))
		}
		if listed++; listed > maxTools {
			return fmt.Errorf("it lists more than %d tools", maxTools)
		}
		if s.o.Only == nil || slices.Contains(s.o.Only, t.Name) {
			tool, err := s.tool(t)
			if err != nil {
				return err
			}
			for base, n := tool.Name, 2; slices.ContainsFunc(all, func(t tools.Tool) bool { return t.Name == tool.Name }); n++ {
				tool.Name = fmt.Sprintf("%.124s_%d", base, n) // "a b" and "a.b"
			}
			all = append(all, tool)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tools = all
	return nil
}

// toolName is a tool's name as a model takes it: MCP has no rules for names.
func toolName(name string) string {
	name = strings.Map(func(r rune) rune {
		if tools.ValidName("_" + string(r)) {
			return r
		}
		return '_'
	}, name)
	name = name[:min(len(name), 127)]
	if !tools.ValidName(name) {
		name = "_" + name // it began with a digit
	}
	return name
}

func (s *Server) tool(t *mcp.Tool) (tools.Tool, error) {
	schema, err := json.Marshal(t.InputSchema)
	if err != nil {
		return tools.Tool{}, fmt.Errorf("tool %q: inputSchema: %w", t.Name, err)
	}
	title := t.Title
	if title == "" && t.Annotations != nil {
		title = t.Annotations.Title
	}
	return tools.Tool{
		Declaration: tools.Declaration{
			Name: toolName(s.o.Prefix + t.Name), Title: title, Description: t.Description, Parameters: schema,
			Behavior: s.o.Behavior, Scheduling: s.o.Scheduling, Timeout: s.o.Timeout,
		},
		Run: func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
			return s.call(ctx, t.Name, args)
		},
	}, nil
}

// call runs one of the server's tools. A server that refuses it because it has forgotten the session is asked once more; and a call
// that its link did not take to the server is made on the next link. It returns when ctx is done.
func (s *Server) call(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
	var spent *link
	for forgotten := false; ; {
		l, err := s.linked(ctx, spent)
		if err != nil {
			return nil, err
		}
		result, err := l.call(ctx, name, args)
		switch {
		case err == nil:
			return outcome(result)
		case errors.Is(err, errSpent):
		case errors.Is(err, mcp.ErrSessionMissing) && !forgotten:
			forgotten = true
		default:
			return nil, s.failure(ctx, err)
		}
		spent = l
	}
}

// linked returns a link other than spent, and starts the server where there is none.
func (s *Server) linked(ctx context.Context, spent *link) (*link, error) {
	s.mu.Lock()
	current := s.link
	s.mu.Unlock()
	if current != nil && current != spent && current.alive() {
		return current, nil
	}
	reply := make(chan granted, 1)
	select {
	case s.wanted <- want{spent, reply}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-s.done:
		return nil, fmt.Errorf("the MCP server %q is closed", s.o.Name)
	}
	select {
	case got := <-reply:
		return got.link, got.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-s.done:
		return nil, fmt.Errorf("the MCP server %q is closed", s.o.Name)
	}
}
