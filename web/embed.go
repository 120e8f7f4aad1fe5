// Package web holds the pages and the JavaScript clients as they are written: no build, no third party. The gateway bundles them at its
// start.
//
//	library   the JavaScript client: exactly what is in the npm package voxgate
//	page      the gateway's own page
//	button    the talk button for any page
//	vox       the page of the VOX assistant, at /vox/
//	operator  the operator's page, at the private address
//	test      the browser tests
//
// The first three are served from one root, so a script there imports "./voxgate.js" wherever that lies; tsconfig.json's
// rootDirs says the same to the type checker.
package web

import (
	"embed"
	"io/fs"
)

var (
	//go:embed library/*.js library/*.css page/*.html page/*.css page/*.js page/*.webmanifest page/*.svg page/*.png button/*.js
	root embed.FS
	//go:embed vox/*.html vox/*.css vox/*.js
	vox embed.FS
	//go:embed library
	library embed.FS
	//go:embed operator library/tokens.css library/dom.js page/controls.css page/icon.svg
	operator embed.FS
)

// LibraryFiles returns the files of the npm package.
func LibraryFiles() fs.FS {
	folder, err := fs.Sub(library, "library")
	if err != nil {
		panic(err) // it is embedded above
	}
	return folder
}

// SiteFolders returns the folders that make up the site; the root of each is the root of the site.
func SiteFolders() []fs.FS { return append(subFolders(root, "library", "page", "button"), vox) }

// ScriptBundles says which scripts travel in one file, so that the page asks 8 times and not 24: by its name, those that it brings along.
func ScriptBundles() map[string][]string {
	return map[string][]string{
		"strings.js":  {"en.js"},
		"voxgate.js":  {"reach.js", "connection.js", "calls.js", "outbox.js", "turns.js", "audio.js"},
		"orb.js":      {"dom.js", "markdown.js", "says.js"},
		"app.js":      {"page.en.js", "preferences.js", "native.js", "transcript.js"},
		"vox/page.js": {"vox/en.js", "vox/cards.js", "vox/zip.js", "vox/project.js", "vox/vox.js"},
	}
}

// OperatorFolders returns the folders of the operator's page, likewise.
func OperatorFolders() []fs.FS { return subFolders(operator, "operator", "library", "page") }

func subFolders(root fs.FS, names ...string) (folders []fs.FS) {
	for _, name := range names {
		folder, err := fs.Sub(root, name)
		if err != nil {
			panic(err) // the names are embedded above
		}
		folders = append(folders, folder)
	}
	return folders
}
