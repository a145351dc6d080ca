// Command demo shows the product working: it starts a real control plane with simulated nodes and pods, starts Rehome,
// taints a node, and shows what happens until the pods run elsewhere. It leaves nothing behind. With KEEP=1 in the environment, Rehome
// and the cluster run until Ctrl-C, to watch them in the browser and to try things.
//
// It needs Go and git. The first time it builds the control plane, which takes some minutes.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/binaries"
	"github.com/rehome-dev/rehome/test/kit/program"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := show(ctx, os.Stdout, os.Getenv("KEEP") != ""); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// show plays the whole demo. With keep, Rehome and the cluster run until ctx ends.
func show(ctx context.Context, out io.Writer, keep bool) (err error) {
	began := time.Now()
	s := &stage{out: &terminal{w: out}}
	dir, err := os.MkdirTemp("", "rehome-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	s.say("Building rehome and the control plane; the first time this takes some minutes.")
	root, err := binaries.Root()
	if err != nil {
		return err
	}
	binary := filepath.Join(dir, "rehome")
	// With the flags of `make build`, which `make demo` runs first, nothing is compiled twice.
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, "./cmd/rehome")
	build.Dir, build.Stderr, build.Env = root, os.Stderr, append(os.Environ(), "CGO_ENABLED=0")
	if err := build.Run(); err != nil {
		return fmt.Errorf("build rehome: %w", err)
	}
	c, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := c.Stop(); err == nil {
			err = stopErr
		}
	}()
	built := time.Since(began).Round(time.Second)

	s.cluster, s.client, s.program, s.dir = c, c.Client(), binary, dir
	s.keep = keep
	if s.page, err = program.FreeAddress(); err != nil {
		return err
	}
	s.policy = filepath.Join(root, "deploy", "policy.yaml")
	if err := s.play(ctx); err != nil {
		return err
	}
	s.say("Done in %v, including %v for building and starting the control plane.", time.Since(began).Round(time.Second), built)
	return nil
}

// say prints a step of the demo.
func (s *stage) say(format string, values ...any) {
	fmt.Fprintf(s.out, "\n── "+format+"\n", values...)
}
