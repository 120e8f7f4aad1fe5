package ua

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// issuedCertificate is a self-signed certificate.
type issuedCertificate struct {
	cert, key []byte // PEM
	pair      tls.Certificate
}

func issue(t *testing.T, serial int64) issuedCertificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames: []string{"sip.test"},
		IsCA:     true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	i := issuedCertificate{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: pem.EncodeToMemory(&pem.Block{
			Type:  "PRIVATE KEY",
			Bytes: private,
		}),
	}
	if i.pair, err = tls.X509KeyPair(i.cert, i.key); err != nil {
		t.Fatal(err)
	}
	return i
}

// All certificate files are reloaded when they change: a listener's own, its authority, and those for connections to trunks.
func TestCertificateReload(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := func(name string) string { return filepath.Join(folder, name) }
	write := func(i issuedCertificate, cert, key string) {
		t.Helper()
		for name, text := range map[string][]byte{cert: i.cert, key: i.key} {
			if name == "" {
				continue
			}
			if err := os.WriteFile(file(name)+".new", text, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(file(name)+".new", file(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	log := slog.New(slog.DiscardHandler)
	old, renewed := issue(t, 1), issue(t, 2)
	write(old, "listen.pem", "listen.key")
	write(old, "clients.pem", "")
	write(old, "servers.pem", "")
	write(old, "own.pem", "own.key")
	listener := &Listen{Cert: file("listen.pem"), Key: file("listen.key"), ClientCA: file("clients.pem")}
	server, err := listener.Config(log)
	if err != nil {
		t.Fatal(err)
	}
	own := TLS{CA: file("servers.pem"), Cert: file("own.pem"), Key: file("own.key")}
	client, err := own.Config([]*Trunk{{Outbound: &Outbound{Server: "sip:127.0.0.1;transport=tls"}}}, log)
	if err != nil {
		t.Fatal(err)
	}
	// shake makes a handshake, and returns the serial numbers of the server's and the client's certificates.
	shake := func(client, server *tls.Config) (servers, clients int64, err error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		a, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		b, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		done := make(chan error, 1)
		at := tls.Server(b, server)
		go func() {
			err := at.Handshake()
			if err != nil {
				b.Close()
			}
			done <- err
		}()
		to := tls.Client(a, client)
		if err := to.Handshake(); err != nil {
			a.Close()
			<-done
			return 0, 0, err
		}
		// The server checks the client's certificate last.
		if err := <-done; err != nil {
			return 0, 0, err
		}
		return to.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), at.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
	}
	named := func(name string) *tls.Config {
		own := client.Clone()
		own.ServerName = name
		return own
	}
	if servers, clients, err := shake(named("sip.test"), server); err != nil || servers != 1 || clients != 1 {
		t.Fatal(servers, clients, err)
	}
	for name, config := range map[string]*tls.Config{"another name": named("other.test"), "another address": named("127.0.0.9")} {
		if name == "another address" {
			config = (&tls.Config{InsecureSkipVerify: true, ServerName: "127.0.0.9", VerifyConnection: func(s tls.ConnectionState) error {
				pool := x509.NewCertPool()
				pool.AppendCertsFromPEM(old.cert)
				return verifyServer(s, pool, []string{"192.0.2.1"})
			}, Certificates: []tls.Certificate{old.pair}})
		}
		if _, _, err := shake(config, server); err == nil {
			t.Errorf("a certificate for %s is taken", name)
		}
	}
	write(renewed, "listen.pem", "listen.key")
	write(renewed, "clients.pem", "")
	write(renewed, "servers.pem", "")
	write(renewed, "own.pem", "own.key")
	for deadline := time.Now().Add(time.Minute); ; <-time.After(50 * time.Millisecond) { // files are checked once a second
		servers, clients, err := shake(named("127.0.0.1"), server)
		if err == nil && servers == 2 && clients == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("certificates %d and %d are shown, %v", servers, clients, err)
		}
	}
	if _, _, err := shake(&tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{old.pair}}, server); err == nil {
		t.Error("a peer of the authority before is let in")
	}
	if _, _, err := shake(named("127.0.0.1"), &tls.Config{Certificates: []tls.Certificate{old.pair}}); err == nil {
		t.Error("a server of the authority before is taken")
	}
}
