package e2e

import (
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

func TestRequests(t *testing.T) {
	for _, c := range []struct {
		name  string
		scene func(*testing.T)
	}{
		{"pods requested by name, workload, labels and node move in one chain", askedInEveryWay},
		{"a protected pod is named and stays, unless who asks may override what protects it", protectedUnlessOverridden},
		{"pods of a canceled request stay", cancelledRequests},
		{"a request behind a budget survives a kill, and its pods are the same", requestsSurvive},
		{"a request for a restart makes a replacement first, a request for an eviction does not", requestsChooseTheMethod},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.scene(t)
		})
	}
}

// asks is a scene with a sender of requests.
type asks struct {
	*scene
	bus     *bus.Bus
	events  *recording
	running *process
	file    string
	store   string
}

// asking starts rehome with a policy, and connects the sender.
func (s *scene) asking(file string) *asks {
	s.t.Helper()
	a := &asks{scene: s, file: file, store: filetest.ShortDir(s.t)}
	a.running = s.rehome(file, a.store)
	a.running.leads()
	a.events = record(s.t, at(a.store))
	o := at(a.store)
	o.Name, o.Log = "asker", slog.New(slog.DiscardHandler)
	b, err := bus.Connect(o)
	s.t.Must(err)
	s.t.Cleanup(b.Close)
	a.bus = b
	expect.EventuallyWithState(s.t, "the sender is connected", func() (bool, string) { err := b.Ready(); return err == nil, fmt.Sprint(err) })
	return a
}

// ask publishes a request, and returns its event.
func (a *asks) ask(r schemas.Request) schemas.Event {
	a.t.Helper()
	if r.Reason == "" {
		r.Reason = "the scene wants it"
	}
	e := schematest.Event(a.t, "/scene/"+r.Sender, r, time.Now(), schemas.Event{})
	_, err := a.bus.Publish(a.t.Context(), e)
	a.t.Must(err)
	return e
}

// move requests the move of a target as admin.
func (a *asks) move(name string, target schemas.Target, change ...func(*schemas.Request)) schemas.Event {
	a.t.Helper()
	r := schemas.Request{Sender: policy.AdminSender, Name: name, Action: schemas.ActionDeschedule, Target: &target}
	for _, c := range change {
		c(&r)
	}
	return a.ask(r)
}

// receipt waits for the receipt of a request in a state, and checks that it belongs to the chain of the request.
func (a *asks) receipt(request schemas.Event, state schemas.ReceiptState) schemas.Receipt {
	a.t.Helper()
	var found schemas.Receipt
	expect.EventuallyWithState(a.t, fmt.Sprintf("%s is %s", request.Subject, state), func() (bool, string) {
		var seen []string
		for _, e := range a.events.all() {
			r, err := schemas.Decode[schemas.Receipt](e)
			if err != nil || e.CausationID != request.ID {
				continue
			}
			seen = append(seen, fmt.Sprint(r.State, " ", r.Reason, ": ", r.Message))
			if r.State == state {
				found = r
				return true, ""
			}
		}
		return false, fmt.Sprint(seen, summary(a.events.verdicts()))
	})
	return found
}

// chained checks that all events about these pods belong to the chain of the request.
func (a *asks) chained(request schemas.Event, pods map[types.UID]string) {
	a.t.Helper()
	for _, e := range a.events.all() {
		v, err := schemas.Decode[schemas.Verdict](e)
		if err == nil && pods[v.Intent.Pod.UID] != "" && e.CorrelationID != request.ID {
			a.t.Errorf("verdict %s on %s correlates with %s, want %s", v.Outcome, v.Intent.Pod, e.CorrelationID, request.ID)
		}
	}
}

func (a *asks) of(deployment string) map[types.UID]string {
	a.t.Helper()
	pods := map[types.UID]string{}
	for _, p := range a.podsOf(deployment) {
		pods[p.UID] = p.Name
	}
	return pods
}

// ended is the result of a request in a receipt.
func ended(r schemas.Receipt) string {
	text := fmt.Sprintf("%s, %d gone", r.Reason, r.Gone)
	for _, p := range r.Remaining {
		text += fmt.Sprintf(", %s %s", p.Outcome, p.Reason)
	}
	return text
}

func (a *asks) ends(request schemas.Event, want string) {
	a.t.Helper()
	if got := ended(a.receipt(request, schemas.RequestFinished)); got != want {
		a.t.Errorf("%s ended with %q, want %q", request.Subject, got, want)
	}
}

func askedInEveryWay(t *testing.T) {
	s := newScene(t, 1)
	for _, name := range []string{"byname", "byworkload", "bylabel", "bynode"} {
		s.deployment(name, 2)
	}
	s.addNodes(2)
	a := s.asking(s.enable("PodLifeTime", []string{"{name: PodLifeTime, args: {maxPodLifeTimeSeconds: 86400}}"}))
	node := s.nodes[0]
	s.cordon(node, true) // nothing comes back
	names := []schemas.PodTarget{{Namespace: s.namespace, Name: "nobody"}}
	for _, p := range s.podsOf("byname") {
		names = append(names, schemas.PodTarget{Namespace: s.namespace, Name: p.Name, UID: p.UID})
	}
	all := map[types.UID]string{}
	for _, c := range []struct {
		deployment string
		target     schemas.Target
	}{
		{"byname", schemas.Target{Pods: names}},
		{"byworkload", schemas.Target{Workload: &schemas.WorkloadTarget{Kind: "Deployment", Namespace: s.namespace, Name: "byworkload"}}},
		{"bylabel", schemas.Target{Selector: &schemas.SelectorTarget{Namespace: s.namespace, Labels: "app=bylabel"}}},
		{"bynode", schemas.Target{Node: node}},
	} {
		pods := a.of(c.deployment)
		request := a.move(c.deployment, c.target)
		accepted := a.receipt(request, schemas.RequestAccepted)
		got := map[types.UID]string{}
		for _, p := range accepted.Pods {
			got[p.Pod.UID] = p.Pod.Name
		}
		if !reflect.DeepEqual(got, pods) || (len(accepted.Missing) == 1) != (c.deployment == "byname") {
			t.Errorf("%s: the receipt lists %v, missing %v, want %v", c.deployment, got, accepted.Missing, pods)
		}
		a.ends(request, fmt.Sprintf("Done, %d gone", len(pods)))
		a.chained(request, pods)
		s.ready(c.deployment)
		maps.Copy(all, pods)
	}
	s.evictedOnce(all)
	unknown := a.move("unknown", schemas.Target{Node: "nowhere"})
	if got := a.receipt(unknown, schemas.RequestRejected).Reason; got != schemas.ReceiptUnknownTarget {
		t.Errorf("missing node: rejected as %s, want UnknownTarget", got)
	}
}

func withEmptyDir(p *corev1.PodTemplateSpec) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
		Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
	})
}

func protectedUnlessOverridden(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("scratch", 1, withEmptyDir)
	a := s.asking(s.policy("requests: {senders: [{name: admin}, {name: boss, override: [PodsWithLocalStorage]}]}"))
	pods := a.of("scratch")
	target := schemas.Target{Workload: &schemas.WorkloadTarget{Kind: "Deployment", Namespace: s.namespace, Name: "scratch"}}
	override := func(r *schemas.Request) { r.Override = []string{policy.PodsWithLocalStorage} }

	stays := a.move("stays", target)
	accepted := a.receipt(stays, schemas.RequestAccepted)
	want := []schemas.Protection{{Rule: policy.PodsWithLocalStorage, Detail: "its volume scratch is an emptyDir"}}
	if len(accepted.Pods) != 1 || !reflect.DeepEqual(accepted.Pods[0].Protected, want) {
		t.Errorf("the receipt lists %+v, want one pod protected by %v", accepted.Pods, want)
	}
	a.ends(stays, "NothingToDo, 0 gone, rejected Protected")

	refused := a.move("refused", target, override)
	if got := a.receipt(refused, schemas.RequestRejected); got.Reason != schemas.ReceiptNotAllowed {
		t.Errorf("without the right: %s: %s, want NotAllowed", got.Reason, got.Message)
	}
	s.moved(0, 0)

	moves := a.move("moves", target, override, func(r *schemas.Request) { r.Sender = "boss" })
	a.ends(moves, "Done, 1 gone")
	s.evictedOnce(pods)
}

// held is a Deployment whose budget allows no disruption.
func held(t *testing.T) (a *asks, pods map[types.UID]string, target schemas.Target) {
	t.Helper()
	s := newScene(t, 2)
	s.deployment("api", 2)
	s.budget("keep", "api", 2)
	a = s.asking(s.policy())
	return a, a.of("api"), schemas.Target{Workload: &schemas.WorkloadTarget{Kind: "Deployment", Namespace: s.namespace, Name: "api"}}
}

// isHeld waits until the budget has blocked that many pods.
func (a *asks) isHeld(n int) {
	a.t.Helper()
	a.events.until("the budget holds the pods", func(v []schemas.Verdict) bool {
		uids := map[types.UID]bool{}
		for _, d := range of(schemas.Deferred, v) {
			uids[d.Intent.Pod.UID] = uids[d.Intent.Pod.UID] || d.Reason == schemas.ReasonDisruptionBudget
		}
		return len(uids) >= n
	})
}

func cancelledRequests(t *testing.T) {
	a, pods, target := held(t)
	request := a.move("drain", target)
	a.isHeld(len(pods))
	cancel := a.ask(schemas.Request{Sender: policy.AdminSender, Name: "stop", Action: schemas.ActionCancel, Request: "drain"})
	a.ends(cancel, "Done, 0 gone")
	a.ends(request, "Cancelled, 0 gone, deferred DisruptionBudget, deferred DisruptionBudget")
	a.changeBudget("keep", 0)
	a.moved(0, 0)
	again := a.ask(schemas.Request{Sender: policy.AdminSender, Name: "again", Action: schemas.ActionCancel, Request: "drain"})
	a.ends(again, "NothingToDo, 0 gone")
}

func requestsSurvive(t *testing.T) {
	a, pods, target := held(t)
	request := a.move("drain", target)
	a.isHeld(len(pods))
	a.moved(0, 0)
	a.running.Kill()
	a.scene.rehome(a.file, a.store).leads()
	a.changeBudget("keep", 1)
	a.ends(request, "Done, 2 gone")
	a.chained(request, pods)
	a.evictedOnce(pods)
	var states []schemas.ReceiptState
	for _, r := range payloads[schemas.Receipt](a.events) {
		states = append(states, r.State)
	}
	if want := []schemas.ReceiptState{schemas.RequestAccepted, schemas.RequestFinished}; !slices.Equal(states, want) {
		t.Errorf("receipts %v, want %v", states, want)
	}
}

func requestsChooseTheMethod(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("api", 1)
	// The policy does not mention restarts, and its strategy ignores that a node is cordoned.
	a := s.asking(s.enable("PodLifeTime", []string{"{name: PodLifeTime, args: {maxPodLifeTimeSeconds: 86400}}"}))
	target := schemas.Target{Workload: &schemas.WorkloadTarget{Kind: "Deployment", Namespace: s.namespace, Name: "api"}}
	var methods []schemas.Method
	for _, method := range []schemas.RequestMethod{schemas.UseRestart, schemas.UseEvict} {
		from := s.podsOf("api")[0].Spec.NodeName
		s.cordon(from, true) // otherwise the pod may return, and the workload circuit breaker blocks the next move
		request := a.move("by-"+string(method), target, func(r *schemas.Request) { r.Method = method })
		a.ends(request, "Done, 1 gone")
		s.ready("api")
		s.cordon(from, false)
	}
	for _, v := range a.events.verdicts() {
		if v.Outcome.Moves() {
			methods = append(methods, v.Method)
		}
	}
	if want := []schemas.Method{schemas.MethodRestart, schemas.MethodEviction}; !slices.Equal(methods, want) {
		t.Errorf("moved by %v, want %v", methods, want)
	}
	s.moved(0, 1)
}
