package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pion/turn/v5"

	"voxgate/gateway/check"
	"voxgate/signaling/access"
)

const turnSecret = "the secret of the relay"

// relayFor runs a TURN server on the loopback. It accepts credentials made from the secret, and relays to the peers for
// which may returns true.
func relayFor(t *testing.T, secret string, may func(net.IP) bool) (address string) {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, err := turn.NewServer(turn.ServerConfig{
		Realm: "example.com", AuthHandler: turn.LongTermTURNRESTAuthHandler(secret, nil),
		PacketConnConfigs: []turn.PacketConnConfig{{
			PacketConn:            conn,
			RelayAddressGenerator: &turn.RelayAddressGeneratorStatic{RelayAddress: net.IPv4(127, 0, 0, 1), Address: "127.0.0.1"},
			PermissionHandler:     func(_ net.Addr, peer net.IP) bool { return may(peer) },
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return "turn:" + conn.LocalAddr().String()
}

func toAnywhere(net.IP) bool { return true }

// startProxy starts a proxy in front of a gateway. The functions request and answer change what passes; nil changes nothing.
func startProxy(t *testing.T, to string, request func(*http.Request), answer func(*http.Response)) (at string) {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&httputil.ReverseProxy{
		ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if request != nil {
				request(r.Out)
			}
		},
		ModifyResponse: func(r *http.Response) error {
			if answer != nil {
				answer(r)
			}
			return nil
		},
	})
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server.URL
}

// startTunnel forwards TCP connections to the gateway, until stop is called or the test ends. The function reply forwards
// the gateway's bytes to the client.
func startTunnel(t *testing.T, to string, reply func(client io.Writer, gateway io.Reader)) (at string, stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stop = func() { listener.Close(); cancel() }
	t.Cleanup(stop)
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			gateway, err := net.Dial("tcp", strings.TrimPrefix(to, "http://"))
			if err != nil {
				client.Close()
				continue
			}
			closeBoth := func() { client.Close(); gateway.Close() }
			context.AfterFunc(ctx, closeBoth)
			go func() { defer closeBoth(); io.Copy(gateway, client) }()
			go func() { defer closeBoth(); reply(client, gateway) }()
		}
	}()
	return "http://" + listener.Addr().String(), stop
}

// startExpiredTLSProxy starts a TLS proxy in front of a gateway, with an expired certificate.
func startExpiredTLSProxy(t *testing.T, to string) (at string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(-24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AddCert(leaf)
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(httputil.NewSingleHostReverseProxy(target))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, roots
}

// A gateway that dies during the check fails the checks that follow.
func TestCheckOfAGatewayThatDies(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	gateway := startGateway(t, nil, env("VOXGATE_ADDR", "127.0.0.1:0")).url
	url, stop := startTunnel(t, gateway, func(client io.Writer, gateway io.Reader) { io.Copy(client, gateway) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lines, err := check.CheckGateway(ctx, check.Options{URL: url, Talk: time.Millisecond, Done: func(r check.Result) {
		if r.Check == "voice" {
			stop()
			time.AfterFunc(time.Second/2, cancel) // ends the check, once the client has failed to dial again
		}
	}})
	if last := lines[len(lines)-1]; err != nil || last.Check != "going on" || last.Passed {
		t.Errorf("%+v, %v", lines, err)
	}
}

// A good deployment passes all checks. For each fault of another deployment, the failed check and its remedy are named.
func TestCheckDeployment(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys.json")
	key, err := access.NewKey(keys, "shop", []string{access.MayMint})
	if err != nil {
		t.Fatal(err)
	}
	loopback := func(ip net.IP) bool { return ip.IsLoopback() }
	gateway := func(t *testing.T, more ...string) string {
		t.Helper()
		settings := append([]string{"VOXGATE_ADDR", "127.0.0.1:0", "VOXGATE_HOSTS", "voice.example.com"}, more...)
		return startGateway(t, nil, env(settings...)).url
	}
	lines := func(t *testing.T, from string) (url string, sip []string) {
		t.Helper()
		p := startGateway(t, nil, env("VOXGATE_ADDR", "127.0.0.1:0", "VOXGATE_SIP", writeTempFile(t,
			fmt.Sprintf(`{"trunks":[{"name":"line","from":[%q]}],
			"listen":[{"transport":"udp","address":"127.0.0.1:0"},{"transport":"tcp","address":"127.0.0.1:0"}]}`, from))))
		return p.url, []string{"sip:" + p.awaitLog(`transport=UDP at=(\S+)`), "sip:" + p.awaitLog(`transport=TCP at=(\S+)`) + ";transport=tcp"}
	}
	for _, test := range []struct {
		name  string
		open  func(t *testing.T, o *check.Options)
		wrong string // name of the check that fails; empty means none
		mend  string
	}{
		{"good", func(t *testing.T, o *check.Options) {
			o.URL = gateway(t, "VOXGATE_KEYS", keys, "VOXGATE_AUTH", "token", "VOXGATE_ORIGINS", "https://app.example.com")
			o.Key, o.Origins = key, []string{"https://app.example.com"}
		}, "", ""},
		{"no token", func(t *testing.T, o *check.Options) {
			o.URL = gateway(t, "VOXGATE_KEYS", keys, "VOXGATE_AUTH", "token")
		}, "conversation", "VOXGATE_CHECK_KEY"},
		{"no UDP", func(t *testing.T, o *check.Options) {
			o.URL, o.From = gateway(t), func(net.IP) bool { return false }
		}, "WebRTC by UDP", "VOXGATE_UDP_PORT"},
		{"another TURN secret", func(t *testing.T, o *check.Options) {
			o.URL = gateway(t, "VOXGATE_TURN_SECRET", turnSecret, "VOXGATE_ICE_SERVERS", relayFor(t, "another one", loopback))
		}, "relay", "static-auth-secret"},
		{"a relay to anywhere", func(t *testing.T, o *check.Options) {
			o.URL = gateway(t, "VOXGATE_TURN_SECRET", turnSecret, "VOXGATE_ICE_SERVERS", relayFor(t, turnSecret, toAnywhere))
		}, "relay", "denied-peer-ip"},
		{"a proxy that buffers", func(t *testing.T, o *check.Options) {
			o.URL, _ = startTunnel(t, gateway(t), func(client io.Writer, gateway io.Reader) {
				head := make([]byte, 2)
				for end := ""; !strings.HasSuffix(end, "\r\n\r\n"); { // the head of the answer passes
					if _, err := io.ReadFull(gateway, head[:1]); err != nil {
						return
					}
					end += string(head[:1])
					client.Write(head[:1])
				}
				body, _ := io.ReadAll(io.LimitReader(gateway, 4<<10)) // a page has more than 4 KiB; a conversation has less
				client.Write(body)
				io.Copy(client, gateway)
			})
		}, "conversation", "proxy_buffering"},
		{"a proxy that cuts", func(t *testing.T, o *check.Options) {
			o.Stay = 3 * time.Second
			o.URL, _ = startTunnel(t, gateway(t), func(client io.Writer, gateway io.Reader) {
				cut := time.AfterFunc(o.Stay/3, func() { client.(io.Closer).Close() })
				defer cut.Stop()
				io.Copy(client, gateway)
			})
		}, "long connections", "proxy_read_timeout"},
		{"a proxy without upgrades", func(t *testing.T, o *check.Options) {
			o.URL = startProxy(t, gateway(t), func(r *http.Request) { r.Header.Del("Upgrade"); r.Header.Del("Connection") }, nil)
		}, "WebSocket", "proxy_set_header Upgrade"},
		{"telephone lines", func(t *testing.T, o *check.Options) { o.URL, o.SIP = lines(t, "127.0.0.1") }, "", ""},
		{"a line for others", func(t *testing.T, o *check.Options) {
			o.URL, o.SIP = lines(t, "192.0.2.1")
		}, "SIP sip:127.0.0.1", `"from"`},
		{"no line", func(t *testing.T, o *check.Options) {
			o.URL, o.SIP = gateway(t), []string{"sip:127.0.0.1:1;transport=tcp"}
		}, "SIP sip:127.0.0.1:1", "VOXGATE_SIP"},
		{"a line that is a page", func(t *testing.T, o *check.Options) {
			o.URL = gateway(t)
			o.SIP = []string{strings.Replace(o.URL, "http://", "sip:", 1) + ";transport=tcp"}
		}, "SIP sip:localhost", "listen"},
		{"a line with an expired certificate", func(t *testing.T, o *check.Options) {
			o.URL = gateway(t)
			at, roots := startExpiredTLSProxy(t, o.URL)
			o.SIP, o.Roots = []string{strings.Replace(at, "https://", "sips:", 1)}, roots
		}, "SIP sips:", "Renew the certificate"},
		{"a relay with an expired certificate", func(t *testing.T, o *check.Options) {
			at, roots := startExpiredTLSProxy(t, "http://127.0.0.1:1")
			relay := strings.Replace(at, "https://", "turns:", 1) + "?transport=tcp"
			o.URL, o.Roots = gateway(t, "VOXGATE_TURN_SECRET", turnSecret, "VOXGATE_ICE_SERVERS", relay), roots
		}, "relay turns:", "Renew the certificate"},
		{"an expired certificate", func(t *testing.T, o *check.Options) {
			o.URL, o.Roots = startExpiredTLSProxy(t, gateway(t))
		}, "TLS", "Renew the certificate"},
		{"another host", func(t *testing.T, o *check.Options) {
			o.URL = startProxy(t, gateway(t), func(r *http.Request) { r.Host = "backend" }, nil)
		}, "host", "VOXGATE_HOSTS"},
		{"an origin that is not listed", func(t *testing.T, o *check.Options) {
			o.URL, o.Origins = gateway(t), []string{"https://app.example.com"}
		}, "origin https://app.example.com", "VOXGATE_ORIGINS"},
		{"a clock an hour off", func(t *testing.T, o *check.Options) {
			o.URL = startProxy(t, gateway(t), nil, func(r *http.Response) {
				r.Header.Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
			})
		}, "clock", "NTP"},
		{"nothing there", func(_ *testing.T, o *check.Options) { o.URL = "http://127.0.0.1:1" }, "TCP", "VOXGATE_ADDR"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			o := check.Options{Talk: time.Second}
			test.open(t, &o)
			lines, err := check.CheckGateway(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(lines, func(l check.Result) bool { return !l.Passed })
			switch {
			case test.wrong == "" && i >= 0, test.wrong == "" && len(lines) < 9:
				t.Errorf("%+v", lines)
			case test.wrong != "" && (i < 0 || !strings.HasPrefix(lines[i].Check, test.wrong) || !strings.Contains(lines[i].Remedy, test.mend)):
				t.Errorf("%q was not found: %+v", test.wrong, lines)
			}
		})
	}
	t.Run("command", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		runCheck := func(args ...string) error {
			out.Reset()
			return runCommand(t.Context(), append([]string{"check", "deployment"}, args...), env(), &out, &out)
		}
		if runCheck() == nil || runCheck("ftp://x") == nil {
			t.Error("checked nothing")
		}
		var lines []check.Result
		if err := runCheck("http://127.0.0.1:1", "--json"); err == nil || json.Unmarshal(out.Bytes(), &lines) != nil || len(lines) != 2 {
			t.Errorf("%v\n%s", err, out.String())
		}
		if err := runCheck("--stay", "0", "http://127.0.0.1:1"); err == nil || !strings.Contains(out.String(), "WRONG  TCP") {
			t.Errorf("%v\n%s", err, out.String())
		}
	})
}
