package bridge

import (
	"testing"
	"time"

	"voxgate/bridge/toolcalls"
)

// Without an observer, no observations are built, neither per turn nor per call.
func TestNobodyObserves(t *testing.T) {
	s := &Session{output: &modelOutput{}}
	now := time.Now()
	allocated := testing.AllocsPerRun(100, func() {
		s.output.reportTurnEnd(1, now, nil, Latency{}, ByVoice)
		s.output.reportBargeIn(time.Second)
		s.output.reportCallEnd(toolcalls.CallEnd{Name: "pay"})
	})
	if allocated != 0 {
		t.Errorf("a turn with a call allocates %v times for nobody", allocated)
	}
}
