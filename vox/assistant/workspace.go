package assistant

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"voxgate/tools"
)

const (
	// maxWorkspace limits the size of all apps in a workspace, in bytes. If it is exceeded, the oldest apps are
	// removed.
	maxWorkspace = 256 << 20
	// maxKept limits the number of app versions, and also the number of projects. If it is exceeded, the oldest are
	// removed.
	maxKept = 1000

	// maxProject bounds a project's file, in bytes. It is enough for ten apps, each with thirty versions of forty
	// files.
	maxProject = 4 << 20

	// unfinished begins the name of a folder that is still being written.
	unfinished = "unfinished-"
	// maxUnfinished is longer than any write takes. An unfinished folder that is older was left behind by a gateway
	// that has died.
	maxUnfinished = time.Hour
)

// Workspace stores generated apps and serves them. Each version of an app is a folder, and each project is a file. It
// is safe for concurrent use, even by several gateways.
type Workspace struct {
	root   *os.Root
	frames string     // origins whose pages may show an app in a frame, for the CSP
	mu     sync.Mutex // serializes cleanup and changes of projects
}

// OpenWorkspace opens the folder dir for apps and projects. If dir has more than 256 MB, 1,000 versions of apps, or
// 1,000 projects, it removes the oldest. Pages of the origins, such as "https://app.example.com", may show an app in a
// frame; "*" allows all origins.
func OpenWorkspace(dir string, origins ...string) (*Workspace, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("cannot create the workspace: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot open the workspace: %w", err)
	}
	w := &Workspace{root: root, frames: strings.Join(append([]string{"'self'"}, origins...), " ")}
	if err := w.makeRoom(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot use the workspace: %w", err), root.Close())
	}
	return w, nil
}

// CheckWorkspace returns an error if [OpenWorkspace] would fail for a folder. It leaves no files or folders behind.
func CheckWorkspace(dir string) error {
	at := filepath.Clean(dir)
	folder, err := os.Stat(at)
	for errors.Is(err, fs.ErrNotExist) && filepath.Dir(at) != at { // the folder would be created, so check the one above it
		at = filepath.Dir(at)
		folder, err = os.Stat(at)
	}
	switch {
	case err != nil:
		return err
	case !folder.IsDir():
		return fmt.Errorf("%s is not a folder", at)
	}
	trial, err := os.MkdirTemp(at, ".check-*")
	if err != nil {
		return fmt.Errorf("%s is not writable: %w", at, err)
	}
	return os.Remove(trial)
}

// Close closes the folder. It does not remove the apps.
func (w *Workspace) Close() error { return w.root.Close() }

// validApp matches the names that saveApp gives to apps. They are unguessable, with 128 random bits.
var validApp = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// saveApp stores an app and returns its URL, relative to the gateway's root. It is atomic: either all files of the app are
// stored, or none.
func (w *Workspace) saveApp(files []file) (url string, err error) {
	name := rand.Text()
	temporary := unfinished + name
	defer func() {
		if err != nil {
			err = errors.Join(err, w.root.RemoveAll(temporary))
		}
	}()
	if err := w.root.Mkdir(temporary, 0o750); err != nil {
		return "", err
	}
	folder, err := w.root.OpenRoot(temporary)
	if err != nil {
		return "", err
	}
	err = writeFiles(folder, files)
	if err = errors.Join(err, folder.Close()); err != nil {
		return "", err
	}
	if err := w.root.Rename(temporary, name); err != nil {
		return "", err
	}
	// The error is ignored, because the app is saved even if the cleanup fails.
	_ = w.makeRoom()
	return appsPath + name + "/", nil
}

func writeFiles(folder *os.Root, files []file) error {
	for _, f := range files {
		if err := folder.MkdirAll(path.Dir(f.path), 0o750); err != nil {
			return err
		}
		if err := folder.WriteFile(f.path, []byte(f.text), 0o640); err != nil {
			return err
		}
	}
	return nil
}

// readFiles reads the files with these names from a version of an app. url is the URL of that version. It fails if a
// file is missing.
func (w *Workspace) readFiles(url string, names []string) (files []file, err error) {
	for _, name := range names {
		text, err := w.root.ReadFile(filepath.FromSlash(path.Base(url) + "/" + name))
		if err != nil {
			return nil, fmt.Errorf("the app's file %s cannot be read; it may have been removed to make room", name)
		}
		files = append(files, file{name, string(text)})
	}
	return files, nil
}

// validProject matches the IDs of projects.
var validProject = validApp

func projectFile(id string) string { return projectPrefix + id + ".json" }

const projectPrefix = "project-"

// OpenProject opens the project with an ID. If the project does not exist, it starts a new project with another ID, and
// isKnown is false. If context is not nil, it replaces the saved context. The project's file is written at the first
// change.
func (w *Workspace) OpenProject(id string, context json.RawMessage) (p *Project, isKnown bool) {
	p = NewProject(context)
	p.workspace = w
	if validProject.MatchString(id) {
		var storedStatus Status
		if storedStatus, isKnown = w.loadProject(id); isKnown {
			p.id = id
			if p.status.Context == nil {
				p.status.Context = storedStatus.Context
			}
			p.status.Tools, p.status.Apps, p.status.Place = storedStatus.Tools, storedStatus.Apps, storedStatus.Place
			return p, true
		}
	}
	p.id = rand.Text()
	return p, false
}

// loadProject reads a project's file. isKnown is false if the file does not exist or is invalid.
func (w *Workspace) loadProject(id string) (s Status, isKnown bool) {
	f, err := w.root.Open(projectFile(id))
	if err != nil {
		return s, false
	}
	defer f.Close()
	return s, json.NewDecoder(io.LimitReader(f, maxProject)).Decode(&s) == nil
}

// changeProject reads the project's file into s, applies a change, and writes the file atomically.
func (w *Workspace) changeProject(id string, s *Status, change func(*Status) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if kept, known := w.loadProject(id); known {
		s.Tools, s.Apps, s.Place = kept.Tools, kept.Apps, kept.Place
	}
	if err := change(s); err != nil {
		return err
	}
	saved := *s
	saved.Writing = ""
	temporary := unfinished + rand.Text()
	err := w.root.WriteFile(temporary, tools.EncodeOrEmpty(saved), 0o640)
	if err == nil {
		err = w.root.Rename(temporary, projectFile(id))
	}
	if err != nil {
		_ = w.root.Remove(temporary)
		return fmt.Errorf("the project could not be kept in the workspace: %w", err)
	}
	return nil
}

// storedItem is an app or project in the workspace.
type storedItem struct {
	name      string
	createdAt time.Time
	size      int64
}

// makeRoom removes the oldest apps and projects beyond the limits. It also removes what gateways that have died left
// behind.
func (w *Workspace) makeRoom() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	folders, err := fs.ReadDir(w.root.FS(), ".")
	if err != nil {
		return err
	}
	var all, projects []storedItem
	var size int64
	for _, f := range folders {
		info, err := f.Info()
		if err != nil {
			continue
		}
		if strings.HasPrefix(f.Name(), projectPrefix) && info.Mode().IsRegular() {
			projects = append(projects, storedItem{f.Name(), info.ModTime(), info.Size()})
		}
		if strings.HasPrefix(f.Name(), unfinished) && time.Since(info.ModTime()) > maxUnfinished {
			err = w.root.RemoveAll(f.Name())
		}
		if err != nil {
			return err
		}
		if f.IsDir() && validApp.MatchString(f.Name()) {
			app := storedItem{f.Name(), info.ModTime(), w.appSize(f.Name())}
			all, size = append(all, app), size+app.size
		}
	}
	oldest := func(a, b storedItem) int { return a.createdAt.Compare(b.createdAt) }
	slices.SortFunc(projects, oldest)
	for len(projects) > maxKept {
		if err := w.root.Remove(projects[0].name); err != nil {
			return err
		}
		projects = projects[1:]
	}
	slices.SortFunc(all, oldest)
	for len(all) > 1 && (size > maxWorkspace || len(all) > maxKept) {
		if err := w.root.RemoveAll(all[0].name); err != nil {
			return err
		}
		size -= all[0].size
		all = all[1:]
	}
	return nil
}

// appSize returns the number of bytes in the files of an app. Unreadable files count as 0.
func (w *Workspace) appSize(name string) (sum int64) {
	_ = fs.WalkDir(w.root.FS(), name, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
		return nil
	})
	return sum
}

// hasApp reports whether the app of a URL still exists.
func (w *Workspace) hasApp(url string) bool {
	if w == nil {
		return false
	}
	info, err := w.root.Stat(path.Base(url))
	return err == nil && info.IsDir()
}

// appsPath is the path of apps, relative to the gateway's root.
const appsPath = "vox/apps/"

// appPolicy is the Content-Security-Policy of apps. It keeps generated code away from the user's microphone, tokens and
// conversations. The sandbox has no allow-same-origin. So the app can access neither our storage nor our cookies, and
// the gateway rejects its requests ("Origin: null").
//
// The sandbox applies even if the app is not in a frame, and also to windows that the app opens. All https hosts are
// allowed, because most apps load libraries from public hosts.
const appPolicy = "sandbox allow-scripts allow-forms allow-modals allow-popups allow-pointer-lock allow-downloads; " +
	"default-src 'self' 'unsafe-inline' 'unsafe-eval' https: data: blob:; object-src 'none'; base-uri 'self'; frame-ancestors "

// nothingAllowed disables all permissions for which a page may ask.
const nothingAllowed = "camera=(), microphone=(), geolocation=(), display-capture=(), usb=(), serial=(), hid=(), midi=(), " +
	"payment=(), clipboard-read=(), screen-wake-lock=(), publickey-credentials-get=(), identity-credentials-get=()"

// contentTypes maps the extensions of app files to content types, all of them text. It is used instead of the system's
// table, which may be missing or different.
var contentTypes = map[string]string{
	".html": "text/html", ".htm": "text/html", ".css": "text/css", ".js": "text/javascript", ".mjs": "text/javascript",
	".json": "application/json", ".map": "application/json", ".webmanifest": "application/manifest+json", ".svg": "image/svg+xml",
	".xml": "application/xml", ".csv": "text/csv", ".md": "text/markdown",
}

// ServeHTTP serves the files of the apps. It must be registered for "GET /vox/apps/{app}/{file...}". The default file
// is index.html.
func (w *Workspace) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	h := rw.Header()
	h.Del("X-Frame-Options") // it would override frame-ancestors in old browsers
	h.Set("Content-Security-Policy", appPolicy+w.frames)
	h.Set("Permissions-Policy", nothingAllowed)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer") // the URL gives access to the app
	// The app has an opaque origin, so even its own files are cross-origin for it. Every origin may read them, because
	// they contain no secrets from those who know the URL.
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	app, name := r.PathValue("app"), r.PathValue("file")
	if name == "" {
		name = "index.html"
	}
	if !validApp.MatchString(app) || checkPath(name) != nil || !w.serveFile(rw, r, app+"/"+name) {
		http.Error(rw, "No such app or file.", http.StatusNotFound)
	}
}

// serveFile serves a file and reports whether it exists.
func (w *Workspace) serveFile(rw http.ResponseWriter, r *http.Request, name string) (exists bool) {
	f, err := w.root.Open(filepath.FromSlash(name))
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	kind := contentTypes[strings.ToLower(path.Ext(name))]
	if kind == "" {
		kind = "text/plain"
	}
	rw.Header().Set("Content-Type", kind+"; charset=utf-8")
	http.ServeContent(rw, r, "", time.Time{}, f)
	return true
}
