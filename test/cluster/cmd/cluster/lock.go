package main

import (
	"fmt"
	"os"
	"syscall"
)

// lockStarts prevents other processes from starting a cluster in dir until unlock is called or the process ends. It
// locks the folder itself, so no file is left.
func lockStarts(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		folder.Close()
		return nil, fmt.Errorf("another cluster is being started in %s; try again when it is up", dir)
	}
	return func() { folder.Close() }, nil
}
