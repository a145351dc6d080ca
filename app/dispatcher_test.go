package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/functions/dispatch"
	"github.com/rehome-dev/rehome/functions/httpfunction"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/functionstest"
	"github.com/rehome-dev/rehome/test/kit/metricstest"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// keepOff is a declared strategy that most of these tests use.
const keepOff = "KeepOffSpot"

// dispatching is a bus with a dispatcher until the test ends.
type dispatching struct {
	t       *testing.T
	server  *embed.Server
	bus     *bus.Bus
	raw     jetstream.JetStream
	metrics *prometheus.Registry
	answers *bustest.Events
	d       *dispatch.Dispatcher
	stop    func()
}

// outsideOf returns the external functions of a policy with these entries in functions.
func outsideOf(t *testing.T, entries ...string) []policy.Outside {
	t.Helper()
	text := "apiVersion: rehome.dev/v1alpha1\nkind: DeschedulerPolicy\nfunctions:\n- " + strings.Join(entries, "\n- ") + "\n" +
		"profiles: [{name: default, plugins: {deschedule: {enabled: [PodLifeTime]}}, " +
		"pluginConfig: [{name: PodLifeTime, args: {maxPodLifeTimeSeconds: 1}}]}]\n"
	p, err := policy.Parse("policy.yaml", []byte(text), settings.Strategies())
	expect.Must(t, err)
	return p.Outside
}

// over returns the entry of KeepOffSpot with a URL and further settings.
func over(url string, more ...string) string {
	settings := strings.Join(append([]string{"url: " + url}, more...), ", ")
	return "{name: " + keepOff + ", scope: node, wakes: [node.labels], http: {" + settings + "}}"
}

// newDispatching returns a dispatcher for the functions in the entries.
func newDispatching(t *testing.T, setup bus.Setup, entries ...string) *dispatching {
	t.Helper()
	d := &dispatching{t: t, server: bustest.Server(t, embed.Options{}), metrics: prometheus.NewRegistry()}
	d.bus, d.raw = bustest.Connect(t, bus.Options{Server: d.server}), bustest.Raw(t, d.server)
	bustest.SetUp(t, d.bus, setup)
	d.answers = bustest.Collect(t, d.bus, bus.IntentsChannels)
	d.d, d.stop = d.start(questions{d.bus}, d.metrics)
	if len(entries) > 0 {
		d.d.Set(outsideOf(t, entries...))
	}
	return d
}

// start runs a dispatcher until stop is called, or the test ends.
func (d *dispatching) start(b dispatch.Bus, metrics prometheus.Registerer) (dispatcher *dispatch.Dispatcher, stop func()) {
	d.t.Helper()
	dispatcher = dispatch.New(dispatch.Config{
		Bus: b, Open: func(o policy.Outside) (dispatch.Asker, error) { return openAsker(d.bus, o) },
		Source: "/clusters/test/dispatcher", Log: slog.New(slog.NewTextHandler(d.t.Output(), nil)), Metrics: metrics,
	})
	return dispatcher, expect.Background(d.t, dispatcher.Run)
}

// nodeScope returns the event of a tainted node with a pod that stays, one that leaves, and one that is protected.
func nodeScope(t *testing.T, strategy, name string) schemas.Event {
	t.Helper()
	return schematest.Event(t, "/clusters/test/watcher", functionstest.TaintedScope(strategy, name,
		functionstest.Pod("stays-"+name, functionstest.On(name), functionstest.ToleratingKeys("dedicated")),
		functionstest.Pod("leaves-"+name, functionstest.On(name)),
		functionstest.Pod("guarded-"+name, functionstest.On(name), functionstest.Protected("DaemonSetPods")),
	), functionstest.Now(), schemas.Event{})
}

// publish stores a scope and returns it with its sequence.
func (d *dispatching) publish(e schemas.Event) schemas.Event {
	d.t.Helper()
	sequence, err := d.bus.Publish(d.t.Context(), e)
	if err != nil {
		d.t.Fatal(err)
	}
	e.Sequence = sequence
	return e
}

// waiting returns the number of scopes that are not done.
func (d *dispatching) waiting() uint64 {
	d.t.Helper()
	s, err := d.raw.Stream(d.t.Context(), bus.StreamScopes)
	if err != nil {
		d.t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// done waits until all scopes are done.
func (d *dispatching) done() {
	d.t.Helper()
	expect.Eventually(d.t, "no scope waits", func() bool { return d.waiting() == 0 })
}

// dead returns the errors of all dead letters, by the nodes of their scopes.
func (d *dispatching) dead() map[string]string {
	d.t.Helper()
	numbers, err := d.bus.DeadNumbers(d.t.Context(), bus.DeadQuery{})
	if err != nil {
		d.t.Fatal(err)
	}
	errors := make(map[string]string)
	for _, n := range numbers {
		l, err := d.bus.DeadLetter(d.t.Context(), n)
		if err != nil {
			d.t.Fatal(err)
		}
		errors[l.Channel[strings.LastIndex(l.Channel, ".")+1:]] += l.Error
	}
	return errors
}

// counted checks the number of requests with a result.
func (d *dispatching) counted(want string) {
	d.t.Helper()
	metricstest.Compare(d.t, d.metrics, "# TYPE rehome_dispatcher_requests_total counter\n"+want+"\n", "rehome_dispatcher_requests_total")
}

// inVain returns the number of requests without an answer.
func (d *dispatching) inVain(strategy string) (n float64) {
	d.t.Helper()
	families, err := d.metrics.Gather()
	if err != nil {
		d.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if l := m.GetLabel(); f.GetName() == "rehome_dispatcher_requests_total" && l[0].GetValue() == "unreachable" &&
				l[1].GetValue() == strategy {
				n = m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// mover is a function over HTTP as a newcomer would write it, with only the standard library: it moves every pod
// whose name begins with "leaves".
func mover(w http.ResponseWriter, r *http.Request) {
	var scope struct {
		Kind, Key, Profile, Strategy string
		Pods                         []struct {
			Pod struct {
				Metadata struct{ Namespace, Name, UID string }
				Spec     struct{ NodeName string }
			}
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&scope); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	intents := []any{}
	for _, p := range scope.Pods {
		if m := p.Pod.Metadata; strings.HasPrefix(m.Name, "leaves") {
			intents = append(intents, map[string]any{
				"pod": map[string]string{"namespace": m.Namespace, "name": m.Name, "uid": m.UID}, "node": p.Pod.Spec.NodeName,
				"reason": "requested to leave",
			})
		}
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "ce-specversion": "1.0", "ce-type": "dev.rehome.intents.v1", "ce-source": "/mover",
		"ce-id": "answer-to-" + r.Header.Get("ce-id"),
	} {
		w.Header().Set(name, value)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"profile": scope.Profile, "strategy": scope.Strategy, "intents": intents,
		"scope": map[string]string{"kind": scope.Kind, "key": scope.Key, "event": r.Header.Get("ce-id")},
	})
}

// serve serves a function on the loopback interface.
func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// movedBy returns the answer that moves the pod that leaves, for a reason.
func movedBy(scope schemas.Event, strategy, node, reason string) schemas.Intents {
	leaves := functionstest.Pod("leaves-"+node, functionstest.On(node))
	move := leaves.Move(reason)
	move.ID, move.Expires = scope.ID+"."+string(move.Pod.UID), functionstest.Now().Add(functions.IntentTTL)
	return schemas.Intents{
		Profile: "default", Strategy: strategy,
		Scope: schemas.ScopeRef{
			Kind: schemas.NodeKind, Key: node, Event: scope.ID, Sequence: scope.Sequence,
			Since: functionstest.Now().Add(-time.Second), Now: functionstest.Now(),
		},
		Intents: []schemas.Intent{move},
	}
}

// same fails the test unless the event is the wanted answer, in the chain of its scope.
func (d *dispatching) same(got schemas.Event, scope schemas.Event, want schemas.Intents) {
	d.t.Helper()
	schematest.Check(d.t, got)
	answer, err := schemas.Decode[schemas.Intents](got)
	if err != nil || !reflect.DeepEqual(answer, want) {
		d.t.Errorf("got  %+v, %v\nwant %+v", answer, err, want)
	}
	chain := [4]string{got.Source, got.CausationID, got.CorrelationID, got.TraceParent[:35]}
	if want := [4]string{"/clusters/test/dispatcher/" + want.Strategy, scope.ID, scope.CorrelationID, scope.TraceParent[:35]}; chain != want {
		d.t.Errorf("the chain is %q, want %q", chain, want)
	}
	if ttl := got.Expires.Sub(got.Time); ttl <= functions.IntentTTL-time.Minute || ttl > functions.IntentTTL {
		d.t.Errorf("the answer expires after %v, want %v", ttl, functions.IntentTTL)
	}
}

func TestBuiltInStrategyOverHTTP(t *testing.T) {
	f := functions.All()[0]
	h := httpfunction.New(httpfunction.Config{Function: f, Source: "/clusters/elsewhere/functions"})
	d := newDispatching(t, bus.Setup{}, "{name: "+f.Strategy.Name+", http: {url: "+serve(t, h).URL+"}}")
	scope := d.publish(nodeScope(t, f.Strategy.Name, "worker-1"))
	want, err := f.Evaluate(scope)
	expect.Must(t, err)
	d.same(d.answers.Next(t), scope, want)
	d.done()
	d.counted(`rehome_dispatcher_requests_total{result="answered",strategy="RemovePodsViolatingNodeTaints"} 1`)
}

func TestExternalFunctionOverNATS(t *testing.T) {
	d := newDispatching(t, bus.Setup{}, "{name: "+keepOff+", scope: node, wakes: [node.labels], nats: {subject: functions.off}}")
	scope := nodeScope(t, keepOff, "worker-1")
	sub, err := d.raw.Conn().Subscribe("functions.off", func(m *nats.Msg) {
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(m.Data))
		r.Header.Set("ce-id", m.Header.Get("ce-id"))
		w := httptest.NewRecorder()
		mover(w, r)
		reply := nats.NewMsg(m.Reply)
		reply.Header, reply.Data = nats.Header(w.Header()), w.Body.Bytes()
		_ = m.RespondMsg(reply)
	})
	expect.Must(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	scope = d.publish(scope)
	d.same(d.answers.Next(t), scope, movedBy(scope, keepOff, "worker-1", "requested to leave"))
	d.done()
}

func TestExternalFunctionOverHTTP(t *testing.T) {
	d := newDispatching(t, bus.Setup{}, over(serve(t, http.HandlerFunc(mover)).URL))
	scope := d.publish(nodeScope(t, keepOff, "worker-1"))
	d.same(d.answers.Next(t), scope, movedBy(scope, keepOff, "worker-1", "requested to leave"))
	d.done()
}

func TestEmptyAnswerWithdraws(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusAccepted, http.StatusNoContent} {
		var quiet atomic.Bool
		d := newDispatching(t, bus.Setup{}, over(serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if quiet.Load() {
				w.WriteHeader(status)
				return
			}
			mover(w, r)
		})).URL))
		d.publish(nodeScope(t, keepOff, "worker-1"))
		d.answers.Next(t)
		quiet.Store(true)
		scope := d.publish(nodeScope(t, keepOff, "worker-1"))
		want := movedBy(scope, keepOff, "worker-1", "")
		want.Intents = []schemas.Intent{}
		d.same(d.answers.Next(t), scope, want)
		d.done()
	}
}

// nodeOf returns the node of a scope in a request to a function.
func nodeOf(r *http.Request) string { return strings.TrimPrefix(r.Header.Get("ce-subject"), "node/") }

func TestFunctionStatusCodes(t *testing.T) {
	// One status for each meaning. A test of schemas/cloudevent/post has all statuses.
	again := []int{401, 403, 429, 500, 503}
	letters := []int{307, 400}
	var mu sync.Mutex
	asked := make(map[string]int)
	d := newDispatching(t, bus.Setup{}, over(serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, err := strconv.Atoi(nodeOf(r))
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if asked[nodeOf(r)]++; asked[nodeOf(r)] > 1 { // it works at the second time, if there is one
			mover(w, r)
			return
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
	})).URL))
	want, wantAsked := make(map[string]schemas.Intents), make(map[string]int)
	for _, status := range slices.Concat(again, letters) {
		node := strconv.Itoa(status)
		scope := d.publish(nodeScope(t, keepOff, node))
		wantAsked[node] = 1
		if slices.Contains(again, status) {
			wantAsked[node] = 2
			want[node] = movedBy(scope, keepOff, node, "requested to leave")
		}
	}
	got := make(map[string]schemas.Intents)
	for range want {
		answer := schematest.Decode[schemas.Intents](t, d.answers.Next(t))
		got[answer.Scope.Key] = answer
	}
	d.done()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("answers\n%+v, want\n%+v", got, want)
	}
	mu.Lock()
	defer mu.Unlock()
	if !reflect.DeepEqual(asked, wantAsked) {
		t.Errorf("asked %v, want %v", asked, wantAsked)
	}
	dead := d.dead()
	for _, status := range letters {
		if !strings.Contains(dead[strconv.Itoa(status)], fmt.Sprintf("status %d", status)) {
			t.Errorf("%d: the dead letter says %q, want the status", status, dead[strconv.Itoa(status)])
		}
	}
	if len(dead) != len(letters) {
		t.Errorf("dead letters %v, want %v", dead, letters)
	}
}

func TestFunctionRetryAfter(t *testing.T) {
	var mu sync.Mutex
	var asked []time.Time
	d := newDispatching(t, bus.Setup{}, over(serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, time.Now())
		if len(asked) == 1 {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		mover(w, r)
	})).URL))
	d.publish(nodeScope(t, keepOff, "worker-1"))
	d.done()
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != 2 || asked[1].Sub(asked[0]) < 3*time.Second-100*time.Millisecond {
		t.Errorf("asked at %v, want twice, 3 s apart", asked)
	}
}

// lying answers like mover, and then changes the answer.
func lying(change func(body string) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		recorded := httptest.NewRecorder()
		mover(recorded, r)
		maps.Copy(w.Header(), recorded.Header())
		_, _ = io.WriteString(w, change(recorded.Body.String()))
	}
}

func TestInvalidAnswerDeadLetter(t *testing.T) {
	type lie struct {
		tell http.HandlerFunc
		why  string
	}
	lies := map[string]lie{
		"a-pod-of-another-node": {
			lying(func(body string) string { return strings.ReplaceAll(body, "leaves-", "leaves-other-") }), "is not in the scope",
		},
		"a-protected-pod": {
			lying(func(body string) string { return strings.ReplaceAll(body, "leaves-", "guarded-") }), "is protected: DaemonSetPods",
		},
		"another-strategy": {
			lying(func(body string) string { return strings.ReplaceAll(body, keepOff, "PodLifeTime") }), `strategy: want "KeepOffSpot"`,
		},
		"no-event":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "OK") }, "no CloudEvent"},
		"no-JSON":        {lying(func(body string) string { return body[1:] }), "data is not JSON"},
		"without-an-end": {lying(func(string) string { return strings.Repeat("x", 9<<20) }), "which is the limit"},
	}
	d := newDispatching(t, bus.Setup{}, over(serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lies[nodeOf(r)].tell(w, r)
	})).URL))
	for name := range lies {
		d.publish(nodeScope(t, keepOff, name))
	}
	d.done()
	dead := d.dead()
	for name, l := range lies {
		if !strings.Contains(dead[name], l.why) {
			t.Errorf("%s: the dead letter says %q, want %q", name, dead[name], l.why)
		}
	}
	heads, err := d.bus.AnsweredScopes(t.Context())
	if err != nil || len(heads) > 0 || len(dead) != len(lies) {
		t.Errorf("answers to %v, %v, and %d dead letters; want none and %d", heads, err, len(dead), len(lies))
	}
	d.counted("rehome_dispatcher_requests_total{result=\"refused\",strategy=\"KeepOffSpot\"} 3\n" +
		"rehome_dispatcher_requests_total{result=\"wrong\",strategy=\"KeepOffSpot\"} 3")
}

// dying is a bus whose process ends after an answer is stored, before the scope is done.
type dying struct {
	questions
	died chan struct{}
}

func (b dying) Answer(ctx context.Context, e schemas.Event, answer schemas.Intents) error {
	err := b.questions.Answer(ctx, e, answer)
	b.Close()
	close(b.died)
	return err
}

func TestDispatcherDiesBeforeAck(t *testing.T) {
	var asked atomic.Int32
	d := newDispatching(t, bus.Setup{Strategies: []string{keepOff}, AckWait: time.Second})
	wanted := outsideOf(t, over(serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		mover(w, r)
	})).URL))
	b := dying{questions{bustest.Connect(t, bus.Options{Server: d.server})}, make(chan struct{})}
	first, stop := d.start(b, nil)
	first.Set(wanted)
	scope := d.publish(nodeScope(t, keepOff, "worker-1"))
	<-b.died
	stop()
	if d.waiting() != 1 {
		t.Fatal("the scope is done, so the dispatcher did not die in time")
	}
	d.d.Set(wanted)
	d.done()
	d.same(d.answers.Next(t), scope, movedBy(scope, keepOff, "worker-1", "requested to leave"))
	d.answers.Quiet(t, 300*time.Millisecond)
	if asked.Load() != 2 {
		t.Errorf("asked %d times, want 2", asked.Load())
	}
}

func TestHangingFunctionDeadLetter(t *testing.T) {
	end := make(chan struct{})
	s := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-end
	}))
	defer close(end)
	away := serve(t, http.HandlerFunc(mover))
	away.Close()
	d := newDispatching(t, bus.Setup{}, over(s.URL, "timeout: 100ms"),
		"{name: Away, scope: node, wakes: [node.labels], http: {url: "+away.URL+"}}")
	for n := range 4 {
		d.publish(nodeScope(t, keepOff, fmt.Sprint("worker-", n)))
		d.publish(nodeScope(t, "Away", fmt.Sprint("worker-", n)))
	}
	for _, strategy := range []string{keepOff, "Away"} {
		expect.Eventually(t, strategy+" is probed in vain", func() bool {
			return d.inVain(strategy) >= 5
		})
	}
	dead, err := d.bus.DeadNumbers(t.Context(), bus.DeadQuery{})
	if err != nil || len(dead) != 1 {
		t.Fatalf("dead letters %v, error %v, want one", dead, err)
	}
	letter, err := d.bus.DeadLetter(t.Context(), dead[0])
	expect.Must(t, err)
	got := [3]string{letter.Stream, letter.By, letter.Error}
	want := [3]string{bus.StreamScopes, keepOff, "the function of KeepOffSpot hangs, its scopes wait: post to " + s.URL +
		": unreachable: no answer within 100ms"}
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if d.waiting() != 8 {
		t.Errorf("%d scopes wait, want all 8", d.waiting())
	}
}

func TestHangingFunctionIsolation(t *testing.T) {
	end := make(chan struct{})
	var hanging atomic.Int32
	s := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		hanging.Add(1)
		<-end
	}))
	defer close(end)
	d := newDispatching(t, bus.Setup{}, over(s.URL, "timeout: 10m", "parallel: 3"),
		"{name: Quick, scope: node, wakes: [node.labels], http: {url: "+serve(t, http.HandlerFunc(mover)).URL+"}}")
	for n := range 10 {
		d.publish(nodeScope(t, keepOff, fmt.Sprint("worker-", n)))
	}
	expect.Eventually(t, "three questions hang", func() bool { return hanging.Load() == 3 })
	for n := range 50 {
		d.publish(nodeScope(t, "Quick", fmt.Sprint("worker-", n)))
	}
	for range 50 {
		d.answers.Next(t)
	}
	if hanging.Load() != 3 {
		t.Errorf("%d requests hang, want 3, the limit of parallel requests", hanging.Load())
	}
}

func TestScopesWaitForFunction(t *testing.T) {
	address := expect.Value(t, program.FreeAddress)
	d := newDispatching(t, bus.Setup{}, over("http://"+address, "parallel: 4"))
	open := func() float64 {
		families, err := d.metrics.Gather()
		if err != nil {
			t.Error(err)
		}
		for _, f := range families {
			if f.GetName() == "rehome_dispatcher_open" {
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		return -1
	}
	nodes := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for _, n := range nodes {
		d.publish(nodeScope(t, keepOff, n))
	}
	expect.Eventually(t, "the scopes wait", func() bool { return open() == 1 })
	newest := make(map[string]schemas.Intents)
	for _, n := range nodes {
		scope := d.publish(nodeScope(t, keepOff, n))
		newest[n] = movedBy(scope, keepOff, n, "requested to leave")
	}
	expect.Eventually(t, "several probes were in vain", func() bool {
		n, err := testutil.GatherAndCount(d.metrics, "rehome_dispatcher_requests_total")
		return err == nil && n == 1 && unreachable(t, d.metrics) >= 6
	})
	if got := d.waiting(); got != uint64(len(nodes)) {
		t.Errorf("%d scopes wait, want %d", got, len(nodes))
	}
	l, err := net.Listen("tcp", address)
	expect.Must(t, err)
	s := httptest.NewUnstartedServer(http.HandlerFunc(mover))
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	d.done()
	got := make(map[string]schemas.Intents)
	for range nodes {
		answer := schematest.Decode[schemas.Intents](t, d.answers.Next(t))
		got[answer.Scope.Key] = answer
	}
	if !reflect.DeepEqual(got, newest) {
		t.Errorf("got  %+v\nwant %+v", got, newest)
	}
	if dead := d.dead(); len(dead) > 0 || open() != 0 {
		t.Errorf("dead letters %q, open %v; want neither", dead, open())
	}
}

func TestDispatcherStopsWhileScopesWait(t *testing.T) {
	d := newDispatching(t, bus.Setup{}, over("http://"+expect.Value(t, program.FreeAddress)))
	var want []string
	for _, node := range []string{"a", "b", "c", "d"} {
		d.publish(nodeScope(t, keepOff, node))
		want = append(want, node)
	}
	expect.Eventually(t, "a probe was in vain", func() bool { return unreachable(t, d.metrics) >= 5 })
	began := time.Now()
	d.stop()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v to stop", took)
	}
	next, _ := d.start(questions{d.bus}, nil)
	next.Set(outsideOf(t, over(serve(t, http.HandlerFunc(mover)).URL)))
	d.done()
	var got []string
	for range want {
		got = append(got, strings.TrimPrefix(d.answers.Next(t).Subject, "node/"))
	}
	slices.Sort(got)
	if dead := d.dead(); !reflect.DeepEqual(got, want) || len(dead) > 0 {
		t.Errorf("answered %v, dead letters %q; want %v and none", got, dead, want)
	}
}

// unreachable returns the number of requests without an answer.
func unreachable(t *testing.T, metrics *prometheus.Registry) (n float64) {
	families, err := metrics.Gather()
	if err != nil {
		t.Error(err)
	}
	for _, f := range families {
		if f.GetName() == "rehome_dispatcher_requests_total" {
			n = f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return n
}

func TestDispatcherFollowsPolicy(t *testing.T) {
	old, current := &counting{}, &counting{}
	d := newDispatching(t, bus.Setup{}, over(serve(t, old).URL))
	ask := func(node string) {
		t.Helper()
		scope := d.publish(nodeScope(t, keepOff, node))
		d.same(d.answers.Next(t), scope, movedBy(scope, keepOff, node, "requested to leave"))
	}
	ask("a")
	d.d.Set(outsideOf(t, over(serve(t, current).URL)))
	expect.Eventually(t, "the new function is asked", func() bool {
		d.publish(nodeScope(t, keepOff, "b"))
		d.answers.Next(t)
		return current.Load() > 0
	})
	ask("c")
	d.done()
	d.d.Set(nil)
	expect.Eventually(t, "nobody is asked", func() bool {
		n, err := testutil.GatherAndCount(d.metrics, "rehome_dispatcher_open")
		return err == nil && n == 0
	})
	before := old.Load() + current.Load()
	d.publish(nodeScope(t, keepOff, "d"))
	d.answers.Quiet(t, 300*time.Millisecond)
	if after := old.Load() + current.Load(); after != before || d.waiting() != 1 {
		t.Errorf("asked %d times after the end, %d scopes wait; want none and 1", after-before, d.waiting())
	}
}

// counting is mover with a count of its requests.
type counting struct{ atomic.Int32 }

func (c *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.Add(1)
	mover(w, r)
}
