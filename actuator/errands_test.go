package actuator

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/maintenance"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// maintaining makes an answer one of the maintenance that is named, whose resource version is its sequence.
func maintaining(name string, sequence uint64, uids ...types.UID) schemas.Intents {
	a, _ := answerTo(schemas.MaintenanceStrategy, sequence, uids...)
	onKey(schemas.MaintenanceKind, name)(&a)
	a.Maintenance = &schemas.MaintenanceSteps{Name: name, UID: "m", ResourceVersion: fmt.Sprint(sequence)}
	return a
}

func (b *bench) maintain(name string, sequence uint64, uids ...types.UID) {
	a := maintaining(name, sequence, uids...)
	for i := range a.Intents {
		a.Intents[i].ID = strings.Replace(a.Intents[i].ID, schemas.MaintenanceStrategy, name, 1)
		a.Intents[i].Expires = b.start.Add(10 * time.Minute)
	}
	e, err := schemas.NewEvent("/test", a, b.start, schemas.Event{})
	if err != nil {
		panic(err)
	}
	b.bus.put(e)
}

// carrier carries steps out as it is told, and remembers which: NAME@VERSION+SECONDS, when it began.
type carrier struct {
	do func(s schemas.MaintenanceSteps) (maintenance.Result, error)

	mu    sync.Mutex
	began []string
	start time.Time
}

func (c *carrier) Do(_ context.Context, s schemas.MaintenanceSteps) (maintenance.Result, error) {
	c.mu.Lock()
	c.began = append(c.began, fmt.Sprintf("%s@%s+%v", s.Name, s.ResourceVersion, time.Since(c.start).Round(time.Second)))
	c.mu.Unlock()
	return c.do(s)
}

func (c *carrier) calls() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.began)
}

// carries lets the bench carry steps out by do, from when it has begun to lead on.
func (b *bench) carries(do func(s schemas.MaintenanceSteps) (maintenance.Result, error)) *carrier {
	synctest.Wait()
	c := &carrier{do: do, start: b.start}
	b.steps = c
	return c
}

// taking is what takes that long.
func taking(d time.Duration) func(schemas.MaintenanceSteps) (maintenance.Result, error) {
	return func(schemas.MaintenanceSteps) (maintenance.Result, error) {
		time.Sleep(d)
		return maintenance.Result{}, nil
	}
}

var (
	evictsAll  = always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0)
	accepted   = schemas.ReasonEvictionAccepted
	superseded = schemas.ReasonSuperseded
)

func TestPodsOfAMaintenanceMoveWhenAllElseIsDoneAndOthersDoNotWaitForThat(t *testing.T) {
	inBubble(t, Config{Policy: fast}, evictsAll, func(t *testing.T, b *bench) {
		b.carries(taking(2 * time.Second))
		b.maintain("kernel", 1, "1", "2")
		b.maintain("disks", 2, "3")
		b.put("A", 3, "4")
		time.Sleep(time.Second)
		check(t, "answers left before", b.bus.left(), 2)
		time.Sleep(2 * time.Second)
		check(t, "verdicts", b.bus.heard(t, b.start), []heard{
			{"A-3.4", accepted, 0}, {"disks-2.3", accepted, 2 * time.Second},
			{"kernel-1.1", accepted, 2 * time.Second}, {"kernel-1.2", accepted, 2 * time.Second},
		})
		check(t, "answers left", b.bus.left(), 0)
	})
}

func TestOfTheAnswersOfOneMaintenanceTheNewestCounts(t *testing.T) {
	inBubble(t, Config{Policy: fast}, evictsAll, func(t *testing.T, b *bench) {
		c := b.carries(taking(10 * time.Second))
		for sequence := uint64(1); sequence <= 3; sequence++ {
			b.maintain("kernel", sequence, types.UID(fmt.Sprint(sequence)))
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		b.maintain("kernel", 2, "2") // late
		time.Sleep(time.Minute)
		check(t, "carried out", c.calls(), []string{"kernel@1+0s", "kernel@3+10s"})
		check(t, "verdicts", b.bus.heard(t, b.start), []heard{
			{"kernel-3.3", accepted, 20 * time.Second},
		})
		check(t, "answers left", b.bus.left(), 0)
	})
}

func TestANodeIsGivenBackWhenEveryMoveOffItThatWasBegunHasLanded(t *testing.T) {
	inBubble(t, Config{Policy: fast}, always(schemas.Evicted, accepted, 5*time.Second), func(t *testing.T, b *bench) {
		c := b.carries(taking(0))
		b.maintain("kernel", 1, "1")
		time.Sleep(time.Second)
		b.maintain("kernel", 2)
		time.Sleep(time.Minute)
		check(t, "carried out", c.calls(), []string{"kernel@1+0s", "kernel@2+5s"})
		check(t, "verdicts", b.bus.heard(t, b.start), []heard{{"kernel-1.1", accepted, 5 * time.Second}})
		check(t, "answers left", b.bus.left(), 0)
	})
}

func TestNoMoveOffANodeBeginsWhileItIsGivenBack(t *testing.T) {
	cfg := Config{Policy: policy.Policy{Rate: policy.Rate{EvictionsPerSecond: 0.2, Burst: 1}}}
	inBubble(t, cfg, evictsAll, func(t *testing.T, b *bench) {
		c := b.carries(func(s schemas.MaintenanceSteps) (maintenance.Result, error) {
			if s.ResourceVersion == "2" {
				time.Sleep(30 * time.Second)
			}
			return maintenance.Result{}, nil
		})
		b.maintain("kernel", 1, "1", "2", "3", "4")
		time.Sleep(time.Second)
		b.maintain("kernel", 2)
		time.Sleep(time.Minute)
		check(t, "carried out", c.calls(), []string{"kernel@1+0s", "kernel@2+1s"})
		check(t, "verdicts", b.bus.heard(t, b.start), []heard{
			{"kernel-1.1", accepted, 0}, {"kernel-1.2", superseded, time.Second}, {"kernel-1.3", superseded, time.Second},
			{"kernel-1.4", superseded, time.Second},
		})
		check(t, "answers left", b.bus.left(), 0)
	})
}

func TestAnAnswerOfAMaintenanceThatDoesNotHoldAnyMoreIsDroppedWithItsIntents(t *testing.T) {
	inBubble(t, Config{Policy: fast}, evictsAll, func(t *testing.T, b *bench) {
		c := b.carries(func(s schemas.MaintenanceSteps) (maintenance.Result, error) {
			if s.ResourceVersion == "1" {
				return maintenance.Result{Dropped: "it has changed since that was verdictOn"}, nil
			}
			return maintenance.Result{}, nil
		})
		b.maintain("kernel", 1, "1")
		time.Sleep(time.Second)
		check(t, "answers left", b.bus.left(), 0)
		b.maintain("kernel", 1, "1") // once more
		time.Sleep(time.Second)
		check(t, "answers left", b.bus.left(), 0)
		b.maintain("kernel", 2, "1")
		time.Sleep(time.Second)
		check(t, "carried out", c.calls(), []string{"kernel@1+0s", "kernel@2+2s"})
		check(t, "verdicts", b.bus.heard(t, b.start), []heard{{"kernel-2.1", accepted, 2 * time.Second}})
	})
}

func TestStepsThatFailAreTriedAgainAndTheAnswerStaysUntilTheyAreDone(t *testing.T) {
	inBubble(t, Config{Policy: fast}, evictsAll, func(t *testing.T, b *bench) {
		b.carries(func(schemas.MaintenanceSteps) (maintenance.Result, error) {
			if time.Since(b.start) < 30*time.Second {
				return maintenance.Result{}, errors.New("connection refused")
			}
			return maintenance.Result{}, nil
		})
		b.maintain("kernel", 1, "1")
		time.Sleep(29 * time.Second)
		check(t, "answers left while the API server is away", b.bus.left(), 1)
		check(t, "verdicts while it is away", b.bus.heard(t, b.start), nil)
		time.Sleep(7 * time.Second)
		check(t, "verdicts", len(b.bus.heard(t, b.start)), 1)
		check(t, "answers left", b.bus.left(), 0)
		b.stop()
		check(t, "lines in the log", strings.Count(b.log.String(), "maintenance cannot be carried out, trying again"), 1)
	})
}

func TestANewerAnswerIsNotKeptWaitingByOneThatFails(t *testing.T) {
	inBubble(t, Config{Policy: fast}, evictsAll, func(t *testing.T, b *bench) {
		c := b.carries(func(s schemas.MaintenanceSteps) (maintenance.Result, error) {
			if s.ResourceVersion == "1" {
				return maintenance.Result{}, errors.New("forbidden")
			}
			return maintenance.Result{}, nil
		})
		b.maintain("kernel", 1, "1")
		time.Sleep(time.Minute)
		began := time.Now()
		b.maintain("kernel", 2, "2")
		synctest.Wait()
		check(t, "the last that was carried out", c.calls()[len(c.calls())-1], "kernel@2+1m0s")
		check(t, "verdicts", b.bus.heard(t, began), []heard{{"kernel-2.2", accepted, 0}})
	})
}

// maintainNodes is maintain with a cordon of each node and a pod on each of some, whose UID is the name of its node.
func (b *bench) maintainNodes(sequence uint64, nodes []string, leaving ...types.UID) {
	a := maintaining("kernel", sequence, leaving...)
	for _, name := range nodes {
		a.Maintenance.Nodes = append(a.Maintenance.Nodes, schemas.NodeStep{
			Name: name, UID: types.UID(name), Action: schemas.NodeCordon, Mark: schemas.CordonMark{Name: "kernel", UID: "m"},
		})
	}
	for i, intent := range a.Intents {
		a.Intents[i].Node, a.Intents[i].Expires = string(intent.Pod.UID), b.start.Add(10*time.Minute)
	}
	e, err := schemas.NewEvent("/test", a, b.start, schemas.Event{})
	if err != nil {
		panic(err)
	}
	b.bus.put(e)
}

// refusing is an API server that stores the status, and refuses one action on one node as long as asked says so. It remembers the
// nodes that it was asked to change.
func refusing(
	node string, action schemas.NodeAction, refuses func() bool, asked *[]string,
) func(schemas.MaintenanceSteps) (maintenance.Result, error) {
	return func(s schemas.MaintenanceSteps) (maintenance.Result, error) {
		r, names := wrote(), ""
		var failed error
		for _, n := range s.Nodes {
			d := maintenance.Done{NodeStep: n, Outcome: maintenance.Changed}
			if n.Name == node && n.Action == action && refuses() {
				failed = errors.New("change node " + node + ": denied")
				d.Outcome, d.Message, d.Err = maintenance.Failed, failed.Error(), failed
			}
			r.Nodes = append(r.Nodes, d)
			names += n.Name
		}
		*asked = append(*asked, names)
		return r, failed
	}
}

func TestAStepThatFailsIsTriedAgainAloneAndHoldsUpNoMoveOffOtherNodes(t *testing.T) {
	inBubble(t, Config{Policy: fast}, evictsAll, func(t *testing.T, b *bench) {
		var asked []string
		b.carries(refusing("b", schemas.NodeCordon, func() bool { return time.Since(b.start) < 30*time.Minute }, &asked))
		b.maintainNodes(1, []string{"a", "b", "c"}, "x", "y")
		time.Sleep(29 * time.Minute)
		want := []heard{{"Maintenance-1.x", accepted, 0}, {"Maintenance-1.y", accepted, 0}}
		check(t, "verdicts while it fails", b.bus.heard(t, b.start), want)
		check(t, "answers left while it fails", b.bus.left(), 1)
		time.Sleep(2 * time.Minute)
		check(t, "verdicts", b.bus.heard(t, b.start), want)
		check(t, "answers left", b.bus.left(), 0)
		check(t, "nodes that were asked for", slices.Compact(asked), []string{"abc", "b"})
		b.stop()
		check(t, "lines in the log", strings.Count(b.log.String(), "level=WARN"), 1)
		check(t, "lines that name all of it", strings.Count(b.log.String(), `msg="step of a maintenance failed, trying again" `+
			`maintenance=kernel evaluation=1 dryRun=false node=b action=cordon error="change node b: denied"`), 1)
	})
}

func TestNoPodMovesOffANodeWhoseOwnCordonFailed(t *testing.T) {
	inBubble(t, Config{Policy: fast}, evictsAll, func(t *testing.T, b *bench) {
		var asked []string
		b.carries(refusing("b", schemas.NodeCordon, func() bool { return time.Since(b.start) < time.Minute }, &asked))
		b.maintainNodes(1, []string{"a", "b"}, "a", "b")
		time.Sleep(59 * time.Second)
		check(t, "verdicts while it fails", b.bus.heard(t, b.start), nil)
		time.Sleep(10 * time.Second)
		check(t, "verdicts", len(b.bus.heard(t, b.start)), 2)
		check(t, "answers left", b.bus.left(), 0)
	})
}

func TestANewerAnswerReplacesOneOfWhichAStepStillFails(t *testing.T) {
	cfg := Config{Policy: policy.Policy{Rate: policy.Rate{EvictionsPerSecond: 0.0001, Burst: 1}}}
	inBubble(t, cfg, evictsAll, func(t *testing.T, b *bench) {
		var asked []string
		b.carries(refusing("b", schemas.NodeCordon, func() bool { return true }, &asked))
		b.maintainNodes(1, []string{"a", "b"}, "x", "y", "z")
		time.Sleep(time.Second)
		b.maintainNodes(2, []string{"a"}, "z")
		time.Sleep(time.Second)
		check(t, "verdicts", b.bus.heard(t, b.start), []heard{{"Maintenance-1.x", accepted, 0}, {"Maintenance-1.y", superseded, time.Second}})
		check(t, "the last that was asked for", asked[len(asked)-1], "a")
		check(t, "answers left", b.bus.left(), 1)
		time.Sleep(15 * time.Minute)
		check(t, "verdicts", b.bus.heard(t, b.start)[2:], []heard{{"Maintenance-1.z", schemas.ReasonExpired, 10 * time.Minute}})
		check(t, "answers left", b.bus.left(), 0)
	})
}

func TestAnAnswerThatComesAgainWhileAStepFailsHasItsIntentsJudgedOnce(t *testing.T) {
	inBubble(t, Config{Policy: fast}, evictsAll, func(t *testing.T, b *bench) {
		var asked []string
		b.carries(refusing("b", schemas.NodeCordon, func() bool { return time.Since(b.start) < time.Minute }, &asked))
		for range 3 {
			b.maintainNodes(1, []string{"b"}, "x")
			time.Sleep(20 * time.Second)
		}
		check(t, "answers left while it fails", b.bus.left(), 1)
		time.Sleep(10 * time.Second)
		check(t, "verdicts", b.bus.heard(t, b.start), []heard{{"Maintenance-1.x", accepted, 0}})
		check(t, "answers left", b.bus.left(), 0)
	})
}

func TestAnAnswerThatDoesNotHoldAnyMoreWhenAStepIsTriedAgainIsDroppedAndWhatItMovesHasOneVerdict(t *testing.T) {
	inBubble(t, Config{Policy: fast}, always(schemas.Evicted, accepted, 5*time.Second), func(t *testing.T, b *bench) {
		var asked []string
		refuse := refusing("b", schemas.NodeCordon, func() bool { return true }, &asked)
		b.carries(func(s schemas.MaintenanceSteps) (maintenance.Result, error) {
			if time.Since(b.start) > time.Second {
				return maintenance.Result{Dropped: "it does not exist any more"}, nil
			}
			return refuse(s)
		})
		b.maintainNodes(1, []string{"b"}, "x")
		time.Sleep(4 * time.Second)
		check(t, "answers left while a pod moves", b.bus.left(), 1)
		time.Sleep(5 * time.Minute)
		check(t, "verdicts", b.bus.heard(t, b.start), []heard{{"Maintenance-1.x", accepted, 5 * time.Second}})
		check(t, "answers left", b.bus.left(), 0)
	})
}

func TestTheNextLeaderBeginsAnewWithAnAnswerOfWhichAStepFails(t *testing.T) {
	inBubble(t, Config{Policy: fast}, evictsAll, func(t *testing.T, b *bench) {
		var asked []string
		b.carries(refusing("b", schemas.NodeCordon, func() bool { return true }, &asked))
		b.maintainNodes(1, []string{"a", "b"}, "x")
		time.Sleep(time.Minute)
		b.stop()
		asked = nil
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.lead(ctx, evictsAll) }()
		time.Sleep(time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Lead: %v", err)
		}
		check(t, "nodes that were asked for", slices.Compact(asked), []string{"ab", "b"})
		check(t, "verdicts", b.bus.heard(t, b.start), []heard{{"Maintenance-1.x", accepted, 0}})
		check(t, "answers left", b.bus.left(), 1)
	})
}

func TestTheNextLeaderCarriesOutWhatTheLastOneDidNotAndEveryIntentHasOneVerdict(t *testing.T) {
	cfg := Config{Policy: policy.Policy{Rate: policy.Rate{EvictionsPerSecond: 0.1, Burst: 1}}}
	inBubble(t, cfg, evictsAll, func(t *testing.T, b *bench) {
		c := b.carries(taking(time.Second))
		b.maintain("kernel", 1, "1", "2", "3")
		time.Sleep(2 * time.Second)
		b.maintain("kernel", 2, "2", "3") // the one that goes away does not come to the end of it
		time.Sleep(500 * ms)
		b.stop()
		check(t, "verdicts of the first", b.bus.heard(t, b.start), []heard{{"kernel-1.1", accepted, time.Second}})

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		began := time.Now()
		go func() { ended <- b.lead(ctx, evictsAll) }()
		time.Sleep(30 * time.Second)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Lead: %v", err)
		}
		check(t, "carried out", c.calls(), []string{"kernel@1+0s", "kernel@2+2s", "kernel@2+3s"})
		check(t, "verdicts of the next", b.bus.heard(t, began)[1:], []heard{
			{"kernel-2.2", accepted, time.Second}, {"kernel-2.3", accepted, 11 * time.Second},
		})
		check(t, "answers left", b.bus.left(), 0)
	})
}

func TestWhoHasNoClientOfTheKindsDropsAnswersOfMaintenances(t *testing.T) {
	inBubble(t, Config{Policy: fast}, evictsAll, func(t *testing.T, b *bench) {
		b.maintain("kernel", 1, "1")
		time.Sleep(time.Second)
		check(t, "verdicts", b.bus.heard(t, b.start), nil)
		check(t, "answers left", b.bus.left(), 0)
	})
}

func TestWhatAMaintenanceMovesNeedsNoProfileAndComesWithTheNodes(t *testing.T) {
	o := wish()
	o.Strategy, o.Profile = schemas.MaintenanceStrategy, "whatever"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "api-0"}} // which nobody would replace
	signalled := pod.DeepCopy()
	signalled.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
	protecting := policy.Maintenance{Protect: []string{policy.FailedBarePods}}
	type seen struct {
		enabled     bool
		priority    policy.Priority
		protections []schemas.Protection
	}
	look := func(m policy.Maintenance, pod *corev1.Pod) seen {
		a := New(Config{Policy: policy.Policy{Maintenance: m}})
		s := a.situation(o, pod)
		return seen{s.Enabled, a.policy.Load().Traits(o.Strategy).Priority, s.Protections}
	}
	got := []seen{look(policy.Maintenance{}, pod), look(policy.Maintenance{}, signalled), look(protecting, pod)}
	want := []seen{
		{true, policy.PriorityNode, nil},
		{true, policy.PriorityNode, []schemas.Protection{{Rule: policy.SignalRule, Detail: `its annotation karpenter.sh/do-not-disrupt is "true"`}}},
		{true, policy.PriorityNode, []schemas.Protection{{Rule: policy.FailedBarePods, Detail: "it has no owner that would replace it"}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestAReplacementComesFirstInAMaintenanceUnlessThePolicySaysOtherwise(t *testing.T) {
	o := wish()
	other := o.Strategy
	for _, c := range []struct {
		strategy string
		policy   policy.Maintenance
		want     bool
	}{
		{schemas.MaintenanceStrategy, policy.Maintenance{}, true},
		{schemas.MaintenanceStrategy, policy.Maintenance{RestartAsUsual: true}, false},
		{other, policy.Maintenance{}, false},
	} {
		o.Strategy = c.strategy
		if got := prefersRestart(&policy.Policy{Maintenance: c.policy}, o); got != c.want {
			t.Errorf("%s with %+v: got %v, want %v", c.strategy, c.policy, got, c.want)
		}
	}
}

// named gives an answer, its scope and its marks that name of a maintenance.
func named(name string) func(*schemas.Intents) {
	return func(a *schemas.Intents) {
		a.Scope.Key, a.Maintenance.Name, a.Maintenance.Nodes[0].Mark.Name = name, name, name
	}
}

func TestAnAnswerWantsNoMoreThanItsMaintenanceMay(t *testing.T) {
	step := schemas.NodeStep{Name: "worker-1", UID: "n", Action: schemas.NodeCordon, Mark: schemas.CordonMark{Name: "kernel", UID: "m"}}
	for _, c := range []struct {
		name  string
		spoil func(*schemas.Intents)
		want  string
	}{
		{"it is right", func(*schemas.Intents) {}, ""},
		{"steps without a maintenance", func(a *schemas.Intents) { a.Strategy, a.Scope.Kind = "A", schemas.DomainKind },
			"maintenance is set, and the strategy is A"},
		{"a strategy that answers for a maintenance", func(a *schemas.Intents) { a.Strategy = "A" },
			"strategy A answers a scope of the kind maintenance; want Maintenance for maintenance, and for nothing else"},
		{"another maintenance than that of the scope", func(a *schemas.Intents) { a.Maintenance.Name = "disks" },
			`maintenance.name is "disks", and the scope is that of maintenance kernel`},
		{"no UID", func(a *schemas.Intents) { a.Maintenance.UID = "" }, "maintenance needs uid and resourceVersion"},
		{"no version", func(a *schemas.Intents) { a.Maintenance.ResourceVersion = "" }, "maintenance needs uid and resourceVersion"},
		{"a node without a UID", func(a *schemas.Intents) { a.Maintenance.Nodes[0].UID = "" },
			"maintenance.nodes[0] needs name and uid"},
		{"something else done to a node", func(a *schemas.Intents) { a.Maintenance.Nodes[0].Action = "delete" },
			`maintenance.nodes[0].action is "delete", want cordon, return or mark`},
		{"a mark of another maintenance", func(a *schemas.Intents) { a.Maintenance.Nodes[0].Mark.UID = "x" },
			`maintenance.nodes[0].mark is that of "x", want "m"`},
		{"a mark of another name", func(a *schemas.Intents) { a.Maintenance.Nodes[0].Mark.Name = "disks" },
			`maintenance.nodes[0].mark.name is "disks", want "kernel"`},
		{"one node twice", func(a *schemas.Intents) { a.Maintenance.Nodes = append(a.Maintenance.Nodes, step) },
			"maintenance.nodes[1] lists node worker-1 again"},
		{"an entry of the table about its node", named("node/worker-1"), ""},
		{"an entry of the table for a sign on its node", named("sign/worker-1"), ""},
		{"an entry of the table about another node", named("node/worker-2"),
			"maintenance.nodes[0] is node worker-1, and the maintenance is that of node worker-2"},
		{"a slash in another name", named("nodes/worker-1"),
			`maintenance.name is "nodes/worker-1", which is neither that of an object nor node/NODE nor sign/NODE`},
		{"a second slash", named("node/a/worker-1"),
			`maintenance.name is "node/a/worker-1", which is neither that of an object nor node/NODE nor sign/NODE`},
	} {
		a := maintaining("kernel", 1, "1")
		a.Maintenance.Nodes = []schemas.NodeStep{step}
		c.spoil(&a)
		got := ""
		if err := checkSteps(a); err != nil {
			got = err.Error()
		}
		check(t, c.name, got, c.want)
	}
}

// TestEachStageIsToldByAnEventOfItsOwn: Events that differ in nothing but their text become one, with the text of the first.
func TestEachStageIsToldByAnEventOfItsOwn(t *testing.T) {
	s := schemas.MaintenanceSteps{Name: "kernel", UID: "m"}
	want := []string{"Idle", "Cordon", "Drain", "Complete"}
	for _, stage := range want {
		s.Status.Stages = append(s.Status.Stages, v1alpha1.StageTime{Stage: v1alpha1.Stage(stage)})
	}
	var got []string
	for _, n := range statusEvents(s, maintenance.Result{Before: &v1alpha1.NodeMaintenance{}}) {
		got = append(got, n.action)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("actions: got %q, want %q", got, want)
	}
}

func TestKubernetesEventsTellOfAMaintenanceOnceAndOnBothWhomTheyConcern(t *testing.T) {
	at := metav1.NewTime(noon.Add(-time.Hour))
	s := schemas.MaintenanceSteps{Name: "kernel", UID: "m", Status: v1alpha1.NodeMaintenanceStatus{
		Stages: []v1alpha1.StageTime{{Stage: v1alpha1.Cordon}, {Stage: v1alpha1.Drain}},
		Nodes: []v1alpha1.NodeStatus{
			{Name: "a", UID: "1", Stage: v1alpha1.IsDrained}, {Name: "b", UID: "2", Stage: v1alpha1.Held, Message: "3 pods left"},
			{Name: "c", UID: "3", Stage: v1alpha1.Draining, Blocked: []v1alpha1.BlockedPod{
				{Namespace: "shop", Name: "cart", Reason: "DisruptionBudget", By: "poddisruptionbudget/shop/cart", Since: &at},
			}},
		},
		Conditions: []metav1.Condition{{Type: v1alpha1.Accepted, Status: "False", Reason: "AllNodes", Message: "means all"}},
	}}
	before := v1alpha1.NodeMaintenance{Spec: v1alpha1.NodeMaintenanceSpec{Reason: "new kernel"}}
	before.Status.Stages = s.Status.Stages[:1]
	node := func(name string, action schemas.NodeAction, outcome maintenance.Outcome) maintenance.Done {
		return maintenance.Done{NodeStep: schemas.NodeStep{Name: name, UID: "9", Action: action}, Outcome: outcome, Message: "words"}
	}
	again := node("e", schemas.NodeCordon, maintenance.Changed)
	again.Again = true
	r := maintenance.Result{Before: &before, Wrote: true, Nodes: []maintenance.Done{
		node("d", schemas.NodeCordon, maintenance.Changed), again, node("f", schemas.NodeReturn, maintenance.Changed),
		node("g", schemas.NodeCordon, maintenance.Taken), node("h", schemas.NodeCordon, maintenance.Outdated),
		node("i", schemas.NodeMark, maintenance.Changed),
	}}
	term := newSession(t.Context(), func() bool { return false }, New(Config{Now: func() time.Time { return noon }}), nil, recorder{})
	list := append(stepEvents(s, r), statusEvents(s, r)...)
	list = append(append(list, term.blockedEvents(s)...), term.blockedEvents(s)...)
	var got []string
	for _, n := range list {
		got = append(got, fmt.Sprintf("%s/%s %s %s: %s", n.regarding.Kind, n.regarding.Name, n.kind, n.reason, n.text))
	}
	want := []string{
		"Node/d Normal NodeCordoned: cordoned: new kernel; words (maintenance kernel)",
		"NodeMaintenance/kernel Normal NodeCordoned: node d: cordoned: new kernel; words",
		"Node/e Warning CordonedAgain: somebody has uncordoned the node while it is maintained; it is cordoned again: new kernel " +
			"(maintenance kernel)",
		"NodeMaintenance/kernel Warning CordonedAgain: node e: somebody has uncordoned the node while it is maintained; it is " +
			"cordoned again: new kernel",
		"Node/f Normal NodeReturned: given back; words (maintenance kernel)",
		"NodeMaintenance/kernel Normal NodeReturned: node f: given back; words",
		"NodeMaintenance/kernel Warning NodeTaken: node g is not cordoned: words",
		"NodeMaintenance/kernel Normal StageBegun: Drain begins: new kernel",
		"NodeMaintenance/kernel Warning Refused: AllNodes: means all",
		"Node/a Normal NodeDrained: drained: new kernel (maintenance kernel)",
		"NodeMaintenance/kernel Normal NodeDrained: node a: drained: new kernel",
		"Node/b Warning NodeDeadline: its deadline has passed; 3 pods left (maintenance kernel)",
		"NodeMaintenance/kernel Warning NodeDeadline: node b: its deadline has passed; 3 pods left",
		fmt.Sprintf("NodeMaintenance/kernel Warning Blocked: node c: pod shop/cart cannot move since %s: DisruptionBudget; "+
			"poddisruptionbudget/shop/cart", clock(at.Time)),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestKubernetesEventsTellOfAMaintenanceThatIsNoObjectOnItsNodeAlone(t *testing.T) {
	s := schemas.MaintenanceSteps{Name: "node/a", UID: "m", Status: v1alpha1.NodeMaintenanceStatus{
		Stages:     []v1alpha1.StageTime{{Stage: v1alpha1.Drain}},
		Nodes:      []v1alpha1.NodeStatus{{Name: "a", UID: "1", Stage: v1alpha1.IsDrained}},
		Conditions: []metav1.Condition{{Type: v1alpha1.Accepted, Status: "False", Reason: "SingleNode", Message: "is the only one"}},
	}}
	r := maintenance.Result{
		Before: &v1alpha1.NodeMaintenance{Spec: v1alpha1.NodeMaintenanceSpec{Reason: "new kernel"}}, Wrote: true,
		Nodes: []maintenance.Done{
			{NodeStep: schemas.NodeStep{Name: "a", UID: "1", Action: schemas.NodeCordon}, Outcome: maintenance.Changed},
		},
	}
	var got []string
	for _, n := range append(stepEvents(s, r), statusEvents(s, r)...) {
		got = append(got, fmt.Sprintf("%s/%s %s %s %s: %s", n.regarding.Kind, n.regarding.Name, n.regarding.UID, n.kind, n.reason, n.text))
	}
	want := []string{
		"Node/a 1 Normal NodeCordoned: cordoned: new kernel (maintenance node/a)",
		"Node/a 1 Normal StageBegun: Drain begins: new kernel",
		"Node/a 1 Warning Refused: SingleNode: is the only one",
		"Node/a 1 Normal NodeDrained: drained: new kernel (maintenance node/a)",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestAStepThatFailsIsToldOfWhenThatIsNewAndOnceAnHour(t *testing.T) {
	now := noon
	term := newSession(t.Context(), func() bool { return false }, New(Config{Now: func() time.Time { return now }}), nil, recorder{})
	s := schemas.MaintenanceSteps{Name: "kernel", UID: "m"}
	try := func(after time.Duration, err error) (got []string) {
		now = noon.Add(after)
		d := maintenance.Done{NodeStep: schemas.NodeStep{Name: "a", UID: "1", Action: schemas.NodeReturn}, Err: err}
		for _, n := range failedEvents(s, term.newlyFailed(s, maintenance.Result{Nodes: []maintenance.Done{d}})) {
			got = append(got, fmt.Sprintf("%s/%s %s %s: %s", n.regarding.Kind, n.regarding.Name, n.kind, n.reason, n.text))
		}
		return got
	}
	want := []string{
		"Node/a Warning StepFailed: return failed, and is tried again: denied (maintenance kernel)",
		"NodeMaintenance/kernel Warning StepFailed: node a: return failed, and is tried again: denied",
	}
	denied := errors.New("denied")
	check(t, "at first", try(0, denied), want)
	check(t, "again", try(time.Minute, denied), nil)
	check(t, "before an hour is over", try(59*time.Minute, denied), nil)
	check(t, "after an hour", try(time.Hour, denied), want)
	check(t, "when it is done", try(time.Hour, nil), nil)
	check(t, "when it fails again", try(time.Hour, denied), want)
}
