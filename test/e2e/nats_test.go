package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// natsServers are real NATS servers that can be killed.
type natsServers struct {
	t        testing.TB
	binary   string
	settings []natsSettings
	running  []*program.Program // nil means it does not run
}

// natsSettings are the settings of one server.
type natsSettings struct {
	name        string
	port, peers int // for clients, and for the other servers
	store       string
	config      string // file
}

// newNATS prepares n servers, as a cluster if there are several. It starts none.
func newNATS(t testing.TB, n int) *natsServers {
	t.Helper()
	s := &natsServers{t: t, binary: expect.Value(t, program.BuildNATS), running: make([]*program.Program, n)}
	ports, err := program.FreePorts(2 * n)
	expect.Must(t, err)
	for i := range n {
		dir := t.TempDir()
		s.settings = append(s.settings, natsSettings{
			fmt.Sprintf("nats-%d", i), ports[2*i], ports[2*i+1], filepath.Join(dir, "store"), filepath.Join(dir, "nats.conf"),
		})
	}
	for i := range n {
		s.write(i, "127.0.0.1", "", "")
	}
	t.Cleanup(func() {
		for i := range s.running {
			s.kill(i)
		}
	})
	return s
}

// write writes the configuration file of a server. inCluster and more are added to its section cluster and to the whole.
func (s *natsServers) write(i int, host, inCluster, more string) {
	s.t.Helper()
	one, cluster := s.settings[i], ""
	if len(s.settings) > 1 {
		var routes []string
		for _, other := range s.settings {
			routes = append(routes, fmt.Sprintf("%q", fmt.Sprintf("nats://%s:%d", host, other.peers)))
		}
		cluster = fmt.Sprintf("cluster { name: rehome, listen: \"127.0.0.1:%d\", routes: [%s]%s }\n", one.peers, strings.Join(routes, ", "), inCluster)
	}
	filetest.Write(s.t, one.config, fmt.Sprintf("server_name: %s\nlisten: \"127.0.0.1:%d\"\n"+
		"jetstream { store_dir: %q, max_file_store: 64GB, sync_interval: always }\n%s%s", one.name, one.port, one.store, cluster, more))
}

// natsCluster starts n servers.
func natsCluster(t testing.TB, n int) *natsServers {
	t.Helper()
	s := newNATS(t, n)
	for i := range n {
		s.start(i)
	}
	return s
}

// url returns the URLs of all servers.
func (s *natsServers) url() string {
	var urls []string
	for _, one := range s.settings {
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", one.port))
	}
	return strings.Join(urls, ",")
}

// variable returns the setting that connects rehome to the servers.
func (s *natsServers) variable() string { return "REHOME_NATS_URL=" + s.url() }

// start starts a server on its store, and waits until it accepts connections.
func (s *natsServers) start(i int) {
	s.t.Helper()
	p, err := program.Start(s.binary, []string{"-c", s.settings[i].config}, nil)
	expect.Must(s.t, err)
	s.running[i] = p
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("%s complained:\n%s", s.settings[i].name, complaints(p.Log.String()))
		}
	})
	expect.EventuallyWithState(s.t, s.settings[i].name+" accepts connections", func() (bool, string) {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.settings[i].port))
		if err != nil {
			return false, err.Error()
		}
		return c.Close() == nil, ""
	})
}

// complaints returns the lines of a server's log that are errors or warnings.
func complaints(log string) string {
	var lines []string
	for line := range strings.Lines(log) {
		if strings.Contains(line, "[ERR]") || strings.Contains(line, "[WRN]") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// kill kills a server like `kill -9`.
func (s *natsServers) kill(i int) {
	if p := s.running[i]; p != nil {
		s.running[i] = nil
		p.Kill()
	}
}

// forget deletes the store of a stopped server.
func (s *natsServers) forget(i int) {
	s.t.Helper()
	expect.Must(s.t, os.RemoveAll(s.settings[i].store))
}

// streams returns the servers' information about the streams of Rehome, or nil.
func (s *natsServers) streams() (list []*jetstream.StreamInfo, problem string) {
	nc, err := nats.Connect(s.url())
	if err != nil {
		return nil, err.Error()
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err.Error()
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
	defer cancel()
	for _, name := range []string{bus.StreamScopes, bus.StreamIntents, bus.StreamEvents, bus.StreamDead, bus.StreamLedger} {
		stream, err := js.Stream(ctx, name)
		if err != nil {
			return nil, name + ": " + err.Error()
		}
		list = append(list, stream.CachedInfo())
	}
	return list, ""
}

// leader returns the number of the server that leads a stream.
func (s *natsServers) leader(stream string) int {
	s.t.Helper()
	leader := -1
	expect.EventuallyWithState(s.t, stream+" has a leader", func() (bool, string) {
		list, problem := s.streams()
		for _, info := range list {
			if info.Config.Name == stream && info.Cluster != nil {
				leader = slices.IndexFunc(s.settings, func(n natsSettings) bool { return n.name == info.Cluster.Leader })
			}
		}
		return leader >= 0, problem
	})
	return leader
}

// whole waits until every stream has n copies, all current.
func (s *natsServers) whole(n int) {
	s.t.Helper()
	expect.EventuallyWithState(s.t, fmt.Sprintf("every stream has %d current copies", n), func() (bool, string) {
		list, problem := s.streams()
		if problem != "" {
			return false, problem
		}
		for _, info := range list {
			current := 0
			if info.Cluster != nil && info.Cluster.Leader != "" {
				current = 1
				for _, replica := range info.Cluster.Replicas {
					if replica.Current && !replica.Offline {
						current++
					}
				}
			}
			if current != n {
				return false, fmt.Sprintf("%s has %d: %+v", info.Config.Name, current, info.Cluster)
			}
		}
		return true, ""
	})
}
