package main

import (
	"io"
	"log/slog"
)

// logFormat selects the format and the level of the log.
type logFormat struct{ json, debug bool }

// dropNilAttr drops attributes whose value is nil, such as the error of an operation that has succeeded.
func dropNilAttr(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindAny && a.Value.Any() == nil {
		return slog.Attr{}
	}
	return a
}

// newLogger returns the program's logger.
func newLogger(to io.Writer, f logFormat) *slog.Logger {
	o := &slog.HandlerOptions{ReplaceAttr: dropNilAttr}
	if f.debug {
		o.Level = slog.LevelDebug
	}
	if f.json {
		return slog.New(slog.NewJSONHandler(to, o))
	}
	return slog.New(slog.NewTextHandler(to, o))
}
