package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	fenced    = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```")
	serveLine = regexp.MustCompile(`(?s)((?:[A-Z_]+=[^\s]+ |\\\n)*)bin/gateway serve[^\n]*`)
)

// readmeBlocks returns the shell blocks of the README, whose commands are run in a clone of the repository.
func readmeBlocks(t *testing.T) (blocks []string) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range fenced.FindAllStringSubmatch(string(text), -1) {
		if m[1] == "" {
			blocks = append(blocks, m[2])
		}
	}
	return blocks
}

// clone returns a folder like a clone of the repository: its top-level entries, but empty, and the program at the path that
// "make build" uses.
func clone(t *testing.T, program string) string {
	t.Helper()
	here := t.TempDir()
	entries, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			err = os.MkdirAll(filepath.Join(here, e.Name()), 0o755)
		} else {
			err = os.WriteFile(filepath.Join(here, e.Name()), nil, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	_ = os.MkdirAll(filepath.Join(here, "bin"), 0o755)
	_ = os.Remove(filepath.Join(here, "bin", "gateway"))
	if err := os.Symlink(program, filepath.Join(here, "bin", "gateway")); err != nil {
		t.Fatal(err)
	}
	return here
}

// runShell runs commands like a reader who pastes them. It returns their output, and the environment at their end.
func runShell(t *testing.T, folder, commands string) (printed string, environ variables) {
	t.Helper()
	cmd := exec.Command("bash", "-euc", commands+"\nenv -0 >&3")
	cmd.Dir = folder
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &out, &out, []*os.File{write}
	left := make(chan []byte, 1)
	go func() {
		raw, _ := io.ReadAll(read)
		left <- raw
	}()
	err = cmd.Run()
	write.Close()
	raw := <-left
	read.Close()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, commands, out.String())
	}
	return out.String(), readEnvironment(slices.DeleteFunc(strings.Split(string(raw), "\x00"), func(s string) bool { return s == "" }))
}

// runPasted runs the commands before "bin/gateway serve" in a block. It returns their output, and the environment for serve.
func runPasted(t *testing.T, folder, block string) (printed string, environ variables) {
	t.Helper()
	m := serveLine.FindStringSubmatchIndex(block)
	if m == nil {
		t.Fatalf("the block serves nothing:\n%s", block)
	}
	before := strings.ReplaceAll(block[:m[0]], "make build\n", "")
	settings := block[m[2]:m[3]]
	printed, environ = runShell(t, folder, before+"for s in "+strings.ReplaceAll(settings, "\\\n", " ")+`; do export "$s"; done`)
	for name, value := range environ {
		if strings.HasPrefix(name, envPrefix) && !filepath.IsAbs(value) {
			if _, err := os.Stat(filepath.Join(folder, value)); err == nil {
				environ[name] = filepath.Join(folder, value) // absolute, because the test runs in another folder
			}
		}
	}
	return printed, environ
}

// Every block of the README runs unchanged in a clone. Only public ports, certificates and Twilio are replaced.
func TestREADME(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	program := filepath.Join(t.TempDir(), "gateway")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var tried []string
	for _, block := range readmeBlocks(t) {
		first, _, _ := strings.Cut(block, "\n")
		tried = append(tried, first)
		switch {
		case strings.HasPrefix(block, "make run"): // only check that the Makefile has the targets
			for _, target := range regexp.MustCompile(`make ([a-z-]+)`).FindAllStringSubmatch(block, -1) {
				makefile, err := os.ReadFile("../Makefile")
				if err != nil || !regexp.MustCompile(`(?m)^`+target[1]+`:`).Match(makefile) {
					t.Errorf("the Makefile has no %q, %v", target[1], err)
				}
			}
		case strings.Contains(block, "VOXGATE_TELEPHONY"):
			tryTelephone(t, clone(t, program), block)
		case strings.Contains(block, "VOXGATE_ACME_DOMAIN"):
			tryInternet(t, clone(t, program), block)
		case strings.HasPrefix(block, "curl "): // tested by tryInternet
		default:
			t.Errorf("nobody tries this block:\n%s", block)
		}
	}
	if len(tried) < 4 {
		t.Errorf("the README has only these blocks: %q", tried)
	}
}

// tryTelephone serves the README's telephone agent, and sends it a call as Twilio does.
func tryTelephone(t *testing.T, folder, block string) {
	_, environ := runPasted(t, folder, block)
	environ["VOXGATE_ADDR"], environ["TWILIO_AUTH_TOKEN"] = "127.0.0.1:0", "secret of a test"
	p := startGateway(t, nil, ourVariables(environ))
	defer p.stopGateway()
	form := url.Values{"CallSid": {"CA1"}, "From": {"+493012345"}, "To": {"+493067890"}}
	const at = "https://voice.example.com/telephony/twilio/answer"
	mac := hmac.New(sha1.New, []byte("secret of a test"))
	io.WriteString(mac, at+"CallSidCA1From+493012345To+493067890")
	r, _ := http.NewRequest(http.MethodPost, p.url+"/telephony/twilio/answer", strings.NewReader(form.Encode()))
	r.Host = "voice.example.com"
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-Twilio-Signature", base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK || !bytes.Contains(answer, []byte("<Connect><Stream")) {
		t.Errorf("the call is answered %s: %s", resp.Status, answer)
	}
}

// tryInternet checks the README's settings for a machine on the internet. It serves with these keys, and mints a token with
// the README's command.
func tryInternet(t *testing.T, folder, block string) {
	printed, environ := runPasted(t, folder, block)
	key := regexp.MustCompile(`(?m)^vgk_\S+$`).FindString(printed)
	if key == "" {
		t.Fatalf("no key is printed:\n%s", printed)
	}
	var out bytes.Buffer
	if err := runCommand(t.Context(), []string{"check-config"}, ourVariables(environ), &out, &out); err != nil {
		t.Errorf("the settings are wrong: %v", err)
	}
	p := startGateway(t, nil, env("VOXGATE_ADDR", "127.0.0.1:0", "VOXGATE_KEYS", environ["VOXGATE_KEYS"]))
	defer p.stopGateway()
	blocks := readmeBlocks(t)
	i := slices.IndexFunc(blocks, func(b string) bool { return strings.HasPrefix(b, "curl ") })
	if i < 0 {
		t.Fatal("no block mints a token")
	}
	asked := strings.ReplaceAll(blocks[i], "https://voice.example.com", p.url)
	if minted, _ := runShell(t, folder, fmt.Sprintf("KEY=%s\n%s", key, asked)); !strings.Contains(minted, `"token":"`) {
		t.Errorf("no token is minted: %s", minted)
	}
}

// ourVariables returns the variables that the program reads.
func ourVariables(environ variables) variables {
	settings := variables{}
	for name, value := range environ {
		if strings.HasPrefix(name, envPrefix) {
			settings[name] = value
		}
	}
	return settings
}
