package faults

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/cluster"
)

// history combines the events of the bus, the audit log, and the pods.
type history struct {
	events   []schemas.Event
	known    map[string]bool // IDs of events from before the bus was restored
	intents  []intent
	messages map[subject][]time.Time // of intents, without a pod
	verdicts map[string][]verdict    // by the ID of the intent; without settled
	settled  map[string][]verdict    // by the ID of the intent
	waiting  int                     // entries in the intents table
	noted    map[string][]time.Time  // when the watcher published a change of the taints of a node

	accepted []eviction
	unsure   []eviction         // the API server had no answer
	taints   map[string][]taint // changes, by node
	pods     map[types.UID]*corev1.Pod
	deleted  map[types.UID]bool // running pods that the test deleted
	dropped  map[string]bool    // namespaces that the test deleted
	rolled   map[string]bool    // names of pods that a controller deleted, such as in a rollout

	restarts []time.Time // of the API server
	faults   []fault
	sessions []session
	losses   []loss
	rewound  []interval // from the copy of etcd until it was restored
	excused  int        // intents and moves that are lost with the messages of these times
}

// subject identifies a wanted move. Intents of several messages can have the same one.
type subject struct {
	profile, strategy string
	kind              schemas.ScopeKind
	key               string
	pod               types.UID
}

type intent struct {
	schemas.Intent
	subject
	at    time.Time
	place int // in the events
}

type verdict struct {
	schemas.Verdict
	at    time.Time
	place int
}

// subject returns the wanted move of the verdict.
func (v verdict) subject() subject {
	return subject{v.Profile, v.Strategy, v.Scope.Kind, v.Scope.Key, v.Intent.Pod.UID}
}

// eviction is a request in the audit log.
type eviction struct {
	pod            string
	uid            types.UID
	received, done time.Time
}

// taint is a change of a node in the audit log.
type taint struct {
	at  time.Time
	set bool
}

// readHistory reads everything as of now.
func (r *run) readHistory(ctx context.Context) (*history, error) {
	h, err := r.rememberedHistory()
	if err != nil {
		return nil, err
	}
	if err := r.readBus(ctx, h); err != nil {
		return nil, err
	}
	log, err := r.cluster.Audit(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range log {
		if err := h.addAudit(e); err != nil {
			return nil, err
		}
	}
	list, err := r.cluster.Client().CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		h.pods[list.Items[i].UID] = &list.Items[i]
	}
	return h, nil
}

// rememberedHistory returns the events from before the bus was restored to an older state.
func (r *run) rememberedHistory() (*history, error) {
	h := &history{
		known: map[string]bool{}, messages: map[subject][]time.Time{}, verdicts: map[string][]verdict{}, settled: map[string][]verdict{},
		noted: map[string][]time.Time{}, taints: map[string][]taint{}, pods: map[types.UID]*corev1.Pod{}, rolled: map[string]bool{},
	}
	var err error
	if h.sessions, err = r.sessions(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h.deleted, h.dropped = maps.Clone(r.recreated), maps.Clone(r.dropped)
	h.restarts, h.faults, h.losses = slices.Clone(r.restarts), slices.Clone(r.faults), slices.Clone(r.losses)
	h.rewound = slices.Clone(r.rewound)
	for _, e := range r.lost {
		if err := h.add(e); err != nil {
			return nil, err
		}
	}
	for _, e := range r.lost {
		h.known[e.ID] = true
	}
	return h, nil
}

// readBus reads the event history and the intents table.
func (r *run) readBus(ctx context.Context, h *history) error {
	b, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := b.Events(ctx, bus.Query{Since: time.Unix(1, 0)}, h.add); err != nil {
		return err
	}
	streams, err := b.Status(ctx)
	for _, s := range streams {
		if s.Name == bus.StreamIntents {
			h.waiting = int(s.Messages)
		}
	}
	return err
}

// connect connects a reader to the bus.
func (r *run) connect(ctx context.Context) (*bus.Bus, error) {
	b, err := bus.Connect(bus.Options{URL: natsURL(r.serverAddresses()), Name: "faults", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	for err := b.Ready(); err != nil; err = b.Ready() {
		if !pause(ctx, 10*time.Millisecond) {
			b.Close()
			return nil, err
		}
	}
	return b, nil
}

func (h *history) add(e schemas.Event) error {
	if e.Source == stranger || h.known[e.ID] {
		return nil
	}
	h.events = append(h.events, e)
	place := len(h.events)
	switch e.Type {
	case schemas.IntentsType:
		a, err := schemas.Decode[schemas.Intents](e)
		if err != nil {
			return err
		}
		about := subject{profile: a.Profile, strategy: a.Strategy, kind: a.Scope.Kind, key: a.Scope.Key}
		h.messages[about] = append(h.messages[about], e.Time)
		for _, i := range a.Intents {
			of := about
			of.pod = i.Pod.UID
			h.intents = append(h.intents, intent{i, of, e.Time, place})
		}
	case schemas.DeltaType:
		d, err := schemas.Decode[schemas.Delta](e)
		if err != nil {
			return err
		}
		if d.Kind == schemas.NodeTaints {
			h.noted[d.Object.Name] = append(h.noted[d.Object.Name], e.Time)
		}
	case schemas.VerdictType:
		v, err := schemas.Decode[schemas.Verdict](e)
		if err != nil {
			return err
		}
		to := h.verdicts
		if v.Outcome == schemas.Settled {
			to = h.settled
		}
		to[v.Intent.ID] = append(to[v.Intent.ID], verdict{v, e.Time, place})
	}
	return nil
}

func (h *history) addAudit(e cluster.AuditEntry) error {
	switch {
	case e.Resource == "nodes" && e.Code == http.StatusOK:
		return h.addNode(e)
	case e.Verb == "delete" && e.Resource == "pods" && e.User == cluster.ControllerManagerUser:
		h.rolled[e.Name] = true
	case e.Subresource == "eviction" && strings.HasPrefix(e.Namespace, namespace):
		return h.addEviction(e)
	}
	return nil
}

// addNode takes a change of the taints of a node: an update, a deletion, or a patch that names the taints, which sets all of them.
// The controllers taint a node whose heartbeats are missing.
func (h *history) addNode(e cluster.AuditEntry) error {
	var node struct {
		Spec map[string]json.RawMessage
	}
	var taints []corev1.Taint
	if strings.HasPrefix(string(e.Object), "[") {
		return nil // Rehome cordons or uncordons the node by a JSON patch
	}
	if e.Verb != "delete" {
		if err := json.Unmarshal(e.Object, &node); err != nil {
			return fmt.Errorf("node %s in the audit log: %w: %s", e.Name, err, e.Object)
		}
		list, named := node.Spec["taints"]
		if !named && e.Verb != "update" {
			return nil
		}
		if named {
			if err := json.Unmarshal(list, &taints); err != nil {
				return fmt.Errorf("node %s in the audit log: %w: %s", e.Name, err, e.Object)
			}
		}
	}
	set := slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoSchedule })
	h.taints[e.Name] = append(h.taints[e.Name], taint{e.Time, set})
	return nil
}

func (h *history) addEviction(e cluster.AuditEntry) error {
	if e.Code != http.StatusCreated && e.Code != http.StatusGatewayTimeout {
		return nil
	}
	var request policyv1.Eviction
	if err := json.Unmarshal(e.Object, &request); err != nil {
		return fmt.Errorf("eviction in the audit log: %w: %s", err, e.Object)
	}
	o := request.DeleteOptions
	if o == nil || o.Preconditions == nil || o.Preconditions.UID == nil {
		return fmt.Errorf("pod %s was evicted without its UID as a precondition: %s", e.Name, e.Object)
	}
	if len(o.DryRun) > 0 { // a surge asks whether the budget allows that its pod goes
		return nil
	}
	one := eviction{e.Name, *o.Preconditions.UID, e.Received, e.Time}
	if e.Code == http.StatusCreated {
		h.accepted = append(h.accepted, one)
	} else {
		h.unsure = append(h.unsure, one)
	}
	return nil
}

// about returns the intents and verdicts on a pod in order, and the faults and leaders in the minute around them.
func (h *history) about(uid types.UID) string {
	type line struct {
		at   time.Time
		text string
	}
	var lines []line
	for _, i := range h.intents {
		if i.Pod.UID == uid {
			lines = append(lines, line{i.at, "intent " + i.ID})
		}
	}
	for _, e := range slices.Concat(h.accepted, h.unsure) {
		if e.uid == uid {
			lines = append(lines, line{e.received, "eviction"})
		}
	}
	for _, verdicts := range []map[string][]verdict{h.verdicts, h.settled} {
		for id, list := range verdicts {
			for _, v := range list {
				if v.Intent.Pod.UID == uid {
					lines = append(lines, line{v.at, fmt.Sprintf("%s %s %s: %s", id, v.Outcome, v.Reason, v.Message)})
				}
			}
		}
	}
	if len(lines) == 0 {
		return "UID " + string(uid)
	}
	inOrder := func(a, b line) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.text, b.text)) }
	slices.SortFunc(lines, inOrder)
	first, last := lines[0].at.Add(-time.Minute), lines[len(lines)-1].at.Add(time.Minute)
	for _, f := range h.faults {
		if f.overlaps(first, last) {
			lines = append(lines, line{f.from, fmt.Sprintf("  %s, until %s", f.name, f.to.Format(clock))})
		}
	}
	for _, s := range h.sessions {
		if s.from.After(first) && s.from.Before(last) {
			lines = append(lines, line{s.from, fmt.Sprintf("  %s has the lease %s", s.role, s.lease)})
		}
	}
	slices.SortFunc(lines, inOrder)
	var b strings.Builder
	fmt.Fprintf(&b, "UID %s", uid)
	for _, l := range lines {
		fmt.Fprintf(&b, "\n    %s %s", l.at.Format(time.StampMilli), l.text)
	}
	return b.String()
}

// intentCount also counts intents that the history knows only from a verdict, because a newer message can replace an intents
// message before the history has a copy.
func (h *history) intentCount() int {
	ids := map[string]bool{}
	for _, i := range h.intents {
		ids[i.ID] = true
	}
	for id := range h.verdicts {
		ids[id] = true
	}
	return len(ids)
}

// cutBetween reports whether a fault that cuts leaders off was active at any time between two times.
func (h *history) cutBetween(from, to time.Time) bool {
	return slices.ContainsFunc(h.faults, func(f fault) bool { return f.cutsOff() && f.overlaps(from, to) })
}

// noticed returns when the watcher first published a change of the taints of a node between two times.
func (h *history) noticed(node string, from, to time.Time) (at time.Time, ok bool) {
	for _, n := range h.noted[node] {
		if n.After(from.Add(-100*time.Millisecond)) && n.Before(to) && (!ok || n.Before(at)) {
			at, ok = n, true
		}
	}
	return at, ok
}

// hiddenBetween reports whether the removal of a taint could be unknown to the actuator at any time between two times, because
// processes, the bus, or the control plane were away, or because a new watcher had to evaluate everything.
func (h *history) hiddenBetween(from, to time.Time) bool {
	return h.began(watcherLease, from, to) || h.began(actuatorLease, from, to) || slices.ContainsFunc(h.faults, func(f fault) bool {
		return f.family <= ofAPIServer && f.overlaps(from, to)
	})
}

// overlaps reports whether an interval includes any time between two times.
func (i interval) overlaps(from, to time.Time) bool { return i.to.After(from) && i.from.Before(to) }

func anyOverlap(list []interval, from, to time.Time) bool {
	return slices.ContainsFunc(list, func(i interval) bool { return i.overlaps(from, to) })
}
