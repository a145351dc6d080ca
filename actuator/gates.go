package actuator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/fit/score"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// longestIntent limits the time until an intent expires. A resync evaluates everything twice an hour.
const longestIntent = time.Hour

// readMessage reads the message in e. The error wraps [schemas.ErrInvalid]; one invalid intent makes the whole message
// invalid. The data must match the subject, because NATS permissions restrict only subjects, and the pods must match
// the scope.
func readMessage(e schemas.Event, now time.Time) (schemas.Intents, error) {
	a, err := schemas.Decode[schemas.Intents](e)
	if err != nil {
		return a, err
	}
	if err := checkMessage(a, e, now); err != nil {
		return a, fmt.Errorf("event %s: %w: %w", e.ID, schemas.ErrInvalid, err)
	}
	return a, nil
}

//nolint:gocyclo // a flat list of checks
func checkMessage(a schemas.Intents, e schemas.Event, now time.Time) error {
	switch {
	case a.Profile == "" || a.Strategy == "" || a.Scope.Kind == "" || a.Scope.Key == "":
		return errors.New("an intents message needs profile, strategy, scope.kind and scope.key")
	case e.Channel != a.Channel():
		return fmt.Errorf("the subject is %s, want %s for its profile, strategy, scope.kind and scope.key", e.Channel, a.Channel())
	}
	if (a.Strategy == schemas.MaintenanceStrategy) != (a.Scope.Kind == schemas.MaintenanceKind) {
		return fmt.Errorf("strategy %s does not use scopes of kind %s", a.Strategy, a.Scope.Kind)
	}
	ids, uids := make(map[string]bool, len(a.Intents)), make(map[types.UID]bool, len(a.Intents))
	for i, intent := range a.Intents {
		switch {
		case intent.ID == "":
			return fmt.Errorf("intents[%d] has no id", i)
		case ids[intent.ID]:
			return fmt.Errorf("intents[%d] has a duplicate id, %s", i, intent.ID)
		case len(validation.IsDNS1123Label(intent.Pod.Namespace)) > 0,
			len(validation.IsDNS1123Subdomain(intent.Pod.Name)) > 0:
			return fmt.Errorf("intents[%d].pod has the invalid name %q", i, intent.Pod)
		case intent.Pod.UID == "":
			return fmt.Errorf("intents[%d].pod has no uid", i)
		case uids[intent.Pod.UID]:
			return fmt.Errorf("intents[%d] lists pod %s again", i, intent.Pod)
		case intent.Node == "":
			return fmt.Errorf("intents[%d] has no node", i)
		case intent.Expires.IsZero():
			return fmt.Errorf("intents[%d] never expires", i)
		case intent.Expires.After(now.Add(longestIntent)): // not after e.Time, which is by the clock of a host
			return fmt.Errorf("intents[%d].expires is %s, want at most %v after %s", i, clock(intent.Expires), longestIntent, clock(now))
		}
		if err := belongs(intent, a.Scope); err != nil {
			return fmt.Errorf("intents[%d]%w", i, err)
		}
		ids[intent.ID], uids[intent.Pod.UID] = true, true
	}
	return nil
}

// belongs returns an error if the pod of an intent cannot be in the scope, judging by the key of the scope.
func belongs(intent schemas.Intent, scope schemas.ScopeRef) error {
	namespace, _, _ := strings.Cut(scope.Key, "/")
	switch scope.Kind {
	case schemas.NodeKind:
		if intent.Node != scope.Key {
			return fmt.Errorf(".node is %s, but the scope is node %s", intent.Node, scope.Key)
		}
	case schemas.PodKind:
		if intent.Pod.String() != scope.Key {
			return fmt.Errorf(".pod is %s, but the scope is pod %s", intent.Pod, scope.Key)
		}
	case schemas.WorkloadKind, schemas.SpreadKind:
		if intent.Pod.Namespace != namespace {
			return fmt.Errorf(".pod is %s, but the scope is in namespace %s", intent.Pod, namespace)
		}
	case schemas.DomainKind, schemas.UsageKind, schemas.RequestKind, schemas.MaintenanceKind: // pods of any node and namespace
	}
	return nil
}

// Situation is the input of the gates: the intent, and the current state of the cluster.
type Situation struct {
	Now    time.Time
	Intent Intent
	// Pod is the pod with the intent's namespace and name, or nil.
	Pod *corev1.Pod
	// Enabled means that the policy has the intent's profile with its strategy.
	Enabled bool
	// Protections are the rules of the profile that protect the pod now.
	Protections []schemas.Protection
}

// Judge applies the gates that an intent passes before its pod is moved, in order. It returns the first refusal, or nil.
// It is a pure function.
func Judge(s Situation) *move.Refusal {
	switch pod := s.Pod; {
	case s.Intent.expired(s.Now): // no stale moves
		return late(s.Intent)
	case !s.Enabled: // the policy may have changed since the strategy decided
		return disabled(s.Intent)
	case pod == nil:
		return rejected(schemas.ReasonPodGone, "the pod is gone")
	case pod.UID != s.Intent.Pod.UID: // a new pod has its name
		return rejected(schemas.ReasonPodGone, "the pod is gone; another one of its name has UID %s", pod.UID)
	case pod.DeletionTimestamp != nil: // the pod is leaving already
		return rejected(schemas.ReasonPodTerminating, "the pod is being deleted, until %s", clock(pod.DeletionTimestamp.Time))
	case schemas.Ended(pod) && !s.Intent.Ended: // an ended pod uses no resources, unless the strategy removes such pods
		return rejected(schemas.ReasonPodEnded, "the pod has %s", strings.ToLower(string(pod.Status.Phase)))
	case pod.Spec.NodeName != s.Intent.Node: // a decision for another node does not apply to this one
		return rejected(schemas.ReasonPodMoved, "the pod is on node %q, not on %q", pod.Spec.NodeName, s.Intent.Node)
	case len(s.Protections) > 0: // the pod may have become protected since the strategy decided
		rules := make([]string, len(s.Protections))
		for i, p := range s.Protections {
			rules[i] = p.Rule + ": " + p.Detail
		}
		return rejected(schemas.ReasonProtected, "%s", strings.Join(rules, "; "))
	}
	return nil
}

// judge applies the gates to an intent and its pod, or nil, and then reserves capacity for its replacement. It
// returns the first refusal, or nil.
func (a *Actuator) judge(i Intent, pod *corev1.Pod, now time.Time) *move.Refusal {
	p := a.policy.Load()
	profile, ok := enables(p, i)
	rules := profile.EvictorFor(i.Strategy)
	s := Situation{Now: now, Intent: i, Pod: pod, Enabled: ok}
	switch {
	case !ok || pod == nil:
	case i.Strategy == schemas.MaintenanceStrategy:
		rules = policy.Evictor{}
		s.Protections = p.Maintenance.Protects(pod, now)
	default:
		but := append(slices.Clone(i.asked().Override), policy.NodeFitRule) // reserve checks that
		s.Protections = rules.ProtectsBut(but, pod, now, a.cfg.Facts)
		// The watcher checks the node of a request. A later cordon withdraws no request, so it stops no move in flight.
		if why := a.unusable(p, pod.Spec.NodeName); why != "" && i.Strategy != schemas.RequestStrategy {
			s.Protections = append(s.Protections, schemas.Protection{Rule: policy.NodeNotUsableRule, Detail: why})
		}
	}
	if r := Judge(s); r != nil || a.cfg.Capacity == nil || !p.NeedsCapacity() {
		return r
	}
	return Reserve(a.cfg.Capacity, p, a.scheduler.Load(), i, rules, pod)
}

// Facts are the objects that decide whether a pod may move, besides the pod. [cluster.Cache] implements it.
type Facts interface {
	policy.Facts
	// Node returns the node of that name, or nil.
	Node(name string) *corev1.Node
}

// unusable returns the reason why no pod of the node may move, or "".
func (a *Actuator) unusable(p *policy.Policy, node string) string {
	if a.cfg.Facts == nil {
		return ""
	}
	n := a.cfg.Facts.Node(node)
	if n == nil {
		return "there is no node " + node
	}
	return cluster.Unusable(n, p.Selector(), p.Signals)
}

// Capacity reserves capacity for the replacements of pods. [cluster.Cache] implements it.
type Capacity interface {
	// Reserve reserves capacity for the replacement of a pod.
	Reserve(m cluster.Move) cluster.Room
	// ReserveMoved reserves capacity for the replacement of a pod that was moved already.
	ReserveMoved(pod types.UID, scheduler *score.Profile) bool
	// Release ends a reservation, if there is one.
	Release(pod types.UID)
	// Forget removes a reservation that has not ended, so that ReserveMoved can make it again.
	Forget(pod types.UID)
}

// Reserve reserves capacity for the replacement of a pod that passed the gates, on the node that the scheduler would
// choose. It returns a refusal if the rules require capacity and there is none, or if the move would be in vain.
func Reserve(
	c Capacity, p *policy.Policy, scheduler *score.Profile, i Intent, rules policy.Evictor, pod *corev1.Pod,
) *move.Refusal {
	m := cluster.Move{Pod: pod, Scheduler: scheduler, To: policy.Targets{Signals: p.Signals}}
	holds, to := rules.NodeFit()
	if holds = holds && !slices.Contains(i.asked().Override, policy.NodeFitRule); holds {
		m.To = to
	}
	if e, enabled := p.Enabled(i.Profile, i.Strategy); enabled && e.StaysAway() {
		m.InVain = func(q *fit.Question, to *corev1.Node) string { return inVain(p, e, q, to) }
	}
	room := c.Reserve(m)
	switch {
	case holds && rules.Refuses(room.Fits, room.Judged):
	case room.InVain != "":
		return move.Deferred(schemas.ReasonInVain, "%s", room.InVain)
	default:
		return nil
	}
	if len(room.By) > 0 {
		names := make([]string, len(room.By))
		for i, p := range room.By {
			names[i] = p.Namespace + "/" + p.Name
		}
		room.Why += ", while capacity is reserved for the replacements of " + strings.Join(names, ", ")
	}
	r := move.Deferred(schemas.ReasonNodeFit, "%s: %s", policy.NodeFitRule, room.Why)
	r.Blockers = room.By
	return r
}

// enables returns the profile of an intent, and whether the policy has it with the intent's strategy. Requests may name
// any profile, and maintenances need none.
func enables(p *policy.Policy, i Intent) (policy.Profile, bool) {
	profile, ok := p.Profile(i.Profile)
	switch i.Strategy {
	case schemas.RequestStrategy:
		return profile, ok
	case schemas.MaintenanceStrategy:
		return profile, true
	}
	return profile, ok && slices.ContainsFunc(profile.Strategies, func(s policy.Enabled) bool { return s.Name == i.Strategy })
}

func rejected(reason schemas.ReasonCode, format string, args ...any) *move.Refusal {
	return &move.Refusal{Outcome: schemas.Rejected, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// isGone reports whether the pod is gone or leaves.
func isGone(r *move.Refusal) bool {
	return r != nil && (r.Reason == schemas.ReasonPodGone || r.Reason == schemas.ReasonPodTerminating)
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// late returns the refusal of an intent that has expired.
func late(i Intent) *move.Refusal {
	message := "expired at " + clock(i.Expires) + " before its turn came"
	return &move.Refusal{Outcome: schemas.Expired, Reason: schemas.ReasonExpired, Message: message}
}

// disabled returns the refusal of an intent whose profile or strategy is not in the policy.
func disabled(i Intent) *move.Refusal {
	return rejected(schemas.ReasonProfileUnknown, "the policy has no profile %q with strategy %q", i.Profile, i.Strategy)
}

// inVain returns the reason why moving the pod would not improve anything if the scheduler placed its replacement on a
// node, or "". It is pure.
func inVain(p *policy.Policy, e policy.Enabled, q *fit.Question, to *corev1.Node) string {
	own := q.Pod().Spec.NodeName
	if to.Name == own {
		return fmt.Sprintf("the scheduler would place the replacement on %s again", own)
	}
	if why := cluster.Closed(to, p.Signals); why != "" {
		return fmt.Sprintf("the scheduler would place the replacement on %s, which is excluded: %s", to.Name, why)
	}
	if e.SpreadsReplicas {
		if replicas := q.Replicas(); replicas != nil && replicas[to.Name] >= replicas[own] {
			return fmt.Sprintf("the scheduler would place the replacement on %s, which has %d of these pods; %s would have %d",
				to.Name, replicas[to.Name], own, replicas[own])
		}
	}
	if e.Scope != schemas.UsageKind {
		return ""
	}
	rules, err := e.ScopeRules()
	if err == nil && rules.Gauged.Load().Source == policy.LoadRequests &&
		slices.Contains(rules.Gauged.Sources(usage(p, rules.Gauged, q, to)), to.Name) {
		return fmt.Sprintf("the scheduler would place the replacement on %s, which %s takes pods from, too", to.Name, e.Name)
	}
	return ""
}

// usage returns the requests on the usable nodes when the replacement of the pod is on a node.
func usage(p *policy.Policy, g policy.Gauged, q *fit.Question, to *corev1.Node) (all []schemas.NodeUsage) {
	amount := func(name corev1.ResourceName, value int64) resource.Quantity {
		if name == corev1.ResourceCPU {
			return *resource.NewMilliQuantity(value, resource.DecimalSI)
		}
		return *resource.NewQuantity(value, resource.DecimalSI)
	}
	wanted, selected := g.Resources(), p.Selector()
	q.Usage(func(c fit.Candidate) {
		if cluster.Unusable(c.Node, selected, p.Signals) != "" {
			return
		}
		u := schemas.NodeUsage{
			Name: c.Node.Name, Unschedulable: c.Node.Spec.Unschedulable, Taints: c.Node.Spec.Taints,
			Capacity: corev1.ResourceList{}, Used: corev1.ResourceList{},
		}
		for _, name := range wanted {
			if capacity, has := c.Node.Status.Allocatable[name]; has {
				u.Capacity[name] = capacity
			}
			used, added := c.Requested(name), q.Requests(name)
			if name == corev1.ResourcePods {
				used, added = int64(c.Pods()), 1
			}
			if c.Node.Name == to.Name {
				used += added
			}
			u.Used[name] = amount(name, used)
		}
		all = append(all, u)
	})
	return all
}
