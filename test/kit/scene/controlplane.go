package scene

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// ControlPlane is a control plane and a rehome for it.
type ControlPlane struct {
	Cluster *cluster.Cluster
	Client  kubernetes.Interface
	Binary  string // the path of rehome
	scenes  atomic.Int32
}

// stop stops the control plane that shared has started. It is nil before.
var stop func()

// shared starts the control plane for the scenes of a package at its first call, and returns it.
var shared = sync.OnceValues(func() (*ControlPlane, error) {
	binary, err := program.Build()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "rehome-e2e-")
	if err != nil {
		return nil, err
	}
	c, err := cluster.Start(context.Background(), cluster.Options{LogDir: filepath.Join(dir, "logs")})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	stop = func() {
		c.Stop()
		_ = os.RemoveAll(dir)
	}
	return &ControlPlane{Cluster: c, Client: c.Client(), Binary: binary}, nil
})

// Main runs the tests of a package, and then stops their control plane. The first scene starts it.
func Main(m *testing.M) int {
	defer func() {
		if stop != nil {
			stop()
		}
	}()
	return m.Run()
}

// StopAPIServer kills the API server until StartAPIServer is called, or until the scene ends.
func (s *Scene) StopAPIServer() {
	s.T.Helper()
	s.T.Must(s.Cluster.StopAPIServer())
	s.APIServerIsDown = true
}

// StartAPIServer starts the API server again.
func (s *Scene) StartAPIServer() {
	s.T.Helper()
	s.T.Must(s.Cluster.StartAPIServer(s.T.Context()))
	s.APIServerIsDown = false
}
