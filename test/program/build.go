package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/rehome-dev/rehome/test/cluster/binaries"
)

// Build builds rehome and returns the path of the binary, which all tests share: while it is up to date, nothing is built.
// It is safe for concurrent use, also by several processes.
func Build() (path string, err error) { return build("rehome", "./cmd/rehome") }

// BuildNATS builds the NATS server that is linked into rehome, as [Build] does.
func BuildNATS() (path string, err error) {
	return build("nats-server", "github.com/nats-io/nats-server/v2")
}

func build(name, source string) (path string, err error) {
	root, err := binaries.Root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".build/programs")
	unlock, err := lock(dir)
	if err != nil {
		return "", fmt.Errorf("build %s: %w", name, err)
	}
	defer unlock()
	path = filepath.Join(dir, name)
	build := exec.Command("go", "build", "-o", path, source)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	return path, nil
}

// lock waits until nobody else builds into the folder. The lock goes with the process, however that ends.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	return func() { _ = file.Close() }, nil
}
