package scene

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// Scene is the part of the cluster that one test uses.
type Scene struct {
	*ControlPlane
	T         expect.T
	Namespace string
	Nodes     []string
	// APIServerIsDown reports that the scene has stopped the API server.
	APIServerIsDown bool
}

// New creates a namespace and n nodes that only this scene uses.
func New(t *testing.T, n int) *Scene {
	t.Helper()
	return NewOn(t, expect.Value(t, shared), n)
}

// NewOn creates a scene on a separate control plane.
func NewOn(t *testing.T, on *ControlPlane, n int) *Scene {
	t.Helper()
	s := &Scene{ControlPlane: on, T: expect.T{TB: t}, Namespace: fmt.Sprintf("scene-%d", on.scenes.Add(1))}
	s.T.Must(s.Cluster.AddNamespace(t.Context(), s.Namespace))
	t.Cleanup(s.clear)
	s.AddNodes(n)
	return s
}

// clear deletes the namespace and the nodes of the scene.
func (s *Scene) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if s.APIServerIsDown { // the scene has failed, and the next one needs it
		if err := s.Cluster.StartAPIServer(ctx); err != nil {
			s.T.Fatal(err)
		}
	}
	if err := s.Client.CoreV1().Namespaces().Delete(ctx, s.Namespace, metav1.DeleteOptions{}); err != nil {
		s.T.Error(err)
	}
	for _, n := range s.Nodes {
		if err := s.Client.CoreV1().Nodes().Delete(ctx, n, metav1.DeleteOptions{}); err != nil {
			s.T.Error(err)
		}
	}
}
