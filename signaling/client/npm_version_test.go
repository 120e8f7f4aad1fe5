package client

import (
	"runtime/debug"
	"testing"
)

func TestVersionOfThePackage(t *testing.T) {
	for version, want := range map[string]string{"v0.0.0-20261123150000-5377b62+dirty": "0.0.0-20261123150000-5377b62+dirty", "(devel)": ""} {
		if got := npmVersion(&debug.BuildInfo{Main: debug.Module{Version: version}}); got != want {
			t.Errorf("%s: %q", version, got)
		}
	}
}
