//go:build !linux

package reread

import "io/fs"

// inodeAndLinks has no inodes on this system: changes show in size and time only.
func inodeAndLinks(fs.FileInfo) (inode, links uint64) { return 0, 1 }

// isMountPoint is only needed on Linux, where containers mount files.
func isMountPoint(string) bool { return false }
