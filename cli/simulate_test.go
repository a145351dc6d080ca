package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/cli/try"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// taintsPolicy enables one strategy.
const taintsPolicy = `apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
  - name: p
    pluginConfig: [{name: RemovePodsViolatingNodeTaints}, {name: PodLifeTime, args: {maxPodLifeTimeSeconds: 3600}}]
    plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints, PodLifeTime]}}
`

// oneNode is a tainted node with a pod that does not tolerate the taint, as a user would write it.
const oneNode = `apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {taints: [{key: gone, effect: NoSchedule}]}
---
apiVersion: v1
kind: Pod
metadata: {name: moves, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: r}]}
spec: {nodeName: n1}
status: {phase: Running}
`

// otherNode makes a second node usable, because no pod leaves the only node.
const otherNode = `---
apiVersion: v1
kind: Node
metadata: {name: n2}
`

// simulated runs rehome simulate with a policy and standard input in an empty directory, with optional further files.
func simulated(t *testing.T, stdin string, files map[string]string, arguments ...string) (stdout, stderr string, err error) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		filetest.Write(t, name, text)
	}
	filetest.Write(t, "policy.yaml", taintsPolicy)
	return fed(t, stdin, append([]string{"simulate", "--policy", "policy.yaml"}, arguments...)...)
}

const moved = `{"pod":{"namespace":"default","name":"moves","uid":"70b42d9e-c90d-d9ee-99c3-bd0c7325f479"},"node":"n1",` +
	`"strategy":"RemovePodsViolatingNodeTaints","profile":"p","outcome":"evicted","reason":"EvictionAccepted",` +
	`"message":"does not tolerate gone:NoSchedule"}` + "\n"

func TestSimulateObjectSources(t *testing.T) {
	node, pod, _ := strings.Cut(oneNode+otherNode, "---\n")
	for _, c := range []struct {
		name      string
		stdin     string
		files     map[string]string
		arguments []string
		notes     string
	}{
		{"standard input", oneNode + otherNode, nil, []string{"--objects", "-"}, ""},
		{"a file", "", map[string]string{"o.txt": oneNode + otherNode}, []string{"--objects", "o.txt"}, ""},
		{"a directory", "", map[string]string{"o/n.yaml": node, "o/p/p.yaml": pod}, []string{"--objects", "o"}, ""},
		{"several", node, map[string]string{"p.yaml": pod}, []string{"--objects", "p.yaml", "--objects", "-"}, ""},
		{"with the flags that leave out what there is not", oneNode + otherNode, nil, []string{"--objects", "-", "--no-limits"}, ""},
		{"irrelevant objects are counted", oneNode + otherNode + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: a}\n---\napiVersion: example.com/v1\n" +
			"kind: Widget\n---\napiVersion: v1\nkind: Secret\n---\napiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: r}\n---\n" +
			"apiVersion: metrics.k8s.io/v1beta1\nkind: PodMetrics\nmetadata: {name: m}\n", nil, []string{"--objects", "-"},
			"ignored, because no decision depends on them: 2 Secret, 1 Widget.example.com\n"},
		{"every kind that decisions may rest on", oneNode + otherNode + kindsText(), nil, []string{"--objects", "-"}, ""},
		{"pods without their nodes", oneNode + otherNode + lostPods(), nil, []string{"--objects", "-"}, `warning: node gone-0 is missing, so the simulation ignores 2 pods on it, such as default/a-0
warning: node gone-1 is missing, so the simulation ignores 2 pods on it, such as default/a-1
warning: node gone-2 is missing, so the simulation ignores 2 pods on it, such as default/a-2
warning: node gone-3 is missing, so the simulation ignores 2 pods on it, such as default/a-3
warning: node gone-4 is missing, so the simulation ignores 2 pods on it, such as default/a-4
warning: the same applies to 1 node more
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, notes, err := simulated(t, c.stdin, c.files, append(c.arguments, "-o", "json")...)
			if err != nil || out != moved || notes != c.notes {
				t.Errorf("error %v\ngot  %s\nwant %s\nnotes %q\nwant  %q", err, out, moved, notes, c.notes)
			}
		})
	}
}

func TestSimulateTooFewNodes(t *testing.T) {
	const warning = "warning: fewer than two nodes are usable, so no pod moves\n"
	for name, c := range map[string]struct{ objects, want string }{
		"two_nodes":         {oneNode + otherNode, ""},
		"one_node":          {oneNode, warning},
		"one_ready_node":    {oneNode + otherNode + "status: {conditions: [{type: Ready, status: \"False\"}]}\n", warning},
		"nothing_but_a_pod": {oneNode[strings.Index(oneNode, "---"):], "warning: node n1 is missing, so the simulation ignores 1 pod on it, such as default/moves\n" + warning},
	} {
		t.Run(name, func(t *testing.T) {
			_, notes, err := simulated(t, c.objects, nil, "--objects", "-")
			if err != nil || notes != c.want {
				t.Errorf("error %v\ngot  %q\nwant %q", err, notes, c.want)
			}
		})
	}
}

// lostPods are two pods on each of six missing nodes.
func lostPods() string {
	var b strings.Builder
	for i := range 12 {
		name := string(rune('a'+i/6)) + "-" + string(rune('0'+i%6))
		b.WriteString("---\napiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {nodeName: gone-" + string(rune('0'+i%6)) + "}\n")
	}
	return b.String()
}

// kindsText has an object of each kind except nodes and pods.
func kindsText() string {
	var b strings.Builder
	for _, k := range try.Deciding() {
		if k.Kind != "Node" && k.Kind != "Pod" {
			b.WriteString("---\napiVersion: " + k.GroupVersion().String() + "\nkind: " + k.Kind + "\nmetadata: {name: x}\n")
		}
	}
	return b.String()
}

// TestSimulateNames checks that names in object files, which anyone may have written, cannot control the terminal.
func TestSimulateNames(t *testing.T) {
	hostile := strings.ReplaceAll(oneNode, "name: moves,", `name: "a\e[31m\nb",`) + otherNode +
		"---\napiVersion: v1\nkind: Pod\nmetadata: {name: \"c\\e[2J\"}\nspec: {nodeName: \"x\\e[2J\"}\n" +
		"---\napiVersion: example.com/v1\nkind: \"W\\e[2J\"\n"
	for name, arguments := range map[string][]string{"table": nil, "settled": {"--until-settled"}} {
		t.Run(name, func(t *testing.T) {
			out, notes, err := simulated(t, hostile, nil, append(arguments, "--objects", "-")...)
			want := "ignored, because no decision depends on them: 1 W\uFFFD[2J.example.com\n" +
				"warning: node x\uFFFD[2J is missing, so the simulation ignores 1 pod on it, such as default/c\uFFFD[2J\n"
			if err != nil || notes != want || !strings.Contains(out, "a\uFFFD[31m\uFFFDb") || strings.Contains(out, "\x1b") {
				t.Errorf("got error %v and\n%q\nnotes %q\nwant  %q", err, out, notes, want)
			}
		})
	}
}

func TestSimulateNow(t *testing.T) {
	old := strings.ReplaceAll(oneNode, "{phase: Running}", `{phase: Running, startTime: "2030-01-01T00:00:00Z"}`)
	old = strings.ReplaceAll(old, "{name: moves,", `{name: moves, creationTimestamp: "2030-01-01T00:00:00Z",`)
	old = strings.ReplaceAll(old, "key: gone", "key: gone, value: x")
	for now, want := range map[string]string{
		"2030-01-01T01:00:00Z":      "would be: 0 evicted, 0 deferred, 0 rejected\n",
		"2030-01-01T03:00:01+02:00": "1h0m1s old, the limit is 1h\nwould be: 1 evicted, 0 deferred, 0 rejected\n",
	} {
		out, _, err := simulated(t, strings.ReplaceAll(old, "effect: NoSchedule", "effect: PreferNoSchedule")+otherNode, nil, "--objects", "-", "--now", now)
		if err != nil || !strings.HasSuffix(out, want) {
			t.Errorf("at %s: error %v, got\n%s\nwant at the end\n%s", now, err, out, want)
		}
	}
}

func TestUnreadableObjects(t *testing.T) {
	for _, c := range []struct{ name, stdin, file, want string }{
		{"a broken document", oneNode + "---\na: [\n", "-", "stdin:12: document 3: invalid YAML: did not find expected node content"},
		{"all of them at once", "a: [\n---\nb: c\n", "-", "stdin:1: document 1: invalid YAML: did not find expected node content\n" +
			"stdin:3: document 2: not an object: no apiVersion and kind"},
		{"missing file", "", "nope.yaml", "lstat nope.yaml: no such file or directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, _, err := simulated(t, c.stdin, nil, "--objects", c.file)
			if err == nil || err.Error() != c.want || out != "" {
				t.Errorf("got  %v, output %q\nwant %s", err, out, c.want)
			}
		})
	}
}

func TestSimulateIgnoresExternalStrategies(t *testing.T) {
	const outside = `apiVersion: rehome.dev/v1alpha1
kind: DeschedulerPolicy
functions:
- {name: KeepOffSpot, scope: node, wakes: [node.labels], http: {url: http://a}}
- {name: PodLifeTime, nats: {subject: functions.lifetime}}
- {name: Idle, scope: pod, wakes: [pod.labels], http: {url: http://a}}
profiles:
- name: p
  pluginConfig: [{name: RemovePodsViolatingNodeTaints}, {name: PodLifeTime, args: {maxPodLifeTimeSeconds: 3600}}, {name: KeepOffSpot}]
  plugins: {deschedule: {enabled: [KeepOffSpot, RemovePodsViolatingNodeTaints, PodLifeTime]}}
- name: q
  pluginConfig: [{name: KeepOffSpot}]
  plugins: {deschedule: {enabled: [KeepOffSpot]}}
`
	out, notes, err := simulated(t, oneNode+otherNode, map[string]string{"outside.yaml": outside},
		"--objects", "-", "--policy", "outside.yaml", "-o", "json")
	want := ""
	for _, name := range []string{"KeepOffSpot", "PodLifeTime"} {
		want += "warning: strategy " + name + " has an external function in the policy, " +
			"which cannot be called here, so it is not evaluated\n"
	}
	if err != nil || out != moved || notes != want {
		t.Errorf("got %v\n%s%s\nwant\n%s%s", err, out, notes, moved, want)
	}
}

// unevenPods has a budget that blocks one of three duplicates in the first round, and a pod with a taint that fits on no other
// node.
const unevenPods = `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: n1, labels: {zone: a}}, status: {allocatable: {cpu: "4", memory: 8Gi, pods: "20"}}}
- {apiVersion: v1, kind: Node, metadata: {name: n2, labels: {zone: b}}, status: {allocatable: {cpu: "4", memory: 8Gi, pods: "20"}}}
- apiVersion: v1
  kind: Node
  metadata: {name: n3, labels: {zone: c}}
  spec: {taints: [{key: gone, effect: NoSchedule}]}
  status: {allocatable: {cpu: "8", memory: 8Gi, pods: "20"}}
- apiVersion: policy/v1
  kind: PodDisruptionBudget
  metadata: {name: web, namespace: shop}
  spec: {minAvailable: 3, selector: {matchLabels: {app: web}}}
  status: {currentHealthy: 4, desiredHealthy: 3, disruptionsAllowed: 1, expectedPods: 4}
`

// unevenPod is a pod of the list above.
func unevenPod(name, app, node, cpu string) string {
	return `- apiVersion: v1
  kind: Pod
  metadata: {name: ` + name + `, namespace: shop, labels: {app: ` + app + `}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: ` + app + `, uid: ` + app + `}]}
  spec:
    nodeName: ` + node + `
    containers: [{name: c, image: i, resources: {requests: {cpu: "` + cpu + `", memory: 1Gi}}}]
    topologySpreadConstraints:
    - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: Honor, labelSelector: {matchLabels: {app: ` + app + `}}}
  status: {phase: Running, conditions: [{type: Ready, status: "True"}]}
`
}

func TestSimulateUntilSettled(t *testing.T) {
	const policy = `apiVersion: rehome.dev/v1alpha1
kind: DeschedulerPolicy
profiles:
- name: p
  pluginConfig: [{name: RemovePodsViolatingNodeTaints}, {name: RemovePodsViolatingTopologySpreadConstraint}]
  plugins:
    deschedule: {enabled: [RemovePodsViolatingNodeTaints]}
    balance: {enabled: [RemovePodsViolatingTopologySpreadConstraint]}
`
	objects := unevenPods + unevenPod("large", "large", "n3", "6") + unevenPod("web-1", "web", "n1", "500m") +
		unevenPod("web-2", "web", "n1", "500m") + unevenPod("web-3", "web", "n1", "500m") + unevenPod("web-4", "web", "n1", "500m")
	for format, arguments := range map[string][]string{
		"txt": nil, "json": {"-o", "json"},
	} {
		arguments = append([]string{"--until-settled", "--objects", "-", "--policy", "policy2.yaml", "--now", "2030-01-01T00:00:00Z"}, arguments...)
		dir, err := os.Getwd()
		expect.Must(t, err)
		out, notes, err := simulated(t, objects, map[string]string{"policy2.yaml": policy}, arguments...)
		if err != nil || notes != "" {
			t.Errorf("error %v, notes %q", err, notes)
		}
		t.Chdir(dir)
		golden(t, "simulate/settled."+format, out)
	}
}
