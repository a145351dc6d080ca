package fit_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/fit"
)

// ask is one question: does this pod fit on node "a" of the cluster?
type ask struct {
	name    string
	cluster []any
	pod     *corev1.Pod
	want    fit.Verdict
}

func run(t *testing.T, asks []ask) {
	t.Helper()
	for _, a := range asks {
		t.Run(a.name, func(t *testing.T) {
			if got := cluster(a.cluster...).Ask(a.pod).On("a"); got != a.want {
				t.Errorf("got %+v\nwant %+v", got, a.want)
			}
		})
	}
}

func nodes(of ...any) []any { return of }

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func TestNodes(t *testing.T) {
	exists := corev1.TolerationOpExists
	run(t, []ask{
		{"an empty node takes a pod that asks for nothing", nodes(node("a")), pod("p"), fits()},
		{"an unknown node takes nothing", nodes(node("b")), pod("p"), verdict(fit.UnknownNode, "a")},
		{"a node that only pods are bound to takes nothing", nodes(pod("q", on("a"))), pod("p"), verdict(fit.UnknownNode, "a")},
		{"a cordoned node takes nothing", nodes(node("a", cordoned)), pod("p"), verdict(fit.Cordoned, "")},
		{
			"unless the taint of cordoned nodes is tolerated", nodes(node("a", cordoned)),
			pod("p", tolerate(corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: exists})), fits(),
		},
		{"a taint NoSchedule keeps away", nodes(node("a", taint("gpu", corev1.TaintEffectNoSchedule))), pod("p"), verdict(fit.Taint, "gpu")},
		{"a taint NoExecute keeps away", nodes(node("a", taint("gpu", corev1.TaintEffectNoExecute))), pod("p"), verdict(fit.Taint, "gpu")},
		{"a taint PreferNoSchedule does not", nodes(node("a", taint("gpu", corev1.TaintEffectPreferNoSchedule))), pod("p"), fits()},
		{
			"one toleration tolerates all taints of its key",
			nodes(node("a", taint("gpu", corev1.TaintEffectNoSchedule), taint("gpu", corev1.TaintEffectNoExecute))),
			pod("p", tolerate(corev1.Toleration{Key: "gpu", Operator: exists})), fits(),
		},
		{
			"a toleration of another value does not", nodes(node("a", taint("gpu", corev1.TaintEffectNoSchedule))),
			pod("p", tolerate(corev1.Toleration{Key: "gpu", Value: "y"})), verdict(fit.Taint, "gpu"),
		},
		{
			"a feature that the node does not declare keeps away", nodes(node("a")), pod("p", restartsAll),
			verdict(fit.NodeFeatures, "RestartAllContainersOnContainerExits"),
		},
		{
			"one that it declares does not",
			nodes(node("a", func(n *corev1.Node) { n.Status.DeclaredFeatures = []string{"RestartAllContainersOnContainerExits"} })),
			pod("p", restartsAll), fits(),
		},
	})
}

func restartsAll(p *corev1.Pod) {
	p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{
		{Action: corev1.ContainerRestartRuleActionRestartAllContainers},
	}
}

func TestNodeAffinity(t *testing.T) {
	a := node("a", nodeLabel("disk", "ssd"), nodeLabel("size", "3"))
	no := verdict(fit.NodeAffinity, "")
	selector := func(key, value string) podChange {
		return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{key: value} }
	}
	run(t, []ask{
		{"a matching nodeSelector", nodes(a), pod("p", selector("disk", "ssd")), fits()},
		{"another value", nodes(a), pod("p", selector("disk", "hdd")), no},
		{"one of two terms is enough", nodes(a), pod("p", wantNode(nodeTerm("disk", "In", "hdd"), nodeTerm("size", "Gt", "2"))), fits()},
		{"Gt is greater, not equal", nodes(a), pod("p", wantNode(nodeTerm("size", "Gt", "3"))), no},
		{"NotIn holds for a label that is missing", nodes(a), pod("p", wantNode(nodeTerm("color", "NotIn", "red"))), fits()},
		{"both nodeSelector and a term have to match", nodes(a), pod("p", selector("disk", "hdd"), wantNode(nodeTerm("size", "Exists"))), no},
		{"no term is no match", nodes(a), pod("p", wantNode()), no},
		{"an empty term is no match", nodes(a), pod("p", wantNode(corev1.NodeSelectorTerm{})), no},
		{"a field names this node", nodes(a), pod("p", wantNode(named("In", "a"))), fits()},
		{"a field names another node", nodes(a), pod("p", wantNode(named("In", "b"))), no},
		{"a field excludes this node", nodes(a), pod("p", wantNode(named("NotIn", "a"))), no},
		{"where the pod runs is no preference", nodes(a, node("b"), pod("p", on("b"))), pod("p", on("b")), fits()},
	})
}

func TestPodIdentityWithoutUID(t *testing.T) {
	bare := func(name string) *corev1.Pod {
		return pod(name, on("a"), requests("cpu", "2"), func(p *corev1.Pod) { p.UID = "" })
	}
	c := cluster(node("a"), bare("p"), bare("q"))
	got := []fit.Verdict{c.Ask(pod("r", requests("cpu", "1"))).On("a"), c.Ask(bare("q")).On("a")}
	if want := []fit.Verdict{verdict(fit.Resource, "cpu"), fits()}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestHostPorts(t *testing.T) {
	taken := func(changes ...podChange) []any { return nodes(node("a"), pod("q", append(changes, on("a"))...)) }
	no := verdict(fit.HostPort, "")
	run(t, []ask{
		{"the same port is taken", taken(hostPort("", "", 80)), pod("p", hostPort("", "TCP", 80)), no},
		{"another protocol is free", taken(hostPort("", "TCP", 80)), pod("p", hostPort("", "UDP", 80)), fits()},
		{"another address is free", taken(hostPort("10.0.0.1", "", 80)), pod("p", hostPort("10.0.0.2", "", 80)), fits()},
		{"all addresses take each", taken(hostPort("0.0.0.0", "", 80)), pod("p", hostPort("10.0.0.2", "", 80)), no},
		{"each takes all addresses", taken(hostPort("10.0.0.2", "", 80)), pod("p", hostPort("", "", 80)), no},
		{"a terminating pod still has its port", taken(hostPort("", "", 80), terminating), pod("p", hostPort("", "", 80)), no},
		{"a pod that has ended has none", taken(hostPort("", "", 80), ended), pod("p", hostPort("", "", 80)), fits()},
		{"the pod itself is gone", taken(hostPort("", "", 80)), pod("q", on("a"), hostPort("", "", 80)), fits()},
		{"an init container has no port of the host", taken(func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: 80}}}}
		}), pod("p", hostPort("", "", 80)), fits()},
		{"a sidecar has", taken(func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{
				Ports: []corev1.ContainerPort{{HostPort: 80}}, RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
			}}
		}), pod("p", hostPort("", "", 80)), no},
	})
}

func TestResources(t *testing.T) {
	cpu := verdict(fit.Resource, "cpu")
	used := func(of ...string) []any { return nodes(node("a"), pod("q", on("a"), requests(of...))) }
	podLevel := func(of ...string) podChange {
		return func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: list(of...)}
		}
	}
	overhead := func(of ...string) podChange {
		return func(p *corev1.Pod) { p.Spec.Overhead = list(of...) }
	}
	run(t, []ask{
		{"exactly what is left", used("cpu", "3"), pod("p", requests("cpu", "1")), fits()},
		{"a thousandth more", used("cpu", "3"), pod("p", requests("cpu", "1001m")), cpu},
		{"too little memory", used("memory", "8Gi"), pod("p", requests("memory", "1")), verdict(fit.Resource, "memory")},
		{"too little ephemeral storage", used("ephemeral-storage", "10Gi"), pod("p", requests("ephemeral-storage", "1")), verdict(fit.Resource, "ephemeral-storage")},
		{"a pod without requests fits an overcommitted node", used("cpu", "9"), pod("p", requests("cpu", "0")), fits()},
		{"and so does a pod that requests another resource", used("cpu", "9"), pod("p", requests("memory", "1Gi")), fits()},
		{"a device that the node does not have", nodes(node("a")), pod("p", requests(string(device), "1")), verdict(fit.Resource, string(device))},
		{"none of a device that it does not have", nodes(node("a")), pod("p", requests(string(device), "0")), fits()},
		{"the last device", nodes(node("a", allocatable(string(device), "2")), pod("q", on("a"), requests(string(device), "1"))), pod("p", requests(string(device), "1")), fits()},
		{"huge pages", nodes(node("a", allocatable("hugepages-2Mi", "4Mi"))), pod("p", requests("hugepages-2Mi", "6Mi")), verdict(fit.Resource, "hugepages-2Mi")},
		{"an init container may need more than the rest", nodes(node("a")), pod("p", requests("cpu", "1"), initContainer(false, "cpu", "5")), cpu},
		{"but not in addition", nodes(node("a")), pod("p", requests("cpu", "2"), initContainer(false, "cpu", "4")), fits()},
		{"a sidecar needs it in addition", nodes(node("a")), pod("p", requests("cpu", "2"), initContainer(true, "cpu", "3")), cpu},
		{"a later init container runs next to the sidecar", nodes(node("a")), pod("p", initContainer(true, "cpu", "2"), initContainer(false, "cpu", "3")), cpu},
		{"an earlier one does not", nodes(node("a")), pod("p", initContainer(false, "cpu", "3"), initContainer(true, "cpu", "2")), fits()},
		{"overhead comes on top", nodes(node("a")), pod("p", requests("cpu", "4"), overhead("cpu", "1m")), cpu},
		{"the request of the pod replaces the sum", nodes(node("a")), pod("p", requests("cpu", "1"), podLevel("cpu", "5")), cpu},
		{"one pod more than allowed", nodes(node("a", allocatable("pods", "1")), pod("q", on("a"))), pod("p"), verdict(fit.PodCount, "")},
		{"a terminating pod counts", nodes(node("a", allocatable("pods", "1")), pod("q", on("a"), terminating)), pod("p"), verdict(fit.PodCount, "")},
		{"a pod that has ended does not", nodes(node("a", allocatable("pods", "1")), pod("q", on("a"), ended)), pod("p"), fits()},
		{"the pod itself does not", nodes(node("a", allocatable("pods", "1")), pod("p", on("a"), requests("cpu", "4"))), pod("p", on("a"), requests("cpu", "4")), fits()},
		{"a node that says nothing has no room", nodes(&corev1.Node{ObjectMeta: node("a").ObjectMeta}), pod("p"), verdict(fit.PodCount, "")},
	})
}

func TestUnjudgedPods(t *testing.T) {
	unjudged := func(reason fit.Reason, detail string) fit.Verdict { return fit.Verdict{Reason: reason, Detail: detail} }
	run(t, []ask{
		{"another scheduler", nodes(node("a")), pod("p", func(p *corev1.Pod) { p.Spec.SchedulerName = "mine" }), unjudged(fit.OtherScheduler, "mine")},
		{"scheduling gates", nodes(node("a")), pod("p", func(p *corev1.Pod) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "wait"}}
		}), unjudged(fit.Gated, "wait")},
		{"a scheduling group", nodes(node("a")), pod("p", func(p *corev1.Pod) {
			p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{}
		}), unjudged(fit.Grouped, "")},
		{"resource claims", nodes(node("a")), pod("p", func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
		}), unjudged(fit.DeviceClaims, "gpu")},
		{"a device by the name of its class", nodes(node("a")), pod("p", requests("deviceclass.resource.kubernetes.io/gpu", "1")), unjudged(fit.DeviceClaims, "")},
		{"the default scheduler by its name", nodes(node("a")), pod("p", func(p *corev1.Pod) { p.Spec.SchedulerName = "default-scheduler" }), fits()},
	})
}
