package bustest

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// smallDisk is the variable that is set in the process of [SmallDisk].
const smallDisk = "REHOME_TEST_SMALL_DISK"

// Disk is a small disk of its own for a test.
type Disk struct{ Dir string }

// SmallDisk runs test in a process with a disk of that size in bytes, which ends with the process. It is a tmpfs in a user and mount
// namespace of the process, so it needs no rights. The test must be the only one of its name and have no parts.
func SmallDisk(t *testing.T, size string, test func(t *testing.T, d Disk)) {
	t.Helper()
	if os.Getenv(smallDisk) == t.Name() {
		d := Disk{filepath.Join(t.TempDir(), "disk")}
		if err := errors.Join(os.Mkdir(d.Dir, 0o700), syscall.Mount("tmpfs", d.Dir, "tmpfs", 0, "size="+size)); err != nil {
			t.Fatalf("mount a disk: %v", err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(d.Dir, syscall.MNT_DETACH) })
		test(t, d)
		return
	}
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), smallDisk+"="+t.Name())
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	c.Stdout, c.Stderr = t.Output(), t.Output()
	if err := c.Run(); err != nil {
		t.Errorf("with a disk of %s: %v", size, err)
	}
}

// Fill takes all space but so many bytes, until free is called.
func (d Disk) Fill(t testing.TB, but int64) (free func()) {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(d.Dir, &s); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(d.Dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = io.CopyN(f, zeros{}, int64(s.Bavail)*s.Bsize-but)
	if err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(f.Name()); err != nil {
			t.Error(err)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
