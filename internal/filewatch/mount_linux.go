package filewatch

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// inodeAndLinks returns the inode of a file and its number of hard links.
func inodeAndLinks(info fs.FileInfo) (inode, links uint64) {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ino, uint64(s.Nlink)
	}
	return 0, 1
}

// unescapeMount reverses the kernel's escaping of mount points: proc_pid_mountinfo(5).
var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// isMountPoint reports whether the file itself, not its folder, is a mount point.
func isMountPoint(name string) bool {
	path, err := filepath.Abs(name)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return false
	}
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 && unescapeMount.Replace(fields[4]) == path {
			return true
		}
	}
	return false
}
