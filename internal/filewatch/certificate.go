package filewatch

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Certificate is a certificate with its key in two PEM files, which another program renews. Its methods may be called from any
// goroutine.
type Certificate struct {
	cert, key string
	log       *slog.Logger
	watch     *Watch

	mu   sync.Mutex
	pair *tls.Certificate
}

// NewCertificate reads the files.
func NewCertificate(cert, key string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{cert: cert, key: key, log: log}
	c.watch = NewWatch(log, time.Now, c.files())
	if err := c.load(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Certificate) files() []string { return []string{c.cert, c.key} }

// Current returns the newest valid certificate. If certificate and key do not match, because only one of the two files
// was replaced so far, the previous certificate stays in use.
func (c *Certificate) Current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watch.TakeChange(c.files) {
		err := cmp.Or(CheckReloadable(c.cert), CheckReloadable(c.key))
		if err == nil {
			err = c.load()
		}
		if err != nil {
			c.log.Warn("new certificate is invalid, keeping the old one", "file", c.cert, "err", err)
		} else {
			c.log.Info("certificate renewed", "file", c.cert, "until", c.pair.Leaf.NotAfter)
		}
	}
	return c.pair
}

// GetCertificate implements [tls.Config.GetCertificate].
func (c *Certificate) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.Current(), nil
}

// GetClientCertificate implements [tls.Config.GetClientCertificate].
func (c *Certificate) GetClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return c.Current(), nil
}

func (c *Certificate) load() error {
	cert, err := readPEM(c.cert)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	key, err := readPEM(c.key)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	c.pair = &pair
	return nil
}

// Authorities holds CA certificates from a PEM file. Its methods may be called from any goroutine.
type Authorities struct {
	file  string
	base  func() (*x509.CertPool, error)
	log   *slog.Logger
	watch *Watch

	mu   sync.Mutex
	pool *x509.CertPool
}

// NewAuthorities reads the file. Its certificates are added to the pool that basePool returns; basePool may be nil.
func NewAuthorities(file string, basePool func() (*x509.CertPool, error), log *slog.Logger) (*Authorities, error) {
	a := &Authorities{file: file, base: basePool, log: log}
	if basePool == nil {
		a.base = func() (*x509.CertPool, error) { return x509.NewCertPool(), nil }
	}
	a.watch = NewWatch(log, time.Now, a.files())
	if err := a.load(); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *Authorities) files() []string { return []string{a.file} }

// Current returns the newest valid certificates.
func (a *Authorities) Current() *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.watch.TakeChange(a.files) {
		err := CheckReloadable(a.file)
		if err == nil {
			err = a.load()
		}
		if err != nil {
			a.log.Warn("new CA certificates are invalid, keeping the old ones", "file", a.file, "err", err)
		} else {
			a.log.Info("CA certificates renewed", "file", a.file)
		}
	}
	return a.pool
}

func (a *Authorities) load() error {
	text, err := readPEM(a.file)
	if err != nil {
		return err
	}
	pool, err := a.base()
	if err != nil {
		return err
	}
	if !pool.AppendCertsFromPEM(text) {
		return fmt.Errorf("%s: no certificate found", a.file)
	}
	a.pool = pool
	return nil
}

// readPEM reads a PEM file. It fails if the last block has no end, because otherwise a half-written chain would be
// accepted as complete.
func readPEM(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if begins, ends := bytes.Count(text, []byte("-----BEGIN ")), bytes.Count(text, []byte("-----END ")); begins != ends {
		return nil, fmt.Errorf("%s: %d blocks begin and %d end, so it is half written", file, begins, ends)
	}
	return text, nil
}
