// Package apitest makes an API for tests that need no cluster.
package apitest

import (
	"log/slog"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/api"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// New returns an API with a bus of its own and an empty cache. Its API server is away, so only the loopback address answers.
func New(t testing.TB) (*api.Server, *bus.Bus) {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	expect.Must(t, err)
	cache, err := cluster.NewOffline(api.Kinds()...)
	expect.Must(t, err)
	b := bustest.Connect(t, bus.Options{Server: bustest.Server(t, embed.Options{})})
	bustest.SetUp(t, b, bus.Setup{})
	s, err := api.New(api.Config{
		Client: client, Cluster: cache, Bus: b, Policy: func() policy.Policy { return policy.Policy{} }, Log: slog.New(slog.DiscardHandler),
		Settings: settings.Settings{Cluster: "test", Installation: "rehome", LeaseNamespace: "kube-system"},
	})
	expect.Must(t, err)
	return s, b
}
