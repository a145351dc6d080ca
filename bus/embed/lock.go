//go:build linux || darwin

package embed

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// lockStore locks a file in the directory of a store. It fails if another server has locked it. The lock ends with the process,
// or when the result is closed.
func lockStore(dir string) (io.Closer, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600) // NFS locks no directories
	if err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		return file, nil
	}
	_ = file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.New("another rehome is running and uses this store")
	}
	return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
}
