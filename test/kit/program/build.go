package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/rehome-dev/rehome/test/cluster/binaries"
)

// Build builds rehome if it is out of date, and returns the path of the binary, which all tests share. It is safe for concurrent
// use, also between processes.
func Build() (path string, err error) { return rehome() }

// BuildNATS builds the NATS server in go.mod, like [Build].
func BuildNATS() (path string, err error) { return natsServer() }

// A process builds each program once.
var (
	rehome     = sync.OnceValues(func() (string, error) { return build("rehome", "./cmd/rehome") })
	natsServer = sync.OnceValues(func() (string, error) { return build("nats-server", "github.com/nats-io/nats-server/v2") })
)

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

// lock waits for other builds in the folder. The end of the process releases the lock.
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
