package actuator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

const (
	// killedFor is the length of the intents phase of a random history, and calmAfter is the time after which
	// everything is over: the last intents expire, and no window counts a move.
	killedFor = 5 * time.Minute
	calmAfter = 3 * time.Minute
	// leaseOver is how long no process leads after one was killed.
	leaseOver = 3 * time.Second
	// histories is the number of random histories in each run.
	histories = 3
	// lateFor bounds how long after the death of a process the API server still carries out its last calls.
	lateFor = 10 * time.Second
)

var errDead = errors.New("the process is dead")

// TestKilledActuator kills the actuator between any two of its calls, or just after a call has taken effect. It must
// move no pod twice and lose no intent. The actuator calls a model, see [world].
func TestKilledActuator(t *testing.T) {
	first := rand.Uint64N(1e9)
	for seed := first; seed < first+histories; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { killedHistory(t, seed) })
		if t.Failed() {
			t.Fatalf("repeat: call killedHistory with the seed %d; goroutines may take turns in another way", seed)
		}
	}
}

func killedHistory(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(seed)
		ctx, cancel := context.WithTimeout(t.Context(), killedFor)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() { w.wish(ctx) })
		kills := 0
		for ctx.Err() == nil {
			l := w.begin(t, &all, 1+w.below(w.below(400)+1))
			select {
			case <-l.dead:
				kills++
				time.Sleep(leaseOver + time.Duration(w.below(1000))*ms)
			case <-time.After(time.Duration(w.below(60)) * time.Second):
				l.stop()
				<-l.ended
			}
		}
		last := w.begin(t, &all, 1<<30)
		time.Sleep(calmAfter)
		last.stop()
		all.Wait()
		t.Logf("%d kills, %d evictions, %d verdicts", kills, len(w.evictions), len(w.bus.published))
		w.check(t)
	})
}

// tortured returns the policy of the killed actuators.
func tortured() policy.Policy {
	p := enabledPolicy()
	p.Rate = policy.Rate{EvictionsPerSecond: 20, Burst: 5}
	p.Limits = policy.Limits{
		Total: new(uint(mostInWindow)), PerNode: new(uint(mostOfNode)), Window: tortureWindow,
		InFlight: policy.InFlight{PerWorkload: new(uint(mostInFlight))},
	}
	return p
}

const (
	mostInWindow  = 60
	mostOfNode    = 25
	tortureWindow = 30 * time.Second
	mostInFlight  = 3
)

// life is one process. All its calls pass through it until it is killed.
type life struct {
	w     *world
	dead  chan struct{}
	ended chan struct{} // its Lead has returned
	stop  context.CancelFunc

	over time.Time // the time of its end; guarded by the mu of the world

	mu   sync.Mutex
	left int // the number of calls until it is killed
}

// begin starts a process that is killed at the given call.
func (w *world) begin(t *testing.T, all *sync.WaitGroup, calls int) *life {
	t.Helper()
	l := &life{w: w, left: calls, dead: make(chan struct{}), ended: make(chan struct{})}
	config := &rest.Config{Host: "http://world", QPS: -1}
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	client, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: l})
	expect.Must(t, err)
	a := New(Config{
		Client: client, Bus: l, Ledger: l, View: w, Policy: tortured(), Source: "/test/actuator",
		Log: slog.New(slog.DiscardHandler), Parallel: 8,
	})
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	w.lead(a)
	all.Go(func() {
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if l.over.IsZero() {
				l.over = time.Now()
				w.ends = append(w.ends, l.over)
			}
			close(l.ended)
		}()
		if err := a.lead(ctx, a.execute); err != nil {
			t.Errorf("Lead: %v", err)
		}
	})
	return l
}

func (l *life) isDead() bool {
	select {
	case <-l.dead:
		return true
	default:
		return false
	}
}

// call makes a call that takes some time before and after its effect. The process may be killed before or after it, and
// its answer may be lost, sometimes even without a kill.
func (l *life) call(ctx context.Context, to server, effect func() error) error {
	if err := l.takes(ctx); err != nil {
		return err
	}
	if l.w.away(to) {
		return errors.New("nobody is there")
	}
	l.mu.Lock()
	if l.isDead() {
		l.mu.Unlock()
		if to == theAPIServer && l.w.below(2) == 0 {
			l.late(effect)
		}
		return errDead
	}
	l.left--
	last := l.left == 0
	if last {
		l.w.died(l)
		close(l.dead)
		l.stop()
	}
	l.mu.Unlock()
	if last && to == theAPIServer && l.w.below(3) == 0 {
		l.late(effect)
		return errDead
	}
	if last && l.w.below(2) == 0 || !last && l.w.below(200) == 0 {
		return errors.New("the connection broke before it was done")
	}
	err := effect()
	if !last && l.w.below(200) == 0 {
		return errors.New("the connection broke after it was done")
	}
	if last || l.isDead() {
		return errDead
	}
	return errors.Join(err, l.takes(context.WithoutCancel(ctx)))
}

// late makes the API server carry out a call of a dead process while the next process may lead already.
func (l *life) late(effect func() error) {
	after := time.Duration(l.w.below(int(lateFor/ms))) * ms
	time.AfterFunc(after, func() { _ = effect() })
}

func (l *life) takes(ctx context.Context) error {
	select {
	case <-time.After(time.Duration(l.w.below(15)) * ms):
	case <-ctx.Done():
		return ctx.Err()
	}
	if l.isDead() {
		return errDead
	}
	return nil
}

func (l *life) FollowIntents(ctx context.Context, handle func(context.Context, schemas.Event) error) error {
	return l.w.bus.FollowIntents(ctx, func(ctx context.Context, e schemas.Event) error {
		if l.isDead() {
			return nil
		}
		err := handle(ctx, e)
		if !l.isDead() {
			l.w.hasRead(e, l)
		}
		return err
	})
}

func (l *life) DropIntents(ctx context.Context, answer schemas.Event) error {
	return l.call(ctx, theBus, func() error { return l.w.bus.DropIntents(ctx, answer) })
}

func (l *life) Publish(ctx context.Context, e schemas.Event) (uint64, error) {
	return 0, l.call(ctx, theBus, func() error {
		if l.w.first(e.ID) { // else it is stored already
			_, err := l.w.bus.Publish(ctx, e)
			return err
		}
		return nil
	})
}

func (l *life) Entries(ctx context.Context) (entries map[string][]byte, err error) {
	err = l.call(ctx, theBus, func() error {
		all, err := l.w.bus.Entries(ctx)
		entries = maps.Clone(all)
		return err
	})
	return entries, err
}

func (l *life) Put(ctx context.Context, key string, value []byte) error {
	return l.call(ctx, theBus, func() error { return l.w.bus.Put(ctx, key, value) })
}

func (l *life) Delete(ctx context.Context, key string) error {
	return l.call(ctx, theBus, func() error { return l.w.bus.Delete(ctx, key) })
}

func (l *life) Follow(ctx context.Context, prefix string, handle func(string, []byte)) error {
	return l.w.bus.Follow(ctx, prefix, handle)
}
