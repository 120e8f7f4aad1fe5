package main

import (
	"io"
	"log/slog"
)

// logFormat selects the format and the level of the log.
type logFormat struct{ json, debug bool }

// dropNil leaves out attributes without a value, such as an error that did not occur.
func dropNil(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindAny && a.Value.Any() == nil {
		return slog.Attr{}
	}
	return a
}

// newLogger returns the program's logger.
func newLogger(to io.Writer, f logFormat) *slog.Logger {
	o := &slog.HandlerOptions{ReplaceAttr: dropNil}
	if f.debug {
		o.Level = slog.LevelDebug
	}
	if f.json {
		return slog.New(slog.NewJSONHandler(to, o))
	}
	return slog.New(slog.NewTextHandler(to, o))
}
