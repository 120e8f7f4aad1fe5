//go:build !linux

package filewatch

import "io/fs"

// inodeAndLinks returns 0 for the inode, which is read only on Linux. Here, changes of a file show only in its size and
// time.
func inodeAndLinks(fs.FileInfo) (inode, links uint64) { return 0, 1 }

// isMountPoint returns false, because single files are mounted only in containers, and containers run Linux.
func isMountPoint(string) bool { return false }
