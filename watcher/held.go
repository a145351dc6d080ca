package watcher

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// The delay after which a deferred pod is looked at again, whether or not what held it was seen to change: doubled with
// each deferral in a row. The first is long enough that a budget's own change comes earlier; the last bounds how long
// a cause that no watch shows, such as a quota of another system, goes unnoticed.
const (
	firstRetry = 15 * time.Second
	lastRetry  = 10 * time.Minute
)

// freedRetry is the first delay when the budget that held a pod already allows a disruption by the time the verdict
// arrives. Its status may lag behind what the API server enforces, so that asking at once could go on for ever.
const freedRetry = 250 * time.Millisecond

// outageRetry is the first delay when the API server could not be asked or was busy: it is back in seconds more often
// than not, and nothing else tells that it is.
const outageRetry = time.Second

// held remembers the pods whose move was deferred, and what held them. It is a memory, not a promise: after a restart
// it is empty, and evaluating everything fills it again. Its methods may be called from many goroutines.
type held struct {
	mu   sync.Mutex
	pods map[types.UID]*heldPod
	by   map[schemas.ObjectRef]map[types.UID]bool // what holds pods, without its UID
}

type heldPod struct {
	evaluation evaluation
	deferrals  int
	by         []schemas.ObjectRef
}

func newHeld() *held {
	return &held{pods: map[types.UID]*heldPod{}, by: map[schemas.ObjectRef]map[types.UID]bool{}}
}

// holder is what holds a pod, whichever object has that name.
func holder(kind, namespace, name string) schemas.ObjectRef {
	return schemas.ObjectRef{Kind: kind, Namespace: namespace, Name: name}
}

// deferred notes one more deferral, and returns how long to wait before the pod is looked at again at the latest.
// free says of a budget whether it allows a disruption at the time now. A time that the verdict names is waited for.
func (h *held) deferred(
	v schemas.Verdict, ev evaluation, free func(types.NamespacedName) bool, now time.Time,
) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	uid := v.Intent.Pod.UID
	p := h.pods[uid]
	if p == nil {
		p = &heldPod{}
		h.pods[uid] = p
	}
	h.unlink(uid, p)
	p.evaluation = ev
	p.deferrals++
	delay := doubled(firstDelay(v), p.deferrals)
	if !v.Again.IsZero() {
		delay = max(v.Again.Sub(now), freedRetry)
	}
	for _, b := range v.Blockers {
		by := holder(b.Kind, b.Namespace, b.Name)
		p.by = append(p.by, by)
		if h.by[by] == nil {
			h.by[by] = map[types.UID]bool{}
		}
		h.by[by][uid] = true
		if b.Kind == budgetKind && free(types.NamespacedName{Namespace: b.Namespace, Name: b.Name}) {
			delay = min(delay, doubled(freedRetry, p.deferrals))
		}
	}
	return delay
}

// firstDelay is how long to wait after the first deferral. An intent that expired is renewed after a second: the actuator was
// too slow, or its clock differs, and then the next intent may expire too.
func firstDelay(v schemas.Verdict) time.Duration {
	if v.Outcome == schemas.Expired || v.Reason == schemas.ReasonAPIUnavailable || v.Reason == schemas.ReasonThrottled {
		return outageRetry
	}
	return firstRetry
}

// doubled is first, doubled for every attempt after the first, at most lastRetry.
func doubled(first time.Duration, attempt int) time.Duration {
	d := first
	for i := 1; i < attempt && d < lastRetry; i++ {
		d *= 2
	}
	return min(d, lastRetry)
}

// budgetKind is the one kind of what holds pods that the watcher follows by itself. Of moves in flight it hears by verdicts.
const budgetKind = "PodDisruptionBudget"

// freed returns the evaluations whose pods were held by that, each once, and lets go of them: the next deferral ties them
// to it again.
func (h *held) freed(by schemas.ObjectRef) []evaluation {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := map[evaluation]bool{}
	var list []evaluation
	for uid := range h.by[by] {
		p := h.pods[uid]
		if !seen[p.evaluation] {
			seen[p.evaluation] = true
			list = append(list, p.evaluation)
		}
		h.unlink(uid, p)
	}
	return list
}

// forget drops a pod: it moved, is gone, or needs no move any more.
func (h *held) forget(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.pods[uid]; p != nil {
		h.unlink(uid, p)
		delete(h.pods, uid)
	}
}

func (h *held) unlink(uid types.UID, p *heldPod) {
	for _, b := range p.by {
		delete(h.by[b], uid)
		if len(h.by[b]) == 0 {
			delete(h.by, b)
		}
	}
	p.by = nil
}
