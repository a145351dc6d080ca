package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rehome-dev/rehome/test/cluster"
)

// commandVariable makes the test binary behave like the command, so "up" runs in a process that ends.
const commandVariable = "REHOME_TEST_CLUSTER_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandVariable) != "" {
		main()
	}
	os.Exit(m.Run())
}

// command runs the command line in a separate process and returns its output and its exit code.
func command(t *testing.T, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), commandVariable+"=1")
	out, err := cmd.CombinedOutput()
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// expect runs a command line and checks its exit code and a part of its output.
func expect(t *testing.T, code int, words string, args ...string) {
	t.Helper()
	out, got := command(t, args...)
	if got != code || !strings.Contains(out, words) {
		t.Errorf("cluster %s: exit code %d, want %d; want words %q in:\n%s", strings.Join(args, " "), got, code, words, out)
	}
}

func TestUpRunsUntilDownLeavesNothing(t *testing.T) {
	name := fmt.Sprintf("test-%d", os.Getpid())
	dir, err := directory(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // Also if the test fails earlier.
		if _, err := cluster.Terminate(context.Background(), dir); err != nil {
			t.Error(err)
		}
	})
	expect(t, exitNotRunning, "does not run", "status", "--name", name)
	expect(t, exitOK, "with 2 nodes is up", "up", "--nodes", "2", "--name", name)
	expect(t, exitOK, "runs already", "up", "--name", name)
	expect(t, exitOK, "export KUBECONFIG="+dir, "status", "--name", name)
	running, _, err := cluster.Find(dir)
	if err != nil {
		t.Fatal(err)
	}
	expectNodes(t, running.Kubeconfig, 2)
	expect(t, exitOK, "nothing is left", "down", "--name", name)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("directory %s is still there: %v", dir, err)
	}
	if err := syscall.Kill(running.Supervisor, 0); err == nil && !zombie(running.Supervisor) {
		t.Errorf("supervisor %d still runs", running.Supervisor)
	}
	expect(t, exitOK, "does not run", "down", "--name", name)
}

// expectNodes checks the number of nodes.
func expectNodes(t *testing.T, kubeconfig string, want int) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) != want {
		t.Errorf("%d nodes, want %d", len(nodes.Items), want)
	}
}

// zombie reports whether a process has ended but was not reaped.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestUsageErrorExitCode(t *testing.T) {
	for _, args := range [][]string{
		{"destroy"},
		{"up", "now"},
		{"up", "--nodes", "some"},
		{"up", "--nodes", "-1"},
		{"up", "--name", "../elsewhere"},
	} {
		var out, failure bytes.Buffer
		if code := run(t.Context(), args, &out, &failure); code != exitUsage {
			t.Errorf("cluster %s: exit code %d, want %d: %s", strings.Join(args, " "), code, exitUsage, failure.String())
		}
	}
}
