package converge

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/policy"
)

// world is a small cluster, and a policy with one strategy.
type world struct {
	strategy policy.Strategy
	seed     uint64
	number   int
	// args and evictor are the arguments of the strategy and of DefaultEvictor, as in a policy file.
	args, evictor string
	nodes         []corev1.Node
	workloads     []*workload
}

// workload is an owner and the template of its pods.
type workload struct {
	name string
	// kind is ReplicaSet, or DaemonSet for pods that are protected.
	kind     string
	template corev1.PodTemplateSpec
	// volume is the node that the volume of the pods belongs to. Empty means they have none.
	volume string
	pods   []placed
}

// placed is a pod of the beginning.
type placed struct {
	node     string
	age      time.Duration
	restarts int32
	failed   bool
}

// policy returns the policy of the world.
func (w *world) policy() (policy.Policy, error) {
	scheduler := "LeastAllocated"
	if w.strategy.EmptiesNodes {
		scheduler = "MostAllocated"
	}
	text := fmt.Sprintf(`apiVersion: rehome.dev/v1alpha1
kind: DeschedulerPolicy
scheduler: {profile: %s}
profiles:
  - name: default
    pluginConfig:
      - {name: DefaultEvictor, args: %s}
      - {name: %s, args: %s}
    plugins:
      %s: {enabled: [%[3]s]}
`, scheduler, w.evictor, w.strategy.Name, w.args, w.strategy.Point)
	return policy.Parse("policy.yaml", []byte(text), settings.Strategies())
}

// String returns the world as a table.
func (w *world) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "repeat with: -strategy %s -seed %d -world %d\n", w.strategy.Name, w.seed, w.number)
	fmt.Fprintf(&b, "args %s, DefaultEvictor %s\n", w.args, w.evictor)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "node\tcpu\tpods\tlabels\ttaints")
	for i := range w.nodes {
		n := &w.nodes[i]
		of := labels.Set{}
		for key, value := range n.Labels {
			if key != corev1.LabelHostname {
				of[short(key)] = value
			}
		}
		var taints []string
		for _, taint := range n.Spec.Taints {
			taints = append(taints, short(taint.ToString()))
		}
		fmt.Fprintf(t, "%s\t%v%s\t%v\t%s\t%s\n", n.Name, n.Status.Allocatable.Cpu(), extra(n.Status.Allocatable),
			n.Status.Allocatable.Pods(), of, strings.Join(taints, " "))
	}
	fmt.Fprintln(t, "workload\tcpu\tpods on\trules\t")
	for _, l := range w.workloads {
		requests := l.template.Spec.Containers[0].Resources.Requests
		var on []string
		for _, p := range l.pods {
			on = append(on, p.String())
		}
		fmt.Fprintf(t, "%s\t%v%s\t%s\t%s\t\n", l.name, requests.Cpu(), extra(requests), strings.Join(on, " "),
			strings.Join(l.rules(), "; "))
	}
	t.Flush()
	return b.String()
}

func (p placed) String() string {
	text := p.node
	if p.failed {
		text += "(failed)"
	}
	if p.restarts > 0 {
		text += fmt.Sprintf("(%d restarts)", p.restarts)
	}
	if p.age > time.Hour {
		text += "(old)"
	}
	return text
}

// extra returns the device in a list of resources.
func extra(list corev1.ResourceList) string {
	if amount, has := list[device]; has {
		return fmt.Sprintf("+%v gpu", &amount)
	}
	return ""
}

// short returns a key without its prefix.
func short(key string) string { return key[strings.LastIndex(key, "/")+1:] }

// rules returns the wishes of the template.
func (l *workload) rules() []string {
	spec := &l.template.Spec
	var all []string
	if l.kind != replicaSet {
		all = append(all, l.kind)
	}
	if spec.PriorityClassName != "" {
		all = append(all, spec.PriorityClassName)
	}
	if len(l.template.Annotations) > 0 {
		all = append(all, "prefer-no-eviction")
	}
	if l.volume != "" {
		all = append(all, "volume on "+l.volume)
	}
	if len(spec.NodeSelector) > 0 {
		all = append(all, "nodeSelector "+labels.Set(spec.NodeSelector).String())
	}
	for _, t := range spec.Tolerations {
		all = append(all, strings.TrimSpace(fmt.Sprintf("tolerates %s %s %s", short(t.Key), t.Value, t.Effect)))
	}
	for _, c := range spec.Containers[0].Ports {
		all = append(all, fmt.Sprintf("port %d", c.HostPort))
	}
	for _, c := range spec.TopologySpreadConstraints {
		text := fmt.Sprintf("spread %s skew %d %s %s", short(c.TopologyKey), c.MaxSkew, c.WhenUnsatisfiable, metav1.FormatLabelSelector(c.LabelSelector))
		if c.MinDomains != nil {
			text += fmt.Sprintf(" minDomains %d", *c.MinDomains)
		}
		if c.NodeAffinityPolicy != nil {
			text += fmt.Sprintf(" affinity:%s", *c.NodeAffinityPolicy)
		}
		if c.NodeTaintsPolicy != nil {
			text += fmt.Sprintf(" taints:%s", *c.NodeTaintsPolicy)
		}
		all = append(all, text)
	}
	return append(all, affinityRules(spec.Affinity)...)
}

func affinityRules(a *corev1.Affinity) (all []string) {
	if a == nil {
		return nil
	}
	if n := a.NodeAffinity; n != nil {
		if n.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			for _, t := range n.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
				all = append(all, "requires "+requirements(t))
			}
		}
		for _, p := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			all = append(all, fmt.Sprintf("prefers %s by %d", requirements(p.Preference), p.Weight))
		}
	}
	if p := a.PodAntiAffinity; p != nil {
		for _, t := range p.RequiredDuringSchedulingIgnoredDuringExecution {
			all = append(all, fmt.Sprintf("apart %s from %s", short(t.TopologyKey), metav1.FormatLabelSelector(t.LabelSelector)))
		}
	}
	if p := a.PodAffinity; p != nil {
		for _, t := range p.RequiredDuringSchedulingIgnoredDuringExecution {
			all = append(all, fmt.Sprintf("together %s with %s", short(t.TopologyKey), metav1.FormatLabelSelector(t.LabelSelector)))
		}
	}
	return all
}

func requirements(t corev1.NodeSelectorTerm) string {
	var all []string
	for _, r := range t.MatchExpressions {
		all = append(all, fmt.Sprintf("%s %s %s", short(r.Key), r.Operator, strings.Join(r.Values, ",")))
	}
	return strings.Join(all, " and ")
}

// find returns the workload of this name.
func (w *world) find(name string) *workload {
	i := slices.IndexFunc(w.workloads, func(l *workload) bool { return l.name == name })
	return w.workloads[i]
}
