package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/test/bustest"
	"github.com/rehome-dev/rehome/test/expect"
	"github.com/rehome-dev/rehome/test/program"
)

// natsVariable makes the test binary a NATS server with these settings in JSON.
const natsVariable = "REHOME_E2E_NATS"

// natsSettings are the settings of one server.
type natsSettings struct {
	Name   string
	Port   int
	Store  string
	Peers  int      // the port for the other servers; 0 means it is alone
	Routes []string // to all servers of the cluster
	Config string   // a complete configuration file; empty means none
}

// beNATS runs a NATS server until the test that started it has ended, for any reason.
func beNATS(settings string) int {
	var s natsSettings
	if err := json.Unmarshal([]byte(settings), &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	o := &server.Options{
		ServerName: s.Name, Host: "127.0.0.1", Port: s.Port, JetStream: true, StoreDir: s.Store, JetStreamMaxStore: bustest.MaxStore,
		SyncAlways: true, NoSigs: true,
	}
	if s.Peers != 0 {
		o.Cluster = server.ClusterOpts{Name: "rehome", Host: "127.0.0.1", Port: s.Peers}
		o.Routes = server.RoutesFromStr(strings.Join(s.Routes, ","))
	}
	if s.Config != "" {
		var err error
		if o, err = server.ProcessConfigFile(s.Config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		o.NoSigs = true
	}
	n, err := server.NewServer(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	n.ConfigureLogger()
	n.Start()
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// natsServers are real NATS servers in separate processes that can be killed.
type natsServers struct {
	t        testing.TB
	settings []natsSettings
	running  []*natsProcess // nil means it does not run
}

type natsProcess struct {
	command *exec.Cmd
	log     *program.Log
	stdin   io.Closer // closed to stop the server
}

// newNATS prepares n servers, as a cluster if there are several. It starts none.
func newNATS(t testing.TB, n int) *natsServers {
	t.Helper()
	s := &natsServers{t: t, running: make([]*natsProcess, n)}
	var routes []string
	ports, err := program.FreePorts(2 * n)
	expect.Must(t, err)
	for i := range n {
		settings := natsSettings{Name: fmt.Sprintf("nats-%d", i), Port: ports[2*i], Store: filepath.Join(t.TempDir(), "store")}
		if n > 1 {
			settings.Peers = ports[2*i+1]
			routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", settings.Peers))
		}
		s.settings = append(s.settings, settings)
	}
	for i := range n {
		s.settings[i].Routes = routes
	}
	t.Cleanup(func() {
		for i := range s.running {
			s.kill(i)
		}
	})
	return s
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
		urls = append(urls, (&url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", one.Port)}).String())
	}
	return strings.Join(urls, ",")
}

// variable returns the setting that connects rehome to the servers.
func (s *natsServers) variable() string { return "REHOME_NATS_URL=" + s.url() }

// start starts a server on its store, and waits until it accepts connections.
func (s *natsServers) start(i int) {
	s.t.Helper()
	settings := expect.ToJSON(s.t, s.settings[i])
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	p := &natsProcess{command: exec.Command(self), log: &program.Log{}}
	p.command.Env = append(os.Environ(), natsVariable+"="+string(settings))
	p.command.Stdout, p.command.Stderr = p.log, p.log
	if p.stdin, err = p.command.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.running[i] = p
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("%s complained:\n%s", s.settings[i].Name, complaints(p.log.String()))
		}
	})
	expect.EventuallyWithState(s.t, s.settings[i].Name+" accepts connections", func() (bool, string) {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.settings[i].Port))
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
	p := s.running[i]
	if p == nil {
		return
	}
	s.running[i] = nil
	_ = p.command.Process.Kill()
	_ = p.command.Wait()
	_ = p.stdin.Close()
}

// forget deletes the store of a stopped server.
func (s *natsServers) forget(i int) {
	s.t.Helper()
	if err := os.RemoveAll(s.settings[i].Store); err != nil {
		s.t.Fatal(err)
	}
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
				leader = slices.IndexFunc(s.settings, func(n natsSettings) bool { return n.Name == info.Cluster.Leader })
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
