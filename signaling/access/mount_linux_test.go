package access_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"voxgate/signaling/access"
)

// A keys file that is mounted alone, as by a volume of one file, is never replaced inside the mount. The log reports
// that at the start. A key that "gateway key new" creates is accepted. If the file was replaced outside, all keys are
// rejected, since any may have been removed.
func TestKeysFileMountedAlone(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may mount")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and its mounts with it
	if err := syscall.Unshare(syscall.CLONE_NEWNS); err != nil {
		t.Skip(err)
	}
	outside, inside := filepath.Join(t.TempDir(), "keys.json"), filepath.Join(t.TempDir(), "keys.json")
	first, err := access.NewKey(outside, "first", []string{access.MayTalk})
	if err != nil || os.WriteFile(inside, nil, 0o600) != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		t.Skip(err)
	}
	if err := syscall.Mount(outside, inside, "", syscall.MS_BIND, ""); err != nil {
		t.Skip(err)
	}
	defer syscall.Unmount(inside, syscall.MNT_DETACH)
	var log bytes.Buffer
	gate, wait := openKeys(t, inside, slog.NewTextHandler(&log, nil))
	if !strings.Contains(log.String(), "mounted alone") {
		t.Errorf("the log does not warn: %s", log.String())
	}
	mayTalkLater := func(key string) bool {
		wait(2 * time.Second)
		return mayTalk(gate, key)
	}
	second, err := access.NewKey(outside, "second", []string{access.MayTalk})
	if err != nil {
		t.Fatal(err)
	}
	if !mayTalkLater(first) || !mayTalkLater(second) {
		t.Errorf("the first key: %v, one that was made later: %v", mayTalkLater(first), mayTalkLater(second))
	}
	without := strings.Replace(string(must(os.ReadFile(outside))), `"first"`, `"other"`, 1)
	if err := os.WriteFile(outside+".new", []byte(without), 0o600); err != nil || os.Rename(outside+".new", outside) != nil {
		t.Fatal(err)
	}
	if mayTalkLater(first) || mayTalkLater(second) {
		t.Error("a key works on, though the file was replaced outside of its mount")
	}
	if !strings.Contains(log.String(), "replaced outside of its mount") {
		t.Errorf("the log does not say why: %s", log.String())
	}
}

// A file is read again even if its replacement has the same size and time.
func TestReplacedKeysFileOfTheSameTime(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.json")
	key, err := access.NewKey(file, "first", []string{access.MayTalk})
	if err != nil {
		t.Fatal(err)
	}
	gate, wait := openKeys(t, file, slog.DiscardHandler)
	info := must(os.Stat(file))
	without := regexp.MustCompile(`"[0-9a-f]{64}"`).ReplaceAllString(string(must(os.ReadFile(file))), `"`+strings.Repeat("0", 64)+`"`)
	if err := errors.Join(os.WriteFile(file+".new", []byte(without), 0o600), os.Chtimes(file+".new", info.ModTime(), info.ModTime()),
		os.Rename(file+".new", file)); err != nil {
		t.Fatal(err)
	}
	wait(2 * time.Second)
	if mayTalk(gate, key) {
		t.Error("the key may still talk")
	}
}
