package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/app/settings"
	caches "github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/randtest"
)

const (
	looker = "looker" // a user that may only get, create, and update leases
	nobody = "nobody" // a user without rights
	// long is a duration that no standby waits for: one that leads within soon has taken a released lease.
	long = 10 * time.Minute
	soon = 30 * time.Second
	// short is a duration that ends within a test.
	short = 3 * time.Second
)

// TestLeaseWithAPIServer shares one control plane among its subtests. Each has its own lease; the last one stops the
// API server.
func TestLeaseWithAPIServer(t *testing.T) {
	c := clustertest.New(t, cluster.Options{Users: []cluster.User{{Name: looker}, {Name: nobody}}})
	for i, tt := range []struct {
		name string
		test func(*contest)
	}{
		{"a standby leads as soon as the leader has ended", testHandOver},
		{"so it is however often and whenever leaders end, and no two lead at once", testManyHandOvers},
		{"a standby leads as soon as the lease is released or deleted by hand", testByHand},
		{"a standby that replaces a deleted lease leads after its holder", testReplaced},
		{"a standby does not lead while the lease is held", testHeld},
		{"a leader that loses its lease ends at once and says why", testTaken},
		{"a round that loses its lease reports it", testRoundTaken},
		{"a process of another namespace refuses a lease that is renewed, and takes an abandoned one", testOtherNamespace},
		{"the rights to get, create and update the lease are enough", testRights},
		{"no lease while caches are empty", testEmptyCaches},
		{"a round without rights gives up", testRightlessRound},
		{"a lease is valid while it is renewed, and not after it was taken or released", testValid},
		{"a leader that ends in order knows that too, and nothing of it stays", testOrderlyEnd},
		{"a leader that cannot renew its lease ends, knows why, and leads again when it can", testCannotRenew},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &contest{T: expect.T{TB: t}, c: c, client: c.Client(), namespace: fmt.Sprintf("contest-%d", i)}
			c.Must(c.c.AddNamespace(t.Context(), c.namespace))
			tt.test(c)
		})
	}
}

// contest is one lease, with its contenders.
type contest struct {
	expect.T
	c         *cluster.Cluster
	client    kubernetes.Interface
	namespace string
	leading   atomic.Int32
}

const contested = "contested"

// contender is a process that wants the lease.
type contender struct {
	*lease
	in     *contest
	looked chan struct{} // it has read the lease
	terms  chan struct{} // it leads
	causes chan error    // it no longer leads, with the reason
	log    *program.Log
	end    func() // ends it and waits for it
}

// contender returns a contender that does not run yet.
func (c *contest) contender(config *rest.Config, duration time.Duration) *contender {
	c.Helper()
	p := &contender{in: c, looked: make(chan struct{}, 1), terms: make(chan struct{}, 100), causes: make(chan error, 100),
		log: &program.Log{}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &observed{next, p.looked} })
	client, err := kubernetes.NewForConfig(config)
	c.Must(err)
	p.lease = &lease{client: client, namespace: c.namespace, name: contested, identity: newIdentity(""), duration: duration,
		log: slog.New(slog.NewTextHandler(p.log, nil))}
	return p
}

// run starts a contender that wants the lease until it is ended, at the latest at the end of the test.
func (c *contest) run(duration time.Duration, started chan<- *contender) *contender {
	c.Helper()
	return c.start(c.contender(c.c.RESTConfig(), duration), started)
}

func (c *contest) start(p *contender, started chan<- *contender) *contender {
	ctx, cancel := context.WithCancel(c.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := p.hold(ctx, func(ctx context.Context) error { return p.lead(ctx, started) }); err != nil {
			c.Errorf("hold: %v", err)
		}
	}()
	p.end = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	c.Cleanup(p.end)
	return p
}

// lead returns a term.
func (p *contender) lead(ctx context.Context, started chan<- *contender) error {
	if n := p.in.leading.Add(1); n != 1 {
		p.in.Errorf("%d lead at once", n)
	}
	p.terms <- struct{}{}
	if started != nil {
		started <- p
	}
	<-ctx.Done()
	p.in.leading.Add(-1)
	p.causes <- context.Cause(ctx)
	return nil
}

// within is [expect.Receive] with a deadline, and returns the time it took.
func within[T any](c *contest, most time.Duration, began time.Time, what string, from <-chan T) T {
	c.Helper()
	got := expect.Receive(c, what, from)
	took := time.Since(began)
	if c.Logf("%s: after %v", what, took); took > most {
		c.Errorf("%s: after %v, want at most %v", what, took, most)
	}
	return got
}

// observed reports every successful read of a lease.
type observed struct {
	next   http.RoundTripper
	looked chan<- struct{}
}

func (o *observed) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := o.next.RoundTrip(r)
	if err == nil && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/leases/"+contested) {
		select {
		case o.looked <- struct{}{}:
		default:
		}
	}
	return response, err
}

// messages returns the lines of a log without variable parts.
func messages(l *program.Log) []string {
	var out []string
	for line := range strings.Lines(l.String()) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), " ") // the time
		out = append(out, line)
	}
	return out
}

// lease writes the lease: its holder, its renewal now, and its duration. It creates it if necessary.
func (c *contest) lease(holder string, duration time.Duration) {
	c.Helper()
	all := c.client.CoordinationV1().Leases(c.namespace)
	for { // until no concurrent write
		lease, err := all.Get(c.Context(), contested, metav1.GetOptions{})
		if err != nil {
			lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: contested}}
		}
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &holder, new(int32(duration/time.Second))
		lease.Spec.RenewTime = new(metav1.NowMicro())
		if lease.UID == "" {
			_, err = all.Create(c.Context(), lease, metav1.CreateOptions{})
		} else {
			_, err = all.Update(c.Context(), lease, metav1.UpdateOptions{})
		}
		if err == nil {
			return
		}
		c.Logf("once more: %v", err)
		if c.Context().Err() != nil {
			c.Fatal(err)
		}
	}
}

// holder returns the holder of the lease.
func (c *contest) holder() string {
	c.Helper()
	lease, err := c.client.CoordinationV1().Leases(c.namespace).Get(c.Context(), contested, metav1.GetOptions{})
	c.Must(err)
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

func testHandOver(c *contest) {
	leader := c.run(long, nil)
	expect.Receive(c, "the first leads", leader.terms)
	standby := c.run(long, nil)
	expect.Receive(c, "the standby has looked", standby.looked)
	expect.Equal(c, "holder", c.holder(), leader.identity)
	began := time.Now()
	leader.end()
	within(c, soon, began, "the standby leads", standby.terms)
	expect.Equal(c, "holder", c.holder(), standby.identity)
	expect.Equal(c, "logged by the first", messages(leader.log),
		[]string{`level=INFO msg="lease held" lease=contested`, `level=INFO msg="lease given up" lease=contested`})
	expect.Equal(c, "logged by the standby", messages(standby.log), []string{`level=INFO msg="lease held" lease=contested`})
}

func testManyHandOvers(c *contest) {
	random := randtest.New(c)
	started := make(chan *contender, 100)
	for range 3 {
		c.run(long, started)
	}
	leader := expect.Receive(c, "one leads", started)
	for round := range 10 {
		if random.IntN(2) == 0 {
			time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond) // to get a race at a different moment each time
		}
		began := time.Now()
		leader.end()
		leader = within(c, soon, began, fmt.Sprintf("another leads, round %d", round), started)
		c.run(long, started)
	}
}

func testByHand(c *contest) {
	ways := map[string]func(){
		"released": func() { c.lease("", long) },
		"deleted": func() {
			c.Must(c.client.CoordinationV1().Leases(c.namespace).Delete(c.Context(), contested, metav1.DeleteOptions{}))
		},
	}
	for range 2 { // at another moment of its waiting
		for way, release := range ways {
			c.lease("somebody", long)
			standby := c.run(long, nil)
			expect.Receive(c, "the standby has looked", standby.looked)
			began := time.Now()
			release()
			within(c, soon, began, "the standby leads when the lease is "+way, standby.terms)
			standby.end()
		}
	}
}

// testReplaced deletes the lease of a leader that notices only after the standby has created it again.
func testReplaced(c *contest) {
	var gate sync.RWMutex // holds requests of the leader back while it is locked
	config := c.c.RESTConfig()
	clustertest.Intercept(config, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		gate.RLock()
		defer gate.RUnlock()
		return next.RoundTrip(r)
	})
	leader := c.start(c.contender(config, long), nil)
	expect.Receive(c, "the leader leads", leader.terms)
	standby := c.run(long, nil)
	expect.Receive(c, "the standby has looked", standby.looked)
	all := c.client.CoordinationV1().Leases(c.namespace)
	gate.Lock()
	c.Must(all.Delete(c.Context(), contested, metav1.DeleteOptions{}))
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if lease, err := all.Get(c.Context(), contested, metav1.GetOptions{}); err == nil && *lease.Spec.HolderIdentity == standby.identity {
			break
		} else if time.Since(began) > soon {
			gate.Unlock()
			c.Fatalf("the standby did not take the lease: %v", err)
		}
	}
	time.Sleep(500 * time.Millisecond)
	gate.Unlock()
	if cause := expect.Receive(c, "the leader ends", leader.causes); !errors.Is(cause, errLeaseLost) {
		c.Errorf("it ended because of: %v", cause)
	}
	expect.Receive(c, "the standby leads", standby.terms)
}

func testHeld(c *contest) {
	started := make(chan *contender, 10)
	first := c.run(short, started)
	expect.Receive(c, "the first leads", started)
	second := c.run(short, started)
	expect.Receive(c, "the second has looked", second.looked)
	began := time.Now()
	for time.Since(began) < 2*short { // and looks again and again
		expect.Receive(c, "the second has looked", second.looked)
	}
	first.end()
	if next := expect.Receive(c, "the second leads", started); next != second {
		c.Error("the first has led once more")
	}
}

func testTaken(c *contest) {
	leader := c.run(long, nil)
	expect.Receive(c, "it leads", leader.terms)
	began := time.Now()
	c.lease("somebody else", long)
	cause := within(c, soon, began, "it ends", leader.causes)
	if !errors.Is(cause, errLeaseLost) {
		c.Errorf("it ended because of: %v", cause)
	}
	leader.end()
	expect.Equal(c, "holder", c.holder(), "somebody else")
	expect.Equal(c, "logged", messages(leader.log),
		[]string{`level=INFO msg="lease held" lease=contested`, `level=WARN msg="lease lost" lease=contested`})
}

func testRoundTaken(c *contest) {
	p := c.contender(c.c.RESTConfig(), long)
	err := p.ifFree(c.Context(), func(ctx context.Context) error {
		c.lease("somebody else", long)
		<-ctx.Done()
		return fmt.Errorf("not everything was decided: %w", context.Cause(ctx))
	})
	expect.Equal(c, "error", fmt.Sprint(err), "lease "+c.namespace+"/contested: not everything was decided: "+
		"the lease was lost, and another process may lead")
	c.lease("", long)
	err = p.ifFree(c.Context(), func(ctx context.Context) error {
		c.lease("somebody else", long)
		<-ctx.Done()
		return nil
	})
	expect.Equal(c, "error", fmt.Sprint(err), "lease "+c.namespace+"/contested: the lease was lost, and another process may lead")
	expect.Equal(c, "holder", c.holder(), "somebody else")
}

func testOtherNamespace(c *contest) {
	first, second := c.contender(c.c.RESTConfig(), long), c.contender(c.c.RESTConfig(), short)
	first.identity, second.identity = newIdentity("rehome-a"), newIdentity("rehome-b")
	c.start(first, nil)
	expect.Receive(c, "the first leads", first.terms)
	want := "lease " + c.namespace + "/contested is held by " + first.identity + ": another installation of this name already runs in " +
		"this cluster; stop it, use --dry-run, or set REHOME_INSTALLATION to run a second one with limits of its own"
	lead := func(context.Context) error {
		c.Error("the second leads")
		return nil
	}
	expect.Equal(c, "it waits for the lease", fmt.Sprint(second.hold(c.Context(), lead)), want)
	expect.Equal(c, "it wants the lease now", fmt.Sprint(second.ifFree(c.Context(), lead)), want)
	outside := c.contender(c.c.RESTConfig(), short)
	expect.Equal(c, "it runs outside of the cluster", fmt.Sprint(outside.ifFree(c.Context(), lead)), want)
	first.end()
	c.lease(first.identity, short) // it was killed
	c.start(second, nil)
	expect.Receive(c, "the second leads when the lease is over", second.terms)
}

func testRights(c *contest) {
	c.Must(c.c.Grant(c.Context(), cluster.UserSubject(looker), c.namespace, rbacv1.PolicyRule{
		APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"},
	}))
	config, err := c.c.UserConfig(looker)
	c.Must(err)
	c.lease("somebody", short)
	p := c.start(c.contender(config, 7*short), nil)
	expect.Receive(c, "it leads when the lease is over", p.terms)
	c.lease("somebody else", short)
	if cause := expect.Receive(c, "it ends", p.causes); !errors.Is(cause, errLeaseLost) {
		c.Errorf("it ended because of: %v", cause)
	}
	expect.Receive(c, "it leads again when that lease is over", p.terms)
	p.end()
	expect.Equal(c, "holder", c.holder(), "")
	expect.Equal(c, "logged", messages(p.log), []string{
		`level=INFO msg="lease held" lease=contested`, `level=WARN msg="lease lost" lease=contested`,
		`level=INFO msg="lease held" lease=contested`, `level=INFO msg="lease given up" lease=contested`,
	})
}

// testEmptyCaches gives a process the right to list pods only after a while.
func testEmptyCaches(c *contest) {
	c.Must(c.c.Grant(c.Context(), cluster.UserSubject(looker), c.namespace, rbacv1.PolicyRule{
		APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"},
	}))
	client := clustertest.As(c, c.c, looker)
	view, err := caches.New(caches.Config{Client: client, Kinds: []caches.Kind{caches.Pods}})
	c.Must(err)
	led := make(chan struct{})
	p := &process{client: client, cluster: view, metrics: prometheus.NewRegistry(), log: slog.New(slog.DiscardHandler),
		settings: settings.Settings{LeaseNamespace: c.namespace, LeaseDuration: long}}
	p.leaders = []leader{{contested, func(ctx context.Context) error {
		close(led)
		<-ctx.Done()
		return nil
	}}}
	expect.Background(c, view.Run, p.lead()[0])
	expect.Eventually(c, "the right is missing", func() bool { return strings.Contains(view.Ready().Error(), "pods is forbidden") })
	time.Sleep(time.Second) // the process could have taken the lease by then
	granted := time.Now()
	c.Must(c.c.Grant(c.Context(), cluster.UserSubject(looker), "", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch"},
	}))
	expect.Receive(c, "it leads with filled caches", led)
	lease, err := c.client.CoordinationV1().Leases(c.namespace).Get(c.Context(), p.settings.LeaseName(contested), metav1.GetOptions{})
	c.Must(err)
	if taken := lease.Spec.AcquireTime; taken.Time.Before(granted) {
		c.Errorf("it took the lease at %v, want it after the grant at %v", taken, granted)
	}
}

func testRightlessRound(c *contest) {
	var notes bytes.Buffer
	round := once{client: clustertest.As(c, c.c, nobody), notes: &notes}
	_, err := round.batches(c.Context(), short)
	for _, part := range []string{"gave up after 3s: cluster: the caches are not filled yet: ", "deployments.apps is forbidden"} {
		if !strings.Contains(fmt.Sprint(err), part) {
			c.Errorf("got %v, want %q in it", err, part)
		}
	}
	if want := `msg="cannot watch the API server; retrying" kind=deployments`; !strings.Contains(notes.String(), want) {
		c.Errorf("notes: got %s, want %q in them", notes.String(), want)
	}
}

func testValid(c *contest) {
	p := c.contender(c.c.RESTConfig(), short)
	expect.Equal(c, "valid before it is held", p.Valid(), false)
	c.start(p, nil)
	expect.Receive(c, "it leads", p.terms)
	for began := time.Now(); time.Since(began) < 2*short; time.Sleep(50 * time.Millisecond) {
		if !p.Valid() {
			c.Error("it is not valid although it is renewed") // unless this machine paused for two seconds
			break
		}
	}
	c.lease("somebody else", short)
	expect.Receive(c, "it ends", p.causes)
	expect.Equal(c, "valid after it was taken", p.Valid(), false)
	expect.Receive(c, "it leads again", p.terms)
	expect.Equal(c, "valid again", p.Valid(), true)
	p.end()
	expect.Equal(c, "valid after it was released", p.Valid(), false)
}

func testOrderlyEnd(c *contest) {
	first, second := c.contender(c.c.RESTConfig(), short), c.contender(c.c.RESTConfig(), short)
	for _, p := range []*contender{first, second} { // an open connection is reused, and remains
		_, err := p.client.CoordinationV1().Leases(c.namespace).List(c.Context(), metav1.ListOptions{})
		c.Must(err)
	}
	before := goleak.IgnoreCurrent()
	c.start(first, nil)
	expect.Receive(c, "the first leads", first.terms)
	c.start(second, nil)
	expect.Receive(c, "the second has looked", second.looked)
	first.end()
	if cause := expect.Receive(c, "the first ends", first.causes); !errors.Is(cause, context.Canceled) || errors.Is(cause, errLeaseLost) {
		c.Errorf("it ended because of: %v", cause)
	}
	expect.Receive(c, "the second leads", second.terms)
	second.end()
	expect.Equal(c, "holder", c.holder(), "")
	if err := goleak.Find(before); err != nil {
		c.Errorf("goroutines are left: %v", err)
	}
}

func testCannotRenew(c *contest) {
	const duration = 30 * time.Second
	p := c.run(duration, nil)
	expect.Receive(c, "it leads", p.terms)
	c.Must(c.c.StopAPIServer())
	// A standby leads after the duration at the earliest, which counts from the last renewal.
	if cause := within(c, duration, time.Now(), "it ends", p.causes); !errors.Is(cause, errLeaseLost) {
		c.Errorf("it ended because of: %v", cause)
	}
	c.Must(c.c.StartAPIServer(c.Context()))
	expect.Receive(c, "it leads again", p.terms)
}

func TestLostLeaseWithoutError(t *testing.T) {
	for _, c := range []struct {
		name  string
		cause error // why the context ends
		task  error // the result of a task
		want  error
	}{
		{"a lost lease", errLeaseLost, nil, nil},
		{"one that a task returns as its reason", errLeaseLost, errLeaseLost, nil},
		{"an orderly end", nil, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, end := context.WithCancelCause(t.Context())
			causes := make(chan error, 1)
			err := together(ctx, func(ctx context.Context) error {
				end(c.cause)
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return c.task
			})
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			want := c.cause
			if want == nil {
				want = context.Canceled
			}
			if got := <-causes; !errors.Is(got, want) {
				t.Errorf("the task's context ended because of %v, want %v", got, want)
			}
		})
	}
	broken := errors.New("broken")
	if err := together(t.Context(), func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("a task that fails: got %v, want %v", err, broken)
	}
}

func TestGroupFirstError(t *testing.T) {
	first := errors.New("first")
	ended := false
	err := together(t.Context(),
		func(context.Context) error { return first },
		func(ctx context.Context) error {
			<-ctx.Done()
			ended = true
			return nil
		},
	)
	if !errors.Is(err, first) || !ended {
		t.Errorf("got error %v, ended %v; want %v and true", err, ended, first)
	}
}

func TestCanceledGroup(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := together(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
	if err != nil {
		t.Errorf("got %v, want none", err)
	}
}
