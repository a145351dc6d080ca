package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

func TestOpenInstallation(t *testing.T) {
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "http://127.0.0.1:1"}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", dir) // the directory of a local bus
	t.Setenv("HOME", dir)
	none := filepath.Join(dir, "none")
	for _, c := range []struct {
		name      string
		arguments []string
		kube      string
		want      string // in the error
	}{
		{"nothing", nil, none, "no running Rehome: this machine has no bus, and no cluster to connect to: "},
		{"a cluster", nil, kubeconfig, "find the pod of Rehome: Get \"http://127.0.0.1:1/api/v1/pods?"},
		{"a bus before a cluster", []string{"--store-dir", none}, kubeconfig, "bus.sock"},
		{"a server before a bus", []string{"--store-dir", none, "--server", "http://127.0.0.1:1"}, kubeconfig, "the API at 127.0.0.1:1: dial tcp 127.0.0.1:1: "},
		{"a wrong server", []string{"--server", "127.0.0.1:1"}, kubeconfig, `--server: server: want a URL such as https://rehome.example:8645, got "127.0.0.1:1"`},
		{"a flag of the bus", []string{"--server", "http://127.0.0.1:1", "--policy", filepath.Join("testdata", "policy.yaml")}, kubeconfig,
			"--policy: want it with a bus: the API uses the policy of the installation"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", c.kube)
			out, err := execute(t, append([]string{"status"}, c.arguments...)...)
			if err == nil || out != "" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q, error %v; want %s", out, err, c.want)
			}
		})
	}
	if _, err := os.Stat(none); err == nil {
		t.Errorf("a command that asks has made %s", none)
	}
}

func TestContextBesideLocalBus(t *testing.T) {
	dir := filetest.ShortDir(t)
	t.Setenv("XDG_CACHE_HOME", dir)
	t.Setenv("HOME", dir)
	t.Setenv("KUBECONFIG", filepath.Join(dir, "none"))
	server, err := settings.StartServer(defaults(t), nil)
	expect.Must(t, err)
	t.Cleanup(server.Stop)
	store := filepath.Join(dir, "rehome")
	refusal := func(flag string) string {
		return flag + ": it does not choose the installation, because a rehome runs on this machine; " +
			"for the local one, add --store-dir " + store + "; for another one, add --server with the address that `rehome ui` prints"
	}
	for name, c := range map[string]struct {
		arguments []string
		want      string // in the error
	}{
		"context":               {[]string{"--context", "prod"}, refusal("--context")},
		"kubeconfig":            {[]string{"--kubeconfig", "prod"}, refusal("--kubeconfig")},
		"no_flag":               {nil, "stream REHOME_REQUESTS is missing"},
		"context_and_store_dir": {[]string{"--context", "prod", "--store-dir", store}, "stream REHOME_REQUESTS is missing"},
		"context_and_server":    {[]string{"--context", "prod", "--server", "http://127.0.0.1:1"}, "the API at 127.0.0.1:1: "},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := execute(t, append([]string{"drain", "worker-1", "--reason", "fan", "--name", "r", "--detach"}, c.arguments...)...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q, error %v; want %s", out, err, c.want)
			}
		})
	}
}
