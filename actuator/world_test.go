package actuator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	worldNodes     = 6
	worldWorkloads = 8
	worldReplicas  = 10
	worldTTL       = time.Minute // of an intent
)

// world is a model of the environment of an actuator: a cluster whose controllers replace evicted pods, a bus, and
// functions that publish random intents. It is safe for concurrent use.
type world struct {
	bus *memory

	mu        sync.Mutex
	random    *rand.Rand
	pods      map[types.UID]*worldPod
	order     []*worldPod
	evictions []worldEviction
	stored    map[string]bool    // events, by ID
	readers   map[string][]*life // of an intents message, by its ID
	ends      []time.Time        // of processes
	actuator  *Actuator
	sequence  uint64
	back      [2]time.Time // when each unavailable server is back
}

// server is a server that can be unavailable.
type server int

const (
	theBus server = iota
	theAPIServer
)

// worldPod is an existing or past pod.
type worldPod struct {
	cluster.Pod
	seen uint64
	gone bool
	went time.Time
}

type worldEviction struct {
	pod, node string
	workload  types.UID
	at, ready time.Time // the times of its eviction and of its replacement's readiness, or zero
}

func newWorld(seed uint64) *world {
	w := &world{
		bus: newMemory(), random: rand.New(rand.NewPCG(seed, 1)), pods: map[types.UID]*worldPod{}, stored: map[string]bool{},
		readers: map[string][]*life{},
	}
	for i := range worldWorkloads * worldReplicas {
		p := w.add(types.UID(fmt.Sprint("workload-", i%worldWorkloads)))
		p.Ready, p.Created = true, p.Created.Add(-time.Hour)
	}
	return w
}

// add creates a pod on some node. The caller holds mu, or is alone.
func (w *world) add(of types.UID) *worldPod {
	n := uint64(len(w.order) + 1)
	p := &worldPod{seen: n, Pod: cluster.Pod{
		Ref:      schemas.PodRef{Namespace: "web", Name: fmt.Sprint("pod-", n), UID: types.UID(fmt.Sprint(n))},
		Workload: schemas.ObjectRef{Kind: "Deployment", Namespace: "web", Name: string(of), UID: of},
		Node:     fmt.Sprint("worker-", w.random.IntN(worldNodes)), Created: time.Now().Truncate(time.Second), Budgeted: w.random.IntN(2) == 0,
	}}
	w.pods[p.Ref.UID] = p
	w.order = append(w.order, p)
	return p
}

func (w *world) below(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(max(n, 1))
}

// first records an event as stored, and reports whether it is new.
func (w *world) first(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.stored[id]
	w.stored[id] = true
	return !known
}

// hasRead records that a process has read an intents message.
func (w *world) hasRead(e schemas.Event, l *life) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.readers[e.ID] = append(w.readers[e.ID], l)
}

// died records that a process was killed.
func (w *world) died(l *life) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.over = time.Now()
	w.ends = append(w.ends, l.over)
}

// away reports whether a server is unavailable. Now and then it becomes unavailable for some seconds.
func (w *world) away(s server) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if now.After(w.back[s].Add(20*time.Second)) && w.random.IntN(500) == 0 {
		w.back[s] = now.Add(time.Duration(w.random.IntN(8000)) * ms)
	}
	return now.Before(w.back[s])
}

// lead sets the actuator that receives changes.
func (w *world) lead(a *Actuator) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.actuator = a
}

func (w *world) changed(of types.UID) {
	w.mu.Lock()
	a := w.actuator
	w.mu.Unlock()
	if a != nil {
		a.Changed(cluster.Change{Workload: of})
	}
}

// wish stores answers about random nodes until ctx ends, and then an empty one for each.
func (w *world) wish(ctx context.Context) {
	for ctx.Err() == nil {
		w.answer([]string{"A", "B"}[w.below(2)], fmt.Sprint("worker-", w.below(worldNodes)), w.below(4) > 0)
		pause := time.Duration(w.below(1500)) * ms
		if w.below(3) == 0 {
			pause = time.Duration(w.below(30)) * ms // withdrawn at once
		}
		time.Sleep(pause)
	}
}

// answer stores an answer that lists the pods of a node, and now and then some that existed a moment ago.
func (w *world) answer(strategy, node string, wanted bool) {
	w.mu.Lock()
	w.sequence++
	a := schemas.Intents{Profile: "default", Strategy: strategy, Intents: []schemas.Intent{}, Scope: schemas.ScopeRef{
		Kind: schemas.NodeKind, Key: node, Event: fmt.Sprint(strategy, w.sequence), Sequence: w.sequence, Since: time.Now(),
	}}
	most := 1 + w.random.IntN(12)
	for _, p := range w.order {
		stale := p.gone && len(w.order)-int(p.seen) < 120 && w.random.IntN(20) == 0
		if wanted && p.Node == node && (!p.gone || stale) && w.random.IntN(4) > 0 && len(a.Intents) < most {
			a.Intents = append(a.Intents, schemas.Intent{
				ID: a.Scope.Event + "." + string(p.Ref.UID), Pod: p.Ref, Node: node, Reason: "why not", Expires: time.Now().Add(worldTTL),
			})
		}
	}
	w.mu.Unlock()
	e, err := schemas.NewEvent("/test/functions", a, time.Now(), schemas.Event{})
	if err != nil {
		panic(err)
	}
	w.bus.put(e)
}

// evict evicts a pod, whose replacement appears and becomes ready later.
func (w *world) evict(p *worldPod) {
	p.gone, p.Ready, p.went = true, false, time.Now()
	number := len(w.evictions)
	w.evictions = append(w.evictions, worldEviction{string(p.Ref.UID), p.Node, p.Workload.UID, time.Now(), time.Time{}})
	come, ready := time.Duration(w.random.IntN(500))*ms, time.Duration(w.random.IntN(2000))*ms
	go func() {
		w.changed(p.Workload.UID)
		time.Sleep(come)
		w.mu.Lock()
		next := w.add(p.Workload.UID)
		w.mu.Unlock()
		w.changed(p.Workload.UID)
		time.Sleep(ready)
		w.mu.Lock()
		next.Ready, w.evictions[number].ready = true, time.Now()
		w.mu.Unlock()
		w.changed(p.Workload.UID)
	}()
}

// RoundTrip returns the API server as a process reaches it.
func (l *life) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/events") { // not counted as a call of the process
		body, err := io.ReadAll(r.Body)
		return response(http.StatusCreated, json.RawMessage(body)), err
	}
	var answer *http.Response
	err := l.call(r.Context(), theAPIServer, func() error {
		answer = l.w.serve(r) //nolint:bodyclose // only bytes, which the client closes
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func (w *world) serve(r *http.Request) *http.Response {
	w.mu.Lock()
	defer w.mu.Unlock()
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(path) < 6 || path[4] != "pods" {
		return response(http.StatusOK, policyv1.PodDisruptionBudgetList{
			TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudgetList"},
		})
	}
	p := w.pods[types.UID(strings.TrimPrefix(path[5], "pod-"))]
	cached := r.URL.Query().Get("resourceVersion") != "" // may come from a cache that is a moment old
	switch {
	case cached && p != nil && p.gone && time.Since(p.went) < 100*ms:
		return response(http.StatusOK, p.object())
	case p == nil || p.gone:
		return failure(http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Method == http.MethodGet:
		return response(http.StatusOK, p.object())
	case w.random.IntN(10) == 0:
		s := failed(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
		s.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause}}}
		return response(http.StatusTooManyRequests, s)
	}
	w.evict(p)
	return created()
}

func (p *worldPod) object() corev1.Pod {
	return corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Ref.Namespace, Name: p.Ref.Name, UID: p.Ref.UID, ResourceVersion: "1",
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: p.Workload.Name, UID: p.Workload.UID, Controller: new(true),
			}},
		},
		Spec: corev1.PodSpec{NodeName: p.Node}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func failed(code int32, reason metav1.StatusReason) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: string(reason),
	}
}

func failure(code int32, reason metav1.StatusReason) *http.Response {
	return response(int(code), failed(code, reason))
}

func response(code int, object any) *http.Response {
	body, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
	}
}

// The world is the view of its actuators, which see a pod as soon as it exists.

func (w *world) Pod(uid types.UID) (cluster.Pod, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.pods[uid]; p != nil && !p.gone {
		return p.Pod, true
	}
	return cluster.Pod{}, false
}

func (w *world) Pods(of types.UID) (list []cluster.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.order {
		if p.Workload.UID == of && !p.gone {
			list = append(list, p.Pod)
		}
	}
	return list
}

func (w *world) Tally(of types.UID) cluster.Tally {
	tally := cluster.Tally{Wanted: worldReplicas}
	for _, p := range w.Pods(of) {
		if p.Ready {
			tally.Ready++
		}
	}
	return tally
}

func (w *world) Nodes() []cluster.Node { return nil }

// Object implements View. It can be a moment old.
func (w *world) Object(uid types.UID) *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pods[uid]
	if p == nil || p.gone && time.Since(p.went) > 100*ms {
		return nil
	}
	return new(p.object())
}

func (w *world) Seen(uid types.UID) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.pods[uid]; p != nil {
		return p.seen
	}
	return 0
}

func (w *world) Latest() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return uint64(len(w.order))
}
