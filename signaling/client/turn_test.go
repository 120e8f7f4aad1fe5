package client_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"

	"voxgate/bridge"
	"voxgate/internal/testkit"
	"voxgate/internal/testkit/mediatest"
	"voxgate/signaling"
)

const turnSecret = "north"

// awaitICEServers returns the ICE servers in the first message that a client has received.
func awaitICEServers(t *testing.T, c *testkit.Client) []webrtc.ICEServer {
	t.Helper()
	var connected struct {
		ICEServers []struct {
			URLs                 []string
			Username, Credential string
		}
	}
	if err := json.Unmarshal(c.Messages()[0].Payload, &connected); err != nil {
		t.Fatal(err)
	}
	var servers []webrtc.ICEServer
	for _, s := range connected.ICEServers {
		servers = append(servers, webrtc.ICEServer{URLs: s.URLs, Username: s.Username, Credential: s.Credential})
	}
	return servers
}

// sharedSecret returns a function like that of a gateway: it returns the servers with credentials made from turnSecret.
func sharedSecret(servers []signaling.ICEServer) func() []signaling.ICEServer {
	return func() []signaling.ICEServer { return signaling.ICEServersFor(servers, turnSecret, time.Now()) }
}

// Each client gets its own credentials for the TURN servers that share a secret with the gateway, and only for those.
func TestTURNCredentials(t *testing.T) {
	t.Parallel()
	g := testkit.StartGateway(t, func(o *testkit.Endpoints, _ *bridge.Options) {
		o.ICEServers = sharedSecret([]signaling.ICEServer{
			{
				URLs: []string{"stun:stun.example"},
			}, {URLs: []string{"turn:a.example", "turns:a.example"}}, {URLs: []string{"turn:b.example"}, Username: "u", Credential: "c"},
		})
	})
	names := map[string]bool{}
	for range 2 {
		servers := awaitICEServers(t, testkit.OpenConversation(t, g, `{}`))
		if len(servers) != 3 || servers[0].Username != "" || servers[2].Username != "u" || servers[2].Credential != "c" {
			t.Fatalf("got %+v", servers)
		}
		minted := servers[1]
		names[minted.Username] = true
		expiry, _, _ := strings.Cut(minted.Username, ":")
		at, err := strconv.ParseInt(expiry, 10, 64)
		if left := time.Until(time.Unix(at, 0)); err != nil || left < 50*time.Minute || left > time.Hour {
			t.Errorf("%s lives for %v", minted.Username, left)
		}
		mac := hmac.New(sha1.New, []byte(turnSecret))
		mac.Write([]byte(minted.Username))
		if minted.Credential != base64.StdEncoding.EncodeToString(mac.Sum(nil)) {
			t.Errorf("the credential of %s is %v", minted.Username, minted.Credential)
		}
	}
	if len(names) != 2 {
		t.Errorf("two clients have the names %v", names)
	}
}

// startCoturn runs Debian's TURN server with our secret, and returns its URL.
func startCoturn(t *testing.T) string {
	t.Helper()
	server, err := exec.LookPath("turnserver")
	if err != nil {
		t.Skip("no coturn: make test-deps installs it")
	}
	port := mediatest.FreePort(t)
	cmd := exec.Command(
		server,
		"-n",
		"--use-auth-secret",
		"--static-auth-secret="+turnSecret,
		"--realm=voxgate",
		"--listening-ip=127.0.0.1",
		"--relay-ip=127.0.0.1",
		fmt.Sprint(
			"--listening-port=",
			port,
		),
		"--no-tls",
		"--no-dtls",
		"--no-cli",
		"--allow-loopback-peers",
		"--log-file=stdout",
		"--pidfile=",
		"--userdb="+t.TempDir()+"/db",
	)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	probe, err := net.Dial("udp", fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	binding := append([]byte{0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42}, make([]byte, 12)...) // RFC 8489, section 5
	testkit.Eventually(t, "coturn", func() bool {
		probe.Write(binding)
		probe.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, err := probe.Read(make([]byte, 100))
		return err == nil
	})
	return fmt.Sprintf("turn:127.0.0.1:%d", port)
}

// A caller that can only send through a TURN server has a conversation with the credentials that it got.
func TestRelayedCall(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	url := startCoturn(t)
	c := testkit.OpenConversation(t, testkit.StartGateway(t, func(o *testkit.Endpoints, _ *bridge.Options) {
		o.ICEServers = sharedSecret([]signaling.ICEServer{{URLs: []string{url}}})
	}), `{}`)
	p := testkit.NewPhone(t, c, testkit.PhoneOptions{Channel: true})
	relayed := webrtc.Configuration{ICEServers: awaitICEServers(t, c), ICETransportPolicy: webrtc.ICETransportPolicyRelay}
	if err := p.PC.SetConfiguration(relayed); err != nil {
		t.Fatal(err)
	}
	p.Negotiate(false)
	p.AwaitConnected()
	pair, err := p.PC.SCTP().Transport().ICETransport().GetSelectedCandidatePair()
	if err != nil || pair.Local.Typ != webrtc.ICECandidateTypeRelay {
		t.Errorf("connected by %v, %v", pair, err)
	}
	p.CheckAudioBothWays(440)
}
