package e2e

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	yaml "go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// upkeep is a scene with a maintenance of its nodes, which has the name of the scene's namespace. Every running rehome sees all
// maintenances, so these scenes do not run in parallel with others.
type upkeep struct {
	*scene
	kinds rest.Interface
}

// newUpkeep creates a scene with n nodes, changed by change, on a control plane with the kinds of Rehome.
func newUpkeep(t *testing.T, n int, change ...func(*corev1.Node)) *upkeep {
	t.Helper()
	s := newScene(t, 0)
	s.t.Must(s.cluster.AddKinds(t.Context()))
	kinds, err := apply.NewClient(s.cluster.RESTConfig())
	s.t.Must(err)
	u := &upkeep{s, kinds}
	t.Cleanup(u.sweep)
	u.addNodes(n, change...)
	return u
}

// sweep removes the leftover maintenances of a scene, without a role to finish them.
func (u *upkeep) sweep() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if u.apiServerIsDown { // the scene has failed
		u.t.Must(u.cluster.StartAPIServer(ctx))
		u.apiServerIsDown = false
	}
	var list v1alpha1.NodeMaintenanceList
	u.t.Must(u.kinds.Get().Resource(v1alpha1.NodeMaintenances).Do(ctx).Into(&list))
	for _, m := range list.Items {
		at := func(r *rest.Request) *rest.Request { return r.Resource(v1alpha1.NodeMaintenances).Name(m.Name) }
		free := []byte(`{"metadata":{"finalizers":null}}`)
		err := at(u.kinds.Patch(types.MergePatchType)).Body(free).Do(ctx).Error()
		if err == nil {
			err = at(u.kinds.Delete()).Do(ctx).Error()
		}
		if err != nil && !apierrors.IsNotFound(err) {
			u.t.Errorf("maintenance %s is left: %v", m.Name, err)
		}
	}
}

// holding sets the pod capacity of a node.
func holding(pods int) func(*corev1.Node) {
	return func(n *corev1.Node) {
		room := *resource.NewQuantity(int64(pods), resource.DecimalSI)
		n.Status.Allocatable[corev1.ResourcePods], n.Status.Capacity[corev1.ResourcePods] = room, room
	}
}

// ofPool returns the part of a spec that selects the nodes of a pool of the scene.
func (u *upkeep) ofPool(name string) string {
	return fmt.Sprintf("nodes: {selector: {matchLabels: {scene: %s, pool: %s}}}", u.namespace, name)
}

// apply creates the maintenance. The lines are its spec in YAML.
func (u *upkeep) apply(spec ...string) {
	u.t.Helper()
	var fields map[string]any
	u.t.Must(yaml.Unmarshal([]byte(strings.Join(spec, "\n")), &fields))
	body := expect.ToJSON(u.t, map[string]any{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": "NodeMaintenance", "metadata": map[string]any{"name": u.namespace},
		"spec": fields,
	})
	u.t.Must(u.kinds.Post().Resource(v1alpha1.NodeMaintenances).Body(body).Do(u.t.Context()).Error())
}

// change changes the spec of the maintenance by a merge patch.
func (u *upkeep) change(spec string) {
	u.t.Helper()
	u.t.Must(u.kinds.Patch(types.MergePatchType).Resource(v1alpha1.NodeMaintenances).Name(u.namespace).
		Body([]byte(`{"spec":` + spec + `}`)).Do(u.t.Context()).Error())
}

// wants sets the stage.
func (u *upkeep) wants(stage v1alpha1.Stage) { u.change(`{"stage":"` + string(stage) + `"}`) }

func (u *upkeep) remove() {
	u.t.Helper()
	u.t.Must(u.kinds.Delete().Resource(v1alpha1.NodeMaintenances).Name(u.namespace).Do(u.t.Context()).Error())
}

// found returns the current maintenance, or nil.
func (u *upkeep) found() *v1alpha1.NodeMaintenance {
	u.t.Helper()
	var m v1alpha1.NodeMaintenance
	err := u.kinds.Get().Resource(v1alpha1.NodeMaintenances).Name(u.namespace).Do(u.t.Context()).Into(&m)
	if apierrors.IsNotFound(err) {
		return nil
	}
	u.t.Must(err)
	return &m
}

// until waits until the maintenance meets a condition, and returns it.
func (u *upkeep) until(what string, so func(*v1alpha1.NodeMaintenance) bool) *v1alpha1.NodeMaintenance {
	u.t.Helper()
	var m *v1alpha1.NodeMaintenance
	expect.EventuallyWithState(u.t, what, func() (bool, string) {
		if m = u.found(); m == nil {
			u.t.Fatalf("while waiting until %s, the maintenance went", what)
		}
		return so(m), fmt.Sprintf("%s, %v, nodes %v", m.Status.Summary.Message, conditionsOf(m), stages(m))
	})
	return m
}

// gone waits until the maintenance is deleted.
func (u *upkeep) gone() {
	u.t.Helper()
	expect.EventuallyWithState(u.t, "the maintenance is gone", func() (bool, string) {
		m := u.found()
		if m == nil {
			return true, ""
		}
		return false, fmt.Sprintf("%v, nodes %v", m.Finalizers, stages(m))
	})
}

// conditionsOf returns the conditions of the maintenance as text, by type.
func conditionsOf(m *v1alpha1.NodeMaintenance) map[string]string {
	all := map[string]string{}
	for _, c := range m.Status.Conditions {
		all[c.Type] = fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
	}
	return all
}

// stages returns the stage of each node.
func stages(m *v1alpha1.NodeMaintenance) map[string]v1alpha1.NodeStage {
	all := map[string]v1alpha1.NodeStage{}
	for _, n := range m.Status.Nodes {
		all[n.Name] = n.Stage
	}
	return all
}

// inStage counts the nodes in each stage.
func inStage(m *v1alpha1.NodeMaintenance) map[v1alpha1.NodeStage]int {
	count := map[v1alpha1.NodeStage]int{}
	for _, n := range m.Status.Nodes {
		count[n.Stage]++
	}
	return count
}

// untimed returns the nodes of a status without times.
func untimed(nodes []v1alpha1.NodeStatus) []v1alpha1.NodeStatus {
	var list []v1alpha1.NodeStatus
	for _, n := range nodes {
		n = *n.DeepCopy()
		n.Start, n.DrainedAt, n.End = nil, nil, nil
		for i := range n.Blocked {
			n.Blocked[i].Since = nil
		}
		list = append(list, n)
	}
	return list
}

// allIn returns the same stage for some nodes.
func allIn(stage v1alpha1.NodeStage, nodes ...string) map[string]v1alpha1.NodeStage {
	all := map[string]v1alpha1.NodeStage{}
	for _, n := range nodes {
		all[n] = stage
	}
	return all
}

// untilStages waits until the maintenance has exactly these nodes in these stages.
func (u *upkeep) untilStages(want map[string]v1alpha1.NodeStage) *v1alpha1.NodeMaintenance {
	u.t.Helper()
	return u.until(fmt.Sprintf("the nodes are %v", want), func(m *v1alpha1.NodeMaintenance) bool {
		return maps.Equal(stages(m), want)
	})
}

// works acts as the users who work on nodes, until that many more nodes are released. The work on a drained node is done
// immediately.
func (u *upkeep) works(nodes int) {
	u.t.Helper()
	done := map[string]bool{}
	isNew := func(n v1alpha1.NodeStatus) bool { return n.Stage == v1alpha1.IsDrained && !done[n.Name] }
	for len(done) < nodes {
		m := u.until("another node is drained", func(m *v1alpha1.NodeMaintenance) bool {
			return slices.ContainsFunc(m.Status.Nodes, isNew)
		})
		for _, n := range m.Status.Nodes {
			if isNew(n) && len(done) < nodes {
				done[n.Name] = true
				u.maintained(n.Name)
			}
		}
	}
	u.until("they are given back", func(m *v1alpha1.NodeMaintenance) bool {
		all := stages(m)
		for n := range done {
			if all[n] != v1alpha1.Returned {
				return false
			}
		}
		return true
	})
}

// maintained sets the annotation that the work on a node is done.
func (u *upkeep) maintained(node string) {
	u.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, schemas.AnnotationMaintained, u.namespace)
	u.t.Must(u.cluster.PatchNode(u.t.Context(), node, patch))
}

// nodeState has everything on a node that a maintenance may change and restore.
type nodeState struct {
	labels, annotations map[string]string
	unschedulable       bool
	taints              []string
	said                []string // the true conditions of maintenances, with their messages
}

func (u *upkeep) state(n *corev1.Node) nodeState {
	s := nodeState{labels: n.Labels, annotations: n.Annotations, unschedulable: n.Spec.Unschedulable}
	for _, t := range n.Spec.Taints {
		s.taints = append(s.taints, t.ToString())
	}
	for _, c := range n.Status.Conditions {
		if c.Status == corev1.ConditionTrue && plan.SetByMaintenance(c, "") {
			s.said = append(s.said, fmt.Sprintf("%s: %s", c.Type, c.Message))
		}
	}
	return s
}

// states returns the states of all nodes of the scene, by name.
func (u *upkeep) states() map[string]nodeState {
	u.t.Helper()
	list, err := u.client.CoreV1().Nodes().List(u.t.Context(), metav1.ListOptions{LabelSelector: "scene=" + u.namespace})
	u.t.Must(err)
	all := map[string]nodeState{}
	for i := range list.Items {
		all[list.Items[i].Name] = u.state(&list.Items[i])
	}
	return all
}

// untilStates waits until all nodes of the scene have the wanted states.
func (u *upkeep) untilStates(want map[string]nodeState) {
	u.t.Helper()
	expect.EventuallyWithState(u.t, "the nodes have the wanted states", func() (bool, string) {
		got := u.states()
		seen := ""
		for _, n := range u.nodes {
			if !reflect.DeepEqual(got[n], want[n]) {
				seen += fmt.Sprintf("\n%s is %+v\nwant %+v", n, got[n], want[n])
			}
		}
		return seen == "" && len(got) == len(want), seen
	})
}

// with returns the wanted states after changes of some nodes.
func with(states map[string]nodeState, change func(*nodeState), nodes ...string) map[string]nodeState {
	all := maps.Clone(states)
	for _, n := range nodes {
		s := all[n]
		change(&s)
		all[n] = s
	}
	return all
}

// isCordoned makes the wanted state of a node a cordoned one.
func isCordoned(s *nodeState) {
	s.unschedulable, s.taints = true, []string{corev1.TaintNodeUnschedulable + ":" + string(corev1.TaintEffectNoSchedule)}
}

// touched returns the changes of a node by rehome in the audit log, in order, without changes of its status.
func (u *upkeep) touched(node string) []time.Time {
	u.t.Helper()
	log, err := u.cluster.Audit(u.t.Context())
	u.t.Must(err)
	var times []time.Time
	for _, e := range log {
		if e.Resource == "nodes" && e.Subresource == "" && e.Name == node && strings.HasPrefix(e.UserAgent, "rehome") && e.Code < 300 {
			times = append(times, e.Received)
		}
	}
	return times
}

// deployments creates Deployments with that many replicas each, and waits until all of their pods run.
func (u *upkeep) deployments(replicas int, names ...string) {
	u.t.Helper()
	for _, name := range names {
		_, err := u.cluster.AddDeployment(u.t.Context(), u.namespace, name, replicas, func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.NodeSelector = map[string]string{"scene": u.namespace}
		})
		u.t.Must(err)
	}
	for _, name := range names {
		u.ready(name)
	}
}

// statefulSet creates a StatefulSet whose pods prefer a node, and waits until they run.
func (u *upkeep) statefulSet(name string, replicas int32, node string) {
	u.t.Helper()
	pods := template(name)
	pods.Spec.NodeSelector, pods.Spec.TerminationGracePeriodSeconds = map[string]string{"scene": u.namespace}, new(int64(0))
	preferring(node)(&pods)
	_, err := u.client.AppsV1().StatefulSets(u.namespace).Create(u.t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: name, Selector: &metav1.LabelSelector{MatchLabels: pods.Labels}, Template: pods,
		},
	}, metav1.CreateOptions{})
	u.t.Must(err)
	u.running("app="+name, int(replicas))
}

// quiet returns a policy whose strategy never applies, so only the maintenance moves pods.
func (u *upkeep) quiet(more ...string) string {
	u.t.Helper()
	return u.enable("PodLifeTime", []string{"{name: PodLifeTime, args: {maxPodLifeTimeSeconds: 86400}}"}, more...)
}

// saidNothingOf checks that the log has none of these texts.
func (p *process) saidNothingOf(words ...string) {
	p.t.Helper()
	for line := range strings.Lines(p.Log.String()) {
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(line, w) }) {
			p.t.Errorf("it said: %s", line)
		}
	}
}
