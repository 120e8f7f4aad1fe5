package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"voxgate/signaling/access"
	"voxgate/signaling/rest"
	"voxgate/signaling/sip"
	"voxgate/signaling/telephony"
	"voxgate/tools/catalogue"
)

// checkConfig reads all files as serve would, and says what is wrong with each: gateway check-config. It listens nowhere, asks nobody and
// starts no server of tools.
func checkConfig(s settings, stdout io.Writer) error {
	var wrong []error
	check := func(setting, name string, read func() error) {
		if name == "" {
			return
		}
		if err := read(); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", setting, err))
			return
		}
		fmt.Fprintf(stdout, "%s: %s is good\n", setting, name)
	}
	log := slog.New(slog.DiscardHandler)
	answers, err := openAgents(s, log)
	check("agents", s.agents, func() error { return err })
	check("keys", s.access.Keys, func() error { return access.CheckKeys(s.access.Keys) })
	check("tools", s.tools, func() error {
		known, err := catalogue.Check(s.tools)
		if err == nil && known != nil {
			err = within("agents", answers.CheckTools(known))
		}
		return err
	})
	check("sip", s.sip, func() error {
		c, err := sip.Load(s.sip)
		if err != nil {
			return err
		}
		return within(s.sip, c.CheckFiles(answers))
	})
	check("telephony", s.telephony, func() error {
		c, err := telephony.Load(s.telephony)
		if err != nil {
			return err
		}
		return within(s.telephony, c.CheckAgents(answers))
	})
	check("models", s.models, func() error {
		_, err := rest.ReadRoutes(s.models)
		return err
	})
	check("tls-cert", s.tls.cert, func() error {
		_, err := s.tls.config(log)
		return err
	})
	check("session-webhook", s.sessionWebhook, func() error {
		hooks, err := newHooks(s.sessionWebhook, s.webhookSecret, answers, log)
		if err == nil {
			hooks.endpoint.Close()
		}
		return err
	})
	return errors.Join(wrong...)
}

// within names the file of an error.
func within(file string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", file, err)
}
