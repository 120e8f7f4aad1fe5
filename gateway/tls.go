package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"log/slog"
	"net"
	"strconv"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"
	"golang.org/x/time/rate"

	"voxgate/internal/filewatch"
	"voxgate/signaling"
)

// certificateWarning is the minimum time between two warnings about a missing certificate. Without it, every handshake
// would log a warning.
const certificateWarning = time.Minute

// tlsSettings names the source of the page's certificate: files, or a CA by ACME. Without either, the page is served
// without TLS.
type tlsSettings struct {
	cert, key string // PEM files
	domains   []string
	cache     string // folder for the certificates of the CA
	directory string // URL of the CA's ACME directory; "" is Let's Encrypt's
}

func (s *tlsSettings) addFlags(f *flag.FlagSet) {
	f.StringVar(&s.cert, "tls-cert", "", "`file` with the certificate chain of the page and the WebSocket, as PEM; read again when it changes")
	f.StringVar(&s.key, "tls-key", "", "`file` with the key of tls-cert, as PEM")
	f.Func(
		"acme-domain",
		"`names` to get a certificate for from Let's Encrypt, comma separated; addr must be their port 443",
		parseList(&s.domains, signaling.ParseHost),
	)
	f.StringVar(&s.cache, "acme-cache", "", "`folder` that keeps the certificates of acme-domain")
	f.StringVar(&s.directory, "acme-directory", "", "`URL` of another CA's ACME directory; empty: Let's Encrypt")
}

// validate returns an error if settings contradict each other.
func (s *tlsSettings) validate() error {
	switch {
	case (s.cert == "") != (s.key == ""):
		return errors.New("tls-cert and tls-key: set both or neither")
	case s.cert != "" && len(s.domains) > 0:
		return errors.New("acme-domain: cannot be set together with tls-cert")
	case len(s.domains) > 0 && s.cache == "":
		return errors.New("acme-cache: set a folder; without it each start requests a certificate, which the CA allows a few times a week")
	}
	return nil
}

// fetchCertificates connects to our own port, so that the certificate exists before the first visitor comes.
func (s *tlsSettings) fetchCertificates(ctx context.Context, addr net.Addr) {
	for _, domain := range s.domains {
		d := tls.Dialer{Config: &tls.Config{ServerName: domain, InsecureSkipVerify: true}} // unverified: a test's CA is in no root store
		if conn, err := d.DialContext(ctx, "tcp", addr.String()); err == nil {             // the GetCertificate of the port's config logs errors
			conn.Close()
		}
	}
}

// pageURL returns the URL of the page.
func (s *tlsSettings) pageURL(host string, port int) string {
	scheme := "http"
	if s.cert != "" || len(s.domains) > 0 {
		scheme = "https"
	}
	if len(s.domains) > 0 {
		host = s.domains[0]
	}
	if scheme == "https" && port == 443 {
		return "https://" + host + "/"
	}
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(port)) + "/"
}

// newConfig returns the TLS configuration of the page's port, or nil without TLS. The page does not offer HTTP/2,
// because a WebSocket needs HTTP/1.1.
func (s *tlsSettings) newConfig(log *slog.Logger) (*tls.Config, error) {
	if s.cert != "" {
		files, err := filewatch.NewCertificate(s.cert, s.key, log)
		if err != nil {
			return nil, err
		}
		return &tls.Config{GetCertificate: files.GetCertificate, NextProtos: []string{"http/1.1"}}, nil
	}
	if len(s.domains) == 0 {
		return nil, nil
	}
	manager := &autocert.Manager{
		Prompt: autocert.AcceptTOS, Cache: autocert.DirCache(s.cache), HostPolicy: autocert.HostWhitelist(s.domains...),
		Client: &acme.Client{DirectoryURL: cmp.Or(s.directory, autocert.DefaultACMEDirectory), UserAgent: "voxgate"},
	}
	warn := rate.Sometimes{Interval: certificateWarning}
	certificate := func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		c, err := manager.GetCertificate(hello)
		if err != nil && manager.HostPolicy(hello.Context(), hello.ServerName) == nil { // requests of strangers for other names are not logged
			warn.Do(func() {
				log.Warn("no certificate, browsers cannot connect", "domain", hello.ServerName, "err", err)
			})
		}
		return c, err
	}
	// For the challenge tls-alpn-01 (RFC 8737), the CA connects to port 443 and asks for the protocol acme.ALPNProto.
	// So the page must be reachable at that port.
	return &tls.Config{GetCertificate: certificate, NextProtos: []string{"http/1.1", acme.ALPNProto}}, nil
}
