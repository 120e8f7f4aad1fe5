// Package web holds the pages and the JavaScript clients as they are written, without a build step or third-party code.
// The gateway bundles them at its start.
//
//	library   the JavaScript client: exactly what is in the npm package voxgate
//	page      the gateway's own page
//	button    the talk button for any page
//	vox       the page of the VOX assistant, at /vox/
//	operator  the operator's page, at the private address
//	test      the browser tests
//
// The first three folders are served as one folder. So a script in any of them can import "./voxgate.js", although that
// file is in another folder. rootDirs in tsconfig.json tells the type checker about this.
package web

import (
	"archive/zip"
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"regexp"
)

var (
	//go:embed library/*.js library/*.css page/*.html page/*.css page/*.js page/*.webmanifest page/*.svg page/*.png button/*.js
	root embed.FS
	//go:embed vox/*.html vox/*.css vox/*.js
	vox embed.FS
	//go:embed library
	library embed.FS
	//go:embed operator library/looks.css library/dom.js library/markdown.js page/icon.svg page/twice.js page/settings.en.js
	operator embed.FS
)

// LibraryFiles returns the files of the npm package.
func LibraryFiles() fs.FS { return addLooksScript(subFolders(library, "library")[0]) }

// SiteFolders returns the folders that make up the site. The files of all folders are served below the root of the
// site.
func SiteFolders() []fs.FS {
	folders := append(subFolders(root, "library", "page", "button"), vox)
	folders[0] = addLooksScript(folders[0])
	return folders
}

// cssSpace matches comments and indentation of a style sheet.
var cssSpace = regexp.MustCompile(`(?s)/\*.*?\*/|\n\s*`)

// addLooksScript returns a copy of the library with an additional script, looks.js, which exports the text of
// looks.css. The script is needed because the Content-Security-Policy of a foreign page does not allow the gateway's
// style sheet.
func addLooksScript(folder fs.FS) fs.FS {
	var packed bytes.Buffer
	archive := zip.NewWriter(&packed) // an fs.FS in memory
	css, err := fs.ReadFile(folder, "looks.css")
	check(err)
	text, err := json.Marshal(cssSpace.ReplaceAllString(string(css), " "))
	check(err)
	check(archive.AddFS(folder))
	script, err := archive.Create("looks.js")
	check(err)
	fmt.Fprintf(script, "export const looks = %s;\n", text)
	check(archive.Close())
	files, err := zip.NewReader(bytes.NewReader(packed.Bytes()), int64(packed.Len()))
	check(err)
	return files
}

// check panics on an error. Errors cannot occur, because the files are embedded and the archives are in memory.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

// ScriptBundles maps each bundle to the scripts that are joined into it. With the bundles, the page sends 8 requests
// instead of 24.
func ScriptBundles() map[string][]string {
	return map[string][]string{
		"strings.js":  {"en.js", "reach.js", "wakelock.js", "audio.js"}, // what VOX needs, too
		"voxgate.js":  {"connection.js", "calls.js", "outbox.js", "turns.js"},
		"orb.js":      {"dom.js", "markdown.js", "unheard.js", "suggestions.js", "look.js", "status.js", "preferences.js", "stage.js"},
		"app.js":      {"page.en.js", "native.js", "transcript.js"},
		"vox/page.js": {"vox/en.js", "vox/cards.js", "vox/project.js", "vox/projects.js", "vox/vox.js"},
	}
}

// OperatorFolders returns the folders that make up the operator's page.
func OperatorFolders() []fs.FS { return subFolders(operator, "operator", "library", "page") }

func subFolders(root fs.FS, names ...string) (folders []fs.FS) {
	for _, name := range names {
		folder, err := fs.Sub(root, name)
		check(err)
		folders = append(folders, folder)
	}
	return folders
}
