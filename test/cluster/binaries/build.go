package binaries

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	// tickInterval is the time between two progress lines about one part.
	tickInterval = 10 * time.Second
	// tailLines is the number of lines of a failed build's output that its error repeats.
	tailLines = 20
	// interruptTimeout bounds the wait for a cancelled go command to clean up.
	interruptTimeout = 5 * time.Second
)

// Options configure a build. The zero value is ready for use.
type Options struct {
	// Dir receives the files. Default: .build/controlplane in the repository, or .build/controlplane-1.35 for release 1.35 of
	// [ReleaseVariable].
	Dir string
	// Progress receives progress lines while a part is built. Default: standard error.
	Progress io.Writer
}

// Set is a directory with all files of Build, up to date.
type Set struct{ dir string }

// Path returns the absolute path of one file, by its name constant.
func (s Set) Path(name string) string { return filepath.Join(s.dir, name) }

// Build brings the files in a directory up to date and returns them. If they are up to date, this takes a few milliseconds and no
// lock. An error names the module that failed to build and repeats the last lines of output.
func Build(ctx context.Context, options Options) (Set, error) {
	b, err := newBuilder(ctx, options)
	if err != nil {
		return Set{}, fmt.Errorf("build the control plane: %w", err)
	}
	stale, err := b.stale()
	if err == nil && len(stale) > 0 {
		err = b.buildLocked(ctx)
	}
	if err != nil {
		return Set{}, fmt.Errorf("build the control plane: %w", err)
	}
	return Set{dir: b.dir}, nil
}

// builder is one call of Build.
type builder struct {
	release   release
	root      string
	dir       string
	goVersion string
	progress  io.Writer
}

func newBuilder(ctx context.Context, options Options) (builder, error) {
	root, err := Root()
	if err != nil {
		return builder{}, err
	}
	r, err := chosenRelease()
	if err != nil {
		return builder{}, err
	}
	b := builder{release: r, root: root, dir: options.Dir, progress: options.Progress}
	if b.dir == "" {
		b.dir = filepath.Join(root, ".build", r.folder())
	}
	if b.progress == nil {
		b.progress = os.Stderr
	}
	if b.dir, err = filepath.Abs(b.dir); err != nil {
		return builder{}, err
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return builder{}, err
	}
	version := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOOS", "GOARCH")
	version.Dir = root
	out, err := version.Output()
	if err != nil {
		return builder{}, fmt.Errorf("go env: %w", err)
	}
	b.goVersion = strings.Join(strings.Fields(string(out)), " ")
	return b, nil
}

// work is a part that must be built, and the stamp it gets afterwards.
type work struct {
	part  part
	stamp string
}

// stale returns the parts that are missing or have outdated inputs.
func (b builder) stale() ([]work, error) {
	var stale []work
	for _, p := range b.release.parts() {
		stamp, err := p.stamp(b.root, b.goVersion)
		if err != nil {
			return nil, err
		}
		have, err := os.ReadFile(b.stampFile(p))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if _, err := os.Stat(filepath.Join(b.dir, p.name)); err != nil || string(have) != stamp {
			stale = append(stale, work{p, stamp})
		}
	}
	return stale, nil
}

// stampFile returns where the stamp of the built part is kept.
func (b builder) stampFile(p part) string { return filepath.Join(b.dir, p.name+".stamp") }

// buildLocked builds the stale parts while it holds the lock.
func (b builder) buildLocked(ctx context.Context) error {
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	stale, err := b.stale() // Another process may have built it meanwhile.
	if err != nil || len(stale) == 0 {
		return err
	}
	began := time.Now()
	fmt.Fprintf(b.progress, "control plane of Kubernetes %s: building %d of %d parts; the first time takes about six minutes\n", b.release.minor, len(stale), len(b.release.parts()))
	for i, w := range stale {
		if err := b.build(ctx, w, fmt.Sprintf("%d/%d %s", i+1, len(stale), w.part.name)); err != nil {
			return err
		}
	}
	fmt.Fprintf(b.progress, "control plane: built in %v\n", time.Since(began).Round(time.Second))
	return nil
}

// build builds one part and installs it atomically.
func (b builder) build(ctx context.Context, w work, title string) error {
	made := filepath.Join(b.dir, w.part.name+".new")
	defer os.Remove(made)
	stop := b.tick(title)
	printed, err := b.run(ctx, w.part, made)
	stop()
	if err != nil {
		return err
	}
	if w.part.output {
		if err := os.WriteFile(made, printed, 0o644); err != nil {
			return err
		}
	}
	if err := os.Rename(made, filepath.Join(b.dir, w.part.name)); err != nil {
		return err
	}
	return os.WriteFile(b.stampFile(w.part), []byte(w.stamp), 0o644)
}

// run calls go to make one part, and returns what it printed.
func (b builder) run(ctx context.Context, p part, out string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", p.args(out)...)
	cmd.Dir = filepath.Join(b.root, p.module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=readonly")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = interruptTimeout
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", p.name, ctx.Err())
	}
	if err != nil {
		return nil, fmt.Errorf("%s, in module %s: %w\n%s", p.name, p.module, err, tail(stdout.String()+stderr.String()))
	}
	return stdout.Bytes(), nil
}

// tail returns the last lines of text.
func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}

// tick prints that title is being built, now and then until stop is called.
func (b builder) tick(title string) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	began := time.Now()
	go func() {
		defer close(ended)
		ticker := time.NewTicker(tickInterval)
		defer ticker.Stop()
		for {
			fmt.Fprintf(b.progress, "control plane: building %s, %.0f s\n", title, time.Since(began).Seconds())
			select {
			case <-ticker.C:
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}
