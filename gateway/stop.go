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
	// shutdownTimeout is how long the end may take: goodbyes are one write each.
	shutdownTimeout = 10 * time.Second
	// lastMoment is what each part gets when that time is over.
	lastMoment = 500 * time.Millisecond
)

// ending ends the parts of a gateway, the newest first, and waits for none of them for ever.
type ending struct {
	log   *slog.Logger
	parts []part
	first []part // before all others
}

// part is something that must be ended. end may wait until ctx is done, and says what is left.
type part struct {
	name string
	end  func(ctx context.Context) error
}

func (e *ending) add(name string, end func(context.Context) error) {
	e.parts = append(e.parts, part{name, end})
}

// before is add for what must end before everything else, whatever is added later.
func (e *ending) before(name string, end func(context.Context) error) {
	e.first = append(e.first, part{name, end})
}

// then is add for an end that takes no context.
func (e *ending) then(name string, end func()) {
	e.add(name, func(context.Context) error {
		end()
		return nil
	})
}

// run ends all parts. What has not ended within 10 s, all in all, is named in the log and in the error, and left behind.
func (e *ending) run() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	for _, p := range slices.Backward(slices.Concat(e.parts, e.first)) {
		ended := make(chan error, 1)
		go func() { ended <- p.end(ctx) }()
		late := time.NewTimer(max(0, time.Until(deadline)) + lastMoment)
		var failed error
		select {
		case failed = <-ended:
		case <-late.C:
			failed = errors.New("it has not ended in time")
		}
		late.Stop()
		if failed != nil {
			e.log.Error("left behind at the shutdown", "what", p.name, "err", failed)
			err = errors.Join(err, fmt.Errorf("end of the %s: %w", p.name, failed))
		}
	}
	return err
}
