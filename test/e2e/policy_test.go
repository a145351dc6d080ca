package e2e

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/filetest"
)

// configMap is a directory like a mounted ConfigMap: its only file changes when a link above it is swapped.
type configMap struct {
	s       *scene
	dir     string
	version string
}

func (s *scene) configMap(policy string) *configMap {
	c := &configMap{s: s, dir: s.t.TempDir()}
	c.set(policy)
	s.t.Must(os.Symlink(filepath.Join("..data", "policy.yaml"), c.file()))
	return c
}

func (c *configMap) file() string { return filepath.Join(c.dir, "policy.yaml") }

// set replaces the content like the kubelet, and removes the old one.
func (c *configMap) set(policy string) {
	c.s.t.Helper()
	old := c.version
	next, err := os.MkdirTemp(c.dir, "..version-")
	c.s.t.Must(err)
	filetest.Write(c.s.t, filepath.Join(next, "policy.yaml"), policy)
	link := filepath.Join(c.dir, "..data_tmp")
	c.s.t.Must(os.Symlink(filepath.Base(next), link))
	c.s.t.Must(os.Rename(link, filepath.Join(c.dir, "..data")))
	c.version = next
	if old != "" {
		c.s.t.Must(os.RemoveAll(old))
	}
}

// text returns the text of a policy file.
func (s *scene) text(file string) string {
	s.t.Helper()
	data, err := os.ReadFile(file)
	s.t.Must(err)
	return string(data)
}

// reloads waits until the process has reported that many reloads of its policy file with a result.
func (p *process) reloads(result, times string) {
	p.t.Helper()
	want := `rehome_policy_reloads_total{result="` + result + `"} ` + times + "\n"
	p.eventually("the metrics say "+want, func() (bool, string) {
		response, err := http.Get("http://" + p.Address + "/metrics")
		if err != nil {
			return false, err.Error()
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return false, err.Error()
		}
		_, seen, _ := strings.Cut(string(body), "# TYPE rehome_policy_reloads_total")
		return strings.Contains(string(body), want), seen[:min(len(seen), 200)]
	})
}

func TestPolicyReload(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("api", 3, preferring(s.nodes[0]))
	before := s.pods(s.nodes[0])
	open := s.text(s.policy())
	closed := s.text(s.enable("RemovePodsViolatingNodeTaints",
		[]string{"{name: RemovePodsViolatingNodeTaints, args: {excludedTaints: [dedicated]}}"}))
	mounted := s.configMap(closed)
	dir := filetest.ShortDir(t)
	p := s.rehome(mounted.file(), dir)
	events := record(t, at(dir))
	s.taint(s.nodes[0], "dedicated")

	mounted.set(strings.Replace(open, "RemovePodsViolatingNodeTaints]", "RemovePodsViolatingNodeTaint]", 1))
	p.reloads("refused", "1")
	if got := s.evictions(); got != nil {
		t.Errorf("evicted %v under a policy that was refused", got)
	}
	if want := "policy.yaml:9: profiles[0].plugins.deschedule.enabled[0]: is not a plugin of this version of Rehome"; !strings.Contains(p.Log.String(), want) {
		t.Errorf("the log does not say %s", want)
	}

	mounted.set(open)
	events.until("the pods that the old policy left alone are evicted", func(v []schemas.Verdict) bool {
		return len(of(schemas.Evicted, v)) == len(before)
	})
	p.reloads("applied", "1")
	if got := uids(s.evictions()); !reflect.DeepEqual(got, before) {
		t.Errorf("evicted %v, want %v", got, before)
	}
	if code := p.stop(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

func TestPolicyWithoutStrategyRejects(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("api", 4, preferring(s.nodes[0]))
	file := s.policy("rate: {evictionsPerSecond: 0.001, burst: 1}")
	text := s.text(file)
	dir := filetest.ShortDir(t)
	p := s.rehome(file, dir)
	events := record(t, at(dir))
	s.taint(s.nodes[0], "dedicated")
	events.until("the first pod is evicted", func(v []schemas.Verdict) bool { return len(of(schemas.Evicted, v)) == 1 })

	filetest.Write(s.t, file, strings.Replace(text, "enabled: [RemovePodsViolatingNodeTaints]", "enabled: []", 1))
	verdicts := events.until("the other three are rejected", func(v []schemas.Verdict) bool { return len(of(schemas.Rejected, v)) == 3 })
	for _, v := range of(schemas.Rejected, verdicts) {
		if v.Reason != schemas.ReasonProfileUnknown {
			t.Errorf("pod %s: %s: %s, want %s", v.Intent.Pod, v.Reason, v.Message, schemas.ReasonProfileUnknown)
		}
	}
	p.reloads("applied", "1")
	if got := s.evictions(); len(got) != 1 {
		t.Errorf("evicted %v, want one pod", got)
	}
}

func TestSignalsOfOtherSystems(t *testing.T) {
	s := newScene(t, 3)
	s.deployment("moves", 2, preferring(s.nodes[0]))
	s.deployment("stays", 1, on(s.nodes[0]), marked("karpenter.sh/do-not-disrupt", "true"))
	s.deployment("leaves", 1, on(s.nodes[1]))
	moving := s.pods(s.nodes[0])
	for uid, name := range moving {
		if strings.HasPrefix(name, "stays-") {
			delete(moving, uid)
		}
	}
	dir := filetest.ShortDir(t)
	s.rehome(s.policy(), dir)
	events := record(t, at(dir))
	s.taint(s.nodes[1], "karpenter.sh/disrupted")
	s.taint(s.nodes[1], "dedicated")
	s.taint(s.nodes[0], "readiness.k8s.io/network")
	s.taint(s.nodes[0], "dedicated")
	verdicts := events.until("both pods are evicted", func(v []schemas.Verdict) bool { return len(of(schemas.Evicted, v)) == 2 })
	for _, v := range verdicts {
		if v.Intent.Reason != "does not tolerate dedicated:NoSchedule" {
			t.Errorf("pod %s: %s %s: %s", v.Intent.Pod, v.Outcome, v.Message, v.Intent.Reason)
		}
	}
	if got := uids(s.evictions()); !reflect.DeepEqual(got, moving) {
		t.Errorf("evicted %v, want %v", got, moving)
	}
}

// marked adds an annotation to the pods.
func marked(key, value string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) { p.Annotations = map[string]string{key: value} }
}
