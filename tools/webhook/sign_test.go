package webhook

import "testing"

// TestSign: the first vector is the one of the Standard Webhooks' own libraries; the second was made with
// printf '%s' 's-c-0.1700000000.{}' | openssl dgst -sha256 -hmac raw -binary | base64.
func TestSign(t *testing.T) {
	for _, test := range []struct{ secret, id, timestamp, body, want string }{
		{
			"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", `{"test": 2432232314}`,
			"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
		},
		{"raw", "s-c-0", "1700000000", `{}`, "v1,rXEnvXZvWGojTumpPySASZFZe9MBq7H1I6fOEaBgjyQ="},
	} {
		key, err := parseSigningKey(test.secret)
		if got := signMessage(key, test.id, test.timestamp, []byte(test.body)); err != nil || got != test.want {
			t.Errorf("%s, want %s (%v)", got, test.want, err)
		}
	}
}
