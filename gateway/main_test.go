package main

import (
	"bytes"
	"runtime/debug"
	"strings"
	"testing"
)

func TestHelpShowsEveryCommand(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"--help"}, {"-h"}} {
		var out bytes.Buffer
		if err := runCommand(t.Context(), args, env(), &out, &out); err != nil {
			t.Fatal(err)
		}
		for _, c := range commands {
			if !strings.Contains(out.String(), "\n  "+c.name+" ") {
				t.Errorf("%v does not show %s:\n%s", args, c.name, out.String())
			}
		}
	}
	err := runCommand(t.Context(), []string{"sing"}, env(), nil, nil)
	if err == nil || !strings.Contains(err.Error(), `unknown command "sing"`) {
		t.Error(err)
	}
}

func TestVersion(t *testing.T) {
	built := &debug.BuildInfo{GoVersion: "go1.26.8", Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "5377b62"}, {Key: "vcs.time", Value: "2026-11-23T15:00:00Z"}, {Key: "vcs.modified", Value: "true"},
	}}
	if got := describeBuild(built); !strings.HasPrefix(got, "voxgate, commit 5377b62 of 2026-11-23T15:00:00Z, with changes; go1.26.8 ") {
		t.Error(got)
	}
	if got := describeBuild(&debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}); !strings.HasPrefix(got, "voxgate, v1.2.3; ") {
		t.Error(got)
	}
	for _, arg := range []string{"version", "--version"} {
		var out bytes.Buffer
		if err := runCommand(t.Context(), []string{arg}, env(), &out, &out); err != nil || !strings.HasPrefix(out.String(), "voxgate, ") {
			t.Errorf("%s: %s, %v", arg, out.String(), err)
		}
	}
}
