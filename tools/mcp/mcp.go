// Package mcp makes the tools of MCP servers (Model Context Protocol, https://modelcontextprotocol.io) available to
// models. A server is a child process (stdio) or a URL (streamable HTTP).
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
	// startTimeout bounds a restart. It is enough for a program from a package cache.
	startTimeout = 20 * time.Second

	// minPause and maxPause limit the wait before a restart. A server that has ended is restarted at the next call. If
	// it ends again and again, the wait doubles each time.
	minPause = time.Second
	maxPause = 30 * time.Second

	// maxMessage bounds a server's error text for the model, in bytes.
	maxMessage = 500

	// undelivered is the code of an error that the SDK creates if a message did not reach the server. The SDK does not
	// export this code.
	undelivered = -32005

	// maxTools limits the tools of a server. No model can choose from more, so a longer list is a mistake of the
	// server.
	maxTools = 1000
)

// Options configures an MCP server and the use of its tools.
type Options struct {
	Name string // name of the server in errors and the log

	Command []string          // a program and its arguments; set either Command or URL
	Env     map[string]string // environment of the program, in addition to the gateway's PATH and HOME

	URL     string            // an endpoint of streamable HTTP, which may be private
	Headers map[string]string // added to requests, but only to those for the host of URL

	Only   []string // names of the tools to offer (nil: all)
	Prefix string   // prepended to the tools' names

	Timeout    time.Duration    // timeout of each tool (0: the default)
	Behavior   tools.Behavior   // behavior of each tool
	Scheduling tools.Scheduling // scheduling of each tool
	Repeats    bool             // see [tools.Declaration].Repeats; applies to each tool

	Logger *slog.Logger // nil: slog.Default()
}

// Server is a connection to an MCP server, shared by all conversations. Its tools return when their context is done.
//
// A server is restarted at the next call if it has ended, or if it has left maxUnanswered calls in a row unanswered. A
// call is never made twice.
type Server struct {
	options  Options
	lifetime context.Context
	stop     context.CancelFunc
	serial   atomic.Int64       // progress token of the last call
	starts   singleflight.Group // calls of restart, one at a time
	work     sync.WaitGroup     // links and restarts

	mu     sync.Mutex   // guards the following fields
	link   *link        // newest link; nil before the first start
	tools  []tools.Tool // tools as last listed by the server
	legacy bool         // the server supports only legacyVersion and older

	// The following fields are set when the link has ended or a start has failed.
	retryDelay time.Duration // delay of the next restart
	retryAt    time.Time     // time of the next start at the earliest
	endErr     error         // the reason why the link is missing
}

// Connect starts the server or connects to it, and reads the list of its tools. ctx bounds both. Call Close when the
// server is no longer needed.
func Connect(ctx context.Context, o Options) (*Server, error) {
	s, err := newServer(o)
	if err != nil {
		return nil, err
	}
	if err := s.startFirst(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// ConnectWithRetry is like [Connect], but returns an error only for invalid options. If the server is down, it returns
// a Server without tools, which tries to start again in the background until Close.
func ConnectWithRetry(ctx context.Context, o Options) (*Server, error) {
	s, err := newServer(o)
	if err != nil {
		return nil, err
	}
	if err := s.startFirst(ctx); err != nil {
		s.options.Logger.Error("MCP server does not start, its tools are unavailable until it does", "err", err)
		if s.aliveLink() == nil { // not if the server runs, but lacks a configured tool
			s.recordEnd(err, 0)
			s.work.Go(s.retryUntilStarted)
		}
	}
	return s, nil
}

// startFirst starts the server for the first time.
func (s *Server) startFirst(ctx context.Context) error {
	err := s.start(ctx)
	if err == nil {
		err = s.checkConfiguredTools()
	}
	if err != nil {
		return fmt.Errorf("MCP server %q: %w", s.options.Name, err)
	}
	return nil
}

// retryUntilStarted retries the first start of a server until it runs or is closed.
func (s *Server) retryUntilStarted() {
	for s.aliveLink() == nil {
		s.mu.Lock()
		pause := max(time.Until(s.retryAt), minPause)
		s.mu.Unlock()
		select {
		case <-time.After(pause):
			_, _, _ = s.starts.Do("", s.restart) // logs errors
		case <-s.lifetime.Done():
			return
		}
	}
	if err := s.checkConfiguredTools(); err != nil {
		s.options.Logger.Error("MCP server lacks a tool", "err", err)
	}
}

func newServer(o Options) (*Server, error) {
	if (len(o.Command) == 0) == (o.URL == "") {
		return nil, fmt.Errorf("MCP server %q: needs either a command or a url", o.Name)
	}
	if o.URL != "" {
		// The error of url.Parse is not returned, because it contains the URL, which may hold a token.
		if to, err := url.Parse(o.URL); err != nil || (to.Scheme != "http" && to.Scheme != "https") || to.Host == "" {
			return nil, fmt.Errorf("MCP server %q: url: must be http://host/… or https://host/…", o.Name)
		}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Logger = o.Logger.With("mcp", o.Name)
	s := &Server{options: o}
	// The lifetime does not depend on ctx, because the server outlives Connect. Also, questions of the server must not
	// get the context values of one call: see answerElicitation.
	s.lifetime, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// Close ends the server and its running calls, and waits until they have ended.
func (s *Server) Close() {
	s.mu.Lock() // nothing starts any more
	s.stop()
	s.mu.Unlock()
	s.work.Wait()
}

// start creates a link and reads the list of tools.
func (s *Server) start(ctx context.Context) error {
	l, err := dial(ctx, s, s.legacy)
	if err != nil && !s.legacy && ctx.Err() == nil {
		// Try the older protocol, because some older servers crash on the request with which the newest protocol
		// begins.
		var older error
		if l, older = dial(ctx, s, true); older == nil {
			s.legacy, err = true, nil
		}
	}
	if err != nil {
		return err
	}
	s.work.Go(l.serve)
	if err := l.fetchTools(ctx); err != nil {
		l.endLink(err)
		<-l.closed
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link = l
	return nil
}

// aliveLink returns the current link, or nil if the link has ended or does not exist yet.
func (s *Server) aliveLink() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil || !s.link.isAlive() {
		return nil
	}
	return s.link
}

// ensureLink returns the current link. If there is none, it restarts the server, and blocks until the server runs or
// ctx is done.
func (s *Server) ensureLink(ctx context.Context) (*link, error) {
	if l := s.aliveLink(); l != nil {
		return l, nil
	}
	select {
	case got := <-s.starts.DoChan("", s.restart): // the restart continues even if ctx ends
		l, _ := got.Val.(*link)
		return l, got.Err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-s.lifetime.Done():
		return nil, s.newClosedError()
	}
}

func (s *Server) newClosedError() error {
	return fmt.Errorf("the MCP server %q is closed", s.options.Name)
}

// restart waits until the old link has ended, and returns a new link. Only one goroutine at a time calls it.
func (s *Server) restart() (newLink any, err error) {
	s.mu.Lock()
	if s.lifetime.Err() != nil {
		s.mu.Unlock()
		return nil, s.newClosedError()
	}
	s.work.Add(1)
	old := s.link
	s.mu.Unlock()
	defer s.work.Done()
	if old != nil {
		if old.isAlive() { // another call has restarted the server already
			return old, nil
		}
		<-old.closed
	}
	s.mu.Lock()
	wait, why := time.Until(s.retryAt), s.endErr
	s.mu.Unlock()
	if wait > 0 {
		return nil, fmt.Errorf("the MCP server %q is down (%w); next retry in %v", s.options.Name, tools.WithoutAddress(why),
			wait.Round(time.Second/10))
	}
	limited, cancel := context.WithTimeout(s.lifetime, startTimeout)
	defer cancel()
	if err := s.start(limited); err != nil {
		s.recordEnd(err, 0)
		s.options.Logger.Error("restarting the MCP server failed", "err", err)
		return nil, fmt.Errorf("the MCP server %q is down: %w", s.options.Name, tools.WithoutAddress(err))
	}
	s.options.Logger.Info("MCP server restarted")
	return s.aliveLink(), nil
}

// recordEnd stores the reason why a link has ended. It also sets the earliest time of the next start. There is no delay
// if the server has run for at least maxPause.
func (s *Server) recordEnd(reason error, lifetime time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lifetime >= maxPause {
		s.retryDelay = 0
	}
	s.endErr, s.retryAt = reason, time.Now().Add(s.retryDelay)
	s.retryDelay = min(max(2*s.retryDelay, minPause), maxPause)
}

// Tools returns the tools in the newest list of the server.
func (s *Server) Tools() []tools.Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tools)
}

// checkConfiguredTools returns an error if the server lacks one of the configured tools.
func (s *Server) checkConfiguredTools() error {
	for _, name := range s.options.Only {
		if !slices.ContainsFunc(s.Tools(), func(t tools.Tool) bool { return t.Name == sanitizeToolName(s.options.Prefix+name) }) {
			return fmt.Errorf("it has no tool %q", name)
		}
	}
	return nil
}

// fetchTools reads all pages of the list of tools.
func (s *Server) fetchTools(ctx context.Context, session *mcp.ClientSession) error {
	var all []tools.Tool
	listed := 0
	for t, err := range session.Tools(ctx, nil) {
		if err != nil {
			return fmt.Errorf("list tools: %w", s.withoutURL(err))
		}
		if listed++; listed > maxTools {
			return fmt.Errorf("it lists more than %d tools", maxTools)
		}
		if s.options.Only == nil || slices.Contains(s.options.Only, t.Name) {
			tool, err := s.newTool(t)
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

// sanitizeToolName converts a tool's name to a name that models accept, because MCP does not restrict names.
func sanitizeToolName(name string) string {
	name = strings.Map(func(r rune) rune {
		if tools.IsValidName("_" + string(r)) {
			return r
		}
		return '_'
	}, name)
	name = name[:min(len(name), 127)]
	if !tools.IsValidName(name) {
		name = "_" + name // the name began with a digit
	}
	return name
}

func (s *Server) newTool(t *mcp.Tool) (tools.Tool, error) {
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
			Name: sanitizeToolName(s.options.Prefix + t.Name), Title: title, Description: t.Description, Parameters: schema,
			Behavior: s.options.Behavior, Scheduling: s.options.Scheduling, Timeout: s.options.Timeout, Repeats: s.options.Repeats,
		},
		Run: func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
			return s.callTool(ctx, t.Name, args)
		},
	}, nil
}

// callTool runs one of the server's tools. It returns when ctx is done at the latest. If it is certain that the tool
// has not run, it retries the call on the next link.
func (s *Server) callTool(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
	for forgotten := false; ; {
		l, err := s.ensureLink(ctx)
		if err != nil {
			return nil, err
		}
		result, err := l.callTool(ctx, name, args)
		switch {
		case err == nil:
			return convertResult(result)
		case errors.Is(err, mcp.ErrSessionMissing) && !forgotten && ctx.Err() == nil:
			forgotten = true
		case !errors.Is(err, errLinkEnded):
			return nil, s.describeFailure(ctx, err)
		}
	}
}

// describeFailure returns the reason why a call has failed, in words for the model.
func (s *Server) describeFailure(ctx context.Context, err error) error {
	var refused *jsonrpc.Error
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, tools.ErrNobody):
		return tools.ErrNobody
	case errors.Is(err, errEnded), errors.Is(err, mcp.ErrConnectionClosed), errors.Is(err, mcp.ErrSessionMissing),
		errors.Is(err, io.EOF) && s.options.URL == "":
		return fmt.Errorf("the MCP server %q ended during the call", s.options.Name)
	case errors.As(err, &refused) && refused.Code != undelivered:
		return fmt.Errorf("the MCP server %q refused the call: %s", s.options.Name, tools.Truncate(refused.Message, maxMessage))
	default:
		return fmt.Errorf("the MCP server %q cannot be reached: %w", s.options.Name, tools.WithoutAddress(s.withoutURL(err)))
	}
}
