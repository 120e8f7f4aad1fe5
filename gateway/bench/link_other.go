//go:build !linux

package bench

import (
	"context"
	"errors"
	"io"
)

func serveLink(context.Context, io.ReadCloser, io.Writer) error {
	return errors.New("network namespaces are Linux's")
}
