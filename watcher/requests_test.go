package watcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// inbox holds requests in memory, in the order of their arrival, and the receipts that already exist.
type inbox struct {
	mu       sync.Mutex
	open     []letter
	dropped  map[uint64]bool // by the numbers of their events
	receipts map[string]schemas.Event
	more     chan struct{}
	looks    int // for receipts
	// drop returns the error of dropping a request. nil never fails.
	drop  func(ctx context.Context, e schemas.Event) error
	reads int // of requests
}

type letter struct {
	event  schemas.Event
	stored time.Time
}

func newInbox() *inbox {
	return &inbox{dropped: map[uint64]bool{}, receipts: map[string]schemas.Event{}, more: make(chan struct{}, 1)}
}

func (b *inbox) put(t *testing.T, r schemas.Request) schemas.Event {
	t.Helper()
	e := schematest.Event(t, "/test/"+r.Sender, r, time.Now(), schemas.Event{})
	return b.send(e)
}

// send adds an event to the open requests.
func (b *inbox) send(e schemas.Event) schemas.Event {
	b.mu.Lock()
	e.Sequence = uint64(len(b.open) + 1)
	b.open = append(b.open, letter{e, time.Now()})
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
	return e
}

func (b *inbox) FollowRequests(
	ctx context.Context, handle func(context.Context, schemas.Event, time.Time, func() schemas.Event) error,
) error {
	for next := 0; ; {
		b.mu.Lock()
		list := slices.Clone(b.open[next:])
		b.mu.Unlock()
		for _, l := range list {
			if !b.gone(l.event) {
				read := func() schemas.Event {
					b.reads++
					return l.event
				}
				if err := handle(ctx, schemas.Event{Channel: l.event.Channel, Sequence: l.event.Sequence}, l.stored, read); err != nil {
					return err
				}
			}
			next++
		}
		select {
		case <-ctx.Done():
			return nil
		case <-b.more:
		}
	}
}

func (b *inbox) gone(e schemas.Event) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped[e.Sequence]
}

func (b *inbox) HasRequest(_ context.Context, e schemas.Event) (bool, error) { return !b.gone(e), nil }

func (b *inbox) DropRequest(ctx context.Context, e schemas.Event) error {
	if b.drop != nil {
		if err := b.drop(ctx, e); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropped[e.Sequence] = true
	return nil
}

func (b *inbox) Receipt(_ context.Context, sender, name string) (schemas.Event, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looks++
	return b.receipts[sender+"/"+name], nil
}

func (b *inbox) FinishedReceipt(ctx context.Context, sender, name string) (schemas.Event, error) {
	e, err := b.Receipt(ctx, sender, name)
	if r, _ := schemas.Decode[schemas.Receipt](e); r.State != schemas.RequestFinished {
		return schemas.Event{}, err
	}
	return e, err
}

// hall is a leader that answers requests, with its published events.
type hall struct {
	t   *testing.T
	in  *inbox
	out *collected
	s   *session
}

// answering runs a leader in a bubble of fake time.
func answering(t *testing.T, s fixture, in *inbox, script func(hall)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		in.more = make(chan struct{}, 1) // of the bubble
		h := hall{t: t, in: in, out: &collected{}}
		w := testWatcher(s, h.out)
		w.config.Requests = in
		ctx, end := context.WithCancel(t.Context())
		h.s = testSession(ctx, w)
		var wg sync.WaitGroup
		wg.Go(func() { h.s.run(ctx) })
		synctest.Wait()
		script(h)
		end()
		wg.Wait()
	})
}

// published returns the receipts and the scopes of requests since the last call, as text.
func (h hall) published() (list []string) {
	h.t.Helper()
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	for _, e := range h.out.events {
		switch e.Type {
		case schemas.ReceiptType:
			r := expect.FromJSON[schemas.Receipt](h.t, e.Data)
			list = append(list, fmt.Sprintf("%s: %s %s: %s", r.Name, r.State, r.Reason, r.Message))
		case schemas.ScopeType:
			s := expect.FromJSON[schemas.RequestScope](h.t, e.Data)
			if s.Kind == schemas.RequestKind {
				text := s.Request.Name + " asks for"
				for _, p := range s.Pods {
					text += " " + p.Pod.Name
				}
				list = append(list, text)
			}
		}
	}
	h.out.events = nil
	return list
}

func (h hall) want(what string, want ...string) {
	h.t.Helper()
	if got := h.published(); !slices.Equal(got, want) {
		h.t.Errorf("%s:\ngot  %q\nwant %q", what, got, want)
	}
}

// says delivers a verdict on a pod of a request.
func (h hall) says(request, pod string, outcome schemas.Outcome, reason schemas.ReasonCode, change ...func(*schemas.Verdict)) {
	h.t.Helper()
	v := schemas.Verdict{
		Outcome: outcome, Reason: reason, Message: "m", Profile: "p", Strategy: schemas.RequestStrategy,
		Scope:  schemas.ScopeRef{Kind: schemas.RequestKind, Key: "admin/" + request},
		Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "web", Name: pod, UID: types.UID("uid-" + pod)}},
	}
	for _, c := range change {
		c(&v)
	}
	e := schematest.Event(h.t, "/test/actuator", v, time.Now(), schemas.Event{})
	h.out.tell(e)
}

// goes removes a pod.
func (h hall) goes(p *corev1.Pod) {
	h.t.Helper()
	if err := h.s.w.cluster.Remove(p); err != nil {
		h.t.Fatal(err)
	}
	h.s.w.podChanged(p, nil, false)
}

func uid(p *corev1.Pod) { p.UID = types.UID("uid-" + p.Name) }

// three returns pods of one Deployment, one of which a DaemonSet also owns.
func three() []*corev1.Pod {
	pods := []*corev1.Pod{placed("a", "n1"), placed("b", "n1"), placed("c", "n2")}
	for _, p := range pods {
		uid(p)
		fixtures.ControlledBy("ReplicaSet", "api-5d8f")(p)
		p.Labels = map[string]string{"app": "api", "pod-template-hash": "5d8f"}
	}
	return pods
}

func deployment(r *schemas.Request) {
	r.Target = &schemas.Target{Workload: &schemas.WorkloadTarget{Kind: "Deployment", Namespace: "web", Name: "api"}}
}

func hallView(t *testing.T, senders ...policy.Sender) (fixture, []*corev1.Pod) {
	t.Helper()
	p := taintPolicy("")
	if len(senders) > 0 {
		p.Requests = &policy.Requests{MaxPods: 2, Senders: senders}
	}
	pods := three()
	return view(t, p, []*corev1.Node{named("n1"), named("n2")}, pods), pods
}

func TestRequestFinishesWithItsLastPod(t *testing.T) {
	s, pods := hallView(t)
	answering(t, s, newInbox(), func(h hall) {
		e := h.in.put(t, schematest.Request(deployment))
		h.want("a request", "one: accepted Accepted: moving 3 of 3 pods", "one asks for a b c")
		h.says("one", "a", schemas.Evicted, schemas.ReasonEvictionAccepted)
		h.says("one", "b", schemas.Rejected, schemas.ReasonProtected)
		h.says("one", "c", schemas.Rejected, schemas.ReasonMoving)
		h.want("one is on its way, one is given up, and one moves for another reason")
		h.goes(pods[0])
		h.want("one is gone")
		time.Sleep(delivery.FirstRetry)
		h.want("what moved for another reason is still there, and asked for again", "one asks for c")
		h.goes(pods[2])
		h.want("the last one is gone", "one: finished Done: 2 of 3 pods are gone")
		if !h.in.gone(e) {
			t.Error("the request is still open")
		}
		h.in.put(t, schematest.Request(deployment, func(r *schemas.Request) { r.Name = "two" }))
		h.want("the next one", "two: accepted Accepted: moving 1 of 1 pod", "two asks for b")
	})
}

// The actuator cancels a move with several steps that a newer message does not list.
func TestRequestListsMovesInFlight(t *testing.T) {
	s, pods := hallView(t)
	answering(t, s, newInbox(), func(h hall) {
		h.in.put(t, schematest.Request(deployment))
		h.want("a request", "one: accepted Accepted: moving 3 of 3 pods", "one asks for a b c")
		h.says("one", "a", schemas.Restarted, schemas.ReasonSurgeAccepted)
		h.says("one", "b", schemas.Evicted, schemas.ReasonEvictionAccepted)
		h.says("one", "c", schemas.Deferred, schemas.ReasonDisruptionBudget)
		h.want("the budget of one pod allows nothing")
		time.Sleep(delivery.FirstRetry)
		h.want("the next try", "one asks for a c")
		h.says("one", "a", schemas.Rejected, schemas.ReasonMoving)
		h.says("one", "c", schemas.Evicted, schemas.ReasonEvictionAccepted)
		h.goes(pods[1])
		h.goes(pods[2])
		h.want("one is left")
		h.says("one", "a", schemas.Settled, schemas.ReasonTakenBack)
		time.Sleep(delivery.FirstRetry)
		h.want("its move was undone", "one asks for a")
		h.goes(pods[0])
		h.want("all are gone", "one: finished Done: 3 of 3 pods are gone")
	})
}

// The key of a scope of a pod, NAMESPACE/NAME, can equal the key of a request, SENDER/NAME.
func TestRequestIgnoresVerdictsOnPods(t *testing.T) {
	s, pods := hallView(t)
	answering(t, s, newInbox(), func(h hall) {
		h.in.put(t, schematest.Request(deployment))
		h.want("a request", "one: accepted Accepted: moving 3 of 3 pods", "one asks for a b c")
		h.says("one", "a", schemas.Rejected, schemas.ReasonProtected, func(v *schemas.Verdict) { v.Scope.Kind = schemas.PodKind })
		h.says("one", "b", schemas.Rejected, schemas.ReasonProtected)
		h.says("one", "c", schemas.Rejected, schemas.ReasonProtected)
		h.want("two pods are given up")
		h.goes(pods[0])
		h.want("the third one is gone", "one: finished Done: 1 of 3 pods are gone")
	})
}

// The watcher can see that a pod is terminating before the verdict of its move. Other rules may protect the pod
// meanwhile.
func TestRequestWaitsForTerminatingPods(t *testing.T) {
	s, pods := hallView(t)
	answering(t, s, newInbox(), func(h hall) {
		h.in.put(t, schematest.Request(deployment))
		h.want("a request", "one: accepted Accepted: moving 3 of 3 pods", "one asks for a b c")
		now := metav1.Now()
		for _, p := range pods {
			dying := p.DeepCopy()
			dying.DeletionTimestamp = &now
			dying.Annotations = map[string]string{"descheduler.alpha.kubernetes.io/evict": "false"}
			dying.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", LastTransitionTime: now,
			}}
			expect.Must(t, h.s.w.cluster.Set(dying))
		}
		h.s.requests.EnqueueAll()
		h.want("its pods are being deleted", "one asks for")
		for _, p := range pods {
			h.goes(p)
		}
		h.want("they are gone", "one: finished Done: 3 of 3 pods are gone")
	})
}

func TestRequestForTerminatingPod(t *testing.T) {
	s, pods := hallView(t)
	answering(t, s, newInbox(), func(h hall) {
		dying := pods[2].DeepCopy()
		dying.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		expect.Must(t, h.s.w.cluster.Set(dying))
		h.in.put(t, schematest.Request(deployment))
		h.want("a request", "one: accepted Accepted: moving 2 of 3 pods, 1 protected", "one asks for a b")
		h.goes(pods[0])
		h.goes(pods[1])
		h.want("the terminating pod is still there")
		h.goes(dying)
		h.want("all are gone", "one: finished Done: 3 of 3 pods are gone")
	})
}

func TestRequestDeadlineAndCancel(t *testing.T) {
	s, _ := hallView(t)
	answering(t, s, newInbox(), func(h hall) {
		h.in.put(t, schematest.Request(deployment, func(r *schemas.Request) { r.Deadline = time.Now().Add(time.Minute) }))
		h.want("a request", "one: accepted Accepted: moving 3 of 3 pods", "one asks for a b c")
		time.Sleep(time.Minute)
		h.want("its deadline", "one asks for", "one: finished DeadlineExceeded: 0 of 3 pods are gone", "one asks for")
		h.in.put(t, schematest.Request(deployment, func(r *schemas.Request) { r.Name = "two" }))
		h.want("another", "two: accepted Accepted: moving 3 of 3 pods", "two asks for a b c")
		h.in.put(t, schemas.Request{Sender: "admin", Name: "stop", Action: schemas.ActionCancel, Request: "two", Reason: "no more"})
		got := h.published()
		slices.Sort(got) // the two receipts come in any order
		want := []string{
			"stop: finished Done: request two is canceled", "two asks for", "two asks for",
			"two: finished Cancelled: 0 of 3 pods are gone; canceled: no more",
		}
		expect.Equal(t, "cancelled", got, want)
	})
}

// The maintenance role answers the cancellation of a request for a node, as long as it finds that request or its receipt.
func TestNodeRequestCancel(t *testing.T) {
	accepted := schemas.Receipt{Sender: "admin", Name: "drain", State: schemas.RequestAccepted, Action: schemas.ActionMaintain}
	finished := accepted
	finished.State = schemas.RequestFinished
	for _, c := range []struct {
		name    string
		dropped bool
		receipt *schemas.Receipt
		want    []string
	}{
		{"open without a receipt", false, nil, nil},
		{"accepted", false, &accepted, nil},
		{"finished", true, &finished, nil},
		{"finished and expired", true, nil, []string{"stop: finished NothingToDo: no request drain is open"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := hallView(t)
			answering(t, s, newInbox(), func(h hall) {
				drain := h.in.put(t, schematest.Request(func(r *schemas.Request) {
					r.Name, r.Action, r.Target = "drain", schemas.ActionMaintain, nil
					r.Maintenance = &schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Drain}
				}))
				h.want("a request for a node")
				if c.receipt != nil {
					h.in.receipts["admin/drain"] = schematest.Event(t, "/test", *c.receipt, time.Now(), drain)
				}
				if c.dropped {
					expect.Must(t, h.in.DropRequest(t.Context(), drain))
				}
				h.in.put(t, schemas.Request{Sender: "admin", Name: "stop", Action: schemas.ActionCancel, Request: "drain", Reason: "no more"})
				h.want("its cancellation", c.want...)
			})
		})
	}
}

func TestRequestResumedByNewLeader(t *testing.T) {
	s, pods := hallView(t)
	in := newInbox()
	request := schematest.Request(deployment)
	var event schemas.Event
	synctest.Test(t, func(t *testing.T) { event = in.put(t, request) })
	in.open[0].stored = in.open[0].stored.Add(-time.Hour)
	receipt := schemas.Receipt{
		Sender: "admin", Name: "one", State: schemas.RequestAccepted, Reason: schemas.ReceiptAccepted, Profile: "p",
		Deadline: event.Time.Add(24 * time.Hour),
		Pods: []schemas.RequestedPod{
			{Pod: schemas.PodRef{Namespace: "web", Name: "a", UID: "uid-a"}, Node: "n1"},
			{Pod: schemas.PodRef{Namespace: "web", Name: "b", UID: "an earlier one"}, Node: "n1"},
		},
	}
	e := schematest.Event(t, "/test", receipt, event.Time, event)
	in.receipts["admin/one"] = e
	answering(t, s, in, func(h hall) {
		h.want("no second receipt, and no other pod", "one asks for a")
		h.goes(pods[0])
		h.want("the end", "one: finished Done: 2 of 2 pods are gone")
	})
}

func TestRequestWithFinishedName(t *testing.T) {
	s, _ := hallView(t)
	in := newInbox()
	done := schemas.Receipt{
		Sender: "admin", Name: "one", State: schemas.RequestFinished, Reason: schemas.ReceiptDone, Message: "4 of 4 pods are gone",
	}
	e := schematest.Event(t, "/test", done, time.Unix(1, 0), schemas.Event{ID: "earlier", CorrelationID: "earlier"})
	in.receipts["admin/one"] = e
	answering(t, s, in, func(h hall) {
		h.in.put(t, schematest.Request(deployment))
		h.want("the same name", "one: finished Done: 4 of 4 pods are gone")
	})
}

// TestHTTPRequestName reuses the name of a finished request over HTTP. All HTTP users share the sender http.
func TestHTTPRequestName(t *testing.T) {
	const finished, conflict = "one: finished Done: 3 of 3 pods are gone", "one: rejected Conflict: a finished request has this name: choose another"
	const unknown = "one: rejected PolicyUnknown: the policy has no profile \"x\""
	for name, c := range map[string]struct {
		change func(*schemas.Request)
		want   []string
	}{
		"the same request":              {func(*schemas.Request) {}, []string{finished}},
		"the same with a new deadline":  {func(r *schemas.Request) { r.Deadline = time.Now().Add(time.Hour).UTC() }, []string{finished}},
		"the same after its deadline":   {func(r *schemas.Request) { r.Deadline = time.Now().Add(-time.Minute).UTC() }, []string{finished}},
		"another user":                  {func(r *schemas.Request) { r.Requester = "admin" }, []string{conflict, finished}},
		"another target":                {func(r *schemas.Request) { r.Target = &schemas.Target{Node: "n1"} }, []string{conflict, finished}},
		"another method":                {func(r *schemas.Request) { r.Method = schemas.UseRestart }, []string{conflict, finished}},
		"a profile that does not exist": {func(r *schemas.Request) { r.Profile = "x" }, []string{unknown, finished}},
	} {
		t.Run(name, func(t *testing.T) {
			s, pods := hallView(t, policy.Sender{Name: policy.HTTPSender, Nodes: true, PerMinute: 10, Open: 10})
			s.policy.Requests.MaxPods = 3
			ask := func(r *schemas.Request) { r.Sender, r.Requester = policy.HTTPSender, "user" }
			answering(t, s, newInbox(), func(h hall) {
				h.in.put(t, schematest.Request(deployment, ask))
				h.want("the first", "one: accepted Accepted: moving 3 of 3 pods", "one asks for a b c")
				for _, p := range pods {
					h.goes(p)
				}
				keep := func() {
					last := h.last(t)
					if r, err := schemas.Decode[schemas.Receipt](last); err != nil || r.State == schemas.RequestFinished && r.Requester != "user" {
						t.Errorf("the receipt: got requester %q, %v; want user", r.Requester, err)
					}
					h.in.mu.Lock()
					defer h.in.mu.Unlock()
					h.in.receipts[policy.HTTPSender+"/one"] = last
				}
				keep()
				h.want("its end", finished)
				h.in.put(t, schematest.Request(deployment, ask, c.change))
				keep()
				h.want(name, c.want...)
				h.in.put(t, schematest.Request(deployment, ask))
				h.want("the first again", finished)
			})
		})
	}
}

// last returns the last published receipt.
func (h hall) last(t *testing.T) schemas.Event {
	t.Helper()
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	for _, e := range slices.Backward(h.out.events) {
		if e.Type == schemas.ReceiptType {
			return e
		}
	}
	t.Fatal("no receipt was published")
	return schemas.Event{}
}

func TestRequestLimits(t *testing.T) {
	s, _ := hallView(t, policy.Sender{Name: "admin", Nodes: true, PerMinute: 3, Open: 1})
	answering(t, s, newInbox(), func(h hall) {
		named := func(name string, change ...func(*schemas.Request)) schemas.Request {
			return schematest.Request(append(change, func(r *schemas.Request) { r.Name = name })...)
		}
		h.in.put(t, named("large", deployment))
		h.want("too many pods", "large: rejected TooManyPods: 3 pods, want at most 2")
		h.in.put(t, named("fits"))
		h.want("two pods", "fits: accepted Accepted: moving 2 of 2 pods", "fits asks for a b")
		h.in.put(t, named("second"))
		h.want("a second one", "second: rejected TooManyRequests: 1 requests of this sender are open")
		for i := range 4 {
			h.in.put(t, named(fmt.Sprint("more-", i)))
		}
		const more = "rejected TooManyRequests: more than 3 requests of this sender in a minute; ask again later"
		h.want("only the first of each second is reported", "more-0: "+more)
		time.Sleep(time.Second)
		h.in.put(t, named("more-4"))
		h.want("with how many there were since", "more-4: "+more+"; 3 more were rejected without a receipt")
		time.Sleep(time.Second)
		h.in.put(t, named("more-5"))
		h.want("and not those before", "more-5: "+more)
		time.Sleep(time.Second)
		h.in.put(t, named("more-6"))
		h.want("and no more of them than of the others")
		time.Sleep(time.Minute)
		h.in.put(t, named("later"))
		h.want("a minute later", "later: rejected TooManyRequests: 1 requests of this sender are open")
	})
}

func TestRequestFlood(t *testing.T) {
	s, _ := hallView(t, policy.Sender{Name: "admin", Nodes: true, PerMinute: 10, Open: 20})
	answering(t, s, newInbox(), func(h hall) {
		const all = 100_000
		time.Sleep(10 * time.Second) // the previous leader may have answered earlier requests
		for i := range all {
			r := schematest.Request(func(r *schemas.Request) { r.Name = fmt.Sprint("n", i) })
			if i%2 == 1 {
				r.Sender = fmt.Sprint("nobody-", i)
			}
			h.in.put(t, r)
		}
		var receipts, scopes int
		for _, text := range h.published() {
			if slices.Contains([]string{"rejected", "accepted"}, second(text)) {
				receipts++
			} else {
				scopes++
			}
		}
		// 10 requests that are read, and one receipt that reports more, for admin and for all other senders together.
		if want := 22; receipts != want || h.in.reads != want || scopes > 10 {
			t.Errorf("%d receipts, %d of the requests read and %d scopes, want %d, as many and at most 10", receipts, h.in.reads, scopes, want)
		}
		expect.Equal(t, "open requests", all-len(h.in.dropped), 10)
		if h.in.looks > 200 {
			t.Errorf("it looked for %d receipts", h.in.looks)
		}
	})
}

// TestRequestOverLimit covers requests that are rejected without being read.
func TestRequestOverLimit(t *testing.T) {
	t.Run("does not delay others while it cannot be dropped", func(t *testing.T) {
		s, _ := hallView(t, policy.Sender{Name: "admin", Nodes: true, PerMinute: 1, Open: 1})
		in := newInbox()
		in.drop = func(ctx context.Context, e schemas.Event) error {
			if e.Sequence <= 11 { // these get a receipt
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		answering(t, s, in, func(h hall) {
			time.Sleep(10 * time.Second) // the previous leader may have answered earlier requests
			for i := range 1000 {
				h.in.put(t, schematest.Request(func(r *schemas.Request) { r.Sender, r.Name = "nobody", fmt.Sprint("n", i) }))
			}
			h.in.put(t, schematest.Request(func(r *schemas.Request) { r.Name = "honest" }))
			got := h.published()
			want := []string{"honest: accepted Accepted: moving 2 of 2 pods", "honest asks for a b"}
			if len(got) != 13 || !slices.Equal(got[11:], want) {
				t.Errorf("got %q, want 11 rejections and %q", got, want)
			}
			if in.reads != 12 || len(in.dropped) != 11 {
				t.Errorf("%d are read and %d dropped, want 12 and 11", in.reads, len(in.dropped))
			}
		})
	})
	t.Run("is dropped after failures", func(t *testing.T) {
		s, _ := hallView(t, policy.Sender{Name: "admin", Nodes: true, PerMinute: 1, Open: 1})
		in := newInbox()
		failed := map[uint64]bool{}
		in.drop = func(_ context.Context, e schemas.Event) error {
			in.mu.Lock()
			defer in.mu.Unlock()
			if failed[e.Sequence] || e.Sequence <= 2 {
				return nil
			}
			failed[e.Sequence] = true
			return errors.New("not now")
		}
		answering(t, s, in, func(h hall) {
			for i := range 100 {
				h.in.put(t, schematest.Request(func(r *schemas.Request) { r.Name = fmt.Sprint("n", i) }))
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			in.mu.Lock()
			defer in.mu.Unlock()
			if len(in.dropped) != 99 { // the first is accepted
				t.Errorf("%d are dropped, want 99", len(in.dropped))
			}
		})
	})
}

func TestRequestOnInvalidSubject(t *testing.T) {
	s, _ := hallView(t, policy.Sender{Name: "admin", Nodes: true, PerMinute: 10, Open: 1})
	answering(t, s, newInbox(), func(h hall) {
		h.published()
		for _, c := range []struct{ name, channel, on string }{
			{"a name of two words", "rehome.request.admin.one.two", "rehome.receipt.admin.one_two"},
			{"no name", "rehome.request.admin", "rehome.receipt.admin.="},
			{"a name in capitals", "rehome.request.admin.ONE", "rehome.receipt.admin.ONE"},
			{"a long sender", "rehome.request." + strings.Repeat("x", 1000) + ".one", "rehome.receipt." + strings.Repeat("x", 63) + ".one"},
		} {
			h.in.send(schemas.Event{ID: c.name, CorrelationID: c.name, Channel: c.channel, Data: []byte("moin")})
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			h.out.mu.Lock()
			got := h.out.events
			h.out.events = nil
			h.out.mu.Unlock()
			if len(got) != 1 || got[0].Channel != c.on {
				t.Fatalf("%s: published %+v, want one receipt on %s", c.name, got, c.on)
			}
			r, err := schemas.Decode[schemas.Receipt](got[0])
			if err != nil || r.State != schemas.RequestRejected || r.Reason != schemas.ReceiptMalformed {
				t.Errorf("%s: got %+v, error %v, want one that says that it is malformed", c.name, r, err)
			}
		}
		expect.Equal(t, "dropped requests", len(h.in.dropped), 4)
	})
}

func second(text string) (word string) {
	_, _ = fmt.Sscanf(text, "%s %s", new(string), &word)
	return word
}
