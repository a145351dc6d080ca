package watcher

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// maintains asks for a stage of node n1.
func maintains(stage v1alpha1.Stage, change ...func(*schemas.Request)) schemas.Request {
	return wishing(append([]func(*schemas.Request){func(r *schemas.Request) {
		r.Action, r.Target, r.Maintenance = schemas.ActionMaintain, nil, &schemas.NodeRequest{Node: "n1", Stage: stage}
	}}, change...)...)
}

func within(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

func TestWhatIsWrongWithARequestForAMaintenanceIsSaid(t *testing.T) {
	const drain, complete = v1alpha1.Drain, v1alpha1.Complete
	stored := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	of := func(change func(*schemas.NodeRequest)) func(*schemas.Request) {
		return func(r *schemas.Request) { change(r.Maintenance) }
	}
	for _, c := range []struct {
		name    string
		request schemas.Request
		want    string
	}{
		{"nothing is", maintains(drain), ""},
		{"nothing is about one with everything", maintains(drain, of(func(m *schemas.NodeRequest) {
			m.Node, m.ProviderID, m.Deadline, m.OnDeadline = "", "aws:///eu/i-1", within(time.Minute), v1alpha1.Hold
			m.Force = []v1alpha1.Guard{v1alpha1.SingleNode, v1alpha1.AllNodes}
		})), ""},
		{"no node", maintains(drain, of(func(m *schemas.NodeRequest) { m.Node = "" })), "maintenance: want either node or providerID"},
		{"a node twice", maintains(drain, of(func(m *schemas.NodeRequest) { m.ProviderID = "i-1" })),
			"maintenance: want either node or providerID"},
		{"no name of a node", maintains(drain, of(func(m *schemas.NodeRequest) { m.Node = "../n1" })),
			`maintenance.node: want the name of a node, got "../n1"`},
		{"a long provider ID", maintains(drain, of(func(m *schemas.NodeRequest) { m.Node, m.ProviderID = "", strings.Repeat("x", 1025) })),
			"maintenance.providerID: want at most 1024 characters, got 1025"},
		{"a stage that nothing is done for", maintains(v1alpha1.Idle),
			`maintenance.stage: want one of [Cordon Drain Complete], got "Idle"`},
		{"no time at all", maintains(drain, of(func(m *schemas.NodeRequest) { m.Deadline = within(0) })),
			"maintenance.deadline: want one that is longer than 0, with the stage Drain alone"},
		{"a deadline of a cordon", maintains(v1alpha1.Cordon, of(func(m *schemas.NodeRequest) { m.Deadline = within(time.Minute) })),
			"maintenance.deadline: want one that is longer than 0, with the stage Drain alone"},
		{"onDeadline alone", maintains(drain, of(func(m *schemas.NodeRequest) { m.OnDeadline = v1alpha1.Hold })),
			`maintenance.onDeadline: want one of [Continue Hold Release], and a deadline with it, got "Hold"`},
		{"an onDeadline that there is not", maintains(drain, of(func(m *schemas.NodeRequest) {
			m.Deadline, m.OnDeadline = within(time.Minute), "Stop"
		})), `maintenance.onDeadline: want one of [Continue Hold Release], and a deadline with it, got "Stop"`},
		{"a guard that there is not", maintains(drain, of(func(m *schemas.NodeRequest) { m.Force = []v1alpha1.Guard{"All"} })),
			`maintenance.force[0]: want one of [AllNodes ControlPlane SingleNode], each once, got "All"`},
		{"a guard twice", maintains(drain, of(func(m *schemas.NodeRequest) {
			m.Force = []v1alpha1.Guard{v1alpha1.AllNodes, v1alpha1.AllNodes}
		})), `maintenance.force[1]: want one of [AllNodes ControlPlane SingleNode], each once, got "AllNodes"`},
		{"a guard of a return", maintains(complete, of(func(m *schemas.NodeRequest) { m.Force = []v1alpha1.Guard{v1alpha1.AllNodes} })),
			"maintenance.force: it does not go with the stage Complete, which no guard refuses"},
		{"no maintenance", maintains(drain, func(r *schemas.Request) { r.Maintenance = nil }),
			"maintenance: want the node that is meant and its stage, got none"},
		{"a maintenance with another action", maintains(drain, func(r *schemas.Request) { r.Action = schemas.ActionEvaluate }),
			"maintenance: it goes with maintain alone"},
		{"a profile", maintains(drain, func(r *schemas.Request) { r.Profile = "p" }), "profile: it does not go with maintain"},
		{"a target", maintains(drain, at(schemas.Target{Node: "n1"})), "target: it goes with deschedule alone"},
		{"a dry run", maintains(drain, func(r *schemas.Request) { r.DryRun = true }),
			"dryRun, override, method: they go with deschedule alone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, err := json.Marshal(c.request)
			if err != nil {
				t.Fatal(err)
			}
			got, no := readRequest(schemas.Event{Type: schemas.RequestType, Data: data}, "admin", "one", stored)
			message := ""
			if no != nil {
				message = no.message
			}
			if message != c.want || c.want == "" && !reflect.DeepEqual(got, c.request) {
				t.Errorf("got %q, %+v, want %q", message, got, c.want)
			}
		})
	}
	if got, want := deadlineOf(maintains(drain), stored), stored.Add(24*time.Hour); !got.Equal(want) {
		t.Errorf("without a deadline: until %v, want %v", got, want)
	}
}

func TestWhoMayAskForTheMaintenanceOfANodeIsSaidByThePolicy(t *testing.T) {
	senders := []policy.Sender{
		{Name: "nodes", Nodes: true, Actions: []schemas.RequestAction{schemas.ActionMaintain}}, {Name: "pods"},
		{Name: "shop", Nodes: true, Namespaces: []string{"shop"}},
		{Name: "moves", Nodes: true, Actions: []schemas.RequestAction{schemas.ActionDeschedule}},
	}
	for _, c := range []struct {
		policy policy.Policy
		sender string
		want   string
	}{
		{policy.Policy{}, "admin", ""}, // also without a profile
		{policy.Policy{}, "http", ""},
		{policy.Policy{Requests: &policy.Requests{Senders: senders}}, "nodes", ""},
		{policy.Policy{Requests: &policy.Requests{Senders: senders}}, "pods",
			"the policy does not let pods ask for the pods of a node"},
		{policy.Policy{Requests: &policy.Requests{Senders: senders}}, "shop",
			"the policy lets shop ask for pods of some namespaces alone, and a maintenance is about all pods of a node"},
		{policy.Policy{Requests: &policy.Requests{Senders: senders}}, "moves", "the policy does not let moves ask to maintain"},
		{policy.Policy{Requests: &policy.Requests{Senders: senders}}, "admin", `the policy has no sender "admin"`},
	} {
		_, no := mustPlan(t, c.policy).mayAsk(maintains(v1alpha1.Drain, func(r *schemas.Request) { r.Sender = c.sender }))
		got := ""
		if no != nil {
			got = no.message
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.sender, got, c.want)
		}
	}
}

func TestANodeIsFoundByItsProviderIDOrTheLastWordOfIt(t *testing.T) {
	of := func(id string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.ProviderID = id }
	}
	s := view(t, policy.Policy{}, []*corev1.Node{
		named("n1", of("aws:///eu-central-1a/i-1")), named("n2", of("gce://project/zone/n2")), named("n3", of("other://x/n2")), named("n4"),
	}, nil)
	for _, c := range []struct {
		wanted schemas.NodeRequest
		node   string
		no     string
	}{
		{schemas.NodeRequest{Node: "n4"}, "n4", ""},
		{schemas.NodeRequest{Node: "n9"}, "", ""},
		{schemas.NodeRequest{ProviderID: "i-1"}, "n1", ""},
		{schemas.NodeRequest{ProviderID: "aws:///eu-central-1a/i-1"}, "n1", ""},
		{schemas.NodeRequest{ProviderID: "eu-central-1a/i-1"}, "", "no node has the provider ID eu-central-1a/i-1"},
		{schemas.NodeRequest{ProviderID: "n2"}, "", "2 nodes have the provider ID n2: name the node"},
		{schemas.NodeRequest{ProviderID: "gce://project/zone/n2"}, "n2", ""},
	} {
		n, no := meant(s.cluster, c.wanted)
		name, message := "", ""
		if n != nil {
			name = n.Name
		}
		if no != nil {
			message = no.message
		}
		if name != c.node || message != c.no {
			t.Errorf("%+v: got %q, %q, want %q, %q", c.wanted, name, message, c.node, c.no)
		}
	}
}

func TestWhatIsWantedOfAMaintenanceOnlyGoesForwards(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	w := func(stage v1alpha1.Stage, change ...func(*wish)) wish {
		w := wish{name: "node/n1", node: "n1", reason: "why", NodeRequest: schemas.NodeRequest{Stage: stage}, uid: "u"}
		for _, c := range change {
			c(&w)
		}
		return w
	}
	first := func(change ...func(*v1alpha1.NodeMaintenance)) *v1alpha1.NodeMaintenance {
		m := &v1alpha1.NodeMaintenance{
			TypeMeta:   metav1.TypeMeta{APIVersion: "rehome.dev/v1alpha1", Kind: "NodeMaintenance"},
			ObjectMeta: metav1.ObjectMeta{Name: "node/n1", UID: "u", Generation: 1, CreationTimestamp: metav1.NewTime(now.Truncate(time.Second))},
			Spec:       v1alpha1.NodeMaintenanceSpec{Nodes: v1alpha1.NodeSet{Names: []string{"n1"}}, Stage: v1alpha1.Cordon, Reason: "why"},
		}
		for _, c := range change {
			c(m)
		}
		return m
	}
	stored := func(m *v1alpha1.NodeMaintenance) { m.ResourceVersion, m.Status = "7", stages(v1alpha1.Cordoned) }
	to := func(stage v1alpha1.Stage) func(*v1alpha1.NodeMaintenance) {
		return func(m *v1alpha1.NodeMaintenance) { m.Spec.Stage = stage }
	}
	for _, c := range []struct {
		name string
		wish wish
		is   *v1alpha1.NodeMaintenance
		want *v1alpha1.NodeMaintenance
		no   string
	}{
		{"there is none", w(v1alpha1.Cordon), nil, first(), ""},
		{"it is so already", w(v1alpha1.Cordon, func(w *wish) { w.reason = "another" }), first(stored), nil, ""},
		{"one stage on, with a reason of its own", w(v1alpha1.Drain, func(w *wish) { w.reason = "now" }), first(stored),
			first(stored, to(v1alpha1.Drain), func(m *v1alpha1.NodeMaintenance) { m.Spec.Reason, m.Generation = "now", 2 }), ""},
		{"a deadline, and one guard more", w(v1alpha1.Drain, func(w *wish) {
			w.Deadline, w.OnDeadline, w.Force = within(time.Hour), v1alpha1.Hold, []v1alpha1.Guard{v1alpha1.AllNodes, v1alpha1.SingleNode}
		}), first(stored, to(v1alpha1.Drain), func(m *v1alpha1.NodeMaintenance) { m.Spec.Force = []v1alpha1.Guard{v1alpha1.SingleNode} }),
			first(stored, to(v1alpha1.Drain), func(m *v1alpha1.NodeMaintenance) {
				m.Spec.Deadline, m.Spec.OnDeadline, m.Generation = within(time.Hour), v1alpha1.Hold, 2
				m.Spec.Force = []v1alpha1.Guard{v1alpha1.SingleNode, v1alpha1.AllNodes}
			}), ""},
		{"backwards", w(v1alpha1.Cordon), first(stored, to(v1alpha1.Drain)), nil,
			"the stage cannot go from Drain to Cordon, only forwards; when the node is given back, it can be asked for anew"},
		{"after the end", w(v1alpha1.Drain), first(stored, to(v1alpha1.Complete)), nil,
			"the stage cannot go from Complete to Drain, only forwards; when the node is given back, it can be asked for anew"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, no := c.wish.of(c.is, now)
			message := ""
			if no != nil {
				message = no.message
			}
			if !reflect.DeepEqual(got, c.want) || message != c.no {
				t.Errorf("got  %+v, %q\nwant %+v, %q", got, message, c.want, c.no)
			}
		})
	}
	a, b := w(v1alpha1.Drain, func(w *wish) { w.uid = "" }).first(now), w(v1alpha1.Drain, func(w *wish) { w.uid = "" }).first(now)
	if a.UID == b.UID || a.UID == "" {
		t.Errorf("two maintenances of one node have the UIDs %q and %q", a.UID, b.UID)
	}
}

func TestTheReasonOfAMaintenanceNamesWhoAskedInAsManyCharactersAsItMayHave(t *testing.T) {
	r := schemas.Request{Reason: "new kernel", Requester: "Robin"}
	if got, want := reasonOf(r), "new kernel (asked for by Robin)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r.Reason = strings.Repeat("ü", 490)
	if got, want := reasonOf(r), r.Reason+" (asked f…"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWhoDoesNotWaitAnyMoreIsToldWhatTheMaintenanceDoesByItself(t *testing.T) {
	of := func(stage v1alpha1.Stage, deadline *metav1.Duration, then v1alpha1.OnDeadline) *v1alpha1.NodeMaintenance {
		m := &v1alpha1.NodeMaintenance{
			Spec: v1alpha1.NodeMaintenanceSpec{Stage: stage, Deadline: deadline, OnDeadline: then},
		}
		m.Status.Summary.Message = "cannot move shop/db-0"
		return m
	}
	const drain, complete = v1alpha1.Drain, v1alpha1.Complete
	const before = "node n1 is not drained yet: cannot move shop/db-0; "
	for _, c := range []struct {
		name string
		want v1alpha1.Stage
		is   *v1alpha1.NodeMaintenance
		text string
	}{
		{"without a deadline", drain, of(drain, nil, ""), before + "its maintenance goes on until Complete is asked for"},
		{"Continue", drain, of(drain, within(time.Hour), v1alpha1.Continue), before + "its maintenance goes on until Complete is asked for"},
		{"Hold", drain, of(drain, within(time.Hour), v1alpha1.Hold), before +
			"its maintenance goes on until Complete is asked for; when the drain has taken 1h0m0s no more pods move"},
		{"Release", drain, of(drain, within(time.Hour), v1alpha1.Release), before +
			"its maintenance goes on until Complete is asked for, or the drain has taken 1h0m0s: then the node is given back"},
		{"Complete was asked for", complete, of(complete, within(time.Hour), v1alpha1.Release),
			"node n1 is not given back yet: cannot move shop/db-0; the node is given back as soon as that can be done"},
	} {
		if got := late(schemas.NodeRequest{Node: "n1", Stage: c.want}, c.is); got != c.text {
			t.Errorf("%s: got %q, want %q", c.name, got, c.text)
		}
	}
}

func TestARequestForAMaintenanceIsOverWhenTheNodeIsAsFarAsWantedOrWillNeverBe(t *testing.T) {
	const cordon, drain, complete = v1alpha1.Cordon, v1alpha1.Drain, v1alpha1.Complete
	in := func(wanted v1alpha1.Stage, stage v1alpha1.NodeStage, change ...func(*v1alpha1.NodeMaintenance)) *v1alpha1.NodeMaintenance {
		start := metav1.Unix(1000, 0)
		m := &v1alpha1.NodeMaintenance{
			ObjectMeta: metav1.ObjectMeta{Name: "node/n1", UID: "u", Generation: 2},
			Spec:       v1alpha1.NodeMaintenanceSpec{Stage: wanted},
			Status: v1alpha1.NodeMaintenanceStatus{ObservedGeneration: 2, Nodes: []v1alpha1.NodeStatus{{
				Name: "n1", Stage: stage, Start: &start, Message: "so",
				Pods: &v1alpha1.PodCounts{Moved: 7, Staying: 3},
			}}},
		}
		for _, c := range change {
			c(m)
		}
		return m
	}
	status := func(kind string, is metav1.ConditionStatus) func(*v1alpha1.NodeMaintenance) {
		return func(m *v1alpha1.NodeMaintenance) {
			m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: is, Reason: "SingleNode", Message: "alone"})
		}
	}
	drained := func(m *v1alpha1.NodeMaintenance) { m.Status.Nodes[0].DrainedAt = m.Status.Nodes[0].Start }
	never := func(m *v1alpha1.NodeMaintenance) { m.Status.Nodes[0].Start = nil }
	older := func(m *v1alpha1.NodeMaintenance) { m.Status.ObservedGeneration = 1 }
	for _, c := range []struct {
		name string
		want v1alpha1.Stage
		is   *v1alpha1.NodeMaintenance
		end  schemas.ReceiptReason
		why  string
	}{
		{"cordoned", cordon, in(cordon, v1alpha1.Cordoned), schemas.ReceiptDone, "node n1 is cordoned"},
		{"not cordoned yet", cordon, in(cordon, v1alpha1.Claimed), "", ""},
		{"cordoned and further", cordon, in(drain, v1alpha1.Draining), schemas.ReceiptDone, "node n1 is cordoned"},
		{"drained", drain, in(drain, v1alpha1.IsDrained, drained), schemas.ReceiptDone,
			"node n1 is drained: 7 pods have left, 3 not to move"},
		{"draining", drain, in(drain, v1alpha1.Draining), "", ""},
		{"by a status of what was wanted before", drain, in(drain, v1alpha1.IsDrained, drained, older), "", ""},
		{"nothing is known yet", drain, in(drain, v1alpha1.Waiting, func(m *v1alpha1.NodeMaintenance) { m.Status.Nodes = nil }), "", ""},
		{"held at its deadline", drain, in(drain, v1alpha1.Held), schemas.ReceiptDeadlineExceeded, "node n1 stays cordoned: so"},
		{"released at its deadline", drain, in(drain, v1alpha1.Returned), schemas.ReceiptDeadlineExceeded,
			"node n1 was given back before it was drained"},
		{"given back when its work was done", drain, in(drain, v1alpha1.Returned, drained), schemas.ReceiptDone,
			"node n1 was drained, and is given back"},
		{"gone", drain, in(drain, v1alpha1.Gone), schemas.ReceiptDone, "node n1 has left the cluster"},
		{"refused", drain, in(drain, v1alpha1.Waiting, never, status(v1alpha1.Accepted, "False")), schemas.ReceiptRefused,
			"SingleNode: alone; nothing is done"},
		{"refused when it was begun", drain, in(drain, v1alpha1.Draining, status(v1alpha1.Accepted, "False")), "", ""},
		{"to be given back meanwhile", drain, in(complete, v1alpha1.Draining), schemas.ReceiptCancelled,
			"node n1 is to be given back, as was asked for meanwhile"},
		{"over meanwhile", drain, nil, schemas.ReceiptCancelled, "the maintenance of node n1 is over"},
		{"another one meanwhile", drain, in(drain, v1alpha1.IsDrained, func(m *v1alpha1.NodeMaintenance) { m.UID = "v" }),
			schemas.ReceiptCancelled, "the maintenance of node n1 is over"},
		{"given back", complete, nil, schemas.ReceiptDone, "node n1 is given back"},
		{"given back, and still there", complete, in(complete, v1alpha1.Returned, status(v1alpha1.Completed, "True")), "", ""},
		{"not given back yet", complete, in(complete, v1alpha1.Returning, status(v1alpha1.Completed, "False")), "", ""},
	} {
		end, why := judge(schemas.NodeRequest{Node: "n1", Stage: c.want}, "u", c.is, "")
		if end != c.end || why != c.why {
			t.Errorf("%s: got %q, %q, want %q, %q", c.name, end, why, c.end, c.why)
		}
	}
	end, why := judge(schemas.NodeRequest{Node: "n1", Stage: drain}, "u", nil, "rack-7")
	if want := "the maintenance of node n1 is over"; end != schemas.ReceiptCancelled || why != want {
		t.Errorf("over meanwhile, and another one holds it: got %q, %q, want %q", end, why, want)
	}
}
