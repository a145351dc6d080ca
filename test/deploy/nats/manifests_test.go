package nats

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/manifesttest"
)

// manifests are objects as kubectl renders them, by kind.
type manifests map[string]map[string]any

// render renders a folder with the kustomize in kubectl. There is one object of each kind.
func render(t *testing.T, s *stage, folder string) manifests {
	t.Helper()
	found := manifests{}
	documents, err := manifesttest.Documents([]byte(s.kubectl(t, nil, "kustomize", folder)))
	expect.Must(t, err)
	for _, object := range documents {
		kind := fmt.Sprint(object["kind"])
		if found[kind] != nil {
			t.Fatalf("two objects of kind %s", kind)
		}
		found[kind] = object
	}
	return found
}

// typed returns the object of a kind.
func typed[T any](t *testing.T, m manifests, kind string) T {
	t.Helper()
	if m[kind] == nil {
		t.Fatalf("no object of kind %s", kind)
	}
	return manifesttest.Typed[T](t, m[kind])
}

// servers are the parts of the manifests that say how servers are started.
type servers struct {
	config string // nats.conf
	set    appsv1.StatefulSet
	names  []string // of the pods
}

func renderedServers(t *testing.T, s *stage) servers {
	t.Helper()
	m := render(t, s, component)
	r := servers{
		config: typed[corev1.ConfigMap](t, m, "ConfigMap").Data["nats.conf"], set: typed[appsv1.StatefulSet](t, m, "StatefulSet"),
	}
	for i := range *r.set.Spec.Replicas {
		r.names = append(r.names, fmt.Sprintf("%s-%d", r.set.Name, i))
	}
	return r
}

// environment returns the variables of a server, in the namespace of the manifests.
func (r servers) environment(name string) map[string]string {
	all := map[string]string{}
	for _, v := range r.set.Spec.Template.Spec.Containers[0].Env {
		value := v.Value
		if v.ValueFrom != nil {
			value = map[string]string{"metadata.name": name, "metadata.namespace": r.set.Namespace}[v.ValueFrom.FieldRef.FieldPath]
		}
		for known, meaning := range all {
			value = strings.ReplaceAll(value, "$("+known+")", meaning)
		}
		all[v.Name] = value
	}
	return all
}

// routes are where the servers look for each other.
func (r servers) routes(t *testing.T) []string {
	t.Helper()
	routes := expect.FromJSON[[]string](t, []byte(r.environment("")["NATS_ROUTES"]))
	return routes
}

func TestNATSImageMatchesGoMod(t *testing.T) {
	r := renderedServers(t, newStage(t))
	gomod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	expect.Must(t, err)
	version := regexp.MustCompile(`(?m)^\tgithub\.com/nats-io/nats-server/v2 v(\S+)$`).FindSubmatch(gomod)
	if version == nil {
		t.Fatal("go.mod has no nats-server")
	}
	image := r.set.Spec.Template.Spec.Containers[0].Image
	if want := "nats:" + string(version[1]) + "-alpine"; image != want || server.VERSION != string(version[1]) {
		t.Errorf("image %s, compiled in is %s, want %s", image, server.VERSION, want)
	}
}

func TestNATSVariables(t *testing.T) {
	r := renderedServers(t, newStage(t))
	var used []string
	for _, m := range regexp.MustCompile(`\$([A-Z_]+)`).FindAllStringSubmatch(r.config, -1) {
		used = append(used, m[1])
	}
	want := []string{"NATS_NAME", "NATS_LISTEN", "NATS_MONITOR", "NATS_STORE", "NATS_CLUSTER", "NATS_ROUTES"}
	if !slices.Equal(used, want) {
		t.Errorf("the configuration uses %q, want %q", used, want)
	}
	got := r.environment("rehome-nats-1")
	if want := map[string]string{
		"NATS_NAME": "rehome-nats-1", "POD_NAMESPACE": "rehome", "NATS_LISTEN": "0.0.0.0:4222", "NATS_CLUSTER": "0.0.0.0:6222",
		"NATS_MONITOR": "0.0.0.0:8222", "NATS_STORE": "/data", "GOMEMLIMIT": "900MiB",
		"NATS_ROUTES": `["tls://rehome-nats-0.rehome-nats.rehome.svc:6222", "tls://rehome-nats-1.rehome-nats.rehome.svc:6222", ` +
			`"tls://rehome-nats-2.rehome-nats.rehome.svc:6222"]`,
	}; !maps.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

// TestNATSCertificateNames reads the certificate from the Secret that the command of the page prints.
func TestNATSCertificateNames(t *testing.T) {
	s := newStage(t)
	r := renderedServers(t, s)
	auth := filepath.Join(t.TempDir(), "auth")
	s.keys(t, "init", auth, "--tls", "rehome-nats.rehome.svc,*.rehome-nats.rehome.svc")
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(auth, name))
		expect.Must(t, err)
		return text
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(read("ca.crt"))
	block, _ := pem.Decode(read("server.crt"))
	certificate, err := x509.ParseCertificate(block.Bytes)
	expect.Must(t, err)
	hosts := []string{"rehome-nats.rehome.svc"}
	for i, route := range r.routes(t) {
		u, err := url.Parse(route)
		expect.Must(t, err)
		hosts = append(hosts, u.Hostname())
		if want := r.names[i] + "." + r.set.Spec.ServiceName + "." + r.set.Namespace + ".svc"; u.Hostname() != want || u.Port() != "6222" {
			t.Errorf("route %d: %s, want %s:6222", i, route, want)
		}
	}
	for _, host := range hosts {
		for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			if _, err := certificate.Verify(x509.VerifyOptions{Roots: pool, DNSName: host, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
				t.Errorf("%s: %v", host, err)
			}
		}
	}
}

func TestNATSGracePeriod(t *testing.T) {
	r := renderedServers(t, newStage(t))
	o := r.options(t)
	grace := time.Duration(*r.set.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	if o.LameDuckDuration != 30*time.Second || grace < o.LameDuckDuration+10*time.Second {
		t.Errorf("a server takes %v to stop and is given %v", o.LameDuckDuration, grace)
	}
}

// options is the configuration as a server reads it, outside of a pod.
func (r servers) options(t *testing.T) *server.Options {
	t.Helper()
	dir := t.TempDir()
	for name, value := range r.environment(r.names[0]) {
		t.Setenv(name, value)
	}
	s := newStage(t)
	s.keys(t, "init", filepath.Join(dir, "auth"), "--tls", "nats")
	for name, file := range map[string]string{"ca.crt": "ca.crt", "tls.crt": "server.crt", "tls.key": "server.key", "rehome.conf": "rehome.conf"} {
		if err := os.Rename(filepath.Join(dir, "auth", file), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	filetest.Write(t, filepath.Join(dir, "nats.conf"), r.config)
	t.Chdir(dir)
	o, err := server.ProcessConfigFile("nats.conf")
	expect.Must(t, err)
	return o
}

func TestNATSLimits(t *testing.T) {
	o := renderedServers(t, newStage(t)).options(t)
	type bounds struct {
		Payload         int32
		Store, Memory   int64
		Always, Guarded bool
	}
	got := bounds{o.MaxPayload, o.JetStreamMaxStore, o.JetStreamMaxMemory, o.SyncAlways,
		o.TLSConfig.ClientAuth == tls.RequireAndVerifyClientCert && o.Cluster.TLSCheckKnownURLs}
	if want := (bounds{8 << 20, embed.DefaultMaxStore, embed.DefaultMaxMemory, true, true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// trigger is a KEDA trigger.
type trigger struct {
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata"`
}

// triggers returns the triggers of the ScaledObject.
func triggers(t *testing.T, s *stage) []trigger {
	t.Helper()
	var o struct {
		Spec struct {
			Triggers []trigger `json:"triggers"`
		} `json:"spec"`
	}
	expect.Must(t, json.Unmarshal(expect.ToJSON(t, render(t, s, "deploy/kustomize/components/keda")["ScaledObject"]), &o))
	return o.Spec.Triggers
}

func TestKEDATriggers(t *testing.T) {
	var want []trigger
	for _, f := range functions.Hosted() {
		want = append(want, trigger{"nats-jetstream", map[string]string{
			"natsServerMonitoringEndpoint": "rehome-nats.rehome.svc:8222", "account": bus.Account, "stream": bus.StreamScopes,
			"consumer": schemas.Token(f.Strategy.Name), "lagThreshold": "100",
		}})
	}
	if got := triggers(t, newStage(t)); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

// renderWith renders an object together with a component.
func renderWith(t *testing.T, s *stage, component, object string) manifests {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join(root, "deploy/kustomize/components", component))
	expect.Must(t, err)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	expect.Must(t, err)
	relative, err := filepath.Rel(dir, folder)
	expect.Must(t, err)
	for name, text := range map[string]string{
		"kustomization.yaml": "resources: [object.yaml]\ncomponents: [" + relative + "]\n", "object.yaml": object,
	} {
		filetest.Write(t, filepath.Join(dir, name), text)
	}
	return render(t, s, dir)
}

func TestKEDAReplacesCPUAutoscaler(t *testing.T) {
	got := renderWith(t, newStage(t), "keda", `{"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
		"metadata": {"name": "rehome-functions", "namespace": "rehome"}}`)
	if kinds := slices.Collect(maps.Keys(got)); !slices.Equal(kinds, []string{"ScaledObject"}) {
		t.Errorf("got %q, want the ScaledObject alone", kinds)
	}
}

func TestAllInOneWithNATSServers(t *testing.T) {
	s := newStage(t)
	rendered := renderWith(t, s, "nats-all", `{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "rehome", "namespace": "rehome"},
		"spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "rehome", "env": [{"name": "REHOME_LOG_FORMAT", "value": "json"}]}]}}}}`)
	got := typed[appsv1.Deployment](t, rendered, "Deployment")
	mode := int32(0o440)
	want := corev1.PodSpec{
		Containers: []corev1.Container{{
			Name: "rehome",
			Env: []corev1.EnvVar{
				{Name: "REHOME_NATS_URL", Value: "tls://rehome-nats.rehome.svc:4222"},
				{Name: "REHOME_NATS_NKEY_FILE", Value: "/etc/rehome/nats/nkey"}, {Name: "REHOME_NATS_CA_FILE", Value: "/etc/rehome/nats/ca.crt"},
				{Name: "REHOME_NATS_CERT_FILE", Value: "/etc/rehome/nats/tls.crt"},
				{Name: "REHOME_NATS_KEY_FILE", Value: "/etc/rehome/nats/tls.key"}, {Name: "REHOME_NATS_REPLICAS", Value: "3"},
				{Name: "REHOME_LOG_FORMAT", Value: "json"},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "nats", MountPath: "/etc/rehome/nats", ReadOnly: true}},
		}},
		Volumes: []corev1.Volume{{Name: "nats", VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: "rehome-nats-rehome", DefaultMode: &mode},
		}}},
	}
	if !reflect.DeepEqual(got.Spec.Template.Spec, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got.Spec.Template.Spec, want)
	}
}

func TestManifestsAndZoneSpread(t *testing.T) {
	s := newStage(t)
	s.kubectl(t, nil, "apply", "--server-side", "--validate=strict", "-k", component)
	s.kubectl(t, nil, "-n", namespace, "rollout", "status", "statefulset/rehome-nats", "--timeout", patience.String())
	nodes := map[string]bool{}
	pods, err := s.cluster.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=nats"})
	expect.Must(t, err)
	for _, p := range pods.Items {
		nodes[p.Spec.NodeName] = true
	}
	if len(nodes) != 3 {
		t.Errorf("the servers run on %v, want a node in each of three zones", nodes)
	}
	claims, err := s.cluster.Client().CoreV1().PersistentVolumeClaims(namespace).List(t.Context(), metav1.ListOptions{})
	expect.Must(t, err)
	for _, c := range claims.Items {
		if c.Status.Phase != corev1.ClaimBound {
			t.Errorf("claim %s is %s", c.Name, c.Status.Phase)
		}
	}
	if len(claims.Items) != 3 {
		t.Errorf("%d claims, want one for each server", len(claims.Items))
	}
}
