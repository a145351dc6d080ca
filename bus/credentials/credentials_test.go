package credentials_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/credentials"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

func function(name, subject string) bus.Participant {
	return bus.Participant{Role: bus.RoleFunction, Name: name, Subject: subject}
}

func forwarder(name string) bus.Participant {
	return bus.Participant{Role: bus.RoleForwarder, Name: name}
}

func sender(name string) bus.Participant { return bus.Participant{Role: bus.RoleSender, Name: name} }

// files returns the files of a directory, with their modes.
func files(t *testing.T, dir string) map[string]os.FileMode {
	t.Helper()
	entries, err := os.ReadDir(dir)
	expect.Must(t, err)
	found := map[string]os.FileMode{}
	for _, e := range entries {
		info, err := e.Info()
		expect.Must(t, err)
		found[e.Name()] = info.Mode()
	}
	return found
}

func write(t *testing.T, dir string, c credentials.Config) credentials.Report {
	t.Helper()
	r, err := credentials.Write(dir, c)
	expect.Must(t, err)
	return r
}

func TestKeyFilePermissions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "auth")
	r := write(t, dir, credentials.Config{
		Functions: []bus.Participant{function("KeepOffSpot", "functions.spot")}, Senders: []bus.Participant{sender("a.b")},
		Forwarders: []bus.Participant{forwarder("audit")},
		Hosts:      []string{"nats.nats.svc", "127.0.0.1"},
	})
	want := map[string]os.FileMode{"rehome.conf": 0o644, "README.md": 0o644, "ca.crt": 0o644, "server.crt": 0o644, "client.crt": 0o644}
	secrets := []string{
		"actuator.nk", "api.nk", "ca.key", "client.key", "dispatcher.nk", "forwarder-audit.nk", "function-KeepOffSpot.nk", "functions.nk", "listener.nk", "maintenance.nk", "operator.nk", "reader.nk",
		"rehome.nk", "sender-a_b.nk", "server.key", "setup.nk", "watcher.nk",
	}
	for _, name := range secrets {
		want[name] = 0o600
	}
	if got := files(t, dir); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
	made := append(slices.Clone(secrets), "ca.crt")
	slices.Sort(made)
	if !reflect.DeepEqual(r, credentials.Report{Made: made}) {
		t.Errorf("got %v, want that %q are made", r, made)
	}
	config, readme := filetest.Read(t, dir, "rehome.conf"), filetest.Read(t, dir, "README.md")
	for _, name := range secrets {
		secret := strings.TrimSpace(filetest.Read(t, dir, name))
		if strings.Contains(config, secret) || strings.Contains(readme, secret) {
			t.Errorf("the secret of %s is in a file that all users can read", name)
		}
		if strings.HasSuffix(name, ".nk") && !strings.Contains(readme, "| `"+name+"` |") {
			t.Errorf("the page does not say who gets %s", name)
		}
	}
}

func TestWriteAgain(t *testing.T) {
	dir := t.TempDir()
	both := credentials.Config{Senders: []bus.Participant{sender("a"), sender("b")}, Hosts: []string{"a"}}
	write(t, dir, both)
	before := map[string]string{}
	for name := range files(t, dir) {
		before[name] = filetest.Read(t, dir, name)
	}
	if err := os.Chmod(filepath.Join(dir, "sender-a.nk"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := write(t, dir, credentials.Config{Senders: []bus.Participant{sender("a"), sender("c")}, Hosts: []string{"b"}})
	if want := []string{"sender-c.nk"}; !reflect.DeepEqual(r.Made, want) {
		t.Errorf("made: got %q, want %q", r.Made, want)
	}
	if want := []string{"sender-b.nk"}; !reflect.DeepEqual(r.Unused, want) {
		t.Errorf("unused: got %q, want %q", r.Unused, want)
	}
	for name, text := range before {
		changes := slices.Contains([]string{"rehome.conf", "README.md", "server.crt", "client.crt"}, name)
		if same := filetest.Read(t, dir, name) == text; same == changes {
			t.Errorf("%s: the same is %v, want %v", name, same, !changes)
		}
	}
	if mode := files(t, dir)["sender-a.nk"]; mode != 0o600 {
		t.Errorf("a key that was world-readable has the mode %v, want 0600", mode)
	}
}

func TestInvalidConfigWritesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		config credentials.Config
		says   string
	}{
		"a sender without a name": {credentials.Config{Senders: []bus.Participant{sender("")}}, "sender: want a name"},
		"a forwarder without one": {credentials.Config{Forwarders: []bus.Participant{forwarder("")}}, "forwarder: want a name"},
		"two of one name":         {credentials.Config{Senders: []bus.Participant{sender("a"), sender("a")}}, "sender a: want it once"},
		"no subject":              {credentials.Config{Functions: []bus.Participant{function("F", "")}}, `function F: want a subject`},
		"a wildcard":              {credentials.Config{Functions: []bus.Participant{function("F", "a.>")}}, `got "a.>"`},
		"an empty token":          {credentials.Config{Functions: []bus.Participant{function("F", "a..b")}}, `got "a..b"`},
		"a subject of Rehome":     {credentials.Config{Functions: []bus.Participant{function("F", "rehome.scope.a")}}, "not of rehome"},
		"a subject with a prefix": {credentials.Config{Prefix: "eu1", Functions: []bus.Participant{function("F", "eu1.rehome.request.batch.x")}},
			"not of rehome"},
		"a subject of the server": {credentials.Config{Functions: []bus.Participant{function("F", "$JS.API.INFO")}}, "want a subject"},
		"somebody's inbox":        {credentials.Config{Functions: []bus.Participant{function("F", "_INBOX_a.b")}}, "want a subject"},
		"a quote":                 {credentials.Config{Functions: []bus.Participant{function("F", `a"b`)}}, "want a subject"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "auth")
			_, err := credentials.Write(dir, test.config)
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want an error that says %s", err, test.says)
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the directory: %v, want that there is none", err)
			}
		})
	}
}

func TestUnreadableKeyKept(t *testing.T) {
	for _, name := range []string{"watcher.nk", "ca.key", "ca.crt", "server.key"} {
		dir := t.TempDir()
		file := filepath.Join(dir, name)
		filetest.Write(t, file, "mine")
		_, err := credentials.Write(dir, credentials.Config{Hosts: []string{"a"}})
		if err == nil || !strings.Contains(err.Error(), file+": want ") {
			t.Errorf("got %v, want an error about %s", err, file)
		}
		if got := filetest.Read(t, dir, name); got != "mine" {
			t.Errorf("%s: got %q, want it untouched", name, got)
		}
	}
}

func TestCertificateHostsAndValidity(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, credentials.Config{Hosts: []string{"nats.nats.svc", "127.0.0.1", "::1"}})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(filetest.Read(t, dir, "ca.crt")))
	parse := func(name string) *x509.Certificate {
		block, _ := pem.Decode([]byte(filetest.Read(t, dir, name)))
		c, err := x509.ParseCertificate(block.Bytes)
		expect.Must(t, err)
		return c
	}
	for _, test := range []struct {
		file, host string
		usage      x509.ExtKeyUsage
		in         time.Duration
		holds      bool
	}{
		{"server.crt", "nats.nats.svc", x509.ExtKeyUsageServerAuth, 0, true},
		{"server.crt", "127.0.0.1", x509.ExtKeyUsageServerAuth, 364 * 24 * time.Hour, true},
		{"server.crt", "::1", x509.ExtKeyUsageClientAuth, 0, true}, // servers are clients of each other
		{"server.crt", "nats", x509.ExtKeyUsageServerAuth, 0, false},
		{"server.crt", "127.0.0.1", x509.ExtKeyUsageServerAuth, 366 * 24 * time.Hour, false},
		{"client.crt", "", x509.ExtKeyUsageClientAuth, 0, true},
		{"client.crt", "", x509.ExtKeyUsageServerAuth, 0, false},
	} {
		_, err := parse(test.file).Verify(x509.VerifyOptions{
			Roots: pool, DNSName: test.host, KeyUsages: []x509.ExtKeyUsage{test.usage}, CurrentTime: time.Now().Add(test.in),
		})
		if (err == nil) != test.holds {
			t.Errorf("%+v: got %v", test, err)
		}
	}
	if _, err := tls.LoadX509KeyPair(filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key")); err != nil {
		t.Error(err)
	}
}

func TestServerStartsWithWrittenConfig(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, credentials.Config{
		Functions: []bus.Participant{function("F", "functions.f")}, Senders: []bus.Participant{sender("a")}, Hosts: []string{"127.0.0.1"},
	})
	s := bustest.ServeParticipants(t, dir, fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }",
		filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key"), filepath.Join(dir, "ca.crt")))
	connect := func(name string) error {
		b, err := bus.Connect(bus.Options{
			Name: name, URL: "tls://" + s.Addr().(*net.TCPAddr).String(), NKeyFile: filepath.Join(dir, name+".nk"),
			CAFile: filepath.Join(dir, "ca.crt"), CertFile: filepath.Join(dir, "client.crt"), KeyFile: filepath.Join(dir, "client.key"),
		})
		if err != nil {
			return err
		}
		defer b.Close()
		for end := time.Now().Add(10 * time.Second); ; {
			err := b.Setup(t.Context(), bus.Setup{Strategies: []string{"A"}})
			if !errors.Is(err, bus.ErrNotConnected) || time.Now().After(end) {
				return err
			}
		}
	}
	if err := connect("setup"); err != nil {
		t.Error(err)
	}
	want := `set up the bus: not permitted: reader may not publish on "$JS.API.STREAM.UPDATE.REHOME_SCOPES"`
	if err := connect("reader"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestSenderReload reloads a server after a sender was added, and after another one was removed.
func TestSenderReload(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, credentials.Config{Senders: []bus.Participant{sender("a")}})
	s := bustest.ServeParticipants(t, dir, "")
	connect := func(name string) *bus.Bus {
		return bustest.Connect(t, bus.Options{Name: name, URL: s.ClientURL(), NKeyFile: filepath.Join(dir, name+".nk")})
	}
	bustest.SetUp(t, connect("setup"), bus.Setup{})
	for _, change := range []struct{ now, gone string }{{"a", ""}, {"b", "a"}} {
		if change.gone != "" {
			write(t, dir, credentials.Config{Senders: []bus.Participant{sender(change.now)}})
			for range 2 { // nats-server 2.15 connects the imports of a new account with the second one
				if err := s.Reload(); err != nil {
					t.Fatal(err)
				}
			}
			if err := ask(t, connect("sender-"+change.gone), change.gone, "one"); !errors.Is(err, bus.ErrNotConnected) {
				t.Errorf("sender %s: got %v, want that the server does not know it", change.gone, err)
			}
		}
		b := connect("sender-" + change.now)
		expect.Eventually(t, "the request of sender "+change.now+" is stored", func() bool { return ask(t, b, change.now, "one") == nil })
	}
}

// TestRevokedKeys removes the file of each key and writes the participants again. The servers refuse the stolen copy, end its
// connections, and know the new key.
func TestRevokedKeys(t *testing.T) {
	dir, stolen := t.TempDir(), t.TempDir()
	participants := credentials.Config{
		Senders: []bus.Participant{sender("a")}, Forwarders: []bus.Participant{forwarder("audit")},
		Functions: []bus.Participant{function("KeepOffSpot", "functions.spot")}, Hosts: []string{"127.0.0.1"},
	}
	made := write(t, dir, participants).Made
	s := bustest.ServeParticipants(t, dir, "")
	connect := func(dir, key string) (*nats.Conn, error) {
		seed, err := nats.NkeyOptionFromSeed(filepath.Join(dir, key))
		expect.Must(t, err)
		return nats.Connect(s.ClientURL(), seed, nats.NoReconnect())
	}
	open := map[string]*nats.Conn{}
	for _, key := range made {
		if filepath.Ext(key) != credentials.SeedSuffix {
			continue
		}
		if err := os.Rename(filepath.Join(dir, key), filepath.Join(stolen, key)); err != nil {
			t.Fatal(err)
		}
		nc, err := connect(stolen, key)
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		t.Cleanup(nc.Close)
		open[key] = nc
	}
	write(t, dir, participants)
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	if len(open) != 14 {
		t.Errorf("%d keys were stolen, want all 14", len(open))
	}
	for key, nc := range open {
		expect.Eventually(t, "the connection with "+key+" ends", nc.IsClosed)
		if _, err := connect(stolen, key); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("the stolen %s: got %v, want %v", key, err, nats.ErrAuthorization)
		}
		nc, err := connect(dir, key)
		if err != nil {
			t.Errorf("the new %s: %v", key, err)
			continue
		}
		nc.Close()
	}
}

// ask publishes a request.
func ask(t *testing.T, b *bus.Bus, sender, name string) error {
	t.Helper()
	r := schemas.Request{Sender: sender, Name: name, Reason: "test"}
	e := schematest.Event(t, "test", r, time.Now(), schemas.Event{})
	_, err := b.Publish(t.Context(), e)
	return err
}

func TestServersEnforceRights(t *testing.T) {
	dir := t.TempDir()
	c := credentials.Config{
		Functions: []bus.Participant{function("F", "functions.f")}, Senders: []bus.Participant{sender("a")},
		Forwarders: []bus.Participant{forwarder("b.c")},
	}
	write(t, dir, c)
	o, err := server.ProcessConfigFile(filepath.Join(dir, "rehome.conf"))
	expect.Must(t, err)
	got := map[string]bus.Rights{}
	for _, u := range o.Nkeys {
		got[u.Nkey] = bus.Rights{
			Publish:   append([]string(nil), u.Permissions.Publish.Allow...),
			Subscribe: append([]string(nil), u.Permissions.Subscribe.Allow...), Reply: u.Permissions.Response != nil,
		}
		for _, s := range []*server.SubjectPermission{u.Permissions.Publish, u.Permissions.Subscribe} {
			if len(s.Allow) == 0 && !slices.Equal(s.Deny, []string{">"}) {
				t.Errorf("%s: nothing is allowed and %q denied, want all of it denied", u.Nkey, s.Deny)
			}
		}
	}
	all := slices.Concat(c.Functions, c.Senders, c.Forwarders)
	for _, role := range []bus.Role{
		bus.RoleSetup, bus.RoleWatcher, bus.RoleFunctions, bus.RoleDispatcher, bus.RoleActuator, bus.RoleMaintenance, bus.RoleAPI, bus.RoleAll, bus.RoleReader,
		bus.RoleListener, bus.RoleOperator,
	} {
		all = append(all, bus.Participant{Role: role})
	}
	want := map[string]bus.Rights{}
	for _, p := range all {
		pair, err := nkeys.FromSeed([]byte(strings.TrimSpace(filetest.Read(t, dir, p.String()+".nk"))))
		expect.Must(t, err)
		public, err := pair.PublicKey()
		expect.Must(t, err)
		want[public] = bus.RightsOf(p, bus.Hosting{Outside: []string{"F"}, Subjects: []string{"functions.f"}})
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}
