package main

import "syscall"

// space is how many bytes the disk of a folder has for this program, free and in all; ok is false if that cannot be found out.
func space(folder string) (free, total uint64, ok bool) {
	var s syscall.Statfs_t
	if syscall.Statfs(folder, &s) != nil {
		return 0, 0, false
	}
	return s.Bavail * uint64(s.Bsize), (s.Blocks - s.Bfree + s.Bavail) * uint64(s.Bsize), true
}
