// Package web holds the pages and the JavaScript clients as they are written, without a build step or third-party code. The gateway bundles
// them at its start.
//
//	library   the JavaScript client: exactly what is in the npm package voxgate
//	page      the gateway's own page
//	button    the talk button for any page
//	vox       the page of the VOX assistant, at /vox/
//	operator  the operator's page, at the private address
//	test      the browser tests
//
// The first three are served from one root, so a script there imports "./voxgate.js" from whichever folder has it. rootDirs in
// tsconfig.json tells the type checker the same.
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
		panic(err) // cannot fail: it is embedded above
	}
	return folder
}

// SiteFolders returns the folders that make up the site; the root of each is the root of the site.
func SiteFolders() []fs.FS { return append(subFolders(root, "library", "page", "button"), vox) }

// ScriptBundles maps each bundle to the scripts that are joined into it. The page then sends 8 requests in place of 24.
func ScriptBundles() map[string][]string {
	return map[string][]string{
		"strings.js":  {"en.js"},
		"voxgate.js":  {"reach.js", "connection.js", "calls.js", "outbox.js", "turns.js", "wakelock.js", "audio.js"},
		"orb.js":      {"dom.js", "markdown.js", "look.js", "status.js", "preferences.js"},
		"app.js":      {"page.en.js", "native.js", "transcript.js"},
		"vox/page.js": {"vox/en.js", "vox/cards.js", "vox/zip.js", "vox/project.js", "vox/projects.js", "vox/vox.js"},
	}
}

// OperatorFolders returns the folders that make up the operator's page.
func OperatorFolders() []fs.FS { return subFolders(operator, "operator", "library", "page") }

func subFolders(root fs.FS, names ...string) (folders []fs.FS) {
	for _, name := range names {
		folder, err := fs.Sub(root, name)
		if err != nil {
			panic(err) // cannot fail: the names are embedded above
		}
		folders = append(folders, folder)
	}
	return folders
}
