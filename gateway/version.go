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

func versionOf(built *debug.BuildInfo) string {
	set := map[string]string{}
	for _, s := range built.Settings {
		set[s.Key] = s.Value
	}
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
