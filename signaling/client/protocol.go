package client

import (
	"runtime/debug"
	"strings"
	"sync"

	"voxgate/signaling"
	"voxgate/web"
)

// The embedded files are parsed once per process, because tests start a gateway a hundred times.
var (
	npmPackage = sync.OnceValues(func() ([]byte, error) { return BuildPackage(web.LibraryFiles(), PackageVersion()) })
	pageSite   = sync.OnceValues(func() (*Site, error) { return ReadSite(web.ScriptBundles(), web.SiteFolders()...) })
)

// Protocol declares the client protocol and the page to the program.
func Protocol() signaling.Protocol {
	return signaling.Protocol{Name: protocolName, Open: func(e *signaling.Environment) ([]signaling.Endpoint, func(), error) {
		library, err := npmPackage()
		if err != nil {
			return nil, nil, err
		}
		site, err := pageSite()
		if err != nil {
			return nil, nil, err
		}
		status := Status{Backend: e.Host.Backend(), Models: e.Host.Models()}
		if !e.Gate.HasKeys() {
			status.HasAgent = func(name string) bool { return e.Agents.Find(name, protocolName) != nil }
		}
		page := site.Handler(status, library)
		s := &Server{Host: e.Host, RTC: e.RTC, ICEServers: e.ICEServers, OpusDecoder: e.OpusDecoder, Logger: e.Logger}
		return []signaling.Endpoint{
			{Pattern: "/ws", Socket: s},
			{Pattern: "/{$}", Socket: s, Handler: page, Public: true},
			{Pattern: "/", Handler: page, Public: true},
		}, nil, nil
	}}
}

// PackageVersion returns the version of the served npm package. It is the version of the module, or "" if the build has
// none.
func PackageVersion() string {
	built, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return npmVersion(built)
}

func npmVersion(built *debug.BuildInfo) string {
	number, ok := strings.CutPrefix(built.Main.Version, "v")
	if !ok { // a build without a version has "(devel)"
		return ""
	}
	return number
}
