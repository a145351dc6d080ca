// Package clustertest starts a real control plane for a test (see package cluster).
//
// # Usage
//
//	func TestEvictedPodMoves(t *testing.T) {
//		c := clustertest.New(t, cluster.Options{})
//		...
//	}
//
// A start takes some seconds. Tests that do not disturb each other should share a control plane, each in its own namespace.
package clustertest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/rehome-dev/rehome/test/cluster"
)

// New starts a control plane that runs until the test ends, and builds missing programs first. A failure to start fails the test;
// nothing is skipped. The test also fails if a component dies. If the test fails, New copies the logs of the components and the
// audit log to the artifact directory of the test, which "go test -artifacts" keeps.
func New(t testing.TB, options cluster.Options) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Err(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			saveLogs(t, c)
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// saveLogs copies the logs of a failed test, unless the test has stopped the cluster itself.
func saveLogs(t testing.TB, c *cluster.Cluster) {
	if _, err := os.Stat(c.Dir()); errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err := os.CopyFS(filepath.Join(t.ArtifactDir(), "control-plane"), os.DirFS(c.LogDir())); err != nil {
		t.Errorf("keep the logs: %v", err)
	}
	audit, err := os.ReadFile(c.AuditLog())
	if err == nil {
		err = os.WriteFile(filepath.Join(t.ArtifactDir(), filepath.Base(c.AuditLog())), audit, 0o644)
	}
	if err != nil {
		t.Errorf("keep the audit log: %v", err)
	}
}
