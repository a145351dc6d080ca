package nats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// addNodes makes nodes that only one test uses, and takes them away again.
func (f *fleet) addNodes(scene string, n int) []string {
	f.t.Helper()
	nodes, err := f.stage.cluster.AddNodes(f.t.Context(), n, func(n *corev1.Node) { n.Labels["scene"] = scene })
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		for _, name := range nodes {
			if err := f.stage.cluster.Client().CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
				f.t.Error(err)
			}
		}
	})
	return nodes
}

// policy is a policy file for the nodes of one test.
func (f *fleet) policy(scene string) string {
	f.t.Helper()
	f.write("policy.yaml", `apiVersion: rehome.dev/v1alpha1
kind: DeschedulerPolicy
nodeSelector: scene=`+scene+`
circuitBreakers: {cluster: {nodes: 0%}}
profiles:
- name: default
  pluginConfig: [{name: RemovePodsViolatingNodeTaints}]
  plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints]}}
`)
	return filepath.Join(f.dir, "policy.yaml")
}

// setUpBus runs rehome setup as the Job does.
func (f *fleet) setUpBus() {
	f.t.Helper()
	if out, err := f.run(f.as("setup"), "setup", "--timeout", "1m"); err != nil || !strings.HasSuffix(out, "bus is set up\n") {
		f.t.Fatalf("rehome setup: %v\n%s", err, out)
	}
}

// pods returns the pods of the Deployment on a node by UID.
func (f *fleet) pods(scene, node string) map[types.UID]string {
	f.t.Helper()
	list, err := f.stage.cluster.Client().CoreV1().Pods(scene).List(f.t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		f.t.Fatal(err)
	}
	pods := map[types.UID]string{}
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			pods[p.UID] = p.Name
		}
	}
	return pods
}

// drained taints a node and waits until each pod that was on it is evicted, and no other.
func (f *fleet) drained(scene, node string) {
	f.t.Helper()
	before := f.pods(scene, node)
	if len(before) == 0 {
		f.t.Fatalf("no pod is on %s", node)
	}
	earlier := len(f.evicted(scene))
	expect.Must(f.t, f.stage.cluster.ChangeNode(f.t.Context(), node, func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule})
	}))
	want := slices.Sorted(maps.Values(before))
	expect.EventuallyWithState(f.t, "the pods of "+node+" are evicted", func() (bool, string) {
		got := slices.Sorted(slices.Values(f.evicted(scene)[earlier:]))
		return len(f.pods(scene, node)) == 0 && slices.Equal(got, want), fmt.Sprintf("%q, want %q", got, want)
	})
	if err := f.stage.cluster.WaitReady(f.t.Context(), scene, "api"); err != nil {
		f.t.Fatal(err)
	}
}

// evicted are the pods that the API server evicted, by its audit log.
func (f *fleet) evicted(scene string) (pods []string) {
	f.t.Helper()
	log, err := f.stage.cluster.Audit(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	for _, e := range log {
		if e.Namespace == scene && e.Subresource == "eviction" && e.Code == http.StatusCreated {
			pods = append(pods, e.Name)
		}
	}
	return pods
}

// TestDrainWithOneNATSServerLost runs each role with its own Secret.
func TestDrainWithOneNATSServerLost(t *testing.T) {
	f := newFleet(t)
	const scene = "drain"
	nodes := f.addNodes(scene, 1)
	if _, err := f.stage.cluster.AddDeployment(t.Context(), scene, "api", 8, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.NodeSelector = map[string]string{"scene": scene}
	}); err != nil {
		t.Fatal(err)
	}
	if err := f.stage.cluster.WaitReady(t.Context(), scene, "api"); err != nil {
		t.Fatal(err)
	}
	nodes = append(nodes, f.addNodes(scene, 1)...)
	f.setUpBus()
	policy := f.policy(scene)
	f.role("watcher", "--policy", policy)
	f.role("actuator", "--policy", policy)
	f.role("functions")
	f.role("dispatcher", "--policy", policy)
	f.drained(scene, nodes[0])

	f.addNodes(scene, 1)
	lost := f.leader("RemovePodsViolatingNodeTaints")
	f.kill(lost)
	f.drained(scene, nodes[1])
	f.start(lost)
	for i := range f.names {
		f.healthy(i)
	}
	expect.EventuallyWithState(t, "the reader finds 16 evictions in the history", func() (bool, string) { // the last verdicts follow the pods
		out, err := f.run(f.as("reader"), "events", "--since", "1h")
		return err == nil && strings.Count(out, "evicted from") == 16, fmt.Sprint(err, "\n", out)
	})
}

// TestNATSRequiresCertificateAndKey starts roles, other programs and a server that they must not let in.
func TestNATSRequiresCertificateAndKey(t *testing.T) {
	f := newFleet(t)
	f.setUpBus()
	t.Run("roles", func(t *testing.T) { refusesRoles(t, f) })
	t.Run("other programs", func(t *testing.T) { refusesClients(t, f) })
	t.Run("no TLS", func(t *testing.T) { refusesPlainText(t, f) })
	t.Run("a server with the certificate of a participant", func(t *testing.T) { refusesServer(t, f) })
}

func refusesRoles(t *testing.T, f *fleet) {
	own := f.as("functions")
	for name, test := range map[string]struct {
		environment []string
		says        string // the role, or a server of it
	}{
		"without its key":                   {append(own, "REHOME_NATS_NKEY_FILE="), "authorization violation"},
		"with the key of another":           {append(own, "REHOME_NATS_NKEY_FILE="+f.value("reader", "nkey")), "not permitted: functions may not "},
		"unknown key":                       {append(own, "REHOME_NATS_NKEY_FILE="+f.foreign("functions.nk")), "authorization violation"},
		"without a certificate":             {append(own, "REHOME_NATS_CERT_FILE=", "REHOME_NATS_KEY_FILE="), noCertificate},
		"which trusts other authorities":    {append(own, "REHOME_NATS_CA_FILE="+f.foreign("ca.crt")), "certificate signed by unknown authority"},
		"with a certificate of another one": {append(own, "REHOME_NATS_CERT_FILE="+f.foreign("client.crt"), "REHOME_NATS_KEY_FILE="+f.foreign("client.key")), "failed to verify certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			said := f.saying()
			p := f.begin(test.environment, "functions")
			expect.EventuallyWithState(t, "a refusal with a reason in a log", func() (bool, string) {
				status, text := p.Get("readyz")
				text = strings.ToLower(text + p.Log.String() + said())
				return status != http.StatusOK && strings.Contains(text, test.says), text
			})
			p.Kill()
		})
	}
}

// noCertificate is the log message of a server about a client without a certificate. The client may only see a closed connection.
const noCertificate = "client didn't provide a certificate"

// saying returns what the servers say from now on.
func (f *fleet) saying() func() string {
	var before []int
	for _, log := range f.logs {
		before = append(before, len(log.String()))
	}
	return func() (text string) {
		for i, log := range f.logs {
			text += log.String()[before[i]:]
		}
		return text
	}
}

func refusesClients(t *testing.T, f *fleet) {
	key, err := nats.NkeyOptionFromSeed(f.value("reader", "nkey"))
	expect.Must(t, err)
	ca, certificate := nats.RootCAs(f.value("reader", "ca.crt")), nats.ClientCert(f.value("reader", "tls.crt"), f.value("reader", "tls.key"))
	for name, test := range map[string]struct {
		options []nats.Option
		says    string // the client, or the server; empty: it is let in
	}{
		"let in: with both":     {[]nats.Option{key, ca, certificate}, ""},
		"without a key":         {[]nats.Option{ca, certificate}, "authorization violation"},
		"without a certificate": {[]nats.Option{key, ca}, noCertificate},
	} {
		t.Run(name, func(t *testing.T) {
			said := f.saying()
			nc, err := nats.Connect("nats://"+byName(f.listen[0]), test.options...)
			if err == nil {
				err = nc.FlushTimeout(patience) // with TLS 1.3 a client learns later that its certificate is missing
				nc.Close()
			}
			if (err == nil) != (test.says == "") {
				t.Fatalf("got %v, want %q", err, test.says)
			}
			expect.EventuallyWithState(t, "somebody says why", func() (bool, string) {
				text := strings.ToLower(fmt.Sprint(err) + said())
				return strings.Contains(text, test.says), text
			})
		})
	}
}

func refusesPlainText(t *testing.T, f *fleet) {
	c, err := net.Dial("tcp", f.listen[0])
	expect.Must(t, err)
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "CONNECT {}\r\nPING\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c) // until the server hangs up
	if errors.Is(err, os.ErrDeadlineExceeded) || strings.Contains(string(answer), "PONG") || !strings.Contains(string(answer), `"tls_required":true`) {
		t.Errorf("the server says %q, error %v, want that it asks for TLS and hangs up", answer, err)
	}
}

func refusesServer(t *testing.T, f *fleet) {
	f.mount("server", "of-servers")
	f.mount("reader", "rogue")
	for _, file := range []string{"etc/nats.conf", "of-servers/rehome.conf"} {
		text := filetest.Read(t, f.dir, file)
		f.write(filepath.Join("rogue", filepath.Base(file)), text)
	}
	addresses := free(t, 3)
	c, log := f.command("rogue", "rogue", addresses[0], addresses[1], addresses[2])
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}()
	expect.EventuallyWithState(t, "it is refused", func() (bool, string) {
		return strings.Contains(log.String(), "Route Error 'Authorization Violation'"), log.String()
	})
	for i, monitor := range f.monitor { // the refused server itself also counts routes that no other server has accepted
		var has struct {
			Routes []struct {
				Name string `json:"remote_name"`
			} `json:"routes"`
		}
		f.reads(monitor, "/routez", &has)
		got := []string{f.names[i]}
		for _, route := range has.Routes {
			got = append(got, route.Name)
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, f.names) {
			t.Errorf("%s and the servers of its routes: got %q, want %q", f.names[i], got, f.names)
		}
	}
}

// value is the file of a Secret that is mounted.
func (f *fleet) value(participant, name string) string {
	f.t.Helper()
	f.as(participant)
	return filepath.Join(f.dir, "mounted", participant, name)
}

// foreign is a file of other servers, whose keys and certificates mean nothing here.
func (f *fleet) foreign(name string) string {
	f.t.Helper()
	dir := filepath.Join(f.dir, "elsewhere")
	f.keys(f.t, "init", dir, "--tls", "localhost")
	return filepath.Join(dir, name)
}

// TestNATSReloadAndLameDuckMode signals a server as the page and the preStop hook do.
func TestNATSReloadAndLameDuckMode(t *testing.T) {
	f := newFleet(t)
	f.setUpBus()
	f.applySecrets("--sender", "batch")
	request := []string{"evaluate", "--sender", "batch", "--reason", "upgraded", "--detach"}
	one := append(f.as("sender-batch"), "REHOME_NATS_URL=tls://"+byName(f.listen[1]))
	if out, err := f.run(one, request...); err == nil {
		t.Errorf("before the servers know the sender: %s", out)
	}
	f.mount("server", "etc")
	reload := func() {
		for i := range f.names {
			f.signal(i, "reload")
		}
	}
	reload()
	expect.EventuallyWithState(t, "the key of the sender is known", func() (bool, string) {
		out, err := f.run(one, request...)
		return err == nil || strings.Contains(out, "not permitted"), out
	})
	reload() // nats-server 2.15 connects the imports of a new account only now
	expect.EventuallyWithState(t, "the sender is known", func() (bool, string) {
		out, err := f.run(one, request...)
		return err == nil, out
	})

	hook := renderedServers(t, f.stage).set.Spec.Template.Spec.Containers[0].Lifecycle.PreStop.Exec.Command
	if want := []string{"nats-server", "--signal", "ldm=1"}; !slices.Equal(hook, want) {
		t.Errorf("preStop is %q, want %q", hook, want)
	}
	duck := make(chan struct{})
	key, err := nats.NkeyOptionFromSeed(f.value("reader", "nkey"))
	expect.Must(t, err)
	nc, err := nats.Connect("tls://"+byName(f.listen[2]), key, nats.RootCAs(f.value("reader", "ca.crt")),
		nats.ClientCert(f.value("reader", "tls.crt"), f.value("reader", "tls.key")), nats.LameDuckModeHandler(func(*nats.Conn) { close(duck) }))
	expect.Must(t, err)
	defer nc.Close()
	f.signal(2, "ldm")
	select {
	case <-duck:
	case <-time.After(patience):
		t.Error("its client does not hear of it")
	}
}

// signal tells a server something as another nats-server in its container would.
func (f *fleet) signal(i int, what string) {
	f.t.Helper()
	c := exec.CommandContext(f.t.Context(), f.natsServer, "--signal", fmt.Sprintf("%s=%d", what, f.running[i].Process.Pid))
	if out, err := c.CombinedOutput(); err != nil {
		f.t.Fatalf("nats-server --signal %s: %v\n%s", what, err, out)
	}
}
