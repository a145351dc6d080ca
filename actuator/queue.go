package actuator

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
)

// queues hold the keys that have to be reconciled. Keys are UIDs of pods.
type queues struct {
	// wanted are pods with an intent entry, by priority. One goroutine takes them, so that their order holds.
	wanted priorityqueue.PriorityQueue[types.UID]
	// inFlight are pods on the move.
	inFlight workqueue.TypedDelayingInterface[types.UID]
	// changes are what informers told.
	changes workqueue.TypedInterface[cluster.Change]
}

func newQueues() queues {
	return queues{
		wanted:   priorityqueue.New[types.UID](""),
		inFlight: workqueue.NewTypedDelayingQueue[types.UID](),
		changes:  workqueue.NewTyped[cluster.Change](),
	}
}

func (q queues) shutDown() {
	q.wanted.ShutDown()
	q.inFlight.ShutDown()
	q.changes.ShutDown()
}

// priorityOf is the priority of an intent in the queue: by the [policy.Priority] of its strategy, then low pod priority first,
// then BestEffort before Burstable before Guaranteed.
func priorityOf(t policy.Traits, p cluster.Pod) int {
	strategy := slices.Index(policy.Priorities(), t.Priority)
	if strategy < 0 {
		strategy = slices.Index(policy.Priorities(), policy.PriorityViolation)
	}
	quality := slices.Index([]corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort}, p.QoS)
	if quality < 0 {
		quality = 3 // not known: it goes first
	}
	return (len(policy.Priorities())-strategy)<<40 + (math.MaxInt32-int(p.Priority))<<2 + quality
}

// apiHealth is what is known about the way to the API server. The zero value is healthy. It is safe for concurrent use.
type apiHealth struct {
	mu      sync.Mutex
	failure error // nil: up
	since   time.Time
	tries   int
	retry   time.Time // not to be tried before
}

// fail says that the API server could not be asked, and returns whether that is news.
func (l *apiHealth) fail(now time.Time, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := l.failure == nil
	if news {
		l.since, l.tries = now, 0
	}
	l.failure = err
	if !now.Before(l.retry) { // of calls that fail together only the first counts
		l.retry = now.Add(backoff(l.tries))
		l.tries++
	}
	return news
}

// succeed says that the API server answered, and returns for how long it had not.
func (l *apiHealth) succeed(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil {
		return 0
	}
	l.failure, l.retry = nil, time.Time{}
	return now.Sub(l.since)
}

// wait returns whether the API server is away, and how long until it may be tried again.
func (l *apiHealth) wait(now time.Time) (wait time.Duration, down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil {
		return 0, false
	}
	return max(l.retry.Sub(now), 0), true
}

func (l *apiHealth) ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil {
		return nil
	}
	return fmt.Errorf("API server cannot be asked since %s: %w", clock(l.since), l.failure)
}

// maxBackoff is the longest pause between two tries. An outage ends unnoticed for no longer than that.
const maxBackoff = 5 * time.Second

// backoff is the pause after the given number of tries: 100 ms doubled each time, up to maxBackoff, shortened by up to
// a half so that several processes do not try together.
func backoff(tries int) time.Duration {
	d := min(100*time.Millisecond<<min(tries, 10), maxBackoff)
	return d - rand.N(d/2)
}

// persist calls f until it succeeds, fails for good, or ctx ends, and returns the last error. f is not called when ctx has
// ended before. first is told about the first failure that does not end it.
func persist(ctx context.Context, f func() error, forGood func(error) bool, first func(error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for tries := 0; ; tries++ {
		err := f()
		if err == nil || forGood(err) || ctx.Err() != nil {
			return err
		}
		if tries == 0 {
			first(err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(backoff(tries)):
		}
	}
}
