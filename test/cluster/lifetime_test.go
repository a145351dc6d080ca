package cluster_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/binaries"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/cluster/supervisor"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

const (
	// childVariable makes the test binary start a cluster and wait until it is killed.
	childVariable = "REHOME_TEST_CLUSTER_CHILD"
	// goneTimeout limits the wait for processes to end, which takes milliseconds.
	goneTimeout = 10 * time.Second
	// goneInterval is the interval of checks of a process that is not a child.
	goneInterval = 10 * time.Millisecond
	// stopTimeout limits a stop.
	stopTimeout = 2 * time.Second
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		beChild()
	}
	os.Exit(m.Run())
}

// left returns the leftovers of a cluster.
type left struct {
	Dir  string
	Pids map[string]int
}

// beChild starts a cluster, prints what it consists of, and waits for its end.
func beChild() {
	c, err := cluster.Start(context.Background(), cluster.Options{})
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(left{c.Dir(), c.Pids()})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

func TestKilledStarterLeavesNothing(t *testing.T) {
	child := exec.Command(os.Args[0], "-test.run=^$")
	child.Env = append(os.Environ(), childVariable+"=1")
	child.Stderr = t.Output()
	out, err := child.StdoutPipe()
	expect.Must(t, err)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(errors.Join(err, child.Wait()))
	}
	cluster := expect.FromJSON[left](t, line)
	if len(cluster.Pids) != 6 {
		t.Fatalf("processes of the cluster: %v, want 6", cluster.Pids)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); child.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("child ended with %v, want SIGKILL", err)
	}
	expectGone(t, cluster)
}

func TestKilledSupervisorLeavesNothing(t *testing.T) {
	c, err := cluster.Start(t.Context(), cluster.Options{})
	expect.Must(t, err)
	pids := c.Pids()
	if err := syscall.Kill(pids[binaries.Supervise], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AddDeployment(t.Context(), "shop", "cart", 1); err == nil {
		err = c.WaitReady(t.Context(), "shop", "cart")
		if err == nil {
			t.Error("a cluster without processes has a Ready deployment")
		}
	}
	if err := c.Stop(); err == nil {
		t.Error("Stop does not say that the supervisor was killed")
	}
	expectGone(t, left{c.Dir(), pids})
}

func TestStopDurationAndCleanup(t *testing.T) {
	c := clustertest.New(t, cluster.Options{})
	cluster := left{c.Dir(), c.Pids()}
	began := time.Now()
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > stopTimeout {
		t.Errorf("stopping took %v, want at most %v", took, stopTimeout)
	}
	expectGone(t, cluster)
}

func TestDeadComponentReport(t *testing.T) {
	c, err := cluster.Start(t.Context(), cluster.Options{})
	expect.Must(t, err)
	defer c.Stop()
	if err := syscall.Kill(c.Pids()[binaries.Scheduler], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err = c.AddDeployment(t.Context(), "shop", "cart", 1); err == nil {
		err = c.WaitReady(t.Context(), "shop", "cart")
	}
	for _, want := range []string{"kube-scheduler ended: signal: killed", "kube-scheduler.log:\n"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func TestFailedStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	_, err := cluster.Start(t.Context(), cluster.Options{Dir: dir, APIServerFlags: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("error %v, want one with the API server's own words", err)
	}
	expectGone(t, left{Dir: dir})
}

func TestDirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "precious")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Start(t.Context(), cluster.Options{Dir: dir}); err == nil {
		t.Error("Start took a directory that is not empty")
	}
	if _, err := cluster.Terminate(t.Context(), dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// expectGone waits until all processes and files of a cluster are gone.
func expectGone(t *testing.T, cluster left) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), goneTimeout)
	defer cancel()
	if err := supervisor.Wait(ctx, cluster.Dir); err != nil {
		t.Error(err)
	}
	for name, pid := range cluster.Pids {
		if err := waitEnded(ctx, pid); err != nil {
			t.Errorf("%s (pid %d) still runs: %v", name, pid, err)
		}
	}
	if _, err := os.Stat(cluster.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("directory %s is still there: %v", cluster.Dir, err)
	}
}

// waitEnded waits until a process that is not a child has ended.
func waitEnded(ctx context.Context, pid int) error {
	ticker := time.NewTicker(goneInterval)
	defer ticker.Stop()
	for runs(pid) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// runs reports whether a process runs. A process that has ended, but that its parent has not reaped, does not run.
func runs(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}
