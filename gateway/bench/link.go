//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"voxgate/media/mediatest"
)

// order changes the link: a JSON line on stdin. What is left out passes packets on as they come.
type order struct {
	Up   mediatest.Impairment `json:"up"`   // from the first namespace to the second
	Down mediatest.Impairment `json:"down"` // the other way
}

// serveLink joins two namespaces by a bad network, and obeys orders until stdin ends or ctx is done. It prints a JSON line at
// first, {"ends": …}, and one after each order. Where there can be no link it prints {"impossible": why}.
func serveLink(ctx context.Context, stdin io.Reader, stdout io.Writer) (err error) {
	out := json.NewEncoder(stdout)
	if err := tunnelPossible(); err != nil {
		return out.Encode(map[string]string{"impossible": err.Error()})
	}
	link, err := openTunnel(fmt.Sprintf("vg%d", os.Getpid()), 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, link.Close()) }()
	orders, ended := make(chan order), make(chan error, 1)
	go func() { // ends with stdin, or with the process
		for in := json.NewDecoder(stdin); ; {
			var o order
			if err := in.Decode(&o); err != nil {
				ended <- err
				return
			}
			orders <- o
		}
	}()
	for {
		if err := out.Encode(map[string]any{"ends": link.Ends}); err != nil {
			return err
		}
		select {
		case o := <-orders:
			link.Set(o.Up, o.Down)
		case err := <-ended:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("order: %w", err)
		case <-ctx.Done():
			return nil
		}
	}
}
