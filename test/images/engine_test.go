package images

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// The image names for docker-compose.yaml.
const (
	ownRehome     = "ghcr.io/rehome-dev/rehome:" + version
	ownNATS       = "nats:" + version
	ownPrometheus = "prometheus:" + version
)

// tried are the services to run, with their dependencies.
var tried = []string{"watcher", "actuator", "maintenance", "functions", "dispatcher", "prometheus"}

// left are the services that are only read: their images cannot be built from Go modules.
var left = []string{"grafana"}

// engine runs docker.
type engine struct {
	t           *testing.T
	root        string
	environment []string
}

// findEngine looks for an engine that answers and for Compose, and says what keeps them away.
func findEngine(t *testing.T) (*engine, error) {
	t.Helper()
	e := &engine{t: t, root: repository(t), environment: os.Environ()}
	for _, arguments := range [][]string{{"version", "--format", "{{.Server.Version}}"}, {"compose", "version", "--short"}} {
		out, err := e.docker(arguments...)
		if err != nil {
			return nil, err
		}
		t.Logf("docker %s: %s", strings.Join(arguments, " "), strings.TrimSpace(out))
	}
	return e, nil
}

func (e *engine) docker(arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // also when the test is over
	defer cancel()
	c := exec.CommandContext(ctx, "docker", arguments...)
	c.Dir, c.Env = e.root, e.environment
	out, err := c.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("docker %s: %w: %s", strings.Join(arguments, " "), err, out)
	}
	return string(out), nil
}

func (e *engine) must(arguments ...string) string {
	e.t.Helper()
	out, err := e.docker(arguments...)
	if err != nil {
		e.t.Fatal(err)
	}
	return out
}

// load builds the images of this machine's platform and gives them to the engine. They are removed with the test.
func (e *engine) load() {
	e.t.Helper()
	dir, _ := built(e.t)
	servers := e.t.TempDir()
	arguments := imageArguments(e.root, servers, "PLATFORMS=linux/"+runtime.GOARCH)
	for _, target := range []string{"nats-image", "prometheus-image"} {
		arguments[0] = target
		began := time.Now()
		if _, err := runMake(e.root, arguments...); err != nil {
			e.t.Fatal(err)
		}
		e.t.Logf("make %s took %v", target, time.Since(began).Round(time.Second))
	}
	for _, stem := range []string{
		filepath.Join(dir, "rehome"), filepath.Join(servers, "nats", "nats"), filepath.Join(servers, "prometheus", "prometheus"),
	} {
		e.must("load", "--input", stem+"-"+version+"-linux-"+runtime.GOARCH+".tar")
	}
	e.t.Cleanup(func() {
		if _, err := e.docker("rmi", ownRehome, ownNATS, ownPrometheus); err != nil {
			e.t.Error(err)
		}
	})
}

func TestImagesAndCompose(t *testing.T) {
	e, err := findEngine(t)
	if err != nil {
		t.Logf("NO CONTAINER ENGINE: the images and docker-compose.yaml are read, but not run: %v", err)
		var names []string
		for name := range compose(t).Services {
			names = append(names, name)
		}
		slices.Sort(names)
		want := slices.Sorted(slices.Values(slices.Concat(tried, left, []string{"keys", "setup", "nats-1", "nats-2", "nats-3"})))
		if !slices.Equal(names, want) {
			t.Errorf("the services are %q, and these tests know %q", names, want)
		}
		return
	}
	e.load()
	t.Run("the image runs as any user with a read-only file system", e.runImage)
	t.Run("Compose comes up, moves pods and leaves nothing behind", e.runCompose)
}

// runImage runs the image by itself.
func (e *engine) runImage(t *testing.T) {
	alone := []string{"run", "--rm", "--read-only", "--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true"}
	want := fmt.Sprintf("rehome %s\ncommit %s\n%s linux/%s\n", version, revision, runtime.Version(), runtime.GOARCH)
	for _, as := range [][]string{nil, {"--user", "1234:5678"}} {
		if got := e.must(slices.Concat(alone, as, []string{ownRehome, "version"})...); got != want {
			t.Errorf("as %v: got %q, want %q", as, got, want)
		}
	}
	out, err := e.docker(append(slices.Clone(alone), ownRehome, "auth", "init", "/var/lib/rehome/auth")...)
	if err == nil || !strings.Contains(out, "read-only file system") {
		t.Errorf("it wrote into its own image: %s, %v", out, err)
	}
	mounted := append(slices.Clone(alone), "--tmpfs", "/var/lib/rehome:mode=1777", ownRehome, "auth", "init", "/var/lib/rehome/auth")
	if out, err := e.docker(mounted...); err != nil {
		t.Errorf("it did not write where it may: %s", out)
	}
}

// scene is a control plane with pods on one of two nodes, and Compose beside it.
type scene struct {
	*engine
	cluster *cluster.Cluster
	node    string
	name    string // of the project
	metrics string // the address of Prometheus
}

func (e *engine) runCompose(t *testing.T) {
	free(t, 4222, 4223, 4224, 6222, 6223, 6224, 8222, 8223, 8224, 8642, 8644, 8645, 8646)
	s := scene{cluster: clustertest.New(t, cluster.Options{}), name: fmt.Sprintf("rehome-test-%d", os.Getpid())}
	s.enter(t, e)
	s.fill()
	t.Cleanup(s.down)
	began := time.Now()
	if _, err := s.docker(append([]string{"compose", "up", "--wait", "--wait-timeout", "180", "--pull", "never"}, tried...)...); err != nil {
		logs, _ := s.docker("compose", "logs", "--no-color", "--tail", "40")
		t.Fatalf("%v\n%s", err, logs)
	}
	t.Logf("up and healthy after %v; %q were left out, since no image of them is built here", time.Since(began).Round(time.Second), left)
	s.drain()
	s.scraped()
	reader := []string{"compose", "exec", "-T", "-e", "REHOME_NATS_NKEY_FILE=/etc/rehome/nats/reader.nk", "watcher", "/rehome"}
	s.must(append(slices.Clone(reader), "status")...)
	out := s.must(append(reader, "events", "--since", "1h", "--type", "verdict", "--outcome", "evicted")...)
	if n := strings.Count(out, "evicted from "+s.node); n != 4 {
		t.Errorf("the bus has %d evictions, want 4:\n%s", n, out)
	}
}

// enter makes the scene what docker is called for: with a kubeconfig of its cluster, the images from here, and a port for
// Prometheus, whose usual one may well be taken.
func (s *scene) enter(t *testing.T, e *engine) {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	user := somebody(t, kubeconfig)
	flatten := exec.CommandContext(t.Context(), s.cluster.Kubectl(), "config", "view", "--raw", "--minify", "--flatten")
	flatten.Env = append(os.Environ(), "KUBECONFIG="+s.cluster.Kubeconfig())
	text, err := flatten.Output()
	if err == nil {
		err = os.WriteFile(kubeconfig, text, 0o600)
	}
	if err != nil {
		t.Fatal(err, complaint(err))
	}
	if s.metrics, err = program.FreeAddress(); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(s.metrics)
	expect.Must(t, err)
	s.engine = &engine{t: t, root: e.root, environment: append(os.Environ(),
		"REHOME_USER="+user, "REHOME_IMAGE="+ownRehome, "NATS_IMAGE="+ownNATS, "PROMETHEUS_IMAGE="+ownPrometheus,
		"PROMETHEUS_PORT="+port, "KUBECONFIG="+kubeconfig, "COMPOSE_PROJECT_NAME="+s.name)}
}

// somebody creates a file that only one user can read, and returns that user: the user of the test, or for root an
// unknown user.
func somebody(t *testing.T, file string) string {
	t.Helper()
	uid, gid := os.Getuid(), os.Getgid()
	err := os.WriteFile(file, nil, 0o600)
	if uid == 0 && err == nil {
		uid, gid = 1234, 5678
		err = os.Chown(file, uid, gid)
	}
	expect.Must(t, err)
	return fmt.Sprintf("%d:%d", uid, gid)
}

// free checks that the ports of docker-compose.yaml are unused.
func free(t *testing.T, ports ...int) {
	t.Helper()
	for _, p := range ports {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
		if err != nil {
			t.Fatalf("docker-compose.yaml needs a port that is taken: %v", err)
		}
		l.Close()
	}
}

// fill makes four pods on one node, and another node that is empty.
func (s *scene) fill() {
	s.t.Helper()
	ctx := s.t.Context()
	nodes, err := s.cluster.AddNodes(ctx, 1)
	if err == nil {
		s.node = nodes[0]
		_, err = s.cluster.AddDeployment(ctx, "shop", "api", 4)
	}
	if err == nil {
		err = s.cluster.WaitReady(ctx, "shop", "api")
	}
	if err == nil {
		_, err = s.cluster.AddNodes(ctx, 1)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// drain taints the node, and waits until its pods run elsewhere.
func (s *scene) drain() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	taint := `{"spec":{"taints":[{"key":"maintenance","value":"soon","effect":"NoSchedule"}]}}`
	began := time.Now()
	if err := s.cluster.PatchNode(ctx, s.node, taint); err != nil {
		s.t.Fatal(err)
	}
	for {
		here, elsewhere := s.count(ctx)
		if here == 0 && elsewhere == 4 {
			s.t.Logf("4 pods moved in %v", time.Since(began).Round(time.Millisecond))
			return
		}
		select {
		case <-ctx.Done():
			logs, _ := s.docker("compose", "logs", "--no-color", "--tail", "40")
			s.t.Fatalf("%d pods are still on %s, %d run elsewhere\n%s", here, s.node, elsewhere, logs)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// count returns how many pods are on the node, and how many run on others.
func (s *scene) count(ctx context.Context) (here, elsewhere int) {
	pods, err := s.cluster.Client().CoreV1().Pods("shop").List(ctx, metav1.ListOptions{})
	if err != nil {
		return -1, -1
	}
	for _, p := range pods.Items {
		switch {
		case p.Spec.NodeName == s.node:
			here++
		case p.Status.Phase == corev1.PodRunning:
			elsewhere++
		}
	}
	return here, elsewhere
}

// down runs `docker compose down` and checks that nothing is left.
func (s *scene) down() {
	if _, err := s.docker("compose", "down", "--volumes"); err != nil {
		s.t.Error(err)
	}
	for _, what := range [][]string{{"ps", "--all", "--quiet"}, {"volume", "ls", "--quiet"}, {"network", "ls", "--quiet"}} {
		out, err := s.docker(append(what, "--filter", "label=com.docker.compose.project="+s.name)...)
		if err != nil || strings.TrimSpace(out) != "" {
			s.t.Errorf("docker %s: %s, %v is left", what, out, err)
		}
	}
}
