package simulate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/simulate/objects"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/randtest"
	"github.com/rehome-dev/rehome/test/kit/schematest"
	"github.com/rehome-dev/rehome/watcher"
)

// at returns the time of all rounds.
func at() time.Time { return time.Date(2030, 1, 10, 0, 0, 0, 0, time.UTC) }

// profile returns a profile with strategies, in order, and their arguments.
func profile(name, evictor string, enabled ...string) string {
	configs, names := "{name: DefaultEvictor, args: "+evictor+"}", []string{}
	for _, e := range enabled {
		strategy, args, _ := strings.Cut(e, " ")
		configs += ", {name: " + strategy + ", args: " + args + "}"
		names = append(names, strategy)
	}
	return "  - name: " + name + "\n    pluginConfig: [" + configs + "]\n    plugins:\n      deschedule: {enabled: [" +
		strings.Join(names, ", ") + "]}\n"
}

func parse(t testing.TB, profiles ...string) policy.Policy {
	t.Helper()
	text := "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nprofiles:\n" + strings.Join(profiles, "")
	p, err := policy.Parse("policy.yaml", []byte(text), settings.Strategies())
	expect.Must(t, err)
	return p
}

// read reads a cluster from testdata.
func read(t testing.TB, name string) []metav1.Object {
	t.Helper()
	file := filepath.Join("testdata", name)
	data, err := os.ReadFile(file)
	expect.Must(t, err)
	found, err := objects.Read([]objects.Source{{Name: file, Data: data}}, kinds())
	expect.Must(t, err)
	return found.Objects
}

// round returns the table of one round.
func round(t testing.TB, c simulate.Config, cluster []metav1.Object) []string {
	t.Helper()
	c.Functions = functions.All()
	c.Now = at
	var out bytes.Buffer
	table := simulate.NewTable(&out, "counts", strings.Clone)
	expect.Must(t, simulate.Run(t.Context(), c, cluster, table.Verdicts))
	expect.Must(t, table.End())
	var lines []string
	for line := range strings.Lines(out.String()) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

const (
	taints   = "RemovePodsViolatingNodeTaints {}"
	restarts = "RemovePodsHavingTooManyRestarts {podRestartThreshold: 3}"
	header   = "NAMESPACE POD NODE STRATEGY OUTCOME REASON"
)

func TestRoundDecisions(t *testing.T) {
	const byTaint = " RemovePodsViolatingNodeTaints "
	const byRestarts = " RemovePodsHavingTooManyRestarts "
	for _, c := range []struct {
		name, cluster string
		config        simulate.Config
		want          []string
	}{
		{"moves by a taint, and protections", "taints.yaml", simulate.Config{Policy: parse(t, profile("p", "{}", taints))}, []string{
			header,
			"a moves n1" + byTaint + "evicted does not tolerate gone:NoSchedule",
			"a critical-agent n1" + byTaint + "rejected Protected: SystemCriticalPods: its priority 2000000000 is system-critical: at least 2000000000; " +
				"DaemonSetPods: it belongs to the DaemonSet agent",
			"counts: 1 evicted, 0 deferred, 1 rejected",
		}},
		{"what budgets hold", "budgets.yaml", simulate.Config{Policy: parse(t, profile("p", "{}", taints))}, []string{
			header,
			"a a-one n1" + byTaint + "evicted does not tolerate gone:NoSchedule",
			"a b-one-again n1" + byTaint + "deferred DisruptionBudget: poddisruptionbudget a/one: 2 of 2 healthy pods needed",
			"a c-one-not-ready n1" + byTaint + "evicted does not tolerate gone:NoSchedule",
			"a d-none-pending n1" + byTaint + "evicted does not tolerate gone:NoSchedule",
			"a e-none-not-ready n1" + byTaint + "deferred DisruptionBudget: poddisruptionbudget a/none: 1 healthy pods, 2 needed",
			"a f-lenient n1" + byTaint + "evicted does not tolerate gone:NoSchedule",
			"a g-uncounted n1" + byTaint + "deferred DisruptionBudget: poddisruptionbudget a/uncounted: not yet counted by the disruption controller",
			"a h-two-budgets n1" + byTaint + "failed Invalid: more than one poddisruptionbudget matches the pod: a/one, a/uncounted-too",
			"b a-one n1" + byTaint + "evicted does not tolerate gone:NoSchedule",
			"counts: 5 evicted, 3 deferred, 0 rejected, 1 failed",
		}},
		{"a pod is moved once, by the first strategy that wants it", "turns.yaml", simulate.Config{Policy: parse(t, profile("p", "{}", taints, restarts))}, []string{
			header,
			"a both n1" + byTaint + "evicted does not tolerate gone:NoSchedule",
			"a alone n1" + byTaint + "rejected Protected: FailedBarePods: it has no owner that would replace it",
			"a alone n1" + byRestarts + "rejected Protected: FailedBarePods: it has no owner that would replace it",
			"a restarts n2" + byRestarts + "evicted restarted 5 times, the threshold is 3",
			"counts: 2 evicted, 0 deferred, 2 rejected",
		}},
		{"the turns have the order of the policy", "turns.yaml", simulate.Config{Policy: parse(t, profile("p", "{}", restarts, taints))}, []string{
			header,
			"a alone n1" + byRestarts + "rejected Protected: FailedBarePods: it has no owner that would replace it",
			"a both n1" + byRestarts + "evicted restarted 5 times, the threshold is 3",
			"a restarts n2" + byRestarts + "evicted restarted 5 times, the threshold is 3",
			"a alone n1" + byTaint + "rejected Protected: FailedBarePods: it has no owner that would replace it",
			"counts: 2 evicted, 0 deferred, 2 rejected",
		}},
		{"each profile protects by its own rules, and sees what the one before has moved", "turns.yaml", simulate.Config{Policy: parse(t,
			profile("strict", "{labelSelector: {matchLabels: {none: such}}}", taints), profile("lax", "{}", restarts))}, []string{
			header,
			"a alone n1" + byTaint + "rejected Protected: FailedBarePods: it has no owner that would replace it; LabelSelector: its labels do not match none=such",
			"a both n1" + byTaint + "rejected Protected: LabelSelector: its labels do not match none=such",
			"a alone n1" + byRestarts + "rejected Protected: FailedBarePods: it has no owner that would replace it",
			"a both n1" + byRestarts + "evicted restarted 5 times, the threshold is 3",
			"a restarts n2" + byRestarts + "evicted restarted 5 times, the threshold is 3",
			"counts: 2 evicted, 0 deferred, 3 rejected",
		}},
		{"nothing moves off the only node", "alone.yaml", simulate.Config{Policy: parse(t, profile("p", "{}", taints))}, []string{
			"counts: 0 evicted, 0 deferred, 0 rejected",
		}},
		{"three pods for one slot", "capacity.yaml", simulate.Config{Policy: parse(t, profile("p", "{nodeFit: true}", taints))}, []string{
			header,
			"a first n1" + byTaint + "evicted does not tolerate gone:NoSchedule",
			"a second n1" + byTaint + "deferred NodeFit: NodeFit: does not fit on the only other node: resource, " +
				"while capacity is reserved for the replacements of a/first",
			"a third n1" + byTaint + "deferred NodeFit: NodeFit: does not fit on the only other node: resource, " +
				"while capacity is reserved for the replacements of a/first",
			"counts: 1 evicted, 2 deferred, 0 rejected",
		}},
		{"nothing to do", "taints.yaml", simulate.Config{Policy: parse(t, profile("p", "{}", restarts))}, []string{
			"counts: 0 evicted, 0 deferred, 0 rejected",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := round(t, c.config, read(t, c.cluster)); !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestJSONLine(t *testing.T) {
	var out bytes.Buffer
	err := simulate.Run(t.Context(), simulate.Config{
		Policy: parse(t, profile("p", "{}", taints)), Functions: functions.All(), Now: at,
	}, read(t, "taints.yaml"), simulate.NewJSON(&out).Verdicts)
	got, _, _ := strings.Cut(out.String(), "\n")
	want := `{"pod":{"namespace":"a","name":"moves","uid":"u-moves"},"node":"n1","strategy":"RemovePodsViolatingNodeTaints","profile":"p",` +
		`"outcome":"evicted","reason":"EvictionAccepted","message":"does not tolerate gone:NoSchedule"}`
	if err != nil || got != want {
		t.Errorf("error %v\ngot  %s\nwant %s", err, got, want)
	}
}

// whole returns all results of a round, as bytes.
func whole(t testing.TB, p policy.Policy, text []byte) []byte {
	t.Helper()
	found, err := objects.Read([]objects.Source{{Name: "x", Data: text}}, kinds())
	expect.Must(t, err)
	var out bytes.Buffer
	err = simulate.Run(t.Context(), simulate.Config{Policy: p, Functions: functions.All(), Now: at}, found.Objects,
		simulate.NewJSON(&out).Verdicts)
	expect.Must(t, err)
	return out.Bytes()
}

func TestObjectOrderIndependence(t *testing.T) {
	random := randtest.New(t)
	text := string(clusterText(20, 400))
	head, rest, _ := strings.Cut(text, "items:\n")
	entries, tail, _ := strings.Cut(rest, "kind: List\n")
	list := strings.Split(strings.TrimPrefix(entries, "- "), "\n- apiVersion: v1\n  kind:")
	for i := range list {
		list[i] = "- apiVersion: v1\n  kind:" + strings.TrimPrefix(list[i], "apiVersion: v1\n  kind:")
	}
	p := everything(t)
	want := whole(t, p, []byte(text))
	if bytes.Count(want, []byte("\n")) < 40 {
		t.Fatalf("only these verdicts:\n%s", want)
	}
	for range 5 {
		random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		shuffled := head + "items:\n" + strings.Join(list, "\n") + "\nkind: List\n" + tail
		if got := whole(t, p, []byte(shuffled)); !bytes.Equal(got, want) {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
	}
}

func TestEventAndDirectAnswers(t *testing.T) {
	p := everything(t)
	offline, err := watcher.NewOffline(p)
	expect.Must(t, err)
	found, err := objects.Read([]objects.Source{{Name: "x", Data: clusterText(20, 400)}}, kinds())
	expect.Must(t, err)
	for _, o := range found.Objects {
		expect.Must(t, offline.Set(o))
	}
	for _, f := range functions.All() {
		payloads, err := offline.Payloads("default", f.Strategy.Name, at())
		expect.Must(t, err)
		intents := 0
		for i, payload := range payloads {
			e := schematest.Event(t, "/offline", payload, at(), schemas.Event{})
			want, err := f.Evaluate(e)
			expect.Must(t, err)
			got, err := f.EvaluateInPlace(payloads[i], e.ID)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("error %v\ngot  %+v\nwant %+v", err, got, want)
			}
			intents += len(got.Intents)
		}
		t.Logf("%s: %d intents of %d scopes", f.Strategy.Name, intents, len(payloads))
	}
}

func TestRoundUsesVerdicts(t *testing.T) {
	broken := errors.New("broken")
	var asked []string
	carry := func(_ context.Context, intents []actuator.Intent) ([]schemas.Verdict, error) {
		var verdicts []schemas.Verdict
		for _, o := range intents {
			asked = append(asked, o.Strategy+" "+o.Pod.Name)
			verdicts = append(verdicts, o.Verdict(schemas.Deferred, schemas.ReasonThrottled, "later"))
		}
		return verdicts, broken
	}
	var got []string
	err := simulate.Run(t.Context(), simulate.Config{
		Policy: parse(t, profile("p", "{}", taints, restarts)), Functions: functions.All(), Now: at, Carry: carry,
	}, read(t, "turns.yaml"), func(list []schemas.Verdict) error {
		for _, v := range list {
			got = append(got, fmt.Sprintf("%s %s %s", v.Intent.Pod.Name, v.Outcome, v.Reason))
		}
		return nil
	})
	if !errors.Is(err, broken) {
		t.Errorf("got error %v, want %v", err, broken)
	}
	wantAsked := []string{
		"RemovePodsViolatingNodeTaints both", "RemovePodsHavingTooManyRestarts both", "RemovePodsHavingTooManyRestarts restarts",
	}
	want := []string{
		"both deferred Throttled", "alone rejected Protected",
		"alone rejected Protected", "both deferred Throttled", "restarts deferred Throttled",
	}
	if !reflect.DeepEqual(asked, wantAsked) || !reflect.DeepEqual(got, want) {
		t.Errorf("asked %q\nwant  %q\ngot  %q\nwant %q", asked, wantAsked, got, want)
	}
}

func TestRoundEndsAfterCurrentTurn(t *testing.T) {
	c := simulate.Config{Policy: parse(t, profile("p", "{}", taints, restarts)), Functions: functions.All(), Now: at}
	full := errors.New("disk full")
	turns := 0
	err := simulate.Run(t.Context(), c, read(t, "turns.yaml"), func([]schemas.Verdict) error { turns++; return full })
	if !errors.Is(err, full) || turns != 1 {
		t.Errorf("got error %v after %d turns, want %v after 1", err, turns, full)
	}
	ctx, cancel := context.WithCancel(t.Context())
	turns = 0
	err = simulate.Run(ctx, c, read(t, "turns.yaml"), func([]schemas.Verdict) error { turns++; cancel(); return nil })
	if !errors.Is(err, context.Canceled) || turns != 1 {
		t.Errorf("got error %v after %d turns, want %v after 1", err, turns, context.Canceled)
	}
}
