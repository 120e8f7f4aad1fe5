package signaling_test

import (
	"slices"
	"testing"

	"voxgate/signaling"
)

// Each list is accepted if Chromium accepts it in new RTCPeerConnection({iceServers}), tested with version 156. One
// URL that a browser rejects leaves the person without WebRTC.
func TestParseICEServers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"": {}, " , ": {},
		"stun:stun.example.com": {"stun:stun.example.com"},
		"stun:stun.example.com:3478, turn:turn.example.com:3478?transport=udp,turns:turn.example.com:443?transport=tcp": {
			"stun:stun.example.com:3478", "turn:turn.example.com:3478?transport=udp", "turns:turn.example.com:443?transport=tcp",
		},
		"turn:[2001:db8::1]:3478": {"turn:[2001:db8::1]:3478"}, "turn:192.0.2.1": {"turn:192.0.2.1"},
		"TURN:turn.example.com": {"turn:turn.example.com"}, "stuns:stun.example.com:5349": {"stuns:stun.example.com:5349"},
		`[{"urls":"turn:a.example","username":"u","credential":"p"}]`:                    {"turn:a.example"},
		`[{"urls":["turn:a.example","stun:a.example"],"username":"u","credential":"p"}]`: {"turn:a.example", "stun:a.example"},
		`{"urls":"stun:a.example"}`: {"stun:a.example"},
		`[{"url":"stun:a.example","urls":"stun:a.example","credentialType":"password"}]`: {"stun:a.example"},
		`[]`: {},
	} {
		servers, err := signaling.ParseICEServers(text)
		urls := []string{}
		for _, s := range servers {
			urls = append(urls, s.URLs...)
		}
		if err != nil || !slices.Equal(urls, want) {
			t.Errorf("%s: %q, %v", text, urls, err)
		}
	}
	for _, text := range []string{
		"stun://stun.example.com:3478", "stun:", "stun:stun.example.com:3478?transport=udp", "turn:turn.example.com:3478?transport=tls",
		"turn:turn.example.com:99999", "turn:turn.example.com:0", "turn:turn.example.com:",
		"turn:u@turn.example.com", "turn:turn.example.com/path",
		"turn:2001:db8::1:3478", "turn:[turn.example.com]:3478", "turn:turn.example.com?transport=udp&x=1", "turn:turn example.com",
		"turn.example.com:3478", "http://turn.example.com", "turn:a.example;turn:b.example:1:2",
		`[{"urls":["http://turn.example.com"]}]`, `[{"url":"turn:turn.example.com:3478","username":"u","credential":"p"}]`,
		`[{"username":"u","credential":"p"}]`, `[{"urls":["turn.example.com:3478"]}]`, `[{"urls":[]}]`, `[{"urls":""}]`, `[{"urls":null}]`,
		`[{"urls":5}]`, `[{"urls":"turn:a.example","credential":"p"}]`, `[{"urls":"turn:a.example","username":"u"}]`,
		`[{"urls":"turn:a.example","username":1,"credential":"p"}]`, `["turn:a.example"]`, `[`, `{}`,
	} {
		if servers, err := signaling.ParseICEServers(text); err == nil {
			t.Errorf("%s is read as %+v", text, servers)
		}
	}
}
