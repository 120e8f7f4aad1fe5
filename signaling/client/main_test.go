package client_test

import (
	"testing"

	"voxgate/internal/testkit"
)

func TestMain(m *testing.M) { testkit.RunTests(m) }
