// Package mcp offers the tools of a server that speaks the Model Context Protocol (https://modelcontextprotocol.io): a child process at the
// end of a pipe (stdio), or an address (streamable HTTP).
package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/singleflight"

	"voxgate/tools"
)

const (
	// startTimeout bounds a start after the first: what a program from a package cache needs, and then some.
	startTimeout = 20 * time.Second

	// A server that ends is started again at the next call; one that keeps ending not before a pause, which doubles.
	minPause, maxPause = time.Second, 30 * time.Second

	// maxMessage bounds how much of a server's own error text goes to the model, in bytes.
	maxMessage = 500

	// undelivered is the code of the SDK's own error for a message that did not reach the server; it has no name outside the SDK.
	undelivered = -32005

	// maxTools is more than any model can choose from; a server lists more only by mistake.
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
	Repeats    bool             // likewise; see [tools.Declaration]

	Logger *slog.Logger // nil: slog.Default()
}

// Server is a connection to an MCP server, which all conversations share.
//
// Its tools return when their context is done, whatever the server does. A server that has ended, or that leaves maxUnanswered calls
// in a row unanswered, is ended with all that runs in it and started again at the next call. No call is made twice.
type Server struct {
	o        Options
	lifetime context.Context
	stop     context.CancelFunc
	serial   atomic.Int64       // of the last call: its progress token
	starts   singleflight.Group // of restart
	work     sync.WaitGroup     // links and restarts

	mu     sync.Mutex   // guards what follows
	link   *link        // the newest; nil: none was ever started
	tools  []tools.Tool // as the server listed them last
	legacy bool         // the server takes no newer protocol than legacyVersion

	// After an end, and a start that has failed:
	pause time.Duration // until the next start, the next time
	retry time.Time     // no start before that
	why   error         // why there is no link
}

// Connect starts the server, or reaches it, and reads the list of its tools; ctx bounds that. Call Close when it is not needed
// any more.
func Connect(ctx context.Context, o Options) (*Server, error) {
	s, err := newServer(o)
	if err != nil {
		return nil, err
	}
	if err := s.begin(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Open is [Connect] for a server that may be down: if it does not start, or cannot be reached, that is logged, the server has no tools, and
// it is tried again in the background, with growing pauses, until Close. Its error is one of the options.
func Open(ctx context.Context, o Options) (*Server, error) {
	s, err := newServer(o)
	if err != nil {
		return nil, err
	}
	if err := s.begin(ctx); err != nil {
		s.o.Logger.Error("the MCP server does not start; conversations have none of its tools until it does", "err", err)
		if s.current() == nil { // it may run, and only lack a tool
			s.ended(err, 0)
			s.work.Go(s.keepStarting)
		}
	}
	return s, nil
}

// begin starts the server for the first time.
func (s *Server) begin(ctx context.Context) error {
	err := s.start(ctx)
	if err == nil {
		err = s.missing()
	}
	if err != nil {
		return fmt.Errorf("MCP server %q: %w", s.o.Name, err)
	}
	return nil
}

// keepStarting starts a server that has not started at first, until it runs.
func (s *Server) keepStarting() {
	for s.current() == nil {
		s.mu.Lock()
		pause := max(time.Until(s.retry), minPause)
		s.mu.Unlock()
		select {
		case <-time.After(pause):
			_, _, _ = s.starts.Do("", s.restart) // it logs
		case <-s.lifetime.Done():
			return
		}
	}
	if err := s.missing(); err != nil {
		s.o.Logger.Error("the MCP server lacks a tool", "err", err)
	}
}

func newServer(o Options) (*Server, error) {
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
	s := &Server{o: o}
	// The lifetime is not ctx's, and nothing that a context carries may reach the server's questions: see ask.
	s.lifetime, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// Close ends the server and what runs in it, and waits until nothing of it is left.
func (s *Server) Close() {
	s.mu.Lock() // nothing begins any more
	s.stop()
	s.mu.Unlock()
	s.work.Wait()
}

// start makes a link and reads the list of tools.
func (s *Server) start(ctx context.Context) error {
	l, err := dial(ctx, s, s.legacy)
	if err != nil && !s.legacy && ctx.Err() == nil {
		// The newest protocol begins with a request that ends some older servers.
		var older error
		if l, older = dial(ctx, s, true); older == nil {
			s.legacy, err = true, nil
		}
	}
	if err != nil {
		return err
	}
	s.work.Go(l.run)
	if err := l.list(ctx); err != nil {
		l.giveUp(err)
		<-l.closed
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link = l
	return nil
}

// current returns the link in use; nil if it has ended.
func (s *Server) current() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil || !s.link.alive() {
		return nil
	}
	return s.link
}

// linked returns a link, and starts the server where there is none.
func (s *Server) linked(ctx context.Context) (*link, error) {
	if l := s.current(); l != nil {
		return l, nil
	}
	select {
	case got := <-s.starts.DoChan("", s.restart): // it goes on when the caller leaves
		l, _ := got.Val.(*link)
		return l, got.Err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-s.lifetime.Done():
		return nil, s.isClosed()
	}
}

func (s *Server) isClosed() error { return fmt.Errorf("the MCP server %q is closed", s.o.Name) }

// restart returns a new link when the old one has ended. It is called once at a time.
func (s *Server) restart() (any, error) {
	s.mu.Lock()
	if s.lifetime.Err() != nil {
		s.mu.Unlock()
		return nil, s.isClosed()
	}
	s.work.Add(1)
	old := s.link
	s.mu.Unlock()
	defer s.work.Done()
	if old != nil {
		if old.alive() { // somebody else was faster
			return old, nil
		}
		<-old.closed
	}
	s.mu.Lock()
	wait, why := time.Until(s.retry), s.why
	s.mu.Unlock()
	if wait > 0 {
		return nil, fmt.Errorf("the MCP server %q is down (%w); it is tried again in %v", s.o.Name, tools.Unaddressed(why),
			wait.Round(time.Second/10))
	}
	limited, cancel := context.WithTimeout(s.lifetime, startTimeout)
	defer cancel()
	if err := s.start(limited); err != nil {
		s.ended(err, 0)
		s.o.Logger.Error("the MCP server cannot be started again", "err", err)
		return nil, fmt.Errorf("the MCP server %q is down: %w", s.o.Name, tools.Unaddressed(err))
	}
	s.o.Logger.Info("the MCP server is back")
	return s.current(), nil
}

// ended notes why a link has ended, and how long none is started: a server that was there for a while is started at once.
func (s *Server) ended(why error, lasted time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lasted >= maxPause {
		s.pause = 0
	}
	s.why, s.retry = why, time.Now().Add(s.pause)
	s.pause = min(max(2*s.pause, minPause), maxPause)
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
			return fmt.Errorf("list tools: %w", s.plain(err))
		}
		if listed++; listed > maxTools {
			return fmt.Errorf("it lists more than %d tools", maxTools)
		}
		if s.o.Only == nil || slices.Contains(s.o.Only, t.Name) {
			tool, err := s.tool(t)
			if err != nil {
				return err
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
			Behavior: s.o.Behavior, Scheduling: s.o.Scheduling, Timeout: s.o.Timeout, Repeats: s.o.Repeats,
		},
		Run: func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
			return s.call(ctx, t.Name, args)
		},
	}, nil
}

// call runs one of the server's tools. A call that its link did not begin, or whose session the server does not know any more, is made on
// the next link: nothing ran. It returns when ctx is done.
func (s *Server) call(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
	for forgotten := false; ; {
		l, err := s.linked(ctx)
		if err != nil {
			return nil, err
		}
		result, err := l.call(ctx, name, args)
		switch {
		case err == nil:
			return outcome(result)
		case errors.Is(err, mcp.ErrSessionMissing) && !forgotten && ctx.Err() == nil:
			forgotten = true
		case !errors.Is(err, errOver):
			return nil, s.failure(ctx, err)
		}
	}
}

// failure says, for the model, why a call failed.
func (s *Server) failure(ctx context.Context, err error) error {
	var refused *jsonrpc.Error
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, tools.ErrNobody):
		return tools.ErrNobody
	case errors.Is(err, errEnded), errors.Is(err, mcp.ErrConnectionClosed), errors.Is(err, mcp.ErrSessionMissing),
		errors.Is(err, io.EOF) && s.o.URL == "":
		return fmt.Errorf("the MCP server %q ended during the call", s.o.Name)
	case errors.As(err, &refused) && refused.Code != undelivered:
		return fmt.Errorf("the MCP server %q refused the call: %s", s.o.Name, tools.Cut(refused.Message, maxMessage))
	default:
		return fmt.Errorf("the MCP server %q cannot be reached: %w", s.o.Name, tools.Unaddressed(s.plain(err)))
	}
}
