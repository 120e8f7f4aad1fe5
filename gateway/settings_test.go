package main

import (
	"io"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"voxgate/bridge/pricing"
	"voxgate/media/smartturn"
	"voxgate/signaling"
)

func env(pairs ...string) variables {
	m := variables{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

func TestSettings(t *testing.T) {
	defaults := settings{
		addr: "127.0.0.1:3001", park: time.Minute, drain: time.Minute, stall: 6 * time.Second,
		appModel: "gemini-3.8-flash", prices: pricing.Default, turnCPU: smartturn.DefaultCPU,
	}
	with := func(change func(*settings)) settings {
		s := defaults
		change(&s)
		return s
	}
	for name, test := range map[string]struct {
		args []string
		env  variables
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
			with(func(s *settings) {
				a, _ := signaling.ParseOrigin("https://a")
				b, _ := signaling.ParseOrigin("https://b")
				s.origins, s.hosts = []signaling.Origin{a, b}, []string{"v.example"}
			}),
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
		"newlines and blanks of secrets": {
			nil, env("GEMINI_API_KEY", "a\n", "VOXGATE_TURN_SECRET", " s\r\n", "VOXGATE_REDIS", "\n"),
			with(func(s *settings) { s.apiKey, s.turnSecret = "a", "s" }),
		},
		"IPv6 without brackets": {
			nil, env("VOXGATE_PRIVATE_ADDR", "fd00:10::5:9090", "VOXGATE_NODE_URL", "http://fd00:10::5:3001", "VOXGATE_REST_ADDR", "::1:0"),
			with(func(s *settings) {
				s.privateAddr, s.nodeURL, s.restAddr = "[fd00:10::5]:9090", "http://[fd00:10::5]:3001", "[::1]:0"
			}),
		},
		"proxies": {nil, env("VOXGATE_TRUSTED_PROXIES", "127.0.0.1,10.0.0.0/8,fd00::/8"), with(func(s *settings) {
			s.access.Proxies = []netip.Prefix{
				netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"),
			}
		})},
		"what Kubernetes sets": {nil, env("VOXGATE_SERVICE_HOST", "10.0.0.1", "VOXGATE_SERVICE_PORT_HTTP", "80",
			"VOXGATE_PORT", "tcp://10.0.0.1:80",
			"VOXGATE_PORT_80_TCP_ADDR", "10.0.0.1", "VOXGATE_REDIS_PORT", "tcp://10.0.0.2:6379", "VOXGATE_CHECK_KEY", "k"), defaults},
		"misspelt": {nil, env("VOXGATE_AGNETS", "a", "VOXGATE_UPD_PORT", "1", "VOXGATE_SOMETHING_ELSE", "x"), with(func(s *settings) {
			s.unknown = []string{
				"VOXGATE_AGNETS is not a setting; did you mean VOXGATE_AGENTS?", "VOXGATE_SOMETHING_ELSE is not a setting",
				"VOXGATE_UPD_PORT is not a setting; did you mean VOXGATE_UDP_PORT?",
			}
		})},
		"forced decoder": {nil, env("VOXGATE_OPUS_DECODER", "pion"), with(func(s *settings) { s.opusDecoder = "pion" })},
	} {
		got, err := parseSettings(test.args, test.env, io.Discard)
		got.protocols = nil // functions cannot be compared
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
		env  variables
		says string
	}{
		"public address":    {nil, env("VOXGATE_ADDR", "0.0.0.0:3001"), "--insecure"},
		"every address":     {nil, env("VOXGATE_ADDR", ":3001"), "--insecure"},
		"a name":            {nil, env("VOXGATE_ADDR", "gateway.example:3001"), "--insecure"},
		"no port":           {nil, env("VOXGATE_ADDR", "127.0.0.1"), "VOXGATE_ADDR"},
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
		"no cache":                   {nil, env("VOXGATE_ACME_DOMAIN", "a.example"), "acme-cache"},
		"decoder":                    {nil, env("VOXGATE_OPUS_DECODER", "mp3"), "VOXGATE_OPUS_DECODER"},
		"park":                       {nil, env("VOXGATE_PARK", "-1s"), "park"},
		"no project":                 {nil, env("GOOGLE_GENAI_USE_VERTEXAI", "1"), "GOOGLE_CLOUD_PROJECT"},
		"which backend":              {nil, env("GOOGLE_GENAI_USE_VERTEXAI", "perhaps"), "GOOGLE_GENAI_USE_VERTEXAI"},
		"argument":                   {[]string{"extra"}, env(), "extra"},
		"a newline in a secret":      {nil, env("VOXGATE_TURN_SECRET", "a\nb"), "VOXGATE_TURN_SECRET contains the control character"},
		"a key in quotation marks":   {nil, env("GEMINI_API_KEY", `"key"`), "GEMINI_API_KEY is in quotation marks"},
		"every origin":               {nil, env("VOXGATE_ORIGINS", "*"), `VOXGATE_ORIGINS: "*"`},
		"an origin without a scheme": {nil, env("VOXGATE_ORIGINS", "app.example.com"), "write scheme and host"},
		"a host with a scheme":       {nil, env("VOXGATE_HOSTS", "https://voice.example.com"), "leave out the scheme"},
		"a domain with a port":       {nil, env("VOXGATE_ACME_DOMAIN", "a.example:443", "VOXGATE_ACME_CACHE", "f"), "leave out the port"},
		"no unit":                    {nil, env("VOXGATE_PARK", "60"), `VOXGATE_PARK: "60" is not a duration: add a unit, like 60s`},
		"no number":                  {nil, env("VOXGATE_KEEP", "long"), `VOXGATE_KEEP: "long" is not a whole number`},
		"neither":                    {nil, env("VOXGATE_INSECURE", "maybe"), `VOXGATE_INSECURE: "maybe" is neither true nor false`},
		"private address":            {nil, env("VOXGATE_PRIVATE_ADDR", "9090"), `VOXGATE_PRIVATE_ADDR: "9090" is not host:port`},
		"REST address":               {nil, env("VOXGATE_REST_ADDR", "127.0.0.1:99999"), "VOXGATE_REST_ADDR"},
		"node URL":                   {nil, env("VOXGATE_NODE_URL", "10.0.0.5:3001"), "VOXGATE_NODE_URL"},
		"flag":                       {[]string{"-nonsense"}, env(), "nonsense"},
	} {
		_, err := parseSettings(test.args, test.env, io.Discard)
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: error %v does not say %q", name, err, test.says)
		}
	}
}
