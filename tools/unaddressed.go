package tools

import (
	"errors"
	"net"
	"net/url"
)

// WithoutAddress removes private details from a network error: the URL, which may contain a token, and the operator's
// host names and addresses. The remaining text is safe to show.
func WithoutAddress(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return errors.New("its name cannot be resolved")
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		err = e.Err
	}
	return err
}
