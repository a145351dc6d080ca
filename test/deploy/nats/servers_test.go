package nats

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/program/programtest"
)

// fleet has a process for each server of the manifests, with the rendered configuration and the files of the Secret. Only the
// variables for addresses and folders differ from a pod.
type fleet struct {
	*stage
	t         *testing.T
	dir, auth string
	names     []string
	listen    []string // of clients, by server
	monitor   []string
	cluster   []string
	running   []*exec.Cmd // nil: it does not run
	logs      []*program.Log
}

// newFleet makes keys and certificates, applies the Secrets as kubectl does, and starts three servers.
func newFleet(t *testing.T, more ...string) *fleet {
	t.Helper()
	f := &fleet{stage: newStage(t), t: t, dir: t.TempDir()}
	f.auth = filepath.Join(f.dir, "auth")
	f.applySecrets(append(more, "--tls", "localhost,rehome-nats.rehome.svc,*.rehome-nats.rehome.svc")...)
	r := renderedServers(t, f.stage)
	f.names = r.names
	n := len(f.names)
	addresses := free(t, 3*n)
	f.listen, f.monitor, f.cluster = addresses[:n], addresses[n:2*n], addresses[2*n:]
	f.running, f.logs = make([]*exec.Cmd, len(f.names)), make([]*program.Log, len(f.names))
	f.mount("server", "etc")
	f.write("etc/nats.conf", r.config)
	t.Cleanup(func() {
		for i := range f.names {
			f.kill(i)
			if t.Failed() {
				t.Logf("%s said:\n%s", f.names[i], f.logs[i])
			}
		}
	})
	for i := range f.names {
		f.start(i)
	}
	for i := range f.names {
		f.healthy(i)
	}
	return f
}

// free returns n unused addresses.
func free(t *testing.T, n int) []string {
	t.Helper()
	addresses, err := program.FreeAddresses(n)
	expect.Must(t, err)
	return addresses
}

// byName is an address by the name that is in the certificate.
func byName(address string) string { return "localhost" + address[strings.LastIndex(address, ":"):] }

// applySecrets prints the Secrets and applies them.
func (f *fleet) applySecrets(more ...string) {
	f.t.Helper()
	printed := f.keys(f.t, "secrets", f.auth, append(more, "-n", namespace)...)
	f.kubectl(f.t, strings.NewReader(printed), "apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", "-")
}

// mount writes the Secret of a participant, as the API server has it, into a folder, as the kubelet does.
func (f *fleet) mount(participant, folder string) {
	f.t.Helper()
	secret, err := f.stage.cluster.Client().CoreV1().Secrets(namespace).Get(f.t.Context(), "rehome-nats-"+participant, metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	for name, text := range secret.Data {
		f.write(filepath.Join(folder, name), string(text))
	}
}

func (f *fleet) write(name, text string) {
	f.t.Helper()
	name = filepath.Join(f.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		f.t.Fatal(err)
	}
	filetest.Write(f.t, name, text)
}

// command is how a container of the manifests is started, in a folder that stands for /etc/nats.
func (f *fleet) command(folder, name, listen, cluster, monitor string) (*exec.Cmd, *program.Log) {
	f.t.Helper()
	r := renderedServers(f.t, f.stage)
	container := r.set.Spec.Template.Spec.Containers[0]
	c := exec.Command(f.natsServer, container.Command[1:]...)
	c.Dir, c.Env = filepath.Join(f.dir, folder), os.Environ()
	environment := r.environment(name)
	environment["NATS_LISTEN"], environment["NATS_CLUSTER"], environment["NATS_MONITOR"] = listen, cluster, monitor
	environment["NATS_STORE"] = filepath.Join(f.dir, "data", name)
	var routes []string
	for _, c := range f.cluster {
		routes = append(routes, "tls://"+byName(c))
	}
	text := expect.ToJSON(f.t, routes)
	environment["NATS_ROUTES"] = string(text)
	for variable, value := range environment {
		c.Env = append(c.Env, variable+"="+value)
	}
	log := &program.Log{}
	c.Stdout, c.Stderr = log, log
	return c, log
}

// start starts a server on the store that it had.
func (f *fleet) start(i int) {
	f.t.Helper()
	c, log := f.command("etc", f.names[i], f.listen[i], f.cluster[i], f.monitor[i])
	if err := c.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.running[i], f.logs[i] = c, log
}

// kill ends a server as the loss of its node does.
func (f *fleet) kill(i int) {
	if c := f.running[i]; c != nil {
		f.running[i] = nil
		_ = c.Process.Kill()
		_ = c.Wait()
	}
}

// probes are the paths of the probes of the manifests.
func (f *fleet) probes() (startup, readiness, liveness string) {
	f.t.Helper()
	c := renderedServers(f.t, f.stage).set.Spec.Template.Spec.Containers[0]
	path := func(p *corev1.Probe) string { return p.HTTPGet.Path }
	return path(c.StartupProbe), path(c.ReadinessProbe), path(c.LivenessProbe)
}

// healthy waits until all probes of a server succeed.
func (f *fleet) healthy(i int) {
	f.t.Helper()
	startup, readiness, liveness := f.probes()
	for _, path := range []string{startup, readiness, liveness} {
		expect.EventuallyWithState(f.t, f.names[i]+" answers "+path, func() (bool, string) {
			status, text := program.Get("http://" + f.monitor[i] + path)
			return status == http.StatusOK, text
		})
	}
}

// reads asks the monitor port of a server for an object.
func (f *fleet) reads(monitor, path string, object any) {
	f.t.Helper()
	if status, text := program.Get("http://" + monitor + path); status != http.StatusOK {
		f.t.Fatalf("%s%s: %d: %s", monitor, path, status, text)
	} else if err := json.Unmarshal([]byte(text), object); err != nil {
		f.t.Fatalf("%s%s: %v", monitor, path, err)
	}
}

// as is the environment of a participant, with the Secret mounted that is its own.
func (f *fleet) as(participant string) []string {
	f.t.Helper()
	folder := filepath.Join("mounted", participant)
	f.mount(participant, folder)
	at := filepath.Join(f.dir, folder)
	var urls []string
	for _, address := range f.listen {
		urls = append(urls, "tls://"+byName(address))
	}
	return []string{
		"REHOME_NATS_URL=" + strings.Join(urls, ","), "REHOME_NATS_NKEY_FILE=" + filepath.Join(at, "nkey"),
		"REHOME_NATS_CA_FILE=" + filepath.Join(at, "ca.crt"), "REHOME_NATS_CERT_FILE=" + filepath.Join(at, "tls.crt"),
		"REHOME_NATS_KEY_FILE=" + filepath.Join(at, "tls.key"), "REHOME_NATS_REPLICAS=3",
		"KUBECONFIG=" + f.stage.cluster.Kubeconfig(), "REHOME_NAMESPACE=" + namespace, "REHOME_LEASE_DURATION=3s",
	}
}

// run runs rehome to its end as a participant, and returns what it says.
func (f *fleet) run(environment []string, arguments ...string) (string, error) {
	f.t.Helper()
	c := exec.CommandContext(f.t.Context(), f.rehome, arguments...)
	c.Env = append(os.Environ(), environment...)
	out, err := c.CombinedOutput()
	return string(out), err
}

// begin starts rehome with an environment. It is killed at the end of the test.
func (f *fleet) begin(environment []string, arguments ...string) *program.Program {
	f.t.Helper()
	return programtest.Start(f.t, f.rehome, arguments, environment)
}

// role starts a role as its own participant and waits until it is ready.
func (f *fleet) role(name string, arguments ...string) *program.Program {
	f.t.Helper()
	p := f.begin(f.as(name), append([]string{name}, arguments...)...)
	programtest.Ready(f.t, p)
	return p
}

// leader is the number of the server that leads the consumer of a strategy.
func (f *fleet) leader(strategy string) int {
	f.t.Helper()
	name := ""
	expect.EventuallyWithState(f.t, strategy+" has a leader", func() (bool, string) {
		for _, monitor := range f.monitor {
			if status, _ := program.Get("http://" + monitor + "/healthz"); status != http.StatusOK {
				continue
			}
			if _, leader, found := f.consumer(monitor, strategy); found && leader != "" {
				name = leader
			}
		}
		return name != "", ""
	})
	return slices.Index(f.names, name)
}

func TestNATSAdvertisesNamesOnly(t *testing.T) {
	f := newFleet(t)
	type varz struct {
		Name    string   `json:"server_name"`
		Connect []string `json:"connect_urls"`
		Cluster struct {
			Name string   `json:"name"`
			URLs []string `json:"urls"`
		} `json:"cluster"`
	}
	for i, monitor := range f.monitor {
		var got, want varz
		f.reads(monitor, "/varz", &got)
		want.Name, want.Cluster.Name = fmt.Sprintf("rehome-nats-%d", i), "rehome"
		for _, address := range f.cluster {
			want.Cluster.URLs = append(want.Cluster.URLs, byName(address))
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}
