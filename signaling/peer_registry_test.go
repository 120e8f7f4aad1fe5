package signaling_test

import (
	"errors"
	"testing"

	"voxgate/signaling"
)

// TestRunInCallThatEnds ends a call that has received a function. In one case the function has not run, as after a panic. In the
// other case it has run.
func TestRunInCallThatEnds(t *testing.T) {
	errGone, errDone := errors.New("gone"), errors.New("done")
	for name, runs := range map[string]bool{"without running it": false, "after it": true} {
		t.Run(name, func(t *testing.T) {
			c, end := signaling.NewHTTPCall()
			result := make(chan error, 1)
			go func() { result <- c.RunInCall(t.Context(), errGone, func() error { return errDone }) }()
			f, want := <-c.Requests(), errGone
			if runs {
				f()
				want = errDone
			}
			end()
			if err := <-result; !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		})
	}
}
