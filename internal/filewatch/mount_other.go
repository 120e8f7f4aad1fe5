//go:build !linux

package filewatch

import "io/fs"

// inodeAndLinks returns 0 for the inode on this system, where changes show in size and time only.
func inodeAndLinks(fs.FileInfo) (inode, links uint64) { return 0, 1 }

// isMountPoint returns false: single files are mounted only in containers, which run Linux.
func isMountPoint(string) bool { return false }
