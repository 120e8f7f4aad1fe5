package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// healthTimeout limits the request for /healthz. It is shorter than the timeout of HEALTHCHECK in the container image.
const healthTimeout = 2 * time.Second

// checkHealth implements "gateway health": it requests /healthz from this machine. The container image has no other
// HTTP client.
func checkHealth(ctx context.Context, s settings, stdout io.Writer) error {
	if s.privateAddr == "" {
		return errors.New("health: VOXGATE_PRIVATE_ADDR is not set")
	}
	host, port, err := net.SplitHostPort(s.privateAddr)
	if err != nil {
		return fmt.Errorf("private-addr: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "localhost"
	}
	ctx, stop := context.WithTimeout(ctx, healthTimeout)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/healthz", nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("health: %s", res.Status)
	}
	_, err = fmt.Fprintln(stdout, "ok")
	return err
}
