package feed_test

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/api/feed"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// stage is a feed of a cache that the test fills.
type stage struct {
	*testing.T
	cache *cluster.Cache
	feed  *feed.Feed
}

func newStage(t *testing.T) *stage {
	t.Helper()
	cache, err := cluster.NewOffline(cluster.WorkloadKinds()...)
	expect.Must(t, err)
	s := &stage{t, cache, feed.New(cache)}
	expect.Background(t, s.feed.Run)
	return s
}

func (s *stage) set(objects ...any) {
	s.Helper()
	for _, o := range objects {
		if err := s.cache.Set(o); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *stage) join(r feed.Rights) *feed.Client {
	s.Helper()
	c, err := s.feed.Join(s.Context(), r)
	expect.Must(s, err)
	return c
}

var born = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func node(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(born),
			Labels: map[string]string{corev1.LabelTopologyZone: "z1", "example.com/nodepool": "blue", "secret": "x"},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "a", Value: "b", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("110")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

func pod(namespace, name, on string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("uid-" + namespace + "-" + name), CreationTimestamp: metav1.NewTime(born),
			Labels:          map[string]string{"app": name},
			OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", UID: "uid-db", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{NodeName: on, Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("1Gi")},
		}}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

// picture is the state of a client after some messages.
type picture struct {
	nodes map[string]feed.NodeRow
	pods  map[string]feed.PodRow
	ready bool
}

func newPicture() *picture {
	return &picture{nodes: map[string]feed.NodeRow{}, pods: map[string]feed.PodRow{}}
}

func (p *picture) take(t testing.TB, messages ...*feed.Message) {
	t.Helper()
	for _, m := range messages {
		event, data, _ := strings.Cut(strings.TrimSuffix(string(m.Text), "\n\n"), "\ndata: ")
		var body struct {
			Rows []json.RawMessage
			Gone []string
		}
		if err := json.Unmarshal([]byte(data), &body); err != nil || strings.Contains(data, "\n") {
			t.Fatalf("%q: %v", m.Text, err)
		}
		switch event {
		case "event: nodes":
			for _, r := range body.Rows {
				row := expect.FromJSON[feed.NodeRow](t, r)
				p.nodes[row.Name] = row
			}
			for _, name := range body.Gone {
				delete(p.nodes, name)
			}
		case "event: pods":
			for _, r := range body.Rows {
				row := expect.FromJSON[feed.PodRow](t, r)
				p.pods[row.UID] = row
			}
			for _, uid := range body.Gone {
				delete(p.pods, uid)
			}
		case "event: ready":
			p.ready = true
		default:
			t.Fatalf("unknown event %q", event)
		}
	}
}

// waiting takes the messages that are in the queue. It reports false when the queue is closed.
func (p *picture) waiting(t testing.TB, c *feed.Client) bool {
	t.Helper()
	for {
		select {
		case m, ok := <-c.Changes:
			if !ok {
				return false
			}
			p.take(t, m)
		default:
			return true
		}
	}
}

func row(namespace, name, on string, flags int) feed.PodRow {
	return feed.PodRow{
		UID: "uid-" + namespace + "-" + name, Namespace: namespace, Name: name, Node: on, Workload: "StatefulSet/db", Phase: "Running",
		Flags: flags, Created: born.Unix(),
	}
}

func nodeRow(name string, pods int64) feed.NodeRow {
	return feed.NodeRow{
		Name: name, Ready: true, Taints: []string{"a=b:NoSchedule"}, Created: born,
		Labels:    map[string]string{corev1.LabelTopologyZone: "z1", "example.com/nodepool": "blue"},
		Capacity:  feed.Amounts{CPU: 4000, Memory: 8 << 30, Pods: 110},
		Requested: feed.Amounts{CPU: 500 * pods, Memory: pods << 30, Pods: pods},
	}
}

func TestFeed(t *testing.T) {
	for name, c := range map[string]struct {
		rights feed.Rights
		before picture
		after  picture
	}{
		"all": {feed.Rights{All: true, Nodes: true}, picture{
			nodes: map[string]feed.NodeRow{"n1": nodeRow("n1", 1), "n2": nodeRow("n2", 1)},
			pods:  map[string]feed.PodRow{"uid-a-p": row("a", "p", "n1", feed.FlagReady), "uid-b-q": row("b", "q", "n2", feed.FlagReady)},
		}, picture{
			nodes: map[string]feed.NodeRow{"n2": nodeRow("n2", 2), "n3": nodeRow("n3", 0)},
			pods: map[string]feed.PodRow{
				"uid-a-p": row("a", "p", "n2", feed.FlagReady|feed.FlagBudget), "uid-b-r": row("b", "r", "n2", feed.FlagLeaving),
			},
		}},
		"pods of all namespaces": {feed.Rights{All: true}, picture{
			nodes: map[string]feed.NodeRow{"n1": {Name: "n1"}, "n2": {Name: "n2"}},
			pods:  map[string]feed.PodRow{"uid-a-p": row("a", "p", "n1", feed.FlagReady), "uid-b-q": row("b", "q", "n2", feed.FlagReady)},
		}, picture{
			nodes: map[string]feed.NodeRow{"n2": {Name: "n2"}},
			pods: map[string]feed.PodRow{
				"uid-a-p": row("a", "p", "n2", feed.FlagReady|feed.FlagBudget), "uid-b-r": row("b", "r", "n2", feed.FlagLeaving),
			},
		}},
		"one namespace": {feed.Rights{Namespaces: map[string]bool{"a": true}}, picture{
			nodes: map[string]feed.NodeRow{"n1": {Name: "n1"}}, pods: map[string]feed.PodRow{"uid-a-p": row("a", "p", "n1", feed.FlagReady)},
		}, picture{
			nodes: map[string]feed.NodeRow{"n2": {Name: "n2"}},
			pods:  map[string]feed.PodRow{"uid-a-p": row("a", "p", "n2", feed.FlagReady|feed.FlagBudget)},
		}},
		"one namespace and nodes": {feed.Rights{Nodes: true, Namespaces: map[string]bool{"a": true}}, picture{
			nodes: map[string]feed.NodeRow{"n1": nodeRow("n1", 1), "n2": nodeRow("n2", 1)},
			pods:  map[string]feed.PodRow{"uid-a-p": row("a", "p", "n1", feed.FlagReady)},
		}, picture{
			nodes: map[string]feed.NodeRow{"n2": nodeRow("n2", 2), "n3": nodeRow("n3", 0)},
			pods:  map[string]feed.PodRow{"uid-a-p": row("a", "p", "n2", feed.FlagReady|feed.FlagBudget)},
		}},
		"nothing": {feed.Rights{}, picture{}, picture{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				s.set(node("n1"), node("n2"), pod("a", "p", "n1"), pod("b", "q", "n2"))
				client, got := s.join(c.rights), newPicture()
				got.take(t, client.Snapshot...)
				check(t, "snapshot", got, c.before)
				s.set(node("n3"), pod("a", "p", "n2"))
				leaving := pod("b", "r", "n2")
				leaving.DeletionTimestamp = &metav1.Time{Time: born}
				s.set(leaving, &policyv1.PodDisruptionBudget{
					ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"},
					Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "p"}}},
				})
				for _, gone := range []any{node("n1"), pod("b", "q", "n2")} {
					if err := s.cache.Remove(gone); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(150 * time.Millisecond)
				if !got.waiting(t, client) {
					t.Fatal("the queue is closed")
				}
				check(t, "changes", got, c.after)
				later := newPicture()
				later.take(t, s.join(c.rights).Snapshot...)
				check(t, "another client", later, c.after)
			})
		})
	}
}

func check(t *testing.T, what string, got *picture, want picture) {
	t.Helper()
	if !got.ready || !maps.EqualFunc(got.nodes, want.nodes, func(a, b feed.NodeRow) bool { return reflect.DeepEqual(a, b) }) || !maps.Equal(got.pods, want.pods) {
		t.Errorf("%s: ready %t\ngot  %+v\n     %+v\nwant %+v\n     %+v", what, got.ready, got.nodes, got.pods, want.nodes, want.pods)
	}
}

// TestSlowClient has a client that reads nothing. The end of its queue reports this, and other clients get everything.
func TestSlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.set(node("n1"))
		all := feed.Rights{All: true, Nodes: true}
		slow, fast, got := s.join(all), s.join(all), newPicture()
		const changes = 400
		for i := range changes {
			s.set(pod("a", fmt.Sprint("p", i), "n1"))
			time.Sleep(110 * time.Millisecond)
			if !got.waiting(t, fast) {
				t.Fatalf("after %d changes the fast client lost its queue", i)
			}
		}
		if behind := newPicture(); behind.waiting(t, slow) || len(behind.pods) >= changes {
			t.Errorf("the slow client has %d pods and its queue is open", len(behind.pods))
		}
		s.feed.Leave(slow)
		again := newPicture()
		again.take(t, s.join(all).Snapshot...)
		if len(got.pods) != changes || !reflect.DeepEqual(again.pods, got.pods) {
			t.Errorf("the fast client has %d pods, and the slow one then %d, want %d", len(got.pods), len(again.pods), changes)
		}
	})
}

// TestIdleFeed leaves, changes pods, and joins again, before and after the rows are dropped.
func TestIdleFeed(t *testing.T) {
	for name, wait := range map[string]time.Duration{"rows are kept": time.Second, "rows are dropped": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				s.set(pod("a", "p", "n1"))
				all := feed.Rights{All: true, Nodes: true}
				s.feed.Leave(s.join(all))
				s.set(pod("a", "q", "n1"))
				time.Sleep(wait)
				s.set(pod("a", "r", "n1"))
				got := newPicture()
				got.take(t, s.join(all).Snapshot...)
				if len(got.pods) != 3 {
					t.Errorf("got %v, want three pods", got.pods)
				}
			})
		})
	}
}

// TestNames has a thousand pods, and counts the allocations for a client that may see none of them.
func TestNames(t *testing.T) {
	s := newStage(t)
	for i := range 1000 {
		s.set(pod(fmt.Sprint("ns-", i%2), fmt.Sprint("p", i), fmt.Sprint("n", i%4)))
	}
	s.set(pod("ns-1", "pending", ""))
	for name, c := range map[string]struct {
		rights feed.Rights
		want   []feed.NodeRow
	}{
		"all":           {feed.Rights{All: true}, []feed.NodeRow{{Name: "n0"}, {Name: "n1"}, {Name: "n2"}, {Name: "n3"}}},
		"one_namespace": {feed.Rights{Namespaces: map[string]bool{"ns-1": true}}, []feed.NodeRow{{Name: "n1"}, {Name: "n3"}}},
		"nothing":       {feed.Rights{}, []feed.NodeRow{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := feed.Names(s.cache, c.rights); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
	if n := testing.AllocsPerRun(100, func() { feed.Names(s.cache, feed.Rights{}) }); n > 0 {
		t.Errorf("%v allocations for a client that may see nothing, want 0", n)
	}
}

// FuzzRow checks that rows with any names are read as they were, and stay on one line, also packed.
func FuzzRow(f *testing.F) {
	f.Add("a", "p", "n1")
	f.Add("<script>", "\"\\\n\r\u2028", "\xff\x00é")
	f.Fuzz(func(t *testing.T, namespace, name, on string) {
		want := feed.PodRow{UID: name, Namespace: namespace, Name: name, Node: on, Flags: 7, Created: -1}
		text := expect.ToJSON(t, want)
		var got feed.PodRow
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for _, s := range []*string{&want.UID, &want.Namespace, &want.Name, &want.Node} {
			*s = string([]rune(*s)) // invalid bytes are replaced
		}
		if got != want || bytes.ContainsAny(text, "\r\n<>") {
			t.Errorf("got %+v of %s, want %+v", got, text, want)
		}
		m := feed.NewMessage("pods", text)
		both := append(bytes.Clone(m.Packed()), m.Packed()...)
		read, err := io.ReadAll(flate.NewReader(bytes.NewReader(append(both, 1, 0, 0, 0xff, 0xff))))
		if err != nil || string(read) != strings.Repeat(string(m.Text), 2) {
			t.Errorf("unpacked %q, %v, want %q twice", read, err, m.Text)
		}
	})
}

// BenchmarkFeed has a cluster with 100,000 pods on 5,000 nodes. It moves 100 pods per second.
func BenchmarkFeed(b *testing.B) {
	for _, clients := range []int{1, 50} {
		b.Run(fmt.Sprint("clients=", clients), func(b *testing.B) { benchmarkFeed(b, clients) })
	}
}

func benchmarkFeed(b *testing.B, clients int) {
	cache, err := cluster.NewOffline(cluster.WorkloadKinds()...)
	expect.Must(b, err)
	f := feed.New(cache)
	const nodes, pods, moves = 5000, 100_000, 10
	for i := range nodes {
		if err := cache.Set(node(fmt.Sprint("node-", i))); err != nil {
			b.Fatal(err)
		}
	}
	for i := range pods {
		p := pod(fmt.Sprint("ns-", i%100), fmt.Sprint("pod-", i), fmt.Sprint("node-", i%nodes))
		p.OwnerReferences[0].UID = types.UID(fmt.Sprint("uid-db-", i%1000))
		if err := cache.Set(p); err != nil {
			b.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	var total, packed int
	joined := time.Now()
	var queues []*feed.Client
	for range clients {
		c, err := f.Join(ctx, feed.Rights{All: true, Nodes: true})
		expect.Must(b, err)
		queues = append(queues, c)
	}
	took := time.Since(joined)
	for _, m := range queues[0].Snapshot {
		total += len(m.Text)
		packed += len(m.Packed())
	}
	b.ReportMetric(took.Seconds()*1000, "ms-join")
	b.ReportMetric(float64(total), "B-snapshot")
	b.ReportMetric(float64(packed), "B-snapshot-gzip")
	total, packed = 0, 0
	i := 0
	b.ResetTimer()
	for b.Loop() { // a tenth of a second of moves
		for range moves {
			i = (i + 1) % pods
			p := pod(fmt.Sprint("ns-", i%100), fmt.Sprint("pod-", i), fmt.Sprint("node-", (i*7)%nodes))
			p.OwnerReferences[0].UID = types.UID(fmt.Sprint("uid-db-", i%1000))
			if err := cache.Set(p); err != nil {
				b.Fatal(err)
			}
		}
		for at, c := range queues {
			for seen := 0; seen < moves; {
				m := <-c.Changes
				text := m.Packed()
				if at == 0 {
					total += len(m.Text)
					packed += len(text)
				}
				if bytes.HasPrefix(m.Text, []byte("event: pods")) {
					seen += bytes.Count(m.Text, []byte(`["uid-`))
				}
			}
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(total)/float64(b.N)*10, "B/s-client")
	b.ReportMetric(float64(packed)/float64(b.N)*10, "B/s-client-gzip")
	stop()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}
