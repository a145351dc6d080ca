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
	// changes are the changes that informers reported.
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

// apiHealth says whether the API server answers. The zero value is healthy. It is safe for concurrent use.
type apiHealth struct {
	mu      sync.Mutex
	failure error // nil: up
	since   time.Time
	tries   int
	retry   time.Time // not to be tried before
}

// fail records that the API server could not be asked, and returns whether that is news.
func (h *apiHealth) fail(now time.Time, err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	news := h.failure == nil
	if news {
		h.since, h.tries = now, 0
	}
	h.failure = err
	if !now.Before(h.retry) { // of calls that fail together only the first counts
		h.retry = now.Add(backoff(h.tries))
		h.tries++
	}
	return news
}

// succeed records that the API server answered, and returns the duration of the outage.
func (h *apiHealth) succeed(now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failure == nil {
		return 0
	}
	h.failure, h.retry = nil, time.Time{}
	return now.Sub(h.since)
}

// wait returns whether the API server is away, and how long until it may be tried again.
func (h *apiHealth) wait(now time.Time) (wait time.Duration, down bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failure == nil {
		return 0, false
	}
	return max(h.retry.Sub(now), 0), true
}

func (h *apiHealth) ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failure == nil {
		return nil
	}
	return fmt.Errorf("API server cannot be asked since %s: %w", clock(h.since), h.failure)
}

// maxBackoff bounds how long the end of an outage goes unnoticed.
const maxBackoff = 5 * time.Second

// backoff is the delay after so many tries: 100 ms doubled each time, up to maxBackoff, less a jitter of up to a half.
func backoff(tries int) time.Duration {
	d := min(100*time.Millisecond<<min(tries, 10), maxBackoff)
	return d - rand.N(d/2)
}

// persist calls f until it succeeds, fails with a permanent error, or ctx ends, and returns the last error. f is not called
// when ctx has ended before. It reports the first error that does not end it to first.
func persist(ctx context.Context, f func() error, permanent func(error) bool, first func(error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for tries := 0; ; tries++ {
		err := f()
		if err == nil || permanent(err) || ctx.Err() != nil {
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
