package binaries

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lockInterval is the interval of checks whether the build of another process is done. A blocking lock could not be canceled.
const lockInterval = 200 * time.Millisecond

// lock waits until no other process builds into the directory. The lock ends with the process.
func (b builder) lock(ctx context.Context) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(b.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	ticker := time.NewTicker(lockInterval)
	defer ticker.Stop()
	told := false
	for syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		if !told {
			fmt.Fprintf(b.progress, "control plane: another process is building into %s; waiting for it\n", b.dir)
			told = true
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("wait for another build: %w", ctx.Err())
		}
	}
	return func() { file.Close() }, nil
}
