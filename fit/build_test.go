package fit_test

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
)

// Objects for tests.
var (
	list     = fixtures.Resources
	nodeTerm = fixtures.NodeTerm
	spread   = fixtures.Spread
	uses     = fixtures.Claims
)

const (
	zone     = corev1.LabelTopologyZone
	hostname = corev1.LabelHostname
	device   = corev1.ResourceName("example.com/device")
)

type (
	podChange  = func(*corev1.Pod)
	nodeChange = func(*corev1.Node)
)

// node makes a node of 4 CPUs, 8 GiB and 10 pods with its hostname as a label.
func node(name string, changes ...nodeChange) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{hostname: name}}}
	n.Status.Allocatable = list("cpu", "4", "memory", "8Gi", "pods", "10", "ephemeral-storage", "10Gi")
	for _, change := range changes {
		change(n)
	}
	return n
}

func in(zoneName string) nodeChange { return nodeLabel(zone, zoneName) }

func nodeLabel(key, value string) nodeChange {
	return func(n *corev1.Node) { n.Labels[key] = value }
}

func taint(key string, effect corev1.TaintEffect) nodeChange {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: "x", Effect: effect})
	}
}

func allocatable(of ...string) nodeChange {
	return func(n *corev1.Node) { maps.Copy(n.Status.Allocatable, list(of...)) }
}

// pod returns a pod in namespace "shop" with the label app=web that fits every node.
func pod(name string, changes ...podChange) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func on(node string) podChange { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

func inNamespace(name string) podChange { return func(p *corev1.Pod) { p.Namespace = name } }

func podLabel(key, value string) podChange { return func(p *corev1.Pod) { p.Labels[key] = value } }

func requests(of ...string) podChange {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list(of...) }
}

func initContainer(restarts bool, of ...string) podChange {
	return func(p *corev1.Pod) {
		c := corev1.Container{Name: "init", Resources: corev1.ResourceRequirements{Requests: list(of...)}}
		if restarts {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
}

func tolerate(t corev1.Toleration) podChange {
	return func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, t) }
}

func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }

func ended(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }

func hostPort(address string, protocol corev1.Protocol, number int32) podChange {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports,
			corev1.ContainerPort{HostIP: address, Protocol: protocol, HostPort: number})
	}
}

func named(operator corev1.NodeSelectorOperator, name string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: metav1.ObjectNameField, Operator: operator, Values: []string{name}},
	}}
}

func affinity(p *corev1.Pod) *corev1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{}, PodAffinity: &corev1.PodAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{},
		}
	}
	return p.Spec.Affinity
}

func wantNode(terms ...corev1.NodeSelectorTerm) podChange {
	return func(p *corev1.Pod) {
		affinity(p).NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: terms}
	}
}

func near(t corev1.PodAffinityTerm) podChange {
	return func(p *corev1.Pod) {
		a := affinity(p).PodAffinity
		a.RequiredDuringSchedulingIgnoredDuringExecution = append(a.RequiredDuringSchedulingIgnoredDuringExecution, t)
	}
}

func apart(t corev1.PodAffinityTerm) podChange {
	return func(p *corev1.Pod) {
		a := affinity(p).PodAntiAffinity
		a.RequiredDuringSchedulingIgnoredDuringExecution = append(a.RequiredDuringSchedulingIgnoredDuringExecution, t)
	}
}

func preferNear(weight int32, t corev1.PodAffinityTerm) podChange {
	return func(p *corev1.Pod) {
		a := affinity(p).PodAffinity
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.WeightedPodAffinityTerm{Weight: weight, PodAffinityTerm: t})
	}
}

func preferApart(weight int32, t corev1.PodAffinityTerm) podChange {
	return func(p *corev1.Pod) {
		a := affinity(p).PodAntiAffinity
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.WeightedPodAffinityTerm{Weight: weight, PodAffinityTerm: t})
	}
}

func selects(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func term(topology, app string) corev1.PodAffinityTerm {
	return corev1.PodAffinityTerm{TopologyKey: topology, LabelSelector: selects(app)}
}

// cluster returns a cluster of these objects.
func cluster(objects ...any) *fit.Cluster {
	c := fit.New()
	for _, o := range objects {
		c.Set(o.(metav1.Object))
	}
	return c
}

// verdict is short for tables.
func verdict(reason fit.Reason, detail string) fit.Verdict {
	return fit.Verdict{Judged: true, Reason: reason, Detail: detail}
}

func fits() fit.Verdict { return fit.Verdict{OK: true, Judged: true} }
