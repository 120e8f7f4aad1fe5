package main

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// setups holds a set-up file for each subject: a program in sh or Python. The program reads its settings from
// environment variables, starts the subject's server, logs "url=URL" to stderr when the server is ready, and ends on
// SIGTERM. With the argument "version" it prints the version of the server.
//
// Comments in the file describe the subject: "# name:", "# caller:" and "# cannot CELL: why".
//
//go:embed compare/subjects
var setups embed.FS

// subject is a measured server.
type subject struct {
	id     string // name of its file, without the extension
	name   string
	caller string            // signalling protocol: a key of joinFuncs
	cannot map[string]string // reasons for missing figures, by cell
	file   string            // path of the program in setups
}

// The subjects of the tables in docs/figures.md.
const (
	voxgate = "voxgate"
	echoing = "echo"
)

// silence is a setting of the gateway that disables its detection of silent models, because this program's model is
// silent for a long time in some measurements.
const silence = "VOXGATE_STALL=1h"

// subjectIDs returns the ids of all subjects.
func subjectIDs() (ids []string) {
	files, _ := fs.Glob(setups, "compare/subjects/*")
	for _, file := range files {
		id, _, _ := strings.Cut(filepath.Base(file), ".")
		ids = append(ids, id)
	}
	return ids
}

// newSubject returns the subject with an id, from the comments of its set-up file.
func newSubject(id string) (*subject, error) {
	files, err := fs.Glob(setups, "compare/subjects/"+id+".*")
	if err != nil || len(files) != 1 {
		return nil, fmt.Errorf("unknown subject %q; the subjects are %s", id, strings.Join(subjectIDs(), ", "))
	}
	text, err := setups.ReadFile(files[0])
	if err != nil {
		return nil, err
	}
	s := &subject{id: id, name: id, cannot: map[string]string{}, file: files[0]}
	for line := range strings.Lines(string(text)) {
		key, value, found := strings.Cut(strings.TrimPrefix(line, "# "), ":")
		value = strings.TrimSpace(value)
		switch cells, cannot := strings.CutPrefix(key, "cannot "); {
		case !found || !strings.HasPrefix(line, "# "):
		case key == "name":
			s.name = value
		case key == "caller":
			s.caller = value
		case cannot:
			for cell := range strings.FieldsSeq(cells) {
				s.cannot[cell] = value
			}
		}
	}
	if joinFuncs[s.caller] == nil {
		return nil, fmt.Errorf("%s: no caller %q", s.file, s.caller)
	}
	return s, nil
}

// writeProgram writes the set-up file into a folder, and returns the command that runs it.
func (s *subject) writeProgram(folder string) (command []string, err error) {
	text, err := setups.ReadFile(s.file)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(folder, "subject_"+filepath.Base(s.file)) // not the name of any Python package
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, err
	}
	if filepath.Ext(path) == ".py" {
		return []string{filepath.Join(cacheFolder(), "venv/bin/python"), path}, nil
	}
	return []string{"/bin/sh", path}, nil
}

// cacheFolder returns the folder with the installed packages of the subjects.
func cacheFolder() string {
	if path := os.Getenv("COMPARE_CACHE"); path != "" {
		return path
	}
	path, _ := filepath.Abs("lab/compare/.cache")
	return path
}

// stage is a server with its model.
type stage struct {
	*process
	*subject
	model   *model
	folder  string
	version string
	sip     string // host and port for the SIP endpoint of the subject
	// dial opens the connections of WebSocket lines; nil means the default.
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// startStage starts a subject. extraEnv holds additional environment variables.
func (o options) startStage(ctx context.Context, id string, extraEnv ...string) (_ *stage, err error) {
	s := &stage{}
	if s.subject, err = newSubject(id); err != nil {
		return nil, err
	}
	if s.folder, err = os.MkdirTemp("", "voxgate-bench"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.model, err = startModel(); err != nil {
		return nil, err
	}
	free, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.sip = free.LocalAddr().String()
	free.Close()
	command, err := s.writeProgram(s.folder)
	if err != nil {
		return nil, err
	}
	env, err := o.buildEnvironment(s)
	if err != nil {
		return nil, err
	}
	env = append(env, extraEnv...)
	ask := exec.CommandContext(ctx, command[0], append(command[1:], "version")...)
	ask.Env = append(os.Environ(), env...)
	version, err := ask.Output()
	if err != nil {
		return nil, fmt.Errorf("%s does not report its version: %w", id, err)
	}
	s.version = strings.Join(strings.Fields(string(version)), " ")
	s.process, err = startProcess(ctx, env, command[0], command[1:]...)
	return s, err
}

// buildEnvironment returns the environment variables for a set-up file.
func (o options) buildEnvironment(s *stage) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	roots := filepath.Join(s.folder, "roots.pem")
	if err := os.WriteFile(roots, s.model.roots, 0o600); err != nil {
		return nil, err
	}
	return []string{
		"COMPARE_MODEL=" + s.model.url,          // the Live API over http and ws
		"COMPARE_MODEL_TLS=" + s.model.secure,   // the same over https and wss
		"SSL_CERT_FILE=" + roots,                // for COMPARE_MODEL_TLS
		"COMPARE_TOOL=" + s.model.url + "/tool", // for a POST when the model calls the tool "lookup"
		"COMPARE_INSTRUCTION=" + instruction,    // system instruction for the model
		"COMPARE_SIP=" + s.sip,                  // address for the SIP endpoint, over UDP
		"COMPARE_TWILIO=" + twilioSecret,        // secret that signs Twilio's requests
		"COMPARE_FOLDER=" + s.folder,            // for files; removed at the end
		"COMPARE_CACHE=" + cacheFolder(),
		"COMPARE_GATEWAY=" + o.gateway, // Voxgate's binary
		"COMPARE_BENCH=" + self,        // this program, which is also the echo server
	}, nil
}

// awaitSession returns the model's session of a call. It skips sessions of previous calls, because some subjects end
// them late.
func (s *stage) awaitSession(ctx context.Context, c *caller) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return s.model.awaitSession(ctx, c.instruction, c.began)
}

// placeCall calls the subject.
func (s *stage) placeCall(ctx context.Context, o callOptions) (*caller, error) {
	if o.instruction == "" {
		o.instruction = instruction
	}
	c, err := placeCall(ctx, s.url, joinFuncs[s.caller], o)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, s.newestLog())
	}
	return c, nil
}

// close stops the server, and then its model.
func (s *stage) close() {
	if s.process != nil {
		s.stop()
	}
	if s.model != nil {
		s.model.close()
	}
	os.RemoveAll(s.folder)
}

// hasSharedInstruction reports whether all calls of the subject have the same instruction, so that the model cannot distinguish them.
func (s *stage) hasSharedInstruction() bool {
	return !slices.Contains([]string{voxgate, echoing}, s.id)
}
