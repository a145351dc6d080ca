package actuator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// crowd is a view of pods of one workload, in the order of their arrival.
type crowd struct {
	noView

	mu   sync.Mutex
	list []cluster.Pod
}

func (c *crowd) add(uid types.UID, node string, ready bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, cluster.Pod{
		Ref:      schemas.PodRef{Namespace: "web", Name: "pod-" + string(uid), UID: uid},
		Workload: schemas.ObjectRef{Kind: "Deployment", Namespace: "web", Name: "web", UID: "web"},
		Node:     node, Ready: ready, Budgeted: true, Created: time.Now(),
	})
}

// set changes the pods.
func (c *crowd) set(change func([]cluster.Pod) []cluster.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = change(c.list)
}

func (c *crowd) remove(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.list, func(p cluster.Pod) bool { return p.Ref.UID == uid })
	c.list[i].Ready, c.list[i].Leaving = false, true
}

func (c *crowd) Pod(uid types.UID) (cluster.Pod, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.list, func(p cluster.Pod) bool { return p.Ref.UID == uid })
	if i < 0 {
		return cluster.Pod{}, false
	}
	return c.list[i], true
}

func (c *crowd) Pods(types.UID) []cluster.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list)
}

func (c *crowd) Tally(types.UID) cluster.Tally { return cluster.Tally{Wanted: 10, Ready: 5} }

func (c *crowd) Seen(uid types.UID) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return uint64(1 + slices.IndexFunc(c.list, func(p cluster.Pod) bool { return p.Ref.UID == uid }))
}

func (c *crowd) Latest() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return uint64(len(c.list))
}

// keys returns the keys of the ledger.
func (m *memory) keys() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.ledger))
}

// slowLedger is a ledger with slow deletes.
type slowLedger struct{ *memory }

func (s slowLedger) Delete(ctx context.Context, key string) error {
	time.Sleep(2 * time.Second)
	return s.memory.Delete(ctx, key)
}

func TestLedgerDeleteAndPut(t *testing.T) {
	var tries int
	var during []string
	bus := newMemory()
	handle := func(ctx context.Context, o Intent, note saveFunc) (schemas.Verdict, error) {
		if err := note(ctx, record{Intent: o, Method: schemas.MethodEviction}); err != nil {
			return schemas.Verdict{}, err
		}
		if tries++; tries == 1 {
			return schemas.Verdict{}, fmt.Errorf("look at pod %s: %w", o.Pod, ErrUnavailable)
		}
		time.Sleep(10 * time.Second)
		during = bus.keys()
		return o.Verdict(schemas.Evicted, schemas.ReasonEvictionAccepted, ""), nil
	}
	synctest.Test(t, func(t *testing.T) {
		bus = newMemory()
		a := New(Config{Bus: bus, Ledger: slowLedger{bus}, Policy: fast, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		(&bench{bus: bus, start: time.Now()}).put("A", 1, "1")
		expect.Equal(t, "error", a.lead(ctx, handle), nil)
		expect.Equal(t, "tries", tries, 2)
		expect.Equal(t, "ledger during the second", during, []string{"begun"})
	})
}

func TestRejectedPodNotClaimed(t *testing.T) {
	var during []string
	var b *bench
	handle := func(_ context.Context, o Intent, _ saveFunc) (schemas.Verdict, error) {
		during = b.bus.keys()
		return o.Verdict(schemas.Rejected, schemas.ReasonPodGone, ""), nil
	}
	inBubble(t, Config{Policy: fast}, handle, func(t *testing.T, of *bench) {
		b = of
		b.put("A", 1, "1")
		time.Sleep(time.Second)
		expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{{"A-1.1", schemas.ReasonPodGone, 0}})
		expect.Equal(t, "ledger before the gates are asked", during, []string(nil))
	})
}

func TestReplacementEndsOneMove(t *testing.T) {
	view := &crowd{}
	cfg := Config{Policy: fast, View: view}
	handle := always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0)
	inBubble(t, cfg, handle, func(t *testing.T, b *bench) {
		changed := func() {
			b.Changed(cluster.Change{Workload: "web"})
			time.Sleep(time.Second)
		}
		ended := func() (ids []string) {
			for _, h := range b.bus.heard(t, b.start) {
				if h.Reason == schemas.ReasonReplaced {
					ids = append(ids, h.ID)
				}
			}
			return ids
		}
		view.add("1", "worker-1", true)
		view.add("2", "worker-1", true)
		b.put("A", 1, "1", "2")
		time.Sleep(time.Second)
		view.remove("1")
		view.remove("2")
		view.add("3", "worker-2", true)
		changed()
		changed()
		expect.Equal(t, "ended", ended(), []string{"A-1.1"})

		b.stop()
		end := leads(t, b.Actuator, handle)
		time.Sleep(10 * time.Second)
		expect.Equal(t, "ended by the next leader, without another replacement", ended(), []string{"A-1.1"})
		view.add("4", "worker-2", true)
		changed()
		expect.Equal(t, "ended with another replacement", ended(), []string{"A-1.1", "A-1.2"})
		end()
	})
}

// slowVerdicts is a bus that stores Evicted verdicts slowly.
type slowVerdicts struct {
	*memory
	takes time.Duration
}

func (s slowVerdicts) Publish(ctx context.Context, e schemas.Event) (uint64, error) {
	if v, err := schemas.Decode[schemas.Verdict](e); err == nil && v.Outcome == schemas.Evicted {
		time.Sleep(s.takes)
	}
	return s.memory.Publish(ctx, e)
}

func TestReplacementGoneBeforeVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view, bus := &crowd{}, slowVerdicts{newMemory(), 3 * time.Second}
		a := New(Config{Policy: fast, View: view, Bus: bus, Ledger: bus.memory, Log: slog.New(slog.DiscardHandler)})
		end := leads(t, a, always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0))
		b := &bench{Actuator: a, bus: bus.memory, start: time.Now()}
		step := func() {
			a.Changed(cluster.Change{Workload: "web"})
			time.Sleep(time.Second)
		}

		view.add("1", "worker-1", true)
		b.put("A", 1, "1")
		time.Sleep(time.Second)
		view.remove("1")
		view.add("2", "worker-2", true)
		step()
		view.remove("2") // another client restarts the workload
		view.add("3", "worker-1", true)
		step()
		time.Sleep(10 * time.Second)
		end()
		expect.Equal(t, "what was said", b.bus.messages(t), []string{"", "web/pod-2 runs on worker-2, after 1s"})
	})
}

func TestLedgerForgetsMove(t *testing.T) {
	cfg := Config{Policy: policy.Policy{Rate: fast.Rate, Limits: policy.Limits{Total: new(uint(1)), Window: time.Minute}}, View: &crowd{}}
	inBubble(t, cfg, always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0), func(t *testing.T, b *bench) {
		b.put("A", 1, "1")
		time.Sleep(59 * time.Second)
		expect.Equal(t, "ledger within the window", b.bus.keys(), []string{"move.1"})
		time.Sleep(2 * time.Second)
		expect.Equal(t, "ledger after it", b.bus.keys(), []string(nil))
	})
}

// wire is an API server with scripted answers.
type wire func(*http.Request) (*http.Response, error)

func (w wire) RoundTrip(r *http.Request) (*http.Response, error) { return w(r) }

// serving is an API server that answers each request with an object.
func serving(object any) wire {
	return func(*http.Request) (*http.Response, error) { return response(http.StatusOK, object), nil }
}

// noPods is an API server without pods.
var noPods = wire(func(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost { // a Kubernetes Event
		return created(), nil
	}
	return failure(http.StatusNotFound, metav1.StatusReasonNotFound), nil
})

func (w wire) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	config := &rest.Config{Host: "http://world", QPS: -1}
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	client, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: w})
	expect.Must(t, err)
	return client
}

func TestFailedCancelKeepsLedger(t *testing.T) {
	client := wire(func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "pod-2") {
			return nil, errors.New("connection refused")
		}
		return response(http.StatusOK, ownedPod("pod-1", "1", "api")), nil
	}).client(t)
	a := New(Config{Client: client, Log: slog.New(slog.DiscardHandler)})
	term := newSession(t.Context(), func() bool { return false }, a, a.execute, recorder{})
	answer, e := answerTo("A", 1, "1", "2")
	records := []record{{Intent: intentOf(answer, answer.Intents[0], e)}, {Intent: intentOf(answer, answer.Intents[1], e)}}
	_, err := term.resolve(t.Context(), records)
	if !errors.Is(err, ErrUnavailable) {
		t.Errorf("got the error %v, want one that wraps ErrUnavailable", err)
	}
	expect.Equal(t, "changes of the ledger", len(term.ledgerWrites.next), 0)
}

// TestRecover covers how a new leader reads the ledger.
func TestRecover(t *testing.T) {
	t.Run("a_pod_that_must_not_be_read_holds_nothing_up", func(t *testing.T) {
		client := wire(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "pod-2") {
				return failure(http.StatusForbidden, metav1.StatusReasonForbidden), nil
			}
			return failure(http.StatusNotFound, metav1.StatusReasonNotFound), nil
		}).client(t)
		a := New(Config{Client: client, Log: slog.New(slog.DiscardHandler)})
		s := newSession(t.Context(), func() bool { return false }, a, nil, recorder{})
		answer, e := answerTo("A", 1, "1", "2")
		got, err := s.resolve(t.Context(), []record{
			{Intent: intentOf(answer, answer.Intents[0], e)}, {Intent: intentOf(answer, answer.Intents[1], e)},
		})
		expect.Equal(t, "error", err, nil)
		expect.Equal(t, "verdicts", len(got.verdicts), 1)
		expect.Equal(t, "verdict", got.verdicts[0].entry.uid(), types.UID("1"))
		expect.Equal(t, "set aside", fmt.Sprint(got.invalid), "[ledger record move.2 is set aside: look at pod web/pod-2: Forbidden]")
	})
}
