package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// version says which commit this program was built from, as far as the build knew: go build -buildvcs=auto, or a module's version.
func version() string {
	built, ok := debug.ReadBuildInfo()
	if !ok {
		return "voxgate " + runtime.Version()
	}
	return versionOf(built)
}

// packageVersion is the version of the library that this program serves: its own as a module, which npm takes. Empty: the build knew none.
func packageVersion() string {
	built, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return npmVersion(built)
}

func npmVersion(built *debug.BuildInfo) string {
	number, ok := strings.CutPrefix(built.Main.Version, "v")
	if !ok { // "(devel)"
		return ""
	}
	return number
}

// buildLabels are the version for metrics: of the module, of the commit and of Go. What the build did not know is empty.
func buildLabels() map[string]string {
	labels := map[string]string{"version": packageVersion(), "revision": "", "goversion": runtime.Version()}
	if built, ok := debug.ReadBuildInfo(); ok {
		labels["revision"] = settingsOf(built)["vcs.revision"]
	}
	return labels
}

func settingsOf(built *debug.BuildInfo) map[string]string {
	set := map[string]string{}
	for _, s := range built.Settings {
		set[s.Key] = s.Value
	}
	return set
}

func versionOf(built *debug.BuildInfo) string {
	set := settingsOf(built)
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
