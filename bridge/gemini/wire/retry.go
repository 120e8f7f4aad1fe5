package wire

import (
	"net/http"
	"regexp"
	"strconv"
	"time"
)

// retryForms are how Google says when to come back, in the text of an error or a close reason: google.rpc.RetryInfo as
// JSON, and a sentence as "Please retry in 37.5s."
var retryForms = regexp.MustCompile(`(?i)"?retry_?delay"?\s*[:=]?\s*\{?\s*(?:"?seconds"?\s*:)?\s*"?([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)?|` +
	`retry (?:in|after) ([0-9]+(?:\.[0-9]+)?) ?(ms|s|m|h)?`)

// retryDelay finds in a text how long to stay away; 0: it does not say.
func retryDelay(text string) time.Duration {
	found := retryForms.FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	number, unit := found[1]+found[3], found[2]+found[4]
	if unit == "" {
		unit = "s"
	}
	delay, err := time.ParseDuration(number + unit)
	if err != nil {
		return 0
	}
	return delay
}

// RetryAfter is how long an HTTP answer asks to stay away, by its header Retry-After (RFC 9110 section 10.2.3: seconds, or
// a date) or by its body; 0: it does not say.
func RetryAfter(header http.Header, body string) time.Duration {
	value := header.Get("Retry-After")
	if seconds, err := strconv.ParseInt(value, 10, 32); err == nil && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		if left := time.Until(at); left > 0 {
			return left
		}
	}
	return retryDelay(body)
}

// RetryDelay is how long the server asks to stay away; 0: it does not say.
func (e *HandshakeError) RetryDelay() time.Duration { return e.Retry }

// RetryDelay is how long the server asks to stay away; 0: it does not say.
func (e *CloseError) RetryDelay() time.Duration { return retryDelay(e.Reason) }

// RetryDelay is how long the server asks to stay away; 0: it does not say.
func (e *ServerError) RetryDelay() time.Duration { return e.Retry }
