//go:build linux || darwin

package embed

import "syscall"

// freeSpace returns the number of bytes that this user may still write in the file system of a directory.
func freeSpace(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}
