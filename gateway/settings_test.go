package main

import (
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"voxgate/bridge/price"
	"voxgate/signaling"
)

func env(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return m[name] }
}

func TestSettings(t *testing.T) {
	defaults := settings{
		addr: "127.0.0.1:3001", park: time.Minute, drain: time.Minute, stall: 6 * time.Second,
		appModel: "gemini-3.8-flash", prices: price.Default,
	}
	with := func(change func(*settings)) settings {
		s := defaults
		change(&s)
		return s
	}
	for name, test := range map[string]struct {
		args []string
		env  func(string) string
		want settings
	}{
		"defaults": {nil, env(), defaults},
		"environment": {
			nil, env("VOXGATE_ADDR", "localhost:1", "VOXGATE_PARK", "5s"),
			with(func(s *settings) { s.addr, s.park = "localhost:1", 5*time.Second }),
		},
		"flag wins":        {[]string{"-addr", "[::1]:2"}, env("VOXGATE_ADDR", "localhost:1"), with(func(s *settings) { s.addr = "[::1]:2" })},
		"WebRTC elsewhere": {nil, env("VOXGATE_WEBRTC_HOST", "0.0.0.0"), with(func(s *settings) { s.webrtcHost = "0.0.0.0" })},
		"lists": {
			nil, env("VOXGATE_ORIGINS", "https://a, https://b,", "VOXGATE_HOSTS", "v.example"),
			with(func(s *settings) { s.origins, s.hosts = []string{"https://a", "https://b"}, []string{"v.example"} }),
		},
		"insecure": {
			[]string{"--insecure"},
			env("VOXGATE_ADDR", "0.0.0.0:3001"),
			with(func(s *settings) { s.addr, s.insecure = "0.0.0.0:3001", true }),
		},
		"insecure by 1": {
			nil, env("VOXGATE_ADDR", ":3001", "VOXGATE_INSECURE", "1"),
			with(func(s *settings) { s.addr, s.insecure = ":3001", true }),
		},
		"limits":        {[]string{"-stall", "0", "-max-session-tokens", "9"}, env(), with(func(s *settings) { s.stall, s.maxTokens = 0, 9 })},
		"key":           {nil, env("GEMINI_API_KEY", "a", "GOOGLE_API_KEY", "b"), with(func(s *settings) { s.apiKey = "a" })},
		"key, old name": {nil, env("GOOGLE_API_KEY", "b"), with(func(s *settings) { s.apiKey = "b" })},
		"Vertex AI": {nil, env("GOOGLE_GENAI_USE_VERTEXAI", "True", "GOOGLE_CLOUD_PROJECT", "p", "GOOGLE_CLOUD_LOCATION", "us",
			"GOOGLE_VERTEX_BASE_URL", "ws://v", "GOOGLE_GEMINI_BASE_URL", "ws://g"), with(func(s *settings) {
			s.vertex, s.project, s.location, s.baseURL = true, "p", "us", "ws://v"
		})},
		"Vertex AI, new name": {nil, env("GOOGLE_GENAI_USE_ENTERPRISE", "1", "GOOGLE_GENAI_USE_VERTEXAI", "0", "GOOGLE_CLOUD_PROJECT", "p",
			"GOOGLE_CLOUD_REGION", "us-central1"), with(func(s *settings) {
			s.vertex, s.project, s.location = true, "p", "us-central1"
		})},
		"no Vertex AI": {
			nil, env("GOOGLE_GENAI_USE_VERTEXAI", "false", "GOOGLE_CLOUD_PROJECT", "p", "GOOGLE_VERTEX_BASE_URL", "ws://v"),
			defaults,
		},
		"base URL": {nil, env("GOOGLE_GEMINI_BASE_URL", "ws://x/y"), with(func(s *settings) { s.baseURL = "ws://x/y" })},
		"ICE URLs": {nil, env("VOXGATE_ICE_SERVERS", "stun:a:1,turn:b", "VOXGATE_TURN_SECRET", "s"), with(func(s *settings) {
			s.turnSecret = "s"
			s.iceServers = []signaling.ICEServer{{URLs: []string{"stun:a:1"}}, {URLs: []string{"turn:b"}}}
		})},
		"ICE as JSON": {nil, env("VOXGATE_ICE_SERVERS", `[{"urls":["turn:b"],"username":"u","credential":"c"}]`), with(func(s *settings) {
			s.iceServers = []signaling.ICEServer{{URLs: []string{"turn:b"}, Username: "u", Credential: "c"}}
		})},
		"certificate": {[]string{"-tls-cert", "c", "-tls-key", "k"}, env(), with(func(s *settings) { s.tls.cert, s.tls.key = "c", "k" })},
		"ACME": {nil, env("VOXGATE_ACME_DOMAIN", "a.example,b.example", "VOXGATE_ACME_CACHE", "f"), with(func(s *settings) {
			s.tls.domains, s.tls.cache = []string{"a.example", "b.example"}, "f"
		})},
		"forced decoder": {nil, env("VOXGATE_OPUS_DECODER", "pion"), with(func(s *settings) { s.opusDecoder = "pion" })},
	} {
		got, err := parseSettings(test.args, test.env, io.Discard)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestBadSettingsAreNamed(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		env  func(string) string
		says string
	}{
		"public address":    {nil, env("VOXGATE_ADDR", "0.0.0.0:3001"), "--insecure"},
		"every address":     {nil, env("VOXGATE_ADDR", ":3001"), "--insecure"},
		"a name":            {nil, env("VOXGATE_ADDR", "gateway.example:3001"), "--insecure"},
		"no port":           {nil, env("VOXGATE_ADDR", "127.0.0.1"), "addr"},
		"port out of range": {nil, env("VOXGATE_UDP_PORT", "70000"), "udp-port"},
		"port in words":     {nil, env("VOXGATE_TCP_PORT", "many"), "VOXGATE_TCP_PORT"},
		"public IP":         {nil, env("VOXGATE_PUBLIC_IP", "here"), "VOXGATE_PUBLIC_IP"},
		"no TURN secret":    {nil, env("VOXGATE_ICE_SERVERS", "stun:a:1,turn:b"), "VOXGATE_TURN_SECRET"},
		"ICE server":        {nil, env("VOXGATE_ICE_SERVERS", "http://x"), "VOXGATE_ICE_SERVERS"},
		"WebRTC by a name":  {nil, env("VOXGATE_WEBRTC_HOST", "gateway.example"), "webrtc-host"},
		"no key":            {nil, env("VOXGATE_TLS_CERT", "c"), "tls-key"},
		"two certificates": {
			nil,
			env("VOXGATE_TLS_CERT", "c", "VOXGATE_TLS_KEY", "k", "VOXGATE_ACME_DOMAIN", "a.example", "VOXGATE_ACME_CACHE", "f"), "acme-domain",
		},
		"no cache":      {nil, env("VOXGATE_ACME_DOMAIN", "a.example"), "acme-cache"},
		"decoder":       {nil, env("VOXGATE_OPUS_DECODER", "mp3"), "VOXGATE_OPUS_DECODER"},
		"park":          {nil, env("VOXGATE_PARK", "-1s"), "park"},
		"no project":    {nil, env("GOOGLE_GENAI_USE_VERTEXAI", "1"), "GOOGLE_CLOUD_PROJECT"},
		"which backend": {nil, env("GOOGLE_GENAI_USE_VERTEXAI", "perhaps"), "GOOGLE_GENAI_USE_VERTEXAI"},
		"argument":      {[]string{"extra"}, env(), "extra"},
		"flag":          {[]string{"-nonsense"}, env(), "nonsense"},
	} {
		_, err := parseSettings(test.args, test.env, io.Discard)
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: error %v does not say %q", name, err, test.says)
		}
	}
}
