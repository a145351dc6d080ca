package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ErrHeld means that a running supervisor holds the directory.
var ErrHeld = errors.New("held by a running supervisor")

// lockName is the file that a running supervisor keeps locked. It contains the process ID of the supervisor.
const lockName = "supervisor.lock"

// hold locks dir for the calling process until the file is closed.
func hold(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("supervisor directory: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("directory %s: %w", dir, ErrHeld)
	}
	_, err = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("write process id: %w", err)
	}
	return file, nil
}

// Holder returns the process ID of the supervisor that holds dir, or 0 if there is none. A killed supervisor holds nothing.
func Holder(dir string) (int, error) {
	file, pid, err := holder(dir)
	if file != nil {
		file.Close()
	}
	return pid, err
}

// holder is [Holder], and also returns the open lock file of the holder.
func holder(dir string) (*os.File, int, error) {
	file, err := os.Open(filepath.Join(dir, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("supervisor of %s: %w", dir, err)
	}
	if syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil {
		return nil, 0, file.Close()
	}
	text, err := os.ReadFile(file.Name())
	if err != nil {
		file.Close()
		return nil, 0, fmt.Errorf("supervisor of %s: %w", dir, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		file.Close()
		return nil, 0, fmt.Errorf("supervisor of %s: process id: %w", dir, err)
	}
	return file, pid, nil
}

// Wait returns when no supervisor holds dir, or with an error when ctx ends.
func Wait(ctx context.Context, dir string) error {
	file, _, err := holder(dir)
	if file == nil {
		return err
	}
	return waitReleased(ctx, file, dir)
}

// waitReleased returns when the lock on file is released, and closes file.
func waitReleased(ctx context.Context, file *os.File, dir string) error {
	released := make(chan error, 1)
	go func() {
		defer file.Close()
		for {
			err := syscall.Flock(int(file.Fd()), syscall.LOCK_SH)
			if !errors.Is(err, syscall.EINTR) {
				released <- err
				return
			}
		}
	}()
	select {
	case err := <-released:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for the supervisor of %s: %w", dir, ctx.Err())
	}
}

// Terminate ends the supervisor that holds dir, detached or not, and waits until it, its children, and dir are gone. It returns
// false if there was none.
func Terminate(ctx context.Context, dir string) (bool, error) {
	file, pid, err := holder(dir)
	if file == nil {
		return false, err
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		file.Close()
		return true, fmt.Errorf("terminate the supervisor of %s (pid %d): %w", dir, pid, err)
	}
	return true, waitReleased(ctx, file, dir)
}
