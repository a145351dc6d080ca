package faults

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/program"
)

// stage is what the run needs.
type stage struct {
	cluster *cluster.Cluster
	rehome  string // path of the binary
	minutes int
	seed    uint64
}

// theStage is set by TestMain, before any test, and not changed.
var theStage stage

func TestMain(m *testing.M) {
	flag.IntVar(&theStage.minutes, "minutes", 1, "how long pods are moved")
	flag.Uint64Var(&theStage.seed, "seed", rand.Uint64N(1e6), "what is killed when")
	flag.Parse()
	os.Exit(perform(m))
}

func perform(m *testing.M) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "rehome-faults-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	if theStage.rehome, err = program.Build(); err != nil {
		return fail(err)
	}
	c, err := cluster.Start(context.Background(), cluster.Options{LogDir: filepath.Join(dir, "logs")})
	if err != nil {
		return fail(err)
	}
	defer c.Stop()
	theStage.cluster = c
	return m.Run()
}
