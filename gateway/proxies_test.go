package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"voxgate/internal/testkit"
	"voxgate/internal/testkit/mediatest"

	"github.com/gorilla/websocket"
)

// proxyBlock returns the code block of docs/network.md in this language.
func proxyBlock(t *testing.T, language string) string {
	t.Helper()
	for _, m := range fenced.FindAllStringSubmatch(readFile(t, "../docs/network.md"), -1) {
		if m[1] == language {
			return m[2]
		}
	}
	t.Fatalf("docs/network.md has no block of %s", language)
	return ""
}

// The configurations of docs/network.md for nginx, Caddy and HAProxy work unchanged, on a port other than 443. A page that
// was loaded through the proxy may connect, a page of another host may not, and a long REST request passes.
func TestProxies(t *testing.T) {
	t.Parallel()
	gate := startGateway(t, nil, env("VOXGATE_ADDR", "127.0.0.1:0", "VOXGATE_HOSTS", "voice.example.com", "VOXGATE_TRUSTED_PROXIES",
		"127.0.0.1"))
	defer gate.stopGateway()
	inner := strings.TrimPrefix(gate.url, "http://")
	chain, secret := newCertificate(t, 1)
	files := t.TempDir()
	cert, key, pem := filepath.Join(files, "cert.pem"), filepath.Join(files, "key.pem"), filepath.Join(files, "voice.pem")
	for file, text := range map[string][]byte{cert: chain, key: secret, pem: append(bytes.Clone(chain), secret...)} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, configure := range map[string]func(port, folder string) (config string, command []string){
		"nginx": func(port, folder string) (string, []string) {
			block := strings.ReplaceAll(proxyBlock(t, "nginx"), "127.0.0.1:3001", inner)
			return fmt.Sprintf("daemon off; pid %[1]s/pid; error_log stderr; worker_processes 1; user root;\nevents {}\nhttp { access_log off;\n"+
				"client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/f;\n"+
				"uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;\n"+
				"server { listen 127.0.0.1:%[2]s ssl; ssl_certificate %[3]s; ssl_certificate_key %[4]s;\n%[5]s } }\n",
				folder, port, cert, key, block), []string{"nginx", "-p", folder, "-c"}
		},
		"caddy": func(port, _ string) (string, []string) {
			block := strings.ReplaceAll(proxyBlock(t, "caddy"), "127.0.0.1:3001", inner)
			site := fmt.Sprintf("https://voice.example.com:%s {\nbind 127.0.0.1\ntls %s %s", port, cert, key)
			block = strings.Replace(block, "voice.example.com {", site, 1)
			return "{\nadmin off\nauto_https disable_redirects\n}\n" + block, []string{"caddy", "run", "--adapter", "caddyfile", "--config"}
		},
		"haproxy": func(port, _ string) (string, []string) {
			block := strings.ReplaceAll(proxyBlock(t, "haproxy"), "127.0.0.1:3001", inner)
			block = strings.Replace(block, "bind :443 ssl crt /etc/haproxy/voice.pem", "bind 127.0.0.1:"+port+" ssl crt "+pem, 1)
			return block, []string{"haproxy", "-db", "-f"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			port, folder := strconv.Itoa(mediatest.FreePort(t)), t.TempDir()
			config, command := configure(port, folder)
			file := filepath.Join(folder, "config")
			if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			ctx, stop := context.WithCancel(context.Background())
			proxy := exec.CommandContext(ctx, command[0], append(command[1:], file)...)
			proxy.Env = append(os.Environ(), "HOME="+folder, "XDG_DATA_HOME="+folder, "XDG_CONFIG_HOME="+folder)
			proxy.Stdout, proxy.Stderr = &log, &log
			proxy.Cancel = func() error { return proxy.Process.Signal(os.Interrupt) }
			proxy.WaitDelay = 5 * time.Second
			if err := proxy.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				stop()
				_ = proxy.Wait()
				if t.Failed() {
					t.Log(log.String())
				}
			}()
			dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.0.1:"+port)
			}
			trusting := &tls.Config{InsecureSkipVerify: true}
			browser := &http.Client{Transport: &http.Transport{DialContext: dial, TLSClientConfig: trusting}}
			defer browser.CloseIdleConnections()
			outer := "https://voice.example.com:" + port
			testkit.Eventually(t, "page by "+name, func() bool {
				resp, err := browser.Get(outer + "/")
				if err == nil {
					resp.Body.Close()
				}
				return err == nil && resp.StatusCode == http.StatusOK
			})
			sockets := websocket.Dialer{NetDialContext: dial, TLSClientConfig: trusting}
			for origin, want := range map[string]int{
				outer: 101, "https://evil.example.com:" + port: 403, "https://voice.example.com": 403, "http://voice.example.com:" + port: 403,
			} {
				conn, resp, err := sockets.Dial("wss://voice.example.com:"+port+"/ws", http.Header{"Origin": {origin}})
				if err == nil {
					conn.Close()
				}
				if resp == nil || resp.StatusCode != want {
					t.Errorf("a page of %s: %v, %v; want %d", origin, resp, err, want)
				}
			}
			long := `{"contents":[{"parts":[{"text":"` + strings.Repeat("x", 3<<20) + `"}]}]}`
			resp, err := browser.Post(outer+"/v1beta/models/gemini-3.8-flash:countTokens", "application/json", strings.NewReader(long))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("a request of 3 MB: %s", resp.Status)
			}
		})
	}
	if refused := regexp.MustCompile(`origin refused`).FindAllString(gate.logged(), -1); len(refused) != 9 {
		t.Errorf("%d origins were refused in all", len(refused))
	}
}
