package main

import (
	"io"
	"log/slog"
)

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
