package bus

import (
	"net"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// connected has the possible log lines of a process before it finds that the address is in use.
var connected = regexp.MustCompile(`time=\S+ level=INFO msg="connected to the bus" .*\n`)

func TestInvalidSettings(t *testing.T) {
	s := scene.New(t, 0)
	policy := s.Policy()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	s.T.Must(err)
	defer taken.Close()
	address := taken.Addr().String()
	file := filepath.Join(t.TempDir(), "file")
	filetest.Write(s.T, file, "")
	for _, c := range []struct {
		name        string
		environment []string
		want        string
	}{
		{"missing kubeconfig", []string{"REHOME_KUBECONFIG=nowhere"}, "no cluster to connect to: stat nowhere: no such file or directory"},
		{"a store that is a file", []string{"REHOME_STORE_DIR=" + file}, "REHOME_STORE_DIR: mkdir " + file + ": not a directory"},
		{
			"missing credentials file", []string{"REHOME_NATS_URL=nats://127.0.0.1:1", "REHOME_NATS_CREDS_FILE=nowhere"},
			"bus nats://127.0.0.1:1: credentials: open nowhere: no such file or directory",
		},
		{
			"an address that is taken", []string{"REHOME_HTTP_ADDRESS=" + address},
			"REHOME_HTTP_ADDRESS: cannot listen on " + address + ": listen tcp " + address + ": bind: address already in use",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			environment := append([]string{"REHOME_STORE_DIR=" + filetest.ShortDir(t), "REHOME_HTTP_ADDRESS=", "REHOME_API_LOCAL="}, c.environment...)
			got := s.Run([]string{"run", "--policy", policy}, environment...)
			got.Stderr = connected.ReplaceAllString(got.Stderr, "")
			if want := (scene.Result{Stderr: c.want + "\n", Code: 1}); got != want {
				t.Errorf("got  %v\nwant %v", got, want)
			}
		})
	}
}
