package wire

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// retryForms matches the retry delays in Google's texts. They are in google.rpc.RetryInfo, or in sentences such as
// "Please retry in 1m37.5s."
var retryForms = regexp.MustCompile(`(?i)(?:"?retry_?delay"?\s*[:=]?\s*\{?\s*(?:"?seconds"?\s*:)?\s*"?|(?:retry|try again) (?:in|after) )` +
	`((?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h))*[0-9]+(?:\.[0-9]+)?)\s?(milli|ms|s|m|h)?`)

// retryDelay returns the retry delay in a text, or 0 if there is none.
func retryDelay(text string) time.Duration {
	found := retryForms.FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	number, unit := found[1], strings.ToLower(found[2])
	if unit == "milli" {
		unit = "ms"
	}
	delay, _ := parseDuration(strings.ToLower(number) + unit)
	return delay
}

// maxDelay limits the returned delays, because a time.Duration would overflow after 292 years.
const maxDelay = 365 * 24 * time.Hour

// parseDuration parses "3.5s", "1m30s", or seconds without a unit. Longer durations than maxDelay become maxDelay. ok
// is false if text is not a non-negative duration.
func parseDuration(text string) (d time.Duration, ok bool) {
	text = strings.TrimSpace(text)
	if d, err := time.ParseDuration(text); err == nil {
		return min(d, maxDelay), d >= 0
	}
	seconds, err := strconv.ParseFloat(strings.TrimSuffix(text, "s"), 64)
	switch {
	case seconds > maxDelay.Seconds():
		return maxDelay, true
	case err != nil || !(seconds >= 0): // true for NaN, too
		return 0, false
	}
	return time.Duration(seconds * float64(time.Second)), true
}

// RetryAfter returns the delay that an HTTP response requests, in its body or in the header Retry-After (RFC 9110
// section 10.2.3), or 0.
func RetryAfter(header http.Header, body string) time.Duration {
	value := header.Get("Retry-After")
	if delay, ok := parseDuration(value); ok && delay > 0 {
		return delay
	}
	if at, err := http.ParseTime(value); err == nil {
		if left := time.Until(at); left > 0 {
			return min(left, maxDelay)
		}
	}
	return retryDelay(body)
}

// RetryDelay returns the delay that the server requests, or 0.
func (e *HandshakeError) RetryDelay() time.Duration { return e.Retry }

// RetryDelay returns the delay that the server requests, or 0.
func (e *CloseError) RetryDelay() time.Duration { return retryDelay(e.Reason) }

// RetryDelay returns the delay that the server requests, or 0.
func (e *ServerError) RetryDelay() time.Duration { return e.Retry }
