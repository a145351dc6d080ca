package restart

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/randtest"
)

func scenes() []scene {
	return []scene{
		{"a restart stops the pod only when its replacement is ready", restartGoes(drive{})},
		{"a restart with each step repeated changes nothing twice", restartGoes(drive{stutter: true})},
		{"a restart of two pods behind a budget has never fewer than two", testRestartOfTwo},
		{"a restart that gets stuck is taken back", restartGetsStuck(drive{}, false)},
		{"a restart that gets stuck is taken back once, though every step is repeated", restartGetsStuck(drive{stutter: true}, true)},
		{"a restart that takes longer than the policy allows is taken back", testRestartTakesTooLong},
		{"a patch for an older version of the Deployment is refused", testPrecondition},
		{"a Deployment that changed after the plan is planned again", testPlanAnew},
		{"the new plan of a drain has no cooldown", testPlanAnewSoon},
		{"a Deployment that was paused after the plan is let go", testPausedAfterPlan},
		{"a Deployment that another pod of it restarts first is let go", testOvertaken},
		{"a rollout of another client is not touched", testForeignRollout},
		{"an annotation that another client removes is not set again", testGitOps},
		{"a pod that goes by itself while the restart is stuck", testPodGoesByItself},
		{"a Deployment that is deleted during the restart", testDeploymentDeleted},
		{"a second pod of a Deployment that restarts, and one that was restarted, wait", testOneAtATime},
		{"pods of a restart wait for it, also when their budget has room meanwhile", testTheOthersWait},
		{"start saves the plan before the first change", testStart},
		{"start plans again when another client changes the Deployment", testStartAgain},
		{"cancel takes back a restart that has stopped no pod", cancelTakesBack(schemas.MethodRestart)},
		{"cancel takes back a surge", cancelTakesBack(schemas.MethodSurge)},
		{"cancel lets a restart go on that has stopped a pod", testCancelLate},
		{"a surge starts one pod, then the old one goes", surgeGoes(drive{})},
		{"a surge with each step repeated changes nothing twice", surgeGoes(drive{stutter: true})},
		{"a surge of two replicas removes the moved pod", testSurgeOfTwo},
		{"a surge asks the budget until it gives way", testSurgeAsksTheBudget},
		{"a surge that a budget holds too long names it", testSurgeNamesTheBudget},
		{"a surge that takes too long is taken back", surgeTakesTooLong(drive{late: time.Hour})},
		{"a surge is taken back once, though every step is repeated", surgeTakesTooLong(drive{late: time.Hour, stutter: true})},
		{"a surge ends when another client scales the Deployment", testSurgeScaledByOthers},
		{"a Deployment under an autoscaler restarts instead of a surge", testScaled},
		{"despite repetitions and other writers, a restart is made once", testRestartAtRandom},
		{"despite repetitions and other writers, a stuck restart is undone once", testStuckAtRandom},
		{"despite repetitions and other writers, a surge is made once", testSurgeAtRandom},
		{"a dry run changes nothing", testDryRun},
		{"participation is read from the cluster", testFor},
		{"the checks read the cluster", testRefusals},
		{"the rights that are named are enough", testEnoughRights},
		{"a missing right lets the pod go another way", testRights},
		{"a surge that lacks a right later is taken back", testRightsLater},
	}
}

// marksOf returns the annotations of this package on the Deployment.
func marksOf(d *appsv1.Deployment) map[string]string {
	out := map[string]string{}
	for key, value := range d.Annotations {
		if strings.HasPrefix(key, "rehome.dev/") {
			out[key] = value
		}
	}
	return out
}

func restartGoes(how drive) func(*place) {
	return func(p *place) {
		before, pods := p.deployment(1)
		old := pods[0]
		p.Must(p.c.PatchNode(p.Context(), old.Spec.NodeName, `{"spec":{"unschedulable":true}}`))
		m, s := p.planned(p.restarter(), old)
		planned, err := decode(s)
		p.Must(err)
		told := p.watch()
		got := p.run(m, s, how)
		happened := told()

		after, now := p.live(), p.pods()
		if len(now) != 1 || now[0].Name == old.Name || now[0].Spec.NodeName == old.Spec.NodeName {
			p.Fatalf("pods afterwards: %s", expect.Indented(now))
		}
		same(p, "progress", got, move.Progress{Stage: move.Done})
		same(p, "what happened to the pods", happened, watched{Least: 1, Names: 2, Deleted: []string{old.Name}})
		same(p, "writes", p.accepted(), []string{"template, marked", "marks"})
		same(p, "generation", after.Generation, before.Generation+2) // a change of annotations counts as one
		same(p, "marks", marksOf(after), map[string]string{
			restartedAt: planned.value(), restartedFor: old.Name + "/" + string(old.UID)})
		same(p, "template annotations", after.Spec.Template.Annotations,
			map[string]string{"kubectl.kubernetes.io/restartedAt": planned.value()})
		if _, err := time.Parse(time.RFC3339, planned.value()); err != nil {
			p.Error(err)
		}
		owned := 0
		for _, f := range after.ManagedFields {
			if f.Manager == "rehome-restart" {
				owned++
			}
		}
		same(p, "entries of the field manager", owned, 1)
	}
}

func testRestartOfTwo(p *place) {
	_, pods := p.deployment(2)
	p.budget(2)
	r := p.restarter(budgeted)
	m, s := p.planned(r, pods[0])
	told := p.watch()
	got := p.run(m, s, drive{})
	happened := told()
	same(p, "stage", got.Stage, move.Done)
	same(p, "fewest ready pods", happened.Least, 2)
	same(p, "deleted pods", len(happened.Deleted), 2)
	if !complete(p.live()) {
		p.Error("the Deployment is not complete")
	}
}

// restartGetsStuck has a rollout that exceeds its progress deadline. annotated means that the template had the
// annotation before.
func restartGetsStuck(how drive, annotated bool) func(*place) {
	return func(p *place) {
		before, pods := p.deployment(1, func(d *appsv1.Deployment) {
			d.Spec.ProgressDeadlineSeconds = new(int32(3))
			if annotated {
				d.Spec.Template.Annotations = map[string]string{policy.DefaultRestartAnnotation: "2026-01-01T00:00:00Z"}
			}
		})
		p.full()
		m, s := p.planned(p.restarter(), pods[0])
		told := p.watch()
		got := p.run(m, s, how)
		happened := told()

		same(p, "stage", got.Stage, move.Undone)
		same(p, "refusal", *got.Refusal, move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartNoRoom, Message: got.Message})
		for _, words := range []string{"the restart got stuck and is taken back", "ProgressDeadlineExceeded", "nodes are available"} {
			if !strings.Contains(got.Message, words) {
				p.Errorf("message %q does not say %q", got.Message, words)
			}
		}
		p.untouched(before, pods, happened)
		same(p, "writes", p.accepted(), []string{"template, marked", "template", "marks"})
	}
}

// untouched checks that after an undone move everything is as before, and that the pods ran all the time.
func (p *place) untouched(before *appsv1.Deployment, pods []*corev1.Pod, happened watched) {
	p.Helper()
	after := p.live()
	same(p, "template", after.Spec.Template.Spec, before.Spec.Template.Spec)
	same(p, "number of template annotations", len(after.Spec.Template.Annotations), len(before.Spec.Template.Annotations))
	for key, value := range before.Spec.Template.Annotations {
		same(p, "template annotation "+key, after.Spec.Template.Annotations[key], value)
	}
	same(p, "replicas", *after.Spec.Replicas, *before.Spec.Replicas)
	for _, mark := range []string{restartUndo, surgeReplicas} {
		if after.Annotations[mark] != "" {
			p.Errorf("annotation %s is left: %s", mark, after.Annotations[mark])
		}
	}
	expect.Eventually(p, "the pods are the same as before", func() bool { return len(p.pods()) == len(pods) })
	for i, now := range p.pods() {
		same(p, "pod", []any{now.Name, now.UID, now.Spec.NodeName, cluster.IsReady(now), now.Annotations},
			[]any{pods[i].Name, pods[i].UID, pods[i].Spec.NodeName, true, pods[i].Annotations})
	}
	same(p, "fewest ready pods", happened.Least, len(pods))
	for _, gone := range happened.Deleted {
		for _, pod := range pods {
			if pod.Name == gone {
				p.Errorf("pod %s was stopped", gone)
			}
		}
	}
	expect.Eventually(p, "the Deployment is complete", func() bool { return complete(p.live()) })
}

func testRestartTakesTooLong(p *place) {
	before, pods := p.deployment(1)
	p.full()
	r := p.restarter(func(c *Config) {
		c.Policy = policy.Restart{Workloads: policy.RestartAll, Timeout: time.Minute}
	})
	m, s := p.planned(r, pods[0])
	told := p.watch()
	got := p.run(m, s, drive{late: 61 * time.Second})
	happened := told()
	same(p, "stage", got.Stage, move.Undone)
	if !strings.HasPrefix(got.Message, "the restart took more than 1m0s and is taken back: ") {
		p.Errorf("message %q", got.Message)
	}
	p.untouched(before, pods, happened)
}

func testPrecondition(p *place) {
	read, pods := p.deployment(1)
	_, s := p.planned(p.restarter(), pods[0])
	planned, err := decode(s)
	p.Must(err)
	p.patch(`{"metadata":{"labels":{"by-test":"1"}}}`)
	changed := p.live()
	for _, name := range []schemas.Method{schemas.MethodRestart, schemas.MethodSurge} {
		planned.Method = name
		if err := p.restarter().patch(p.Context(), read, firstOf(planned)); !apierrors.IsConflict(err) {
			p.Errorf("%s: error %v, want a conflict", name, err)
		}
	}
	same(p, "Deployment", p.live(), changed)
	same(p, "writes", p.writes(), []write{{"template, marked", 409}, {"replicas 2", 409}})
}

func testPlanAnew(p *place) {
	before, pods := p.deployment(1)
	m, s := p.planned(p.restarter(), pods[0])
	p.patch(`{"metadata":{"labels":{"by-test":"1"}}}`)
	progress, err := m.Step(p.Context(), s, false, time.Now())
	p.Must(err)
	same(p, "stage", progress.Stage, move.Working)
	same(p, "writes of the first step", len(p.writes()), 0)
	renewed, err := decode(progress.State)
	p.Must(err)
	same(p, "version of the plan", renewed.Version, p.live().ResourceVersion)
	same(p, "stage at the end", p.run(m, progress.State, drive{}).Stage, move.Done)
	same(p, "writes", p.accepted(), []string{"template, marked", "marks"})
	same(p, "generation", p.live().Generation, before.Generation+2)
}

func testPlanAnewSoon(p *place) {
	last := time.Now().Add(-5 * time.Minute).UTC().Format(time.RFC3339Nano)
	_, pods := p.deployment(1, func(d *appsv1.Deployment) { d.Annotations = map[string]string{restartedAt: last} })
	m, s := p.planned(p.restarter(func(c *Config) { c.Policy.AgainAlone = true }), pods[0])
	p.patch(`{"metadata":{"labels":{"by-test":"1"}}}`)
	same(p, "stage", p.run(m, s, drive{}).Stage, move.Done)
	same(p, "writes", p.accepted(), []string{"template, marked", "marks"})
}

func testStart(p *place) {
	d, pods := p.deployment(1)
	p.full()
	errSave := errors.New("the ledger is away")
	_, err := p.restarter().Start(p.Context(), pods[0], time.Now(), func(context.Context, move.Record) error { return errSave })
	if !errors.Is(err, errSave) {
		p.Errorf("error %v, want %v", err, errSave)
	}
	same(p, "Deployment", p.live(), d)
	got, saved := p.start(p.restarter(), pods[0])
	s, err := decode(got.State)
	p.Must(err)
	same(p, "phase", s.Phase, waiting)
	same(p, "progress", got, move.Progress{Method: schemas.MethodRestart, Workload: refOf(d), State: got.State, Delay: soon,
		Message: "rollout restart of deployment/" + p.namespace + "/api"})
	s.Phase = planned
	same(p, "saved", saved, []move.Record{{Method: schemas.MethodRestart, Workload: refOf(d), State: s.encode()}})
}

func testStartAgain(p *place) {
	_, pods := p.deployment(1)
	r := p.restarter(p.beforeThePatch(func() { p.patch(`{"metadata":{"labels":{"by-test":"1"}}}`) }))
	got, saved := p.start(r, pods[0])
	same(p, "stage", got.Stage, move.Working)
	same(p, "times that it was saved before a change", len(saved), 1)
	same(p, "writes of Start", p.accepted(), []string(nil))
	same(p, "stage at the end", p.run(r, got.State, drive{}).Stage, move.Done)
	same(p, "writes", p.accepted(), []string{"template, marked", "marks"})
}

// cancelTakesBack cancels a move while its replacement waits for a node.
func cancelTakesBack(method schemas.Method) func(*place) {
	return func(p *place) {
		before, pods := p.deployment(1)
		r := p.restarter()
		if method == schemas.MethodSurge {
			r = p.restarter(surger())
		}
		planned, untried := p.planned(r, pods[0])
		got, err := planned.Step(p.Context(), untried, true, time.Now())
		p.Must(err)
		const gone = "the cause of the move is gone"
		want := move.Progress{Stage: move.Undone, Message: gone,
			Refusal: &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonTakenBack, Message: gone}}
		same(p, "canceled before the first change", got, want)

		told := p.watch()
		m, s := p.begun(r, pods[0])
		got, err = m.Step(p.Context(), s, true, time.Now())
		p.Must(err)
		same(p, "stage after the cancel", got.Stage, move.Working)
		got = p.run(m, got.State, drive{stutter: true})
		same(p, "canceled", got, want)
		p.untouched(before, pods, told())
	}
}

// testCancelLate cancels a restart of two replicas whose first pod is replaced.
func testCancelLate(p *place) {
	_, pods := p.deployment(2)
	p.budget(2)
	r := p.restarter(budgeted)
	m, s := p.begun(r, pods[0])
	p.empty()
	expect.Eventually(p, "the rollout has stopped a pod", func() bool { return !stoppedNone(p.live()) })
	got, err := m.Step(p.Context(), s, true, time.Now())
	p.Must(err)
	if got.Stage == move.Working {
		got = p.run(m, got.State, drive{})
	}
	same(p, "stage", got.Stage, move.Done)
	expect.Eventually(p, "the Deployment is complete", func() bool { return complete(p.live()) })
	same(p, "writes", p.accepted(), []string{"template, marked", "marks"})
}

func testPausedAfterPlan(p *place) {
	_, pods := p.deployment(1)
	m, s := p.planned(p.restarter(), pods[0])
	p.patch(`{"metadata":{"labels":{"by-test":"1"}},"spec":{"paused":true}}`)
	expect.Eventually(p, "the pause is observed", func() bool { d := p.live(); return d.Status.ObservedGeneration >= d.Generation })
	message := "deployment " + p.namespace + "/api: spec.paused is true"
	same(p, "progress", p.run(m, s, drive{}), move.Progress{Stage: move.Released, Message: message,
		Method: schemas.MethodRestart, Refusal: &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartPaused, Message: message}})
	same(p, "number of writes", len(p.writes()), 0)
}

// testOvertaken begins two moves at the same time: both have read the Deployment before either changes it.
func testOvertaken(p *place) {
	_, pods := p.deployment(2)
	p.budget(2)
	p.full() // so that the first rollout removes no pod before the second move has read the Deployment
	first, firstState := p.planned(p.restarter(budgeted), pods[0])
	faster := func() {
		progress, err := first.Step(p.Context(), firstState, false, time.Now())
		p.Must(err)
		same(p, "stage of the first pod", progress.Stage, move.Working)
	}
	second, secondState := p.planned(p.restarter(budgeted, p.beforeThePatch(faster)), pods[1])
	progress, err := second.Step(p.Context(), secondState, false, time.Now())
	p.Must(err)
	message := progress.Message // the controller may have seen the first change by then, or not
	same(p, "progress of the second pod, which waits for the first", progress, move.Progress{Stage: move.Released, Message: message, Method: schemas.MethodRestart,
		Refusal: &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartRunning, Message: message, Wait: true}})
	same(p, "writes", p.writes(), []write{{"template, marked", 200}, {"template, marked", 409}})
}

// beforeThePatch runs f between the read of the Deployment and its first change.
func (p *place) beforeThePatch(do func()) func(*Config) {
	return func(c *Config) {
		config, once := p.c.RESTConfig(), sync.OnceFunc(do)
		clustertest.Intercept(config, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method == http.MethodPatch {
				once()
			}
			return next.RoundTrip(r)
		})
		client, err := kubernetes.NewForConfig(config)
		p.Must(err)
		c.Client = client
	}
}

// begun takes the first step of a move that will not get a replacement.
func (p *place) begun(r *Method, pod *corev1.Pod) (*Method, move.State) {
	p.Helper()
	p.full()
	more := int(replicasOf(p.live())) + 1
	m, s := p.planned(r, pod)
	progress, err := m.Step(p.Context(), s, false, time.Now())
	p.Must(err)
	same(p, "stage", progress.Stage, move.Working)
	expect.Eventually(p, "one pod more waits", func() bool { return len(p.pods()) == more })
	return m, progress.State
}

func testForeignRollout(p *place) {
	_, pods := p.deployment(1)
	m, s := p.begun(p.restarter(), pods[0])
	p.patch(`{"metadata":{"labels":{"by-test":"1"}},"spec":{"template":{"metadata":{"annotations":{"release":"2"}}}}}`)
	theirs := p.live()
	const words = "another client changed the template during the restart, and it rolls out again"
	same(p, "progress", p.run(m, s, drive{}), move.Progress{Stage: move.Undone, Message: words,
		Refusal: &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartRunning, Message: words}})
	same(p, "what they want", p.live().Spec, theirs.Spec)
	same(p, "writes", p.accepted(), []string{"template, marked", "marks"})
}

func testGitOps(p *place) {
	before, pods := p.deployment(1)
	told := p.watch()
	m, s := p.begun(p.restarter(), pods[0])
	p.patch(`{"metadata":{"labels":{"by-test":"1"}},"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":null}}}}}`)
	got := p.run(m, s, drive{})
	const words = "another client removed or changed the annotation kubectl.kubernetes.io/restartedAt during the restart; " +
		"configure a tool that restores the template to ignore it"
	same(p, "progress", got, move.Progress{Stage: move.Undone, Message: words,
		Refusal: &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartRunning, Message: words}})
	expect.Eventually(p, "the second pod is gone", func() bool { return len(p.pods()) == 1 })
	p.untouched(before, pods, told())
	same(p, "writes", p.accepted(), []string{"template, marked", "marks"})
}

func testPodGoesByItself(p *place) {
	before, pods := p.deployment(1, func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = new(int32(3)) })
	m, s := p.begun(p.restarter(), pods[0])
	p.Must(p.client.CoreV1().Pods(p.namespace).Delete(p.Context(), pods[0].Name, metav1.DeleteOptions{}))
	// The controller removes nothing while no pod is available, so there is room again once the template is the old
	// one.
	got := p.run(m, s, drive{after: func(s state, _ move.Progress) {
		if s.Refusal != nil && len(p.live().Spec.Template.Annotations) == len(before.Spec.Template.Annotations) {
			p.empty()
		}
	}})
	same(p, "stage", got.Stage, move.Done)
	same(p, "number of template annotations", len(p.live().Spec.Template.Annotations), len(before.Spec.Template.Annotations))
}

func testDeploymentDeleted(p *place) {
	_, pods := p.deployment(1)
	m, s := p.begun(p.restarter(), pods[0])
	p.Must(p.client.AppsV1().Deployments(p.namespace).Delete(p.Context(), "api", metav1.DeleteOptions{}))
	same(p, "progress", p.run(m, s, drive{}), move.Progress{Stage: move.Done})
}

func testOneAtATime(p *place) {
	_, pods := p.deployment(1)
	r := p.restarter()
	m, s := p.begun(r, pods[0])
	got, _ := p.start(r, pods[0])
	same(p, "reason during the rollout", got.Refusal.Reason, schemas.ReasonRestartRunning)
	p.empty()
	same(p, "stage", p.run(m, s, drive{}).Stage, move.Done)
	expect.Eventually(p, "the controller has seen the end of the restart", func() bool {
		d := p.live()
		return d.Status.ObservedGeneration >= d.Generation
	})
	got, _ = p.start(r, p.pods()[0])
	same(p, "reason after the rollout", got.Refusal.Reason, schemas.ReasonRestartCooldown)
}

// When the new pod is ready, the controller removes one of the old pods and ignores budgets. An eviction that the
// budget allowed at the same moment would be one too many.
func testTheOthersWait(p *place) {
	_, pods := p.deployment(2)
	p.budget(2)
	r := p.restarter(budgeted)
	m, s := p.begun(r, pods[0])
	p.Must(p.client.PolicyV1().PodDisruptionBudgets(p.namespace).DeleteCollection(p.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	other, _ := p.start(r, pods[1])
	same(p, "method", other.Method, schemas.MethodRestart)
	refusal := other.Refusal
	if refusal == nil || !refusal.Wait || refusal.Outcome != schemas.Deferred || refusal.Reason != schemas.ReasonRestartRunning {
		p.Errorf("the other pod is answered %+v, want that it waits for the restart", refusal)
	}
	p.empty()
	same(p, "stage", p.run(m, s, drive{}).Stage, move.Done)
	none, _ := p.start(r, p.pods()[0])
	same(p, "start for a pod that no budget holds after the restart", none, move.Progress{Stage: move.NotApplicable})
}

func surgeGoes(how drive) func(*place) {
	return func(p *place) {
		before, pods := p.deployment(1)
		old := pods[0]
		p.budget(1)
		p.Must(p.c.PatchNode(p.Context(), old.Spec.NodeName, `{"spec":{"unschedulable":true}}`))
		m, s := p.planned(p.restarter(surger()), old)
		planned, err := decode(s)
		p.Must(err)
		told := p.watch()
		got := p.run(m, s, how)
		happened := told()

		after, now := p.live(), p.pods()
		if len(now) != 1 {
			p.Fatalf("pods afterwards: %s", expect.Indented(now))
		}
		same(p, "progress", got, move.Progress{Stage: move.Done})
		same(p, "what happened to the pods", happened, watched{Least: 1, Names: 2, Deleted: []string{old.Name}})
		same(p, "template", after.Spec.Template, before.Spec.Template)
		same(p, "marks", marksOf(after), map[string]string{
			restartedAt: planned.value(), restartedFor: old.Name + "/" + string(old.UID)})
		// The method repeats the dry run until the budget has counted the second pod.
		same(p, "writes", p.accepted(), []string{"replicas 2", "dry eviction", "replicas 1"})
	}
}

func testSurgeOfTwo(p *place) {
	_, pods := p.deployment(2)
	p.budget(2)
	r := p.restarter(surger(func(r *policy.Restart) { r.BlockedByBudget = true }))
	old := pods[1]
	m, s := p.planned(r, old)
	told := p.watch()
	same(p, "stage", p.run(m, s, drive{}).Stage, move.Done)
	same(p, "what happened to the pods", told(), watched{Least: 2, Names: 3, Deleted: []string{old.Name}})
	same(p, "replicas", *p.live().Spec.Replicas, int32(2))
}

func testSurgeAsksTheBudget(p *place) {
	_, pods := p.deployment(1)
	m, s := p.planned(p.restarter(surger()), pods[0])
	p.budget(3) // made after the plan
	held, told := 0, p.watch()
	got := p.run(m, s, drive{after: func(state, move.Progress) {
		if !slices.Contains(p.writes(), write{"dry eviction", http.StatusTooManyRequests}) {
			return
		}
		if held++; held == 3 {
			p.Must(p.client.PolicyV1().PodDisruptionBudgets(p.namespace).Delete(p.Context(), "api", metav1.DeleteOptions{}))
		}
	}})
	same(p, "stage", got.Stage, move.Done)
	same(p, "what happened to the pods", told(), watched{Least: 1, Names: 2, Deleted: []string{pods[0].Name}})
	if held < 3 {
		p.Errorf("the budget held the pod %d times, want at least 3", held)
	}
}

func testSurgeNamesTheBudget(p *place) {
	_, pods := p.deployment(1)
	m, s := p.planned(p.restarter(surger()), pods[0])
	p.budget(3) // made after the plan
	expect.Eventually(p, "the budget holds the pod", func() bool {
		progress, err := m.Step(p.Context(), s, false, time.Now())
		p.Must(err)
		s = progress.State
		return slices.Contains(p.writes(), write{"dry eviction", http.StatusTooManyRequests})
	})
	progress, err := m.Step(p.Context(), s, false, time.Now().Add(time.Hour))
	p.Must(err)
	got, err := decode(progress.State)
	p.Must(err)
	same(p, "refusal", got.Refusal, &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartUnhealthy,
		Message: "the surge took more than 1m0s and is taken back: it has one replica more than 1 until a pod has gone; 2 of 2 are available; " +
			"the API server did not allow the eviction of the pod: Cannot evict pod as it would violate the pod's disruption budget. " +
			"The disruption budget api needs 3 healthy pods and has 2 currently"})
	p.run(m, progress.State, drive{late: time.Hour}) // either pod may go
}

func surgeTakesTooLong(how drive) func(*place) {
	return func(p *place) {
		before, pods := p.deployment(1)
		p.full()
		m, s := p.planned(p.restarter(surger()), pods[0])
		told := p.watch()
		waits := false
		how.after = func(s state, _ move.Progress) { // the time passes when the second pod waits and the first is marked
			if s.Phase != planned && !waits {
				expect.Eventually(p, "the second pod waits", func() bool { return len(p.pods()) == 2 })
				waits = true
			}
		}
		got := p.run(m, s, how)
		same(p, "stage", got.Stage, move.Undone)
		same(p, "outcome", got.Refusal.Outcome, schemas.Deferred)
		if !strings.HasPrefix(got.Message, "the surge took more than 1m0s and is taken back: ") {
			p.Errorf("message %q", got.Message)
		}
		p.untouched(before, pods, told())
		same(p, "writes", p.accepted(), []string{"replicas 2", "replicas 1"})
	}
}

func testSurgeScaledByOthers(p *place) {
	_, pods := p.deployment(1)
	m, s := p.begun(p.restarter(surger()), pods[0])
	progress, err := m.Step(p.Context(), s, false, time.Now())
	p.Must(err)
	expect.Eventually(p, "the pod is marked", func() bool { return p.marked(pods[0].Name) })
	p.patch(`{"metadata":{"labels":{"by-test":"1"}},"spec":{"replicas":4}}`)
	const words = "another client scaled the Deployment to 4 replicas during the surge from 1 to 2"
	same(p, "progress", p.run(m, progress.State, drive{}), move.Progress{Stage: move.Undone, Message: words,
		Refusal: &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartRunning, Message: words}})
	same(p, "replicas", *p.live().Spec.Replicas, int32(4))
	same(p, "mark of the surge", p.live().Annotations[surgeReplicas], "")
	same(p, "mark of the pod", p.marked(pods[0].Name), false)
	same(p, "writes", p.accepted(), []string{"replicas 2", "marks"})
}

// marked reports whether the pod is the first that its ReplicaSet removes.
func (p *place) marked(name string) bool {
	p.Helper()
	pod, err := p.client.CoreV1().Pods(p.namespace).Get(p.Context(), name, metav1.GetOptions{})
	p.Must(err)
	return pod.Annotations[corev1.PodDeletionCost] == cheapest
}

func testRestartAtRandom(p *place) {
	_, pods := p.deployment(1)
	m, s := p.planned(p.restarter(), pods[0])
	told := p.watch()
	same(p, "stage", p.run(m, s, drive{random: randtest.New(p)}).Stage, move.Done)
	same(p, "what happened to the pods", told(), watched{Least: 1, Names: 2, Deleted: []string{pods[0].Name}})
	same(p, "writes", p.accepted(), []string{"template, marked", "marks"})
}

func testStuckAtRandom(p *place) {
	before, pods := p.deployment(1, func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = new(int32(3)) })
	p.full()
	m, s := p.planned(p.restarter(), pods[0])
	told := p.watch()
	got := p.run(m, s, drive{random: randtest.New(p)})
	same(p, "stage and reason", []any{got.Stage, got.Refusal.Reason}, []any{move.Undone, schemas.ReasonRestartNoRoom})
	p.untouched(before, pods, told())
	same(p, "writes", p.accepted(), []string{"template, marked", "template", "marks"})
}

func testSurgeAtRandom(p *place) {
	_, pods := p.deployment(1)
	m, s := p.planned(p.restarter(surger()), pods[0])
	told := p.watch()
	same(p, "stage", p.run(m, s, drive{random: randtest.New(p)}).Stage, move.Done)
	same(p, "what happened to the pods", told(), watched{Least: 1, Names: 2, Deleted: []string{pods[0].Name}})
	changes := slices.DeleteFunc(p.accepted(), func(what string) bool { return what == "dry eviction" })
	same(p, "writes", changes, []string{"replicas 2", "replicas 1"})
}

// scale creates an autoscaler without metrics, which only keeps its minimum and maximum.
func (p *place) scale(name, version, kind, target string) {
	p.Helper()
	a := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: name}}
	a.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: version, Kind: kind, Name: target}
	a.Spec.MinReplicas, a.Spec.MaxReplicas = new(int32(1)), 3
	_, err := p.client.AutoscalingV2().HorizontalPodAutoscalers(p.namespace).Create(p.Context(), a, metav1.CreateOptions{})
	p.Must(err)
}

// An autoscaler would remove the replica of a surge.
func testScaled(p *place) {
	_, pods := p.deployment(1)
	r := p.restarter(surger())
	method := func() schemas.Method {
		_, record := p.ask(r, pods[0])
		return record.Method
	}
	same(p, "method without an autoscaler", method(), schemas.MethodSurge)
	p.scale("another", "apps/v1", "Deployment", "web")
	p.scale("set", "apps/v1", "StatefulSet", "api")
	p.scale("group", "example.com/v1", "Deployment", "api")
	same(p, "method with autoscalers of others", method(), schemas.MethodSurge)
	p.scale("api", "apps/v1", "Deployment", "api")
	same(p, "method with an autoscaler", method(), schemas.MethodRestart)
	m, s := p.planned(r, pods[0])
	same(p, "stage", p.run(m, s, drive{}).Stage, move.Done)
	same(p, "writes", p.accepted(), []string{"template, marked", "marks"})
}

func testDryRun(p *place) {
	before, pods := p.deployment(1)
	for words, r := range map[string]*Method{
		"rollout restart of":   p.restarter(func(c *Config) { c.DryRun = true }),
		"one replica more for": p.restarter(surger(), func(c *Config) { c.DryRun = true }),
	} {
		m, s := p.planned(r, pods[0])
		same(p, words, p.run(m, s, drive{}), move.Progress{Stage: move.Done})
	}
	same(p, "Deployment", p.live(), before)
	same(p, "pods", p.pods(), pods)
	same(p, "number of writes, all dry", len(p.writes()), 2)
}

func testFor(p *place) {
	d, pods := p.deployment(1)
	ref := &schemas.ObjectRef{Kind: "Deployment", Namespace: p.namespace, Name: "api", UID: d.UID}
	changed := func(change func(*corev1.Pod)) *corev1.Pod {
		pod := pods[0].DeepCopy()
		change(pod)
		return pod
	}
	type answer struct {
		Method schemas.Method
		Ref    *schemas.ObjectRef
	}
	ask := func(what string, pod *corev1.Pod, want answer, change ...func(*Config)) {
		p.Helper()
		r := p.restarter(change...)
		c, err := r.find(p.Context(), pod, r.cfg.Policy, time.Now())
		p.Must(err)
		var got answer
		if c != nil {
			got = answer{c.Method, refOf(c.Deployment)}
		}
		same(p, what, got, want)
	}
	taking := answer{schemas.MethodRestart, ref}
	ask("a pod of a Deployment", pods[0], taking)
	ask("switched off", pods[0], answer{}, func(c *Config) { c.Policy = policy.Restart{} })
	ask("no owner", changed(func(pod *corev1.Pod) { pod.OwnerReferences = nil }), answer{})
	ask("an owner that does not control it", changed(func(pod *corev1.Pod) { pod.OwnerReferences[0].Controller = nil }), answer{})
	ask("a missing ReplicaSet", changed(func(pod *corev1.Pod) { pod.OwnerReferences[0].Name = "none" }), answer{})
	ask("a recreated ReplicaSet", changed(func(pod *corev1.Pod) { pod.OwnerReferences[0].UID = "before" }), answer{})
	ask("a pod that has ended", changed(func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }), answer{})

	annotated := func(c *Config) {
		c.Policy = policy.Restart{Workloads: policy.RestartAnnotated}
	}
	ask("not annotated", pods[0], answer{}, annotated)
	_, err := p.client.CoreV1().Namespaces().Patch(p.Context(), p.namespace, "application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"rehome.dev/restart":"surge"}}}`), metav1.PatchOptions{})
	p.Must(err)
	ask("the namespace is annotated", pods[0], answer{schemas.MethodSurge, ref}, annotated)
	p.patch(`{"metadata":{"labels":{"by-test":"1"},"annotations":{"rehome.dev/restart":"true"}}}`)
	ask("the Deployment is annotated", pods[0], taking, annotated)
	p.patch(`{"metadata":{"labels":{"by-test":"1"},"annotations":{"rehome.dev/restart":"false"}}}`)
	ask("the Deployment does not take part", pods[0], answer{}, annotated)
	ask("neither if all others do", pods[0], answer{})
	p.patch(`{"metadata":{"labels":{"by-test":"1"},"annotations":{"rehome.dev/restart":"restart"}},"spec":{"replicas":2}}`)
	p.Must(p.c.WaitReady(p.Context(), p.namespace, "api"))
	ask("two replicas", pods[0], answer{})
	ask("two replicas without a budget", pods[0], answer{}, budgeted)
	p.budget(2)
	ask("two replicas that a budget holds", pods[0], taking, budgeted)
	ask("two replicas that a budget holds, where that does not count", pods[0], answer{})

	orphans := metav1.DeletePropagationOrphan
	p.Must(p.client.AppsV1().Deployments(p.namespace).Delete(p.Context(), "api", metav1.DeleteOptions{PropagationPolicy: &orphans}))
	expect.Eventually(p, "the Deployment is gone", func() bool {
		_, err := p.client.AppsV1().Deployments(p.namespace).Get(p.Context(), "api", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	ask("a deleted Deployment", pods[0], answer{})

	ctx, cancel := context.WithCancel(p.Context())
	cancel()
	if _, err := p.restarter().Start(ctx, pods[0], time.Now(), nil); !errors.Is(err, context.Canceled) {
		p.Errorf("asked in vain: error %v, want one that wraps context.Canceled", err)
	}
}

func testRefusals(p *place) {
	volume, err := p.c.AddClaim(p.Context(), p.namespace, "data", corev1.ReadWriteOnce)
	p.Must(err)
	refused := func(what string, pod *corev1.Pod, reason schemas.ReasonCode, words string, change ...func(*Config)) {
		p.Helper()
		got, _ := p.ask(p.restarter(change...), pod)
		refusal := got.Refusal
		if refusal == nil || refusal.Reason != reason || !strings.Contains(refusal.Message, words) {
			p.Errorf("%s: refusal %+v, want %s with %q", what, refusal, reason, words)
		}
	}
	_, pods := p.deployment(1, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Volumes = []corev1.Volume{volume}
	})
	refused("a volume of one node", pods[0], schemas.ReasonRestartVolume, "the PersistentVolumeClaim data is ReadWriteOnce")

	p.patch(`{"metadata":{"labels":{"by-test":"1"}},"spec":{"template":{"spec":{"volumes":null}}}}`)
	p.Must(p.c.WaitReady(p.Context(), p.namespace, "api"))
	expect.Eventually(p, "the Deployment is complete", func() bool { return complete(p.live()) && len(p.pods()) == 1 })
	pod := p.pods()[0]
	refused("no room", pod, schemas.ReasonRestartNoRoom, "not for "+pod.Name, func(c *Config) {
		c.Elsewhere = func(pod *corev1.Pod) (bool, string) { return false, "not for " + pod.Name }
	})
	p.budget(5)
	refused("a budget", pod, schemas.ReasonDisruptionBudget, "one replica more does not make poddisruptionbudget api allow", surger())
}

// testEnoughRights has a user with exactly the rights in the comment of Config.Client, and one without the rights for
// surges.
func testEnoughRights(p *place) {
	right := func(group, kinds, verbs string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: strings.Fields(kinds), Verbs: strings.Fields(verbs)}
	}
	rights := []rbacv1.PolicyRule{
		right("apps", "deployments", "get patch"), right("apps", "replicasets", "get"),
		right("", "pods", "get list"), right("", "namespaces persistentvolumeclaims", "get"),
		right("policy", "poddisruptionbudgets", "list"),
	}
	p.Must(p.c.Grant(p.Context(), cluster.UserSubject(restartUser), "", rights...))
	p.Must(p.c.Grant(p.Context(), cluster.UserSubject(surgeUser), "", append(rights, right("autoscaling", "horizontalpodautoscalers", "list"),
		right("", "pods", "patch"), right("", "pods/eviction", "create"))...))
	p.deployment(1)
	soonEnough := func(r *policy.Restart) { r.Cooldown = time.Nanosecond }
	for user, r := range map[string]*Method{
		restartUser: p.restarter(func(c *Config) {
			c.Client = clustertest.As(p, p.c, restartUser)
			c.Policy = policy.Restart{Workloads: policy.RestartAll, Cooldown: time.Nanosecond}
		}),
		surgeUser: p.restarter(surger(soonEnough), func(c *Config) { c.Client = clustertest.As(p, p.c, surgeUser) }),
	} {
		expect.Eventually(p, "the Deployment is complete", func() bool { return complete(p.live()) })
		pod := p.pods()[0]
		expect.Eventually(p, "the rights are known", func() bool { got, _ := p.ask(r, pod); return got.Refusal == nil })
		m, s := p.planned(r, pod)
		same(p, "stage of the move by "+user, p.run(m, s, drive{}).Stage, move.Done)
	}
}

func testRights(p *place) {
	_, pods := p.deployment(1)
	got, record := p.ask(p.restarter(func(c *Config) { c.Client = clustertest.As(p, p.c, nobody) }), pods[0])
	message := "look at replicaset " + p.namespace + "/" + pods[0].OwnerReferences[0].Name + `: replicasets.apps "` +
		pods[0].OwnerReferences[0].Name + `" is forbidden: User "nobody" cannot get resource "replicasets" in API group "apps" ` +
		`in the namespace "` + p.namespace + `"`
	same(p, "start without a right", got, move.Refused(schemas.MethodRestart,
		&move.Refusal{Outcome: schemas.Failed, Reason: schemas.ReasonForbidden, Message: message}))
	same(p, "saved without a right", record, move.Record{})
	p.Must(p.c.Bind(p.Context(), cluster.UserSubject(looker), "", "view"))
	r := p.restarter(func(c *Config) { c.Client = clustertest.As(p, p.c, looker) })
	expect.Eventually(p, "the right to look is known", func() bool {
		got, _ = p.ask(r, pods[0])
		return got.Refusal == nil
	})
	got, _ = p.start(r, pods[0])
	same(p, "stage and refusal", []any{got.Stage, got.Refusal.Outcome, got.Refusal.Reason},
		[]any{move.Released, schemas.Failed, schemas.ReasonForbidden})
}

func testRightsLater(p *place) {
	before, pods := p.deployment(1)
	patch := rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"patch"}}
	p.Must(p.c.Grant(p.Context(), cluster.UserSubject(costless), "", patch))
	p.Must(p.c.Bind(p.Context(), cluster.UserSubject(costless), p.namespace, "view"))
	r := p.restarter(surger(), func(c *Config) { c.Client = clustertest.As(p, p.c, costless) })
	expect.Eventually(p, "the rights are known", func() bool {
		got, record := p.ask(r, pods[0])
		return got.Refusal == nil && record.Method == schemas.MethodSurge
	})
	told := p.watch()
	m, s := p.begun(r, pods[0])
	got := p.run(m, s, drive{})
	same(p, "stage and reason", []any{got.Stage, got.Refusal.Reason}, []any{move.Undone, schemas.ReasonForbidden})
	if !strings.Contains(got.Message, `cannot patch resource "pods"`) {
		p.Errorf("message %q does not name the right", got.Message)
	}
	p.untouched(before, pods, told())
}

func TestStateRoundTrip(t *testing.T) {
	c := aCandidate(schemas.MethodRestart)
	c.Deployment.Spec.Template.Annotations = map[string]string{policy.DefaultRestartAnnotation: "before"}
	c.Policy.AgainAlone = true
	s := fresh(c)
	s.Refusal = refusal(schemas.Deferred, schemas.ReasonRestartNoRoom, "full")
	got, err := decode(s.encode())
	expect.Must(t, err)
	same(t, "state", got, s)
}
