package scene

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// SetUpBus runs `rehome setup`.
func (s *Scene) SetUpBus(servers *NATSServers, environment ...string) {
	s.T.Helper()
	got := s.Run([]string{"setup"}, append(environment, servers.Setting())...)
	if got.Code != 0 || got.Stdout != "bus is set up\n" {
		s.T.Fatalf("rehome setup: exit code %d, output %q, errors:\n%s", got.Code, got.Stdout, got.Stderr)
	}
}

// NATSServers are real NATS servers that can be killed.
type NATSServers struct {
	T        testing.TB
	binary   string
	Settings []NATSSettings
	running  []*program.Program // nil means it does not run
}

// NATSSettings are the settings of one server.
type NATSSettings struct {
	Name        string
	port, peers int // for clients, and for the other servers
	Store       string
	Config      string // file
}

// NewNATS prepares n servers, as a cluster if there are several. It starts none.
func NewNATS(t testing.TB, n int) *NATSServers {
	t.Helper()
	s := &NATSServers{T: t, binary: expect.Value(t, program.BuildNATS), running: make([]*program.Program, n)}
	ports, err := program.FreePorts(2 * n)
	expect.Must(t, err)
	for i := range n {
		dir := t.TempDir()
		s.Settings = append(s.Settings, NATSSettings{
			fmt.Sprintf("nats-%d", i), ports[2*i], ports[2*i+1], filepath.Join(dir, "store"), filepath.Join(dir, "nats.conf"),
		})
	}
	for i := range n {
		s.WriteConfig(i, "127.0.0.1", "", "")
	}
	t.Cleanup(func() {
		for i := range s.running {
			s.Kill(i)
		}
	})
	return s
}

// WriteConfig writes the configuration file of a server. inCluster and more are added to its section cluster and to the whole.
func (s *NATSServers) WriteConfig(i int, host, inCluster, more string) {
	s.T.Helper()
	one, cluster := s.Settings[i], ""
	if len(s.Settings) > 1 {
		var routes []string
		for _, other := range s.Settings {
			routes = append(routes, fmt.Sprintf("%q", fmt.Sprintf("nats://%s:%d", host, other.peers)))
		}
		cluster = fmt.Sprintf("cluster { name: rehome, listen: \"127.0.0.1:%d\", routes: [%s]%s }\n", one.peers, strings.Join(routes, ", "), inCluster)
	}
	filetest.Write(s.T, one.Config, fmt.Sprintf("server_name: %s\nlisten: \"127.0.0.1:%d\"\n"+
		"jetstream { store_dir: %q, max_file_store: 64GB, sync_interval: always }\n%s%s", one.Name, one.port, one.Store, cluster, more))
}

// StartNATS starts n servers.
func StartNATS(t testing.TB, n int) *NATSServers {
	t.Helper()
	s := NewNATS(t, n)
	for i := range n {
		s.Start(i)
	}
	return s
}

// URL returns the URLs of all servers.
func (s *NATSServers) URL() string {
	var urls []string
	for _, one := range s.Settings {
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", one.port))
	}
	return strings.Join(urls, ",")
}

// Setting returns the setting that connects rehome to the servers.
func (s *NATSServers) Setting() string { return "REHOME_NATS_URL=" + s.URL() }

// Start starts a server on its store, and waits until it accepts connections.
func (s *NATSServers) Start(i int) {
	s.T.Helper()
	p, err := program.Start(s.binary, []string{"-c", s.Settings[i].Config}, nil)
	expect.Must(s.T, err)
	s.running[i] = p
	s.T.Cleanup(func() {
		if s.T.Failed() {
			s.T.Logf("%s complained:\n%s", s.Settings[i].Name, complaints(p.Log.String()))
		}
	})
	expect.EventuallyWithState(s.T, s.Settings[i].Name+" accepts connections", func() (bool, string) {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.Settings[i].port))
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

// Kill kills a server like `kill -9`.
func (s *NATSServers) Kill(i int) {
	if p := s.running[i]; p != nil {
		s.running[i] = nil
		p.Kill()
	}
}
