package console

import "syscall"

// diskSpace returns the free and the total bytes of a folder's disk for this program. ok is false if they cannot be
// read.
func diskSpace(folder string) (free, total uint64, ok bool) {
	var s syscall.Statfs_t
	if syscall.Statfs(folder, &s) != nil {
		return 0, 0, false
	}
	return s.Bavail * uint64(s.Bsize), (s.Blocks - s.Bfree + s.Bavail) * uint64(s.Bsize), true
}
