package bridge_test

import (
	"errors"
	"fmt"
	"testing"

	"voxgate/bridge"
)

// EndCode returns the same code each time, even if the conversation ended for several reasons.
func TestEndCode(t *testing.T) {
	for want, err := range map[bridge.Code]error{
		"time_limit": errors.Join(bridge.ErrLeft, bridge.ErrTimeLimit),
		"budget":     errors.Join(bridge.ErrGoodbye, fmt.Errorf("turn 3: %w", bridge.ErrBudget)),
		"shutdown":   errors.Join(bridge.ErrMoved, bridge.ErrShutdown),
		"moved":      bridge.ErrReplaced,
		"left":       bridge.ErrLeft,
		"":           errors.New("the model closed the connection"),
	} {
		for range 20 {
			if got := bridge.EndCode(err); got != want {
				t.Fatalf("%q has the code %q, want %q", err, got, want)
			}
		}
	}
}
