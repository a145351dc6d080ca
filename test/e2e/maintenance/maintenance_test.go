package maintenance

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// maintenanceScene is a scene with a maintenance of its nodes, which has the name of the scene's namespace. Every running rehome sees all
// maintenances, so these scenes do not run in parallel with others.
type maintenanceScene struct {
	*scene.Scene
	kinds rest.Interface
}

// newMaintenanceScene creates a scene with n nodes, changed by change, on a control plane with the kinds of Rehome.
func newMaintenanceScene(t *testing.T, n int, change ...func(*corev1.Node)) *maintenanceScene {
	t.Helper()
	s := scene.New(t, 0)
	s.T.Must(s.Cluster.AddKinds(t.Context()))
	kinds, err := apply.NewClient(s.Cluster.RESTConfig())
	s.T.Must(err)
	u := &maintenanceScene{s, kinds}
	t.Cleanup(u.sweep)
	u.AddNodes(n, change...)
	return u
}

// sweep removes the leftover maintenances of a scene, without a role to finish them.
func (u *maintenanceScene) sweep() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if u.APIServerIsDown { // the scene has failed
		u.T.Must(u.Cluster.StartAPIServer(ctx))
		u.APIServerIsDown = false
	}
	var list v1alpha1.NodeMaintenanceList
	u.T.Must(u.kinds.Get().Resource(v1alpha1.NodeMaintenances).Do(ctx).Into(&list))
	for _, m := range list.Items {
		at := func(r *rest.Request) *rest.Request { return r.Resource(v1alpha1.NodeMaintenances).Name(m.Name) }
		free := []byte(`{"metadata":{"finalizers":null}}`)
		err := at(u.kinds.Patch(types.MergePatchType)).Body(free).Do(ctx).Error()
		if err == nil {
			err = at(u.kinds.Delete()).Do(ctx).Error()
		}
		if err != nil && !apierrors.IsNotFound(err) {
			u.T.Errorf("maintenance %s is left: %v", m.Name, err)
		}
	}
}

// poolSelector returns the part of a spec that selects the nodes of a pool of the scene.
func (u *maintenanceScene) poolSelector(name string) string {
	return fmt.Sprintf("nodes: {selector: {matchLabels: {scene: %s, pool: %s}}}", u.Namespace, name)
}

// apply creates the maintenance. The lines are its spec in YAML.
func (u *maintenanceScene) apply(spec ...string) {
	u.T.Helper()
	var fields map[string]any
	u.T.Must(yaml.Unmarshal([]byte(strings.Join(spec, "\n")), &fields))
	body := expect.ToJSON(u.T, map[string]any{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": "NodeMaintenance", "metadata": map[string]any{"name": u.Namespace},
		"spec": fields,
	})
	u.T.Must(u.kinds.Post().Resource(v1alpha1.NodeMaintenances).Body(body).Do(u.T.Context()).Error())
}

// change changes the spec of the maintenance by a merge patch.
func (u *maintenanceScene) change(spec string) {
	u.T.Helper()
	u.T.Must(u.kinds.Patch(types.MergePatchType).Resource(v1alpha1.NodeMaintenances).Name(u.Namespace).
		Body([]byte(`{"spec":` + spec + `}`)).Do(u.T.Context()).Error())
}

// setStage sets the stage.
func (u *maintenanceScene) setStage(stage v1alpha1.Stage) {
	u.change(`{"stage":"` + string(stage) + `"}`)
}

func (u *maintenanceScene) remove() {
	u.T.Helper()
	u.T.Must(u.kinds.Delete().Resource(v1alpha1.NodeMaintenances).Name(u.Namespace).Do(u.T.Context()).Error())
}

// get returns the current maintenance, or nil.
func (u *maintenanceScene) get() *v1alpha1.NodeMaintenance {
	u.T.Helper()
	var m v1alpha1.NodeMaintenance
	err := u.kinds.Get().Resource(v1alpha1.NodeMaintenances).Name(u.Namespace).Do(u.T.Context()).Into(&m)
	if apierrors.IsNotFound(err) {
		return nil
	}
	u.T.Must(err)
	return &m
}

// waitUntil waits until the maintenance meets a condition, and returns it.
func (u *maintenanceScene) waitUntil(what string, so func(*v1alpha1.NodeMaintenance) bool) *v1alpha1.NodeMaintenance {
	u.T.Helper()
	var m *v1alpha1.NodeMaintenance
	expect.EventuallyWithState(u.T, what, func() (bool, string) {
		if m = u.get(); m == nil {
			u.T.Fatalf("while waiting until %s, the maintenance went", what)
		}
		return so(m), fmt.Sprintf("%s, %v, nodes %v", m.Status.Summary.Message, conditionsOf(m), stages(m))
	})
	return m
}

// waitDeleted waits until the maintenance is deleted.
func (u *maintenanceScene) waitDeleted() {
	u.T.Helper()
	expect.EventuallyWithState(u.T, "the maintenance is gone", func() (bool, string) {
		m := u.get()
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

// withoutTimes returns the nodes of a status without times.
func withoutTimes(nodes []v1alpha1.NodeStatus) []v1alpha1.NodeStatus {
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

// waitStages waits until the maintenance has exactly these nodes in these stages.
func (u *maintenanceScene) waitStages(want map[string]v1alpha1.NodeStage) *v1alpha1.NodeMaintenance {
	u.T.Helper()
	return u.waitUntil(fmt.Sprintf("the nodes are %v", want), func(m *v1alpha1.NodeMaintenance) bool {
		return maps.Equal(stages(m), want)
	})
}

// doWork acts as the users who work on nodes, until that many more nodes are returned. The work on a drained node is done
// immediately.
func (u *maintenanceScene) doWork(nodes int) {
	u.T.Helper()
	done := map[string]bool{}
	isNew := func(n v1alpha1.NodeStatus) bool { return n.Stage == v1alpha1.IsDrained && !done[n.Name] }
	for len(done) < nodes {
		m := u.waitUntil("another node is drained", func(m *v1alpha1.NodeMaintenance) bool {
			return slices.ContainsFunc(m.Status.Nodes, isNew)
		})
		for _, n := range m.Status.Nodes {
			if isNew(n) && len(done) < nodes {
				done[n.Name] = true
				u.markMaintained(n.Name)
			}
		}
	}
	u.waitUntil("they are given back", func(m *v1alpha1.NodeMaintenance) bool {
		all := stages(m)
		for n := range done {
			if all[n] != v1alpha1.Returned {
				return false
			}
		}
		return true
	})
}

// markMaintained sets the annotation that the work on a node is done.
func (u *maintenanceScene) markMaintained(node string) {
	u.T.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, schemas.AnnotationMaintained, u.Namespace)
	u.T.Must(u.Cluster.PatchNode(u.T.Context(), node, patch))
}

// nodeState has everything on a node that a maintenance may change and restore.
type nodeState struct {
	labels, annotations map[string]string
	unschedulable       bool
	taints              []string
	said                []string // the true conditions of maintenances, with their messages
}

func (u *maintenanceScene) state(n *corev1.Node) nodeState {
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
func (u *maintenanceScene) states() map[string]nodeState {
	u.T.Helper()
	list, err := u.Client.CoreV1().Nodes().List(u.T.Context(), metav1.ListOptions{LabelSelector: "scene=" + u.Namespace})
	u.T.Must(err)
	all := map[string]nodeState{}
	for i := range list.Items {
		all[list.Items[i].Name] = u.state(&list.Items[i])
	}
	return all
}

// waitStates waits until all nodes of the scene have the wanted states.
func (u *maintenanceScene) waitStates(want map[string]nodeState) {
	u.T.Helper()
	expect.EventuallyWithState(u.T, "the nodes have the wanted states", func() (bool, string) {
		got := u.states()
		seen := ""
		for _, n := range u.Nodes {
			if !reflect.DeepEqual(got[n], want[n]) {
				seen += fmt.Sprintf("\n%s is %+v\nwant %+v", n, got[n], want[n])
			}
		}
		return seen == "" && len(got) == len(want), seen
	})
}

// withChange returns the wanted states after changes of some nodes.
func withChange(states map[string]nodeState, change func(*nodeState), nodes ...string) map[string]nodeState {
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

// nodeChanges returns the changes of a node by rehome in the audit log, in order, without changes of its status.
func (u *maintenanceScene) nodeChanges(node string) []time.Time {
	u.T.Helper()
	log, err := u.Cluster.Audit(u.T.Context())
	u.T.Must(err)
	var times []time.Time
	for _, e := range log {
		if e.Resource == "nodes" && e.Subresource == "" && e.Name == node && strings.HasPrefix(e.UserAgent, "rehome") && e.Code < 300 {
			times = append(times, e.Received)
		}
	}
	return times
}

// deployments creates Deployments with that many replicas each, and waits until all of their pods run.
func (u *maintenanceScene) deployments(replicas int, names ...string) {
	u.T.Helper()
	for _, name := range names {
		_, err := u.Cluster.AddDeployment(u.T.Context(), u.Namespace, name, replicas, func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.NodeSelector = map[string]string{"scene": u.Namespace}
		})
		u.T.Must(err)
	}
	for _, name := range names {
		u.WaitReady(name)
	}
}

// statefulSet creates a StatefulSet whose pods prefer a node, and waits until they run.
func (u *maintenanceScene) statefulSet(name string, replicas int32, node string) {
	u.T.Helper()
	pods := scene.PodTemplate(name)
	pods.Spec.NodeSelector, pods.Spec.TerminationGracePeriodSeconds = map[string]string{"scene": u.Namespace}, new(int64(0))
	scene.PreferNode(node)(&pods)
	_, err := u.Client.AppsV1().StatefulSets(u.Namespace).Create(u.T.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: name, Selector: &metav1.LabelSelector{MatchLabels: pods.Labels}, Template: pods,
		},
	}, metav1.CreateOptions{})
	u.T.Must(err)
	u.WaitRunning("app="+name, int(replicas))
}

// idlePolicy returns a policy whose strategy never applies, so only the maintenance moves pods.
func (u *maintenanceScene) idlePolicy(more ...string) string {
	u.T.Helper()
	return u.DeschedulePolicy("PodLifeTime", []string{"{name: PodLifeTime, args: {maxPodLifeTimeSeconds: 86400}}"}, more...)
}
