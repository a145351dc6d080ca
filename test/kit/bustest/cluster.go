package bustest

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// Servers are servers that listen on free ports of the loopback interface. Set up with as many replicas, their
// streams survive the loss of a minority.
type Servers struct {
	options []*server.Options
	running []*server.Server // nil means stopped
}

// Cluster starts n servers and waits until they are one cluster. They end with the test.
func Cluster(t testing.TB, n int) *Servers {
	t.Helper()
	ports, err := program.FreePorts(2 * n)
	expect.Must(t, err)
	var routes []*url.URL
	for _, port := range ports[n:] {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	dir := t.TempDir()
	s := &Servers{running: make([]*server.Server, n)}
	for i := range n {
		s.options = append(s.options, &server.Options{
			ServerName:        fmt.Sprintf("bus-%d", i),
			Host:              "127.0.0.1",
			Port:              ports[i],
			Cluster:           server.ClusterOpts{Name: "rehome", Host: "127.0.0.1", Port: ports[n+i], NoAdvertise: true},
			Routes:            routes,
			JetStream:         true,
			StoreDir:          filepath.Join(dir, fmt.Sprint(i)),
			JetStreamMaxStore: MaxStore,
			SyncAlways:        true,
			NoSigs:            true,
			NoLog:             true,
		})
	}
	t.Cleanup(func() {
		for i := range s.running {
			s.Stop(i)
		}
	})
	for i := range n {
		s.Start(t, i)
	}
	expect.Eventually(t, "the cluster is whole", s.Whole)
	return s
}

// Whole reports whether all servers run, and one of them leads and sees the others.
func (s *Servers) Whole() bool {
	whole := false
	for _, running := range s.running {
		if running == nil {
			return false
		}
		whole = whole || running.JetStreamIsLeader() && len(running.JetStreamClusterPeers()) == len(s.running)
	}
	return whole
}

// URL returns the URLs of all servers.
func (s *Servers) URL() string {
	return "nats://" + strings.Join(s.Addresses(), ",nats://")
}

// Addresses lists HOST:PORT of all servers.
func (s *Servers) Addresses() (list []string) {
	for _, o := range s.options {
		list = append(list, fmt.Sprintf("127.0.0.1:%d", o.Port))
	}
	return list
}

// Connect connects as [Connect] does, and waits until there is a connection.
func (s *Servers) Connect(t testing.TB, name string) *bus.Bus {
	t.Helper()
	return Connect(t, bus.Options{Name: name, URL: s.URL()})
}

// Start starts server i, on the store that it had if it was stopped, and waits until it accepts connections.
func (s *Servers) Start(t testing.TB, i int) {
	t.Helper()
	n, err := server.NewServer(s.options[i].Clone())
	if err != nil {
		t.Fatal(err)
	}
	n.Start()
	s.running[i] = n
	if !n.ReadyForConnections(expect.Patience) {
		t.Fatalf("server %d does not accept connections", i)
	}
}

// Stop stops server i, as a signal to terminate does, and waits for it. Its connections are cut without a word.
func (s *Servers) Stop(i int) {
	if n := s.running[i]; n != nil {
		n.Shutdown()
		n.WaitForShutdown()
		s.running[i] = nil
	}
}

// StreamLeader returns the number of the server that leads a stream, as soon as one does.
func (s *Servers) StreamLeader(t testing.TB, stream string) int {
	t.Helper()
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	leader := -1
	expect.Eventually(t, "stream "+stream+" has a leader", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		found, err := js.Stream(ctx, stream)
		if err != nil || found.CachedInfo().Cluster == nil {
			return false
		}
		for i, o := range s.options {
			if o.ServerName == found.CachedInfo().Cluster.Leader {
				leader = i
			}
		}
		return leader >= 0
	})
	return leader
}
