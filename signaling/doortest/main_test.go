package doortest_test

import (
	"testing"

	"voxgate/signaling/doortest"
)

func TestMain(m *testing.M) { doortest.RunTests(m) }
