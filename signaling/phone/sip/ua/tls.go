package ua

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"

	"voxgate/internal/filewatch"
)

// Config returns the TLS configuration for connections that we open. Its files are reloaded when they change.
func (t *TLS) Config(trunks []*Trunk, log *slog.Logger) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		authorities, err := filewatch.NewAuthorities(t.CA, x509.SystemCertPool, log)
		if err != nil {
			return nil, fmt.Errorf("tls.ca: %w", err)
		}
		// VerifyConnection below replaces the standard check. The standard check would use the authorities that were
		// loaded at the start, even after the file has changed.
		config.InsecureSkipVerify = true
		config.VerifyConnection = func(s tls.ConnectionState) error {
			return verifyServer(s, authorities.Current(), serverIPs(trunks))
		}
	}
	if t.Cert != "" || t.Key != "" {
		pair, err := filewatch.NewCertificate(t.Cert, t.Key, log)
		if err != nil {
			return nil, fmt.Errorf("tls.cert: %w", err)
		}
		config.GetClientCertificate = pair.GetClientCertificate
	}
	return config, nil
}

// serverIPs returns the hosts of the trunk servers that are configured by IP address.
func serverIPs(trunks []*Trunk) (list []string) {
	for _, t := range trunks {
		if o := t.Outbound; o != nil {
			server, err := ParseURI(o.Server)
			if host := strings.Trim(server.Host, "[]"); err == nil {
				if _, err := netip.ParseAddr(host); err == nil {
					list = append(list, host)
				}
			}
		}
	}
	return list
}

// verifyServer checks a trunk's certificate as crypto/tls does. If the server was dialled by IP address, the
// certificate must be valid for one of addresses.
func verifyServer(s tls.ConnectionState, roots *x509.CertPool, addresses []string) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the server has no certificate")
	}
	names := []string{s.ServerName}
	if s.ServerName == "" {
		names = addresses
	}
	options := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, one := range s.PeerCertificates[1:] {
		options.Intermediates.AddCert(one)
	}
	err := errors.New("the certificate matches no trunk's server")
	for _, name := range names {
		options.DNSName = name
		if _, err = s.PeerCertificates[0].Verify(options); err == nil {
			return nil
		}
	}
	return err
}

// Config returns the TLS configuration of a listener. Its files are reloaded when they change.
func (l *Listen) Config(log *slog.Logger) (*tls.Config, error) {
	pair, err := filewatch.NewCertificate(l.Cert, l.Key, log)
	if err != nil {
		return nil, fmt.Errorf("cert: %w", err)
	}
	config := &tls.Config{GetCertificate: pair.GetCertificate, MinVersion: tls.VersionTLS12}
	if l.ClientCA == "" {
		return config, nil
	}
	authorities, err := filewatch.NewAuthorities(l.ClientCA, nil, log)
	if err != nil {
		return nil, fmt.Errorf("clientCA: %w", err)
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	config.ClientCAs = authorities.Current()
	config.SessionTicketsDisabled = true // with a session ticket, a peer could reconnect after its authority was removed
	var mu sync.Mutex
	now := config // the configuration with the newest authorities
	outer := config.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		newest := authorities.Current()
		mu.Lock()
		defer mu.Unlock()
		if now.ClientCAs != newest {
			now = now.Clone()
			now.ClientCAs = newest
		}
		return now, nil
	}
	return outer, nil
}
