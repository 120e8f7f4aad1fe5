package rtc

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// genai pulls in opencensus, which starts a worker when it is loaded and never ends it.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}
