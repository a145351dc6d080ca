// Package clustertest gives a test a real control plane (see package cluster).
//
// # Usage
//
//	func TestAnEvictedPodMoves(t *testing.T) {
//		c := clustertest.New(t, cluster.Options{})
//		...
//	}
//
// Starting one takes some seconds: tests that do not disturb each other should
// share one, each in a namespace of its own.
package clustertest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/rehome-dev/rehome/test/cluster"
)

// New starts a control plane that lives as long as the test, building the programs
// first if need be. Whatever is missing fails the test; nothing is skipped. The
// test also fails if a component dies while it runs. When a test fails, the logs of
// the components and the audit log are copied to its artifact directory, which
// "go test -artifacts" keeps.
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

// saveLogs copies what may tell why a test failed, unless the test has stopped the
// cluster itself.
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
