// Package web holds the pages and the JavaScript clients as they are served: no build, no third party.
package web

import "embed"

// Files is the served part of this directory; its root is the root of the site.
//
//go:embed index.html app.webmanifest icon.svg icon.png style.css voxgate.css app.js embed.js transcript.js preferences.js recorder.js settings.js statistics.js voxgate.js connection.js calls.js outbox.js token.js turns.js callcontrols.js canvas.js dom.js elements.js native.js device.js contacts.js audio.js sight.js capture-worklet.js playback-worklet.js
//go:embed vox/index.html vox/vox.css vox/page.js vox/vox.js
var Files embed.FS
