package requests

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
	"github.com/rehome-dev/rehome/test/kit/scene"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

func TestRequests(t *testing.T) {
	for _, c := range []struct {
		name string
		play func(*testing.T)
	}{
		{"pods requested by name, workload, labels and node move in one chain", everyTarget},
		{"a protected pod stays unless the sender may override the rule", protectedUnlessOverridden},
		{"pods of a canceled request stay", cancelledRequests},
		{"a request behind a budget survives a kill, and its pods are the same", requestsSurvive},
		{"a request for a restart makes a replacement first, a request for an eviction does not", requestsChooseTheMethod},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.play(t)
		})
	}
}

// sender is a scene with a sender of requests.
type sender struct {
	*scene.Scene
	bus     *bus.Bus
	events  *scene.Recording
	process *scene.Process
	file    string
	store   string
}

// newSender starts rehome with a policy, and connects the sender.
func newSender(s *scene.Scene, file string) *sender {
	s.T.Helper()
	a := &sender{Scene: s, file: file, store: filetest.ShortDir(s.T)}
	a.process = s.StartRun(file, a.store)
	a.process.WaitLeads()
	a.events = scene.Record(s.T, scene.BusIn(a.store))
	o := scene.BusIn(a.store)
	o.Name, o.Log = "sender", slog.New(slog.DiscardHandler)
	b, err := bus.Connect(o)
	s.T.Must(err)
	s.T.Cleanup(b.Close)
	a.bus = b
	expect.EventuallyWithState(s.T, "the sender is connected", func() (bool, string) { err := b.Ready(); return err == nil, fmt.Sprint(err) })
	return a
}

// send publishes a request, and returns its event.
func (a *sender) send(r schemas.Request) schemas.Event {
	a.T.Helper()
	if r.Reason == "" {
		r.Reason = "the scene wants it"
	}
	e := schematest.Event(a.T, "/scene/"+r.Sender, r, time.Now(), schemas.Event{})
	_, err := a.bus.Publish(a.T.Context(), e)
	a.T.Must(err)
	return e
}

// move requests the move of a target as admin.
func (a *sender) move(name string, target schemas.Target, change ...func(*schemas.Request)) schemas.Event {
	a.T.Helper()
	r := schemas.Request{Sender: policy.AdminSender, Name: name, Action: schemas.ActionDeschedule, Target: &target}
	for _, c := range change {
		c(&r)
	}
	return a.send(r)
}

// waitReceipt waits for the receipt of a request in a state, and checks that it belongs to the chain of the request.
func (a *sender) waitReceipt(request schemas.Event, state schemas.ReceiptState) schemas.Receipt {
	a.T.Helper()
	var found schemas.Receipt
	expect.EventuallyWithState(a.T, fmt.Sprintf("%s is %s", request.Subject, state), func() (bool, string) {
		var seen []string
		for _, e := range a.events.All() {
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
		return false, fmt.Sprint(seen, scene.Summary(a.events.Verdicts()))
	})
	return found
}

// checkChain checks that all events about these pods belong to the chain of the request.
func (a *sender) checkChain(request schemas.Event, pods map[types.UID]string) {
	a.T.Helper()
	for _, e := range a.events.All() {
		v, err := schemas.Decode[schemas.Verdict](e)
		if err == nil && pods[v.Intent.Pod.UID] != "" && e.CorrelationID != request.ID {
			a.T.Errorf("verdict %s on %s correlates with %s, want %s", v.Outcome, v.Intent.Pod, e.CorrelationID, request.ID)
		}
	}
}

func (a *sender) pods(deployment string) map[types.UID]string {
	a.T.Helper()
	pods := map[types.UID]string{}
	for _, p := range a.PodsOf(deployment) {
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

func (a *sender) checkEnd(request schemas.Event, want string) {
	a.T.Helper()
	if got := ended(a.waitReceipt(request, schemas.RequestFinished)); got != want {
		a.T.Errorf("%s ended with %q, want %q", request.Subject, got, want)
	}
}

func everyTarget(t *testing.T) {
	s := scene.New(t, 1)
	for _, name := range []string{"byname", "byworkload", "bylabel", "bynode"} {
		s.AddDeployment(name, 2)
	}
	s.AddNodes(2)
	a := newSender(s, s.DeschedulePolicy("PodLifeTime", []string{"{name: PodLifeTime, args: {maxPodLifeTimeSeconds: 86400}}"}))
	node := s.Nodes[0]
	s.Cordon(node, true) // nothing comes back
	names := []schemas.PodTarget{{Namespace: s.Namespace, Name: "nobody"}}
	for _, p := range s.PodsOf("byname") {
		names = append(names, schemas.PodTarget{Namespace: s.Namespace, Name: p.Name, UID: p.UID})
	}
	all := map[types.UID]string{}
	for _, c := range []struct {
		deployment string
		target     schemas.Target
	}{
		{"byname", schemas.Target{Pods: names}},
		{"byworkload", schemas.Target{Workload: &schemas.WorkloadTarget{Kind: "Deployment", Namespace: s.Namespace, Name: "byworkload"}}},
		{"bylabel", schemas.Target{Selector: &schemas.SelectorTarget{Namespace: s.Namespace, Labels: "app=bylabel"}}},
		{"bynode", schemas.Target{Node: node}},
	} {
		pods := a.pods(c.deployment)
		request := a.move(c.deployment, c.target)
		accepted := a.waitReceipt(request, schemas.RequestAccepted)
		got := map[types.UID]string{}
		for _, p := range accepted.Pods {
			got[p.Pod.UID] = p.Pod.Name
		}
		if !reflect.DeepEqual(got, pods) || (len(accepted.Missing) == 1) != (c.deployment == "byname") {
			t.Errorf("%s: the receipt lists %v, missing %v, want %v", c.deployment, got, accepted.Missing, pods)
		}
		a.checkEnd(request, fmt.Sprintf("Done, %d gone", len(pods)))
		a.checkChain(request, pods)
		s.WaitReady(c.deployment)
		maps.Copy(all, pods)
	}
	s.CheckEvictedOnce(all)
	unknown := a.move("unknown", schemas.Target{Node: "nowhere"})
	if got := a.waitReceipt(unknown, schemas.RequestRejected).Reason; got != schemas.ReceiptUnknownTarget {
		t.Errorf("missing node: rejected as %s, want UnknownTarget", got)
	}
}

func withEmptyDir(p *corev1.PodTemplateSpec) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
		Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
	})
}

func protectedUnlessOverridden(t *testing.T) {
	s := scene.New(t, 2)
	s.AddDeployment("scratch", 1, withEmptyDir)
	a := newSender(s, s.Policy("requests: {senders: [{name: admin}, {name: boss, override: [PodsWithLocalStorage]}]}"))
	pods := a.pods("scratch")
	target := schemas.Target{Workload: &schemas.WorkloadTarget{Kind: "Deployment", Namespace: s.Namespace, Name: "scratch"}}
	override := func(r *schemas.Request) { r.Override = []string{policy.PodsWithLocalStorage} }

	stays := a.move("stays", target)
	accepted := a.waitReceipt(stays, schemas.RequestAccepted)
	want := []schemas.Protection{{Rule: policy.PodsWithLocalStorage, Detail: "its volume scratch is an emptyDir"}}
	if len(accepted.Pods) != 1 || !reflect.DeepEqual(accepted.Pods[0].Protected, want) {
		t.Errorf("the receipt lists %+v, want one pod protected by %v", accepted.Pods, want)
	}
	a.checkEnd(stays, "NothingToDo, 0 gone, rejected Protected")

	refused := a.move("refused", target, override)
	if got := a.waitReceipt(refused, schemas.RequestRejected); got.Reason != schemas.ReceiptNotAllowed {
		t.Errorf("without the right: %s: %s, want NotAllowed", got.Reason, got.Message)
	}
	s.CheckMoved(0, 0)

	moves := a.move("moves", target, override, func(r *schemas.Request) { r.Sender = "boss" })
	a.checkEnd(moves, "Done, 1 gone")
	s.CheckEvictedOnce(pods)
}

// held is a Deployment whose budget allows no disruption.
func held(t *testing.T) (a *sender, pods map[types.UID]string, target schemas.Target) {
	t.Helper()
	s := scene.New(t, 2)
	s.AddDeployment("api", 2)
	s.AddBudget("keep", "api", 2)
	a = newSender(s, s.Policy())
	return a, a.pods("api"), schemas.Target{Workload: &schemas.WorkloadTarget{Kind: "Deployment", Namespace: s.Namespace, Name: "api"}}
}

// waitHeld waits until the budget has blocked that many pods.
func (a *sender) waitHeld(n int) {
	a.T.Helper()
	a.events.WaitVerdicts("the budget holds the pods", func(v []schemas.Verdict) bool {
		uids := map[types.UID]bool{}
		for _, d := range scene.WithOutcome(schemas.Deferred, v) {
			uids[d.Intent.Pod.UID] = uids[d.Intent.Pod.UID] || d.Reason == schemas.ReasonDisruptionBudget
		}
		return len(uids) >= n
	})
}

func cancelledRequests(t *testing.T) {
	a, pods, target := held(t)
	request := a.move("drain", target)
	a.waitHeld(len(pods))
	cancel := a.send(schemas.Request{Sender: policy.AdminSender, Name: "stop", Action: schemas.ActionCancel, Request: "drain"})
	a.checkEnd(cancel, "Done, 0 gone")
	a.checkEnd(request, "Cancelled, 0 gone, deferred DisruptionBudget, deferred DisruptionBudget")
	a.ChangeBudget("keep", 0)
	a.CheckMoved(0, 0)
	again := a.send(schemas.Request{Sender: policy.AdminSender, Name: "again", Action: schemas.ActionCancel, Request: "drain"})
	a.checkEnd(again, "NothingToDo, 0 gone")
}

func requestsSurvive(t *testing.T) {
	a, pods, target := held(t)
	request := a.move("drain", target)
	a.waitHeld(len(pods))
	a.CheckMoved(0, 0)
	a.process.Kill()
	a.Scene.StartRun(a.file, a.store).WaitLeads()
	a.ChangeBudget("keep", 1)
	a.checkEnd(request, "Done, 2 gone")
	a.checkChain(request, pods)
	a.CheckEvictedOnce(pods)
	var states []schemas.ReceiptState
	for _, r := range scene.Payloads[schemas.Receipt](a.events) {
		states = append(states, r.State)
	}
	if want := []schemas.ReceiptState{schemas.RequestAccepted, schemas.RequestFinished}; !slices.Equal(states, want) {
		t.Errorf("receipts %v, want %v", states, want)
	}
}

func requestsChooseTheMethod(t *testing.T) {
	s := scene.New(t, 2)
	s.AddDeployment("api", 1)
	// The policy does not mention restarts, and its strategy ignores that a node is cordoned.
	a := newSender(s, s.DeschedulePolicy("PodLifeTime", []string{"{name: PodLifeTime, args: {maxPodLifeTimeSeconds: 86400}}"}))
	target := schemas.Target{Workload: &schemas.WorkloadTarget{Kind: "Deployment", Namespace: s.Namespace, Name: "api"}}
	var methods []schemas.Method
	for _, method := range []schemas.RequestMethod{schemas.UseRestart, schemas.UseEvict} {
		from := s.PodsOf("api")[0].Spec.NodeName
		s.Cordon(from, true) // otherwise the pod may return, and the workload circuit breaker blocks the next move
		request := a.move("by-"+string(method), target, func(r *schemas.Request) { r.Method = method })
		a.checkEnd(request, "Done, 1 gone")
		s.WaitReady("api")
		s.Cordon(from, false)
	}
	for _, v := range a.events.Verdicts() {
		if v.Outcome.Moves() {
			methods = append(methods, v.Method)
		}
	}
	if want := []schemas.Method{schemas.MethodRestart, schemas.MethodEviction}; !slices.Equal(methods, want) {
		t.Errorf("moved by %v, want %v", methods, want)
	}
	s.CheckMoved(0, 1)
}
