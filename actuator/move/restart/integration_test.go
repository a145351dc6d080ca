package restart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

const (
	nobody                 = "nobody"              // a user without any rights
	looker                 = "looker"              // a read-only user
	restartUser, surgeUser = "restarter", "surger" // users with exactly the rights that the moves need
	costless               = "costless"            // a user that may start a surge but may not patch pods

	// actuatorUser is the account of the actuator, with its rights and its admission policy.
	actuatorUser = "system:serviceaccount:rehome:rehome-actuator"

	sceneMark = "test.rehome.dev/" // namespace and node label of the scene
)

// TestRestart shares one control plane among all scenes. Each has its own namespace and two nodes. The account of the
// actuator makes the moves, as deploy/kustomize deploys it.
func TestRestart(t *testing.T) {
	c := clustertest.New(t, cluster.Options{Users: []cluster.User{
		{Name: nobody}, {Name: looker}, {Name: restartUser}, {Name: surgeUser}, {Name: costless}, {Name: actuatorUser}}})
	deployActuator(t, c)
	var numbers atomic.Int32
	for _, s := range scenes() {
		t.Run(s.name, func(t *testing.T) {
			p := &place{T: expect.T{TB: t}, c: c, client: c.Client(), namespace: fmt.Sprintf("scene-%d", numbers.Add(1))}
			p.Must(c.AddNamespace(t.Context(), p.namespace))
			names, err := c.AddNodes(t.Context(), 2, func(n *corev1.Node) { n.Labels[sceneMark+p.namespace] = "yes" })
			p.Must(err)
			p.nodes = names
			s.test(p)
		})
	}
}

type scene struct {
	name string
	test func(*place)
}

// deployActuator applies the rights and the admission policy of the actuator, and waits until they are in force.
func deployActuator(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	p := &place{T: expect.T{TB: t}, c: c, client: c.Client(), namespace: "rehome"}
	p.Must(c.AddNamespace(t.Context(), p.namespace))
	for _, folder := range []string{"actuator", "restart"} {
		out, err := c.KubectlCommand(t.Context(), "apply", "--server-side", "-k", "../../../deploy/kustomize/rbac/"+folder).CombinedOutput()
		if err != nil {
			t.Fatalf("apply %s: %v: %s", folder, err, out)
		}
	}
	_, err := c.AddDeployment(t.Context(), p.namespace, "api", 0)
	p.Must(err)
	expect.Eventually(p, "the admission policy is in force", func() bool {
		_, err := clustertest.As(p, p.c, actuatorUser).AppsV1().Deployments(p.namespace).
			Patch(t.Context(), "api", types.MergePatchType, []byte(`{"spec":{"paused":true}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'rehome-actuator'")
	})
}

// place is the namespace and the nodes of one scene.
type place struct {
	expect.T
	c         *cluster.Cluster
	client    kubernetes.Interface
	namespace string
	nodes     []string
}

// deployment creates a Deployment on the nodes of the scene, and returns it when it is complete, with its pods by name.
func (p *place) deployment(replicas int, mutate ...func(*appsv1.Deployment)) (*appsv1.Deployment, []*corev1.Pod) {
	p.Helper()
	here := func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.NodeSelector = map[string]string{sceneMark + p.namespace: "yes"}
		d.Spec.ProgressDeadlineSeconds = new(int32(60))
	}
	_, err := p.c.AddDeployment(p.Context(), p.namespace, "api", replicas, append([]func(*appsv1.Deployment){here}, mutate...)...)
	p.Must(err)
	p.Must(p.c.WaitReady(p.Context(), p.namespace, "api"))
	expect.Eventually(p, "the Deployment is complete", func() bool { return complete(p.live()) })
	return p.live(), p.pods()
}

// live returns the live Deployment.
func (p *place) live() *appsv1.Deployment {
	p.Helper()
	d, err := p.client.AppsV1().Deployments(p.namespace).Get(p.Context(), "api", metav1.GetOptions{})
	p.Must(err)
	return d
}

// pods returns the existing pods by name.
func (p *place) pods() []*corev1.Pod {
	p.Helper()
	pods, err := p.c.WaitPods(p.Context(), p.namespace, "", "", func([]*corev1.Pod) bool { return true })
	p.Must(err)
	return pods
}

// full keeps new pods off the nodes of the scene. It returns when the scheduler has seen the change, which can take a
// while.
func (p *place) full() {
	p.Helper()
	for _, name := range p.nodes {
		p.Must(p.c.PatchNode(p.Context(), name, `{"spec":{"unschedulable":true}}`))
	}
	expect.Eventually(p, "the scheduler knows that there is no room", func() bool { return !p.room() })
}

// room reports whether the scheduler finds a node of the scene for another pod. It tries with a pod in another
// namespace.
func (p *place) room() bool {
	p.Helper()
	pods := p.client.CoreV1().Pods(metav1.NamespaceDefault)
	pod, err := pods.Create(p.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "room-"},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{sceneMark + p.namespace: "yes"}, Containers: []corev1.Container{{Name: "main", Image: "none:v1"}},
		},
	}, metav1.CreateOptions{})
	p.Must(err)
	expect.Eventually(p, "the scheduler has looked at a pod", func() bool {
		pod, err = pods.Get(p.Context(), pod.Name, metav1.GetOptions{})
		p.Must(err)
		return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	})
	p.Must(pods.Delete(p.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	return pod.Spec.NodeName != ""
}

// empty undoes full.
func (p *place) empty() {
	p.Helper()
	for _, name := range p.nodes {
		p.Must(p.c.PatchNode(p.Context(), name, `{"spec":{"unschedulable":false}}`))
	}
}

// patch changes the Deployment like another client.
func (p *place) patch(patch string) {
	p.Helper()
	_, err := p.client.AppsV1().Deployments(p.namespace).
		Patch(p.Context(), "api", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "somebody"})
	p.Must(err)
}

func (p *place) pause(d time.Duration) {
	select {
	case <-p.Context().Done():
	case <-time.After(d):
	}
}

// budget creates a budget for the pods and waits until it is counted.
func (p *place) budget(minAvailable int) {
	p.Helper()
	spec := policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt(minAvailable))}
	_, err := p.c.AddBudget(p.Context(), p.namespace, "api", "api", spec)
	p.Must(err)
}

// restarter returns a method that lets all Deployments take part.
func (p *place) restarter(change ...func(*Config)) *Method {
	p.Helper()
	cfg := Config{Client: clustertest.As(p, p.c, actuatorUser), Policy: policy.Restart{Workloads: policy.RestartAll}}
	for _, f := range change {
		f(&cfg)
	}
	return New(cfg)
}

// budgeted restarts Deployments whose budget blocks an eviction, too.
func budgeted(c *Config) {
	c.Policy = policy.Restart{Workloads: policy.RestartAll, BlockedByBudget: true}
}

// surger returns a restarter that surges.
func surger(more ...func(*policy.Restart)) func(*Config) {
	return func(c *Config) {
		r := policy.Restart{Workloads: policy.RestartAll, Method: policy.Surge}
		for _, f := range more {
			f(&r)
		}
		c.Policy = r
	}
}

// planned plans the move of the pod, and changes nothing.
func (p *place) planned(r *Method, pod *corev1.Pod) (*Method, move.State) {
	p.Helper()
	s, refusal, err := r.plan(p.Context(), pod, r.cfg.Policy, time.Now())
	p.Must(err)
	if refusal != nil || s.Method == "" {
		p.Fatalf("pod %s: %s, %+v", pod.Name, s.Method, refusal)
	}
	return r, s.encode()
}

// start starts the move of the pod, and returns the result and the record that was saved before.
func (p *place) start(r *Method, pod *corev1.Pod) (progress move.Progress, saved []move.Record) {
	p.Helper()
	progress, err := r.Start(p.Context(), pod, time.Now(), func(_ context.Context, record move.Record) error {
		saved = append(saved, record)
		return nil
	})
	p.Must(err)
	return progress, saved
}

// ask starts the move of the pod with a save that fails, so nothing is changed. It returns the record.
func (p *place) ask(r *Method, pod *corev1.Pod) (move.Progress, move.Record) {
	p.Helper()
	var planned move.Record
	errSave := errors.New("not saved")
	progress, err := r.Start(p.Context(), pod, time.Now(), func(_ context.Context, record move.Record) error {
		planned = record
		return errSave
	})
	if !errors.Is(err, errSave) {
		p.Must(err)
	}
	return progress, planned
}

// goesOn reports whether there is a next step.
func goesOn(p move.Progress) bool { return p.Stage == move.Working }

// drive controls how a scene runs a move.
type drive struct {
	// stutter makes each step twice with the same state, like a process that was killed before it remembered the first.
	stutter bool
	// random makes each step up to three times with the same state, while another client writes to the Deployment now
	// and then. nil does neither.
	random *rand.Rand
	// late is added to the time of every step but the first.
	late time.Duration
	// after is called after each step.
	after func(state, move.Progress)
}

// run runs the move until it is over.
func (p *place) run(m *Method, s move.State, how drive) move.Progress {
	p.Helper()
	var late time.Duration
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); p.pause(20 * time.Millisecond) {
		p.disturb(how.random)
		progress, err := m.Step(p.Context(), s, false, time.Now().Add(late))
		p.Must(err)
		for how.random != nil && goesOn(progress) && how.random.IntN(3) > 0 {
			p.disturb(how.random)
			progress, err = m.Step(p.Context(), s, false, time.Now().Add(late))
			p.Must(err)
		}
		if how.stutter && goesOn(progress) {
			progress, err = m.Step(p.Context(), s, false, time.Now().Add(late))
			p.Must(err)
		}
		if progress.State != nil {
			s = progress.State
		}
		remembered, err := decode(s)
		p.Must(err)
		if how.after != nil {
			how.after(remembered, progress)
		}
		if remembered.Phase != planned {
			late = how.late
		}
		if !goesOn(progress) {
			progress.State = nil
			return progress
		}
	}
	p.Fatalf("the move does not end; the Deployment: %s", expect.Indented(p.live()))
	return move.Progress{}
}

// disturb writes to the Deployment as another client, one time in three.
func (p *place) disturb(random *rand.Rand) {
	p.Helper()
	if random == nil || random.IntN(3) > 0 {
		return
	}
	p.patch(fmt.Sprintf(`{"metadata":{"labels":{"by-test":"%d"}}}`, random.Uint32()))
}

// watched is the history of the pods of the scene.
type watched struct {
	// Least is the smallest number of ready pods that were not terminating at the same time.
	Least int
	// Names are all pods that ever existed, in the order of their creation.
	Names int
	// Deleted are the pods that were deleted, by name.
	Deleted []string
}

// watch starts watching the pods, and returns a function that reports the history.
func (p *place) watch() func() watched {
	p.Helper()
	pods := clustertest.WatchPods(p, p.client, p.namespace)
	return func() watched {
		p.pause(200 * time.Millisecond) // the result of the last step
		told := watched{Least: pods.Least(func(*corev1.Pod) string { return "" })[""]}
		seen := map[string]bool{}
		for _, c := range pods.Changes() {
			seen[c.Name] = true
			if c.Going() && !slices.Contains(told.Deleted, c.Name) {
				told.Deleted = append(told.Deleted, c.Name)
			}
		}
		told.Names = len(seen)
		return told
	}
}

// write is one write in the audit log.
type write struct {
	What string
	Code int
}

// accepted returns the writes that the API server accepted, including dry runs. It omits conflicts, whose number
// depends on the controllers.
func (p *place) accepted() []string {
	p.Helper()
	var out []string
	for _, w := range p.writes() {
		if w.Code < 300 {
			out = append(out, w.What)
		}
	}
	return out
}

// writes returns the changes of Deployments and the evictions that this package requested in the scene, in order. It
// includes dry runs, and omits changes of pods, which are not audited.
func (p *place) writes() []write {
	p.Helper()
	entries, err := p.c.Audit(p.Context())
	p.Must(err)
	var out []write
	for _, e := range entries {
		if e.Namespace != p.namespace || !strings.Contains(e.UserAgent, "restart.test") || strings.Contains(string(e.Object), "by-test") {
			continue
		}
		var asked struct {
			Metadata      struct{ Annotations map[string]*string }
			Spec          struct{ Template, Replicas json.RawMessage }
			DeleteOptions metav1.DeleteOptions
		}
		p.Must(json.Unmarshal(e.Object, &asked))
		what := e.Verb + " " + e.Resource
		switch _, marks := asked.Metadata.Annotations[restartedAt]; {
		case e.Subresource == "eviction":
			what = "eviction"
			if len(asked.DeleteOptions.DryRun) > 0 {
				what = "dry eviction"
			}
		case asked.Spec.Replicas != nil:
			what = "replicas " + string(asked.Spec.Replicas)
		case marks:
			what = "template, marked"
		case asked.Spec.Template != nil:
			what = "template"
		case e.Resource == "deployments":
			what = "marks"
		}
		out = append(out, write{what, e.Code})
	}
	return out
}
