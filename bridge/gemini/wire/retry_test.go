package wire_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"voxgate/bridge/gemini/wire"
)

// maxDelay is the result for all longer delays.
const maxDelay = 365 * 24 * time.Hour

// TestRetryDelay finds the requested delay in each place where Google states it.
func TestRetryDelay(t *testing.T) {
	type delayed interface {
		error
		RetryDelay() time.Duration
	}
	decoded := func(message string) error {
		_, err := wire.NewDecoder().Decode([]byte(message))
		return err
	}
	http429 := func(header http.Header, body string) error {
		return &wire.HandshakeError{Status: 429, Body: body, Retry: wire.RetryAfter(header, body)}
	}
	for name, test := range map[string]struct {
		err  error
		want time.Duration
	}{
		"header in seconds":     {http429(http.Header{"Retry-After": {"17"}}, ""), 17 * time.Second},
		"header of nothing":     {http429(http.Header{"Retry-After": {"0"}}, ""), 0},
		"header of words":       {http429(http.Header{"Retry-After": {"soon"}}, ""), 0},
		"header below zero":     {http429(http.Header{"Retry-After": {"-5"}}, ""), 0},
		"header in the past":    {http429(http.Header{"Retry-After": {"Wed, 21 Oct 2015 07:28:00 GMT"}}, ""), 0},
		"header with decimals":  {http429(http.Header{"Retry-After": {"1.5"}}, ""), 1500 * time.Millisecond},
		"header without end":    {http429(http.Header{"Retry-After": {"99999999999999999999999"}}, ""), maxDelay},
		"header of infinity":    {http429(http.Header{"Retry-After": {"inf"}}, ""), maxDelay},
		"header of no number":   {http429(http.Header{"Retry-After": {"NaN"}}, ""), 0},
		"header for all time":   {http429(http.Header{"Retry-After": {"Fri, 31 Dec 9999 23:59:59 GMT"}}, ""), maxDelay},
		"header and body":       {http429(http.Header{"Retry-After": {"soon"}}, "retry in 3s"), 3 * time.Second},
		"RetryInfo without end": {http429(nil, `"retryDelay":"99999999999999s"`), maxDelay},
		"RetryInfo below zero":  {http429(nil, `"retryDelay":"-5s"`), 0},
		"RetryInfo as object":   {http429(nil, `"retryDelay":{"seconds":"37","nanos":5}`), 37 * time.Second},
		"hours and minutes":     {http429(nil, "Please retry in 17h41m27.3s."), 17*time.Hour + 41*time.Minute + 27300*time.Millisecond},
		"minutes and seconds":   {http429(nil, "Please retry in 1m30.5s."), 90500 * time.Millisecond},
		"seconds in words":      {http429(nil, "try again in 20 seconds"), 20 * time.Second},
		"minutes in words":      {http429(nil, "Retry after 2 minutes."), 2 * time.Minute},
		"milliseconds in words": {http429(nil, "retry after 800 milliseconds"), 800 * time.Millisecond},
		"RetryInfo in the body": {http429(nil, `{"error":{"details":[{"@type":"…RetryInfo","retryDelay":"37s"}]}}`), 37 * time.Second},
		"sentence in the body":  {http429(nil, `Please retry in 15.5s.`), 15500 * time.Millisecond},
		"close reason":          {&wire.CloseError{Code: 1011, Reason: "Quota exceeded. Please retry in 42s."}, 42 * time.Second},
		"RetryInfo in a reason": {&wire.CloseError{Code: 1011, Reason: `RESOURCE_EXHAUSTED retry_delay { seconds: 9 }`}, 9 * time.Second},
		"milliseconds":          {&wire.CloseError{Code: 1011, Reason: "retry in 730.5ms"}, 730500 * time.Microsecond},
		"no word of it":         {&wire.CloseError{Code: 1011, Reason: "You exceeded your current quota, retry later."}, 0},
		"error message": {decoded(`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"quota","details":[
			{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[]},
			{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"21.5s"}]}}`), 21500 * time.Millisecond},
		"error message without": {decoded(`{"error":{"code":429,"message":"quota"}}`), 0},
	} {
		said, ok := errors.AsType[delayed](test.err)
		if !ok || said.RetryDelay() != test.want {
			t.Errorf("%s: got %v, want %v", name, said, test.want)
		}
	}
	soon := http.Header{"Retry-After": {time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)}}
	if got := wire.RetryAfter(soon, ""); got < 50*time.Second || got > time.Minute {
		t.Errorf("a date in a minute is %v", got)
	}
}
