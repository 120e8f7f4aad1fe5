package main

import (
	"io"
	"log/slog"

	"voxgate/bridge"
)

// observers are who is told what happens in conversations.
type observers []func(id string, o bridge.Observation)

// all tells each of them; nil if there is none, and then nothing is made for them.
func (list observers) all() func(id string, o bridge.Observation) {
	switch len(list) {
	case 0:
		return nil
	case 1:
		return list[0]
	}
	return func(id string, o bridge.Observation) {
		for _, observe := range list {
			observe(id, o)
		}
	}
}

// logFormat is how the log is written.
type logFormat struct{ json, debug bool }

// newLogger returns the log of the program.
func newLogger(to io.Writer, f logFormat) *slog.Logger {
	o := &slog.HandlerOptions{}
	if f.debug {
		o.Level = slog.LevelDebug
	}
	if f.json {
		return slog.New(slog.NewJSONHandler(to, o))
	}
	return slog.New(slog.NewTextHandler(to, o))
}
