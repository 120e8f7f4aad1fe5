// Package catalogue reads the operator's file of tools: those that every conversation can call, in addition to the client's.
package catalogue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"voxgate/tools"
	"voxgate/tools/mcp"
	"voxgate/tools/webhook"
)

// connectTimeout bounds the start of all MCP servers together: enough for programs from a package cache. Monitoring takes
// a gateway that starts more slowly for dead.
const connectTimeout = 20 * time.Second

// Catalogue holds the tools of a file.
type Catalogue struct {
	log        *slog.Logger
	fixedTools []placedTool // built-in tools and webhooks
	pool       *webhook.Pool
	servers    []server
}

// placedTool is a tool with its place in the file.
type placedTool struct {
	tools.Tool
	place string // place in the file, such as "webhooks[0]"
}

type server struct {
	*mcp.Server
	place string
}

// Load reads the file and connects to its MCP servers, all at once. A server that does not start is logged and retried.
// Errors name file and place, but no environment variable's value. Call Close at the end.
func Load(ctx context.Context, path string, log *slog.Logger) (*Catalogue, error) {
	return loadWith(path, log, func(c *Catalogue, f *file) error { return c.connect(ctx, f.servers) })
}

// Check validates a file without connecting to servers. names are its tools, or nil if MCP servers may provide more.
func Check(path string) (names []string, err error) {
	servers := 0
	c, err := loadWith(path, slog.New(slog.DiscardHandler), func(_ *Catalogue, f *file) error { servers = len(f.servers); return nil })
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if servers > 0 {
		return nil, nil
	}
	names = []string{}
	for _, t := range c.Tools() {
		names = append(names, t.Name)
	}
	return names, nil
}

func loadWith(path string, log *slog.Logger, connect func(*Catalogue, *file) error) (*Catalogue, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if where, err := position(text); err != nil {
		return nil, fmt.Errorf("%s%s: %w", path, where, err)
	}
	f, err := parseFile(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c := &Catalogue{log: log, pool: webhook.NewPool(nil)}
	if err := c.build(f, connect); err != nil {
		c.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func (c *Catalogue) build(f *file, connect func(*Catalogue, *file) error) error {
	for i, name := range f.builtin {
		run, ok := builtin[name]
		if !ok {
			return fmt.Errorf("builtin[%d]: unknown built-in tool %q", i, name)
		}
		c.fixedTools = append(c.fixedTools, placedTool{run, fmt.Sprintf("builtin[%d]", i)})
	}
	for i, o := range f.webhooks {
		place := fmt.Sprintf("webhooks[%d]", i)
		o.Pool = c.pool
		tool, err := webhook.New(o)
		if err != nil {
			return fmt.Errorf("%s.%w", place, err)
		}
		c.fixedTools = append(c.fixedTools, placedTool{tool, place})
	}
	if err := connect(c, f); err != nil {
		return err
	}
	_, twice := c.listTools()
	return twice
}

// connect starts all servers. Close ends those that were started, also after an error.
func (c *Catalogue) connect(ctx context.Context, all []mcp.Options) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	c.servers = make([]server, len(all))
	failures := make([]error, len(all))
	var starting sync.WaitGroup
	for i, o := range all {
		o.Logger = c.log
		place := fmt.Sprintf("mcp[%d]", i)
		starting.Go(func() {
			s, err := mcp.Open(ctx, o)
			if err != nil {
				failures[i] = fmt.Errorf("%s: %w", place, err)
				return
			}
			c.servers[i] = server{s, fmt.Sprintf("%s (%s)", place, o.Name)}
		})
	}
	starting.Wait()
	return errors.Join(failures...)
}

// Tools returns the current tools, in the file's order. MCP servers may change them later. Of two tools with the same
// name, it returns the first.
func (c *Catalogue) Tools() []tools.Tool {
	all, twice := c.listTools()
	if twice != nil {
		c.log.Warn("tool ignored", "err", twice)
	}
	return all
}

func (c *Catalogue) listTools() (all []tools.Tool, twice error) {
	places := map[string]string{}
	add := func(t tools.Tool, place string) {
		if first, ok := places[t.Name]; ok {
			twice = fmt.Errorf("%s and %s both have a tool %q", first, place, t.Name)
			return
		}
		places[t.Name] = place
		all = append(all, t)
	}
	for _, t := range c.fixedTools {
		add(t.Tool, t.place)
	}
	for _, s := range c.servers {
		for _, t := range s.Tools() {
			add(t, s.place)
		}
	}
	return all, twice
}

// Close ends the MCP servers, with their running calls, and the idle connections of the webhooks.
func (c *Catalogue) Close() {
	var ending sync.WaitGroup
	for _, s := range c.servers {
		if s.Server != nil {
			ending.Go(s.Close)
		}
	}
	ending.Wait()
	c.pool.Close()
}
