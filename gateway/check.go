package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"

	"voxgate/agents"
	"voxgate/gateway/telemetry"
	"voxgate/media/smartturn"
	"voxgate/signaling/access"
	"voxgate/signaling/compat/geminirest"
	"voxgate/store"
	"voxgate/tools/catalogue"
)

// checkConfig implements gateway check-config: it reads every file that serve would read, and reports all errors. It
// opens no port and connects to no server.
func checkConfig(s settings, stdout io.Writer) error {
	var wrong []error
	for _, sentence := range s.unknown {
		wrong = append(wrong, errors.New(sentence))
	}
	check := func(setting, name string, read func() error) {
		if name == "" {
			return
		}
		if err := read(); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", setting, err))
			return
		}
		if u, err := url.Parse(name); err == nil {
			name = u.Redacted() // a Redis URL may contain a password
		}
		fmt.Fprintf(stdout, "%s: %s is good\n", setting, name)
	}
	log := slog.New(slog.DiscardHandler)
	toolNames := []string{} // nil if MCP servers may offer more tools: this check does not start them
	check("tools", s.tools, func() (err error) {
		toolNames, err = catalogue.CheckFile(s.tools)
		return err
	})
	var answers *agents.Folder
	check("agents", s.agents, func() (err error) {
		switch answers, err = agents.Open(s.agents, s.vertexProject(), log); {
		case err != nil:
			return err
		case len(answers.Files()) == 0:
			return fmt.Errorf("%s has no agents: files that end in .md", s.agents)
		case toolNames == nil:
			fmt.Fprintln(stdout, "agents: MCP servers are not started here, so the tools of agents are checked by serve, which logs a warning")
			return nil
		}
		return answers.CheckTools(toolNames)
	})
	check("keys", s.access.Keys, func() error { return access.CheckKeys(s.access.Keys) })
	for _, p := range s.protocols {
		if p.Check != nil {
			p.Check(answers, check)
		}
	}
	check("models", s.models, func() error {
		_, err := geminirest.ReadRoutes(s.models)
		return err
	})
	check("turn-model", s.turnModel, func() error {
		judge, err := smartturn.Load(s.onnxRuntime, s.turnModel, s.turnCPU)
		if err == nil {
			judge.Close()
		}
		return err
	})
	check("tls-cert", s.tls.cert, func() error {
		_, err := s.tls.newConfig(log)
		return err
	})
	check("redis", s.redis, func() error {
		shared, err := store.OpenRedis(s.redis, s.redisSecret, log) // it connects on first use
		if err == nil {
			err = shared.Close()
		}
		return err
	})
	check("session-webhook", s.sessionWebhook, func() error { return telemetry.CheckWebhook(s.sessionWebhook, s.webhookSecret) })
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	fmt.Fprintln(stdout, "the settings are good")
	return nil
}
