package sip_test

import (
	"fmt"
	"strings"
	"testing"
)

// Anonymous callers are not limited as one caller. Callers with a number are, in all its spellings.
func TestAnonymousCallerLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from     []string
		answered int
	}{
		"hidden": {[]string{
			`"Anonymous" <sip:anonymous@anonymous.invalid>`, "<sip:Restricted@127.0.0.1>", "<sip:unavailable@unknown.invalid>", "<sip:127.0.0.1>",
			"<sip:+266696687@127.0.0.1>", "<tel:+7378742833>", "<sip:+15550001111@anonymous.invalid>",
		}, 7},
		"one number": {[]string{
			"<sip:+15550001111@127.0.0.1>", "<sip:15550001111@127.0.0.1>", "<tel:+1-555-000-1111>", "<sip:+15550001111;cpc=ordinary@127.0.0.1>",
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := startGateway(t, trunkConfig(t, map[string]any{"callsPerCaller": 1}))
			answered := 0
			for i, from := range c.from {
				p := newRawPhone(t, o, "127.0.0.1")
				p.from = fmt.Sprintf("%s;tag=%d", from, i)
				switch status, text := p.placeCall(body); status {
				case 200:
					answered++
					if prompt := <-o.prompts; strings.Contains(prompt, `"number":`) == (name == "hidden") || strings.Contains(prompt, `"name":`) {
						t.Errorf("%s: the model learns %s", from, prompt)
					}
				case 503:
				default:
					t.Errorf("%s: %s", from, text)
				}
			}
			if answered != c.answered {
				t.Errorf("%d calls are answered, not %d", answered, c.answered)
			}
		})
	}
}
