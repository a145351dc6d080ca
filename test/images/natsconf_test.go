package images

import (
	"crypto/tls"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// natsFacts is what matters of how a server is set up.
type natsFacts struct {
	Name, Listen, Monitor, Peers, Store string
	Routes                              []string
	JetStream, Sync, Verify, PeersTLS   bool
	Participants, Payload               int
}

// natsAs reads the configuration and the command line of a service as the server itself does, with the files in dir.
func natsAs(t *testing.T, dir string, s service) natsFacts {
	t.Helper()
	var words []string
	for _, w := range s.Command {
		words = append(words, strings.ReplaceAll(strings.ReplaceAll(w, "/etc/rehome", dir), "/var/lib/rehome", filepath.Join(dir, "data")))
	}
	f := flag.NewFlagSet("nats-server", flag.ContinueOnError)
	o, err := natsserver.ConfigureOptions(f, words, func() {}, func() {}, func() {})
	expect.Must(t, err)
	got := natsFacts{
		Name: o.ServerName, Listen: fmt.Sprintf("%s:%d", o.Host, o.Port), Monitor: fmt.Sprintf("%s:%d", o.HTTPHost, o.HTTPPort),
		Peers: fmt.Sprintf("%s:%d", o.Cluster.Host, o.Cluster.Port), Store: filepath.Base(o.StoreDir),
		JetStream: o.JetStream, Sync: o.SyncAlways, Verify: verifies(o.TLSConfig), PeersTLS: verifies(o.Cluster.TLSConfig),
		Participants: len(o.Nkeys), Payload: int(o.MaxPayload),
	}
	for _, r := range o.Routes {
		got.Routes = append(got.Routes, r.Host)
	}
	return got
}

// verifies reports whether clients need a certificate.
func verifies(c *tls.Config) bool { return c != nil && c.ClientAuth == tls.RequireAndVerifyClientCert }

func TestComposeNATSCluster(t *testing.T) {
	root, dir := repository(t), t.TempDir()
	images, _ := built(t)
	setup := exec.CommandContext(t.Context(), filepath.Join(images, "bin", "linux-amd64", "rehome"), "auth", "init", filepath.Join(dir, "nats"), "--tls", "127.0.0.1")
	if out, err := setup.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(root, "deploy/compose/nats.conf"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "nats.conf"), []byte(strings.ReplaceAll(string(text), "/etc/rehome", dir)), 0o600)
	}
	expect.Must(t, err)
	keys, err := filepath.Glob(filepath.Join(dir, "nats", "*.nk"))
	expect.Must(t, err)
	services := compose(t).Services
	for i, name := range []string{"nats-1", "nats-2", "nats-3"} {
		got, want := natsAs(t, dir, services[name]), natsFacts{
			Name: name, Listen: fmt.Sprintf("127.0.0.1:%d", 4222+i), Monitor: fmt.Sprintf("127.0.0.1:%d", 8222+i),
			Peers: fmt.Sprintf("127.0.0.1:%d", 6222+i), Store: name,
			Routes:    []string{"localhost:6222", "localhost:6223", "localhost:6224"},
			JetStream: true, Sync: true, Verify: true, PeersTLS: true, Participants: len(keys), Payload: 8 << 20,
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
}
