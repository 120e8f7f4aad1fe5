// Package catalogue reads the operator's file of tools. Every conversation can call these tools, in addition to the
// client's own.
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

// connectTimeout bounds the start of all MCP servers together. It is enough for programs from a package cache. It
// cannot be longer, because monitoring would report a gateway that starts so slowly as dead.
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

// Load reads the file and connects to all its MCP servers at the same time. If a server does not start, this is logged,
// and the start is retried later. Errors name the file and the place in it, but never contain the value of an
// environment variable. Call Close at the end.
func Load(ctx context.Context, path string, log *slog.Logger) (*Catalogue, error) {
	return loadWith(path, log, func(c *Catalogue, f *file) error { return c.startServers(ctx, f.servers) })
}

// CheckFile validates a file without connecting to servers. allNames lists the tools of the file. It is nil if the file
// has MCP servers, because these may provide more tools.
func CheckFile(path string) (allNames []string, err error) {
	servers := 0
	c, err := loadWith(path, slog.New(slog.DiscardHandler), func(_ *Catalogue, f *file) error { servers = len(f.servers); return nil })
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if servers > 0 {
		return nil, nil
	}
	allNames = []string{}
	for _, t := range c.Tools() {
		allNames = append(allNames, t.Name)
	}
	return allNames, nil
}

func loadWith(path string, log *slog.Logger, connect func(*Catalogue, *file) error) (*Catalogue, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if where, err := syntaxErrorPosition(text); err != nil {
		return nil, fmt.Errorf("%s%s: %w", path, where, err)
	}
	f, err := parseFile(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c := &Catalogue{log: log, pool: webhook.NewPool(nil)}
	if err := c.addTools(f, connect); err != nil {
		c.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func (c *Catalogue) addTools(f *file, connect func(*Catalogue, *file) error) error {
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

// startServers starts all servers. It blocks until each of them runs or has failed, for connectTimeout at most. Even
// after an error, the caller must call Close, which ends the servers that were started.
func (c *Catalogue) startServers(ctx context.Context, all []mcp.Options) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	c.servers = make([]server, len(all))
	failures := make([]error, len(all))
	var starting sync.WaitGroup
	for i, o := range all {
		o.Logger = c.log
		place := fmt.Sprintf("mcp[%d]", i)
		starting.Go(func() {
			s, err := mcp.ConnectWithRetry(ctx, o)
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

// Tools returns the current tools, in the file's order. MCP servers may change them later. If two tools have the same
// name, it returns only the first.
func (c *Catalogue) Tools() []tools.Tool {
	all, twice := c.listTools()
	if twice != nil {
		c.log.Warn("tool ignored", "err", twice)
	}
	return all
}

func (c *Catalogue) listTools() (all []tools.Tool, duplicate error) {
	places := map[string]string{}
	add := func(t tools.Tool, place string) {
		if first, ok := places[t.Name]; ok {
			duplicate = fmt.Errorf("%s and %s both have a tool %q", first, place, t.Name)
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
	return all, duplicate
}

// Close ends the MCP servers together with their running calls, and closes the idle connections of the webhooks.
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
