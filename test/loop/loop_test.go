package loop

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	readmodel "github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/metricstest"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

const (
	namespace = "shop"
	strategy  = "RemovePodsViolatingNodeTaints"
)

// file is a policy with the default circuit breakers.
const file = `apiVersion: rehome.dev/v1alpha1
kind: DeschedulerPolicy
profiles:
  - name: default
    pluginConfig: [{name: RemovePodsViolatingNodeTaints, args: {includePreferNoSchedule: true}}]
    plugins:
      deschedule:
        enabled: [RemovePodsViolatingNodeTaints]
`

func TestWorkloadBreakerOverHours(t *testing.T) {
	w := newWorld(t)
	moved := 0
	var back time.Time        // time of the last return
	var waits []time.Duration // from each return to the next attempt
	var open []schemas.Verdict
	for w.since() < time.Hour {
		v := w.want()
		if v.Outcome == schemas.Evicted {
			moved++
			back = w.cameBack(v)
			continue
		}
		open, waits = append(open, v), append(waits, v.Again.Sub(back).Round(time.Minute))
		w.counted(len(open), 1)
		w.waitUntil(v.Again)
	}
	const m = time.Minute
	if want := []time.Duration{2 * m, 4 * m, 8 * m, 16 * m, 32 * m}; moved != 5 || !reflect.DeepEqual(waits, want) {
		t.Errorf("moved %d times, left alone for %v after each return; want 5 times, %v", moved, waits, want)
	}
	for i, v := range open {
		w.held(v, i+1)
	}
	for returns := range 5 {
		w.told(fmt.Sprintf("moved off node %s by %s and back on it, %d times: not moved off it again until ", w.node, strategy, returns+1))
	}

	// The sixth move is due. The pod comes back again, and is then deferred until the breaker is cleared.
	w.cameBack(w.want())
	if v := w.want(); v.Reason != schemas.ReasonLoop {
		t.Errorf("after the sixth return: %s %s, want deferred for Loop", v.Outcome, v.Reason)
	}
	w.Must(w.bus.Ledger().Put(t.Context(), "clear."+string(w.deployment.UID), actuator.ClearValue(time.Now())))
	expect.Eventually(t, "no breaker is open", func() bool { return w.gauge("rehome_workload_breakers_open") == 0 })
	if v := w.want(); v.Outcome != schemas.Evicted {
		t.Errorf("after its breaker was cleared: %s %s, want evicted", v.Outcome, v.Reason)
	}
	w.evictedSoOften(7)
}

// world is a control plane with an actuator and its bus in this process. The test can advance its clock.
type world struct {
	expect.T
	cluster    *cluster.Cluster
	client     kubernetes.Interface
	bus        *bus.Bus
	events     *bustest.Events
	metrics    *prometheus.Registry
	node       string
	deployment *appsv1.Deployment
	start      time.Time
	ahead      atomic.Int64 // offset to the real clock
	sequence   uint64
}

// newWorld has a node that the policy wants empty, and a Deployment whose pod can run only there.
func newWorld(t *testing.T) *world {
	c := clustertest.New(t, cluster.Options{})
	w := &world{
		T: expect.T{TB: t}, cluster: c, client: c.Client(), bus: bustest.New(t, strategy), metrics: prometheus.NewRegistry(), start: time.Now(),
	}
	nodes, err := c.AddNodes(t.Context(), 1, func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectPreferNoSchedule}}
	})
	w.Must(err)
	w.node = nodes[0]
	_, err = c.AddNodes(t.Context(), 1)
	w.Must(err)
	w.deployment, err = c.AddDeployment(t.Context(), namespace, "api", 1, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: w.node}
	})
	w.Must(err)
	w.events = bustest.Collect(t, w.bus, bus.VerdictChannels)
	w.run()
	return w
}

func (w *world) now() time.Time       { return time.Now().Add(time.Duration(w.ahead.Load())) }
func (w *world) since() time.Duration { return w.now().Sub(w.start) }

// waitUntil advances the clock.
func (w *world) waitUntil(at time.Time) {
	w.Helper()
	wait := at.Sub(w.now())
	if at.IsZero() || wait < 0 {
		w.Fatalf("next evaluation at %v, want a time in the future", at)
	}
	w.ahead.Add(int64(wait))
}

// run runs the actuator with its view until the end of the test.
func (w *world) run() {
	p, err := policy.Parse("policy.yaml", []byte(file), settings.Strategies())
	w.Must(err)
	view, err := readmodel.New(readmodel.Config{Client: w.client, Kinds: readmodel.WorkloadKinds()})
	w.Must(err)
	a := actuator.New(actuator.Config{
		Client: w.client, Bus: w.bus, Ledger: w.bus.Ledger(), View: view.Workloads(), Policy: p, Source: "/test/actuator",
		Metrics: w.metrics, Now: w.now, Log: slog.New(slog.NewTextHandler(w.Output(), nil)),
	})
	view.Workloads().OnChange(a.Changed)
	expect.Background(w, view.Run, func(ctx context.Context) error {
		select {
		case <-view.Synced():
		case <-ctx.Done():
		}
		return a.Lead(ctx)
	})
}

// want publishes an intent for the pod on the node, like the strategy, and returns the verdict.
func (w *world) want() schemas.Verdict {
	w.Helper()
	w.Must(w.cluster.WaitReady(w.Context(), namespace, "api"))
	list, err := w.client.CoreV1().Pods(namespace).List(w.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + w.node})
	w.Must(err)
	if len(list.Items) != 1 || !cluster.IsReady(&list.Items[0]) {
		w.Fatalf("pods on the node: %v, want one that is ready", list.Items)
	}
	pod := list.Items[0]
	w.sequence++
	scope := schemas.ScopeRef{
		Kind: schemas.NodeKind, Key: w.node, Event: fmt.Sprintf("scope-%d", w.sequence), Sequence: w.sequence, Since: w.now(),
	}
	intent := schemas.Intent{
		ID: scope.Event + "." + string(pod.UID), Pod: schemas.PodRef{Namespace: namespace, Name: pod.Name, UID: pod.UID},
		Node: w.node, Reason: "does not tolerate dedicated:PreferNoSchedule", Expires: w.now().Add(10 * time.Minute),
	}
	answer := schemas.Intents{Profile: "default", Strategy: strategy, Scope: scope, Intents: []schemas.Intent{intent}}
	e := schematest.Event(w, "/test/functions", answer, w.now(), schemas.Event{})
	w.Must(w.bus.Answer(w.Context(), e, answer))
	v, _ := w.verdict(func(v schemas.Verdict) bool { return v.Intent.ID == intent.ID })
	return v
}

// verdict waits for the next matching verdict, and returns its time too.
func (w *world) verdict(matches func(schemas.Verdict) bool) (found schemas.Verdict, at time.Time) {
	w.Helper()
	e := w.events.Find(w, func(e schemas.Event) bool {
		v := schematest.Decode[schemas.Verdict](w, e)
		found = v
		return matches(v)
	})
	return found, e.Time
}

// cameBack waits until the move is settled with the replacement on the same node. It returns the time.
func (w *world) cameBack(of schemas.Verdict) time.Time {
	w.Helper()
	v, at := w.verdict(func(v schemas.Verdict) bool { return v.Intent.ID == of.Intent.ID && v.Outcome == schemas.Settled })
	if v.Reason != schemas.ReasonCameBack || v.Settlement == nil || v.Settlement.Node != w.node {
		w.Fatalf("settled %s, %+v: want that it came back to %s", v.Reason, v.Settlement, w.node)
	}
	return at
}

// held checks the verdict after this number of returns.
func (w *world) held(v schemas.Verdict, returns int) {
	w.Helper()
	got := schemas.Verdict{Outcome: v.Outcome, Reason: v.Reason, Message: v.Message}
	want := schemas.Verdict{Outcome: schemas.Deferred, Reason: schemas.ReasonLoop, Message: "moving pods of this workload off " +
		w.node + " has not helped: they come back; the next try is at " + v.Again.UTC().Format(time.RFC3339)}
	if !reflect.DeepEqual(got, want) {
		w.Errorf("after return %d: got  %+v\nwant %+v", returns, got, want)
	}
}

// counted checks the metrics of the workload circuit breaker.
func (w *world) counted(opened, open int) {
	w.Helper()
	want := fmt.Sprintf(`# TYPE rehome_workload_breaker_openings_total counter
rehome_workload_breaker_openings_total{strategy="%s"} %d
# TYPE rehome_workload_breakers_open gauge
rehome_workload_breakers_open %d
`, strategy, opened, open)
	metricstest.Compare(w, w.metrics, want, "rehome_workload_breaker_openings_total", "rehome_workload_breakers_open")
}

// gauge returns the value of a metric without labels.
func (w *world) gauge(name string) float64 {
	w.Helper()
	families, err := w.metrics.Gather()
	w.Must(err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	w.Fatalf("no metric %s", name)
	return 0
}

// told waits for a Kubernetes Event on the Deployment that begins with these words.
func (w *world) told(words string) {
	w.Helper()
	expect.Eventually(w, "a Kubernetes Event says "+words, func() bool {
		list, err := w.client.EventsV1().Events(namespace).List(w.Context(), metav1.ListOptions{FieldSelector: "reason=WorkloadBreaker"})
		w.Must(err)
		for _, e := range list.Items {
			if strings.HasPrefix(e.Note, words) {
				w.about(e)
				return true
			}
		}
		return false
	})
}

// about checks that the Event is a warning on the Deployment.
func (w *world) about(e eventsv1.Event) {
	w.Helper()
	want := corev1.ObjectReference{
		APIVersion: "apps/v1", Kind: "Deployment", Namespace: namespace, Name: "api", UID: w.deployment.UID,
	}
	if e.Regarding != want || e.Type != corev1.EventTypeWarning {
		w.Errorf("the Event is a %s on %+v, want a Warning on %+v", e.Type, e.Regarding, want)
	}
}

// evictedSoOften checks the number of evicted pods, each once, with the audit log of the API server.
func (w *world) evictedSoOften(want int) {
	w.Helper()
	log, err := w.cluster.Audit(w.Context())
	w.Must(err)
	pods := map[string]int{}
	for _, e := range log {
		if e.Subresource == "eviction" && e.Code == 201 {
			pods[e.Name]++
		}
	}
	for name, n := range pods {
		if n != 1 {
			w.Errorf("pod %s was evicted %d times, want once", name, n)
		}
	}
	if len(pods) != want {
		w.Errorf("%d pods were evicted, want %d: %v", len(pods), want, pods)
	}
}
