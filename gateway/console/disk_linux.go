package console

import "syscall"

// diskSpace returns the number of free bytes on a folder's disk, and the total number. Space that is reserved for root
// is not included. ok is false if the numbers cannot be read.
func diskSpace(folder string) (free, total uint64, ok bool) {
	var s syscall.Statfs_t
	if syscall.Statfs(folder, &s) != nil {
		return 0, 0, false
	}
	return s.Bavail * uint64(s.Bsize), (s.Blocks - s.Bfree + s.Bavail) * uint64(s.Bsize), true
}
