package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"voxgate/signaling/client"
)

// describeVersion names the commit of this build if it is known (go build -buildvcs=auto), or else the module's version.
func describeVersion() string {
	built, ok := debug.ReadBuildInfo()
	if !ok {
		return "voxgate " + runtime.Version()
	}
	return describeBuild(built)
}

// buildLabels returns the labels of voxgate_build_info: the versions of the module, the commit and Go. Unknown versions are empty.
func buildLabels() map[string]string {
	labels := map[string]string{"version": client.PackageVersion(), "revision": "", "goversion": runtime.Version()}
	if built, ok := debug.ReadBuildInfo(); ok {
		labels["revision"] = buildSettings(built)["vcs.revision"]
	}
	return labels
}

func buildSettings(built *debug.BuildInfo) map[string]string {
	set := map[string]string{}
	for _, s := range built.Settings {
		set[s.Key] = s.Value
	}
	return set
}

func describeBuild(built *debug.BuildInfo) string {
	set := buildSettings(built)
	commit := "of an unknown commit"
	if set["vcs.revision"] != "" {
		commit = "commit " + set["vcs.revision"] + " of " + set["vcs.time"]
		if set["vcs.modified"] == "true" {
			commit += ", with changes"
		}
	} else if built.Main.Version != "" && built.Main.Version != "(devel)" {
		commit = built.Main.Version
	}
	return fmt.Sprintf("voxgate, %s; %s %s/%s", commit, built.GoVersion, runtime.GOOS, runtime.GOARCH)
}
