package access_test

import (
	"testing"

	"voxgate/bridge"
	"voxgate/internal/testkit"
)

func TestMain(m *testing.M) { testkit.RunTests(m) }

func init() { // as the endpoints do
	for _, name := range []string{"live", "openai", "rest", "rtvi", "telephony", "vox", "web", "whip"} {
		bridge.RegisterProtocol(name, bridge.InGrants)
	}
}
