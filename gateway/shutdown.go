package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

const (
	// shutdownTimeout bounds the shutdown. The time is enough for all clients, because each of them gets its close
	// message by one write.
	shutdownTimeout = 10 * time.Second
	// lastMoment is the minimum time to close a component, even after shutdownTimeout has passed.
	lastMoment = 500 * time.Millisecond
)

// shutdown closes the components of a gateway, the newest first. It abandons and logs a component that takes too long
// to close.
type shutdown struct {
	log   *slog.Logger
	parts []closer
	first []closer // closed before all others
}

// closer is a component to close. end may block until ctx is done. It returns an error if a part of the component is
// still running.
type closer struct {
	name string
	end  func(ctx context.Context) error
}

func (s *shutdown) onClose(name string, end func(context.Context) error) {
	s.parts = append(s.parts, closer{name, end})
}

// onCloseFirst registers a component that is closed before all other components, even before components that are
// registered later.
func (s *shutdown) onCloseFirst(name string, end func(context.Context) error) {
	s.first = append(s.first, closer{name, end})
}

// closeFunc adapts a close function that takes no context.
func closeFunc(end func()) func(context.Context) error {
	return func(context.Context) error {
		end()
		return nil
	}
}

// closeAll closes all components, within shutdownTimeout altogether. It logs and abandons components that take longer,
// and names them in the error.
func (s *shutdown) closeAll() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	for _, p := range slices.Backward(slices.Concat(s.parts, s.first)) {
		ended := make(chan error, 1)
		go func() { ended <- p.end(ctx) }()
		late := time.NewTimer(max(0, time.Until(deadline)) + lastMoment)
		var failed error
		select {
		case failed = <-ended:
		case <-late.C:
			failed = errors.New("it did not end in time")
		}
		late.Stop()
		if failed != nil {
			s.log.Error("component not closed at shutdown", "component", p.name, "err", failed)
			err = errors.Join(err, fmt.Errorf("close %s: %w", p.name, failed))
		}
	}
	return err
}
