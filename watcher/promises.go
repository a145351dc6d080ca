package watcher

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// promiseLasts is how long room is held for a replacement that does not come. It takes a moment to be made and placed; one
// that found no node in this time waits for something else.
const promiseLasts = 30 * time.Second

// promises are the pods on the move for whose replacements room is held: of several that find the same gap, one at a time
// counts on it. Its methods may be called from many goroutines. The zero value holds none.
type promises struct {
	mu sync.Mutex
	// moved are the pods by their controller, those that were moved first first.
	moved map[types.UID][]types.UID
}

func (p *promises) add(controller, pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.moved == nil {
		p.moved = map[types.UID][]types.UID{}
	}
	p.moved[controller] = append(p.moved[controller], pod)
}

// take returns the pod of the controller that was moved first, and lets go of it.
func (p *promises) take(controller types.UID) (pod types.UID, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.moved[controller]
	if len(list) == 0 {
		return "", false
	}
	p.keep(controller, list[1:])
	return list[0], true
}

// drop lets go of one pod, and says whether it was held.
func (p *promises) drop(controller, pod types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, uid := range p.moved[controller] {
		if uid == pod {
			list := p.moved[controller]
			p.keep(controller, append(list[:i:i], list[i+1:]...))
			return true
		}
	}
	return false
}

func (p *promises) keep(controller types.UID, list []types.UID) {
	if len(list) == 0 {
		delete(p.moved, controller)
		return
	}
	p.moved[controller] = list
}

// promise holds room for the replacement of a pod that was moved, where the pod would prefer to go; a dry run, which would
// have moved it, too. Nothing is held when
// nobody asks where pods fit, or when the pod is gone so soon that its replacement may be placed already.
func (l *lead) promise(v schemas.Verdict) {
	ref := v.Intent.Pod
	p := boundPod(l.w.cluster, ref.String())
	if p == nil || p.UID != ref.UID || !l.scopes.plan.asksForRoom() {
		return
	}
	controller := metav1.GetControllerOfNoCopy(p)
	if controller == nil || !l.w.cluster.Promise(p) {
		return
	}
	l.promises.add(controller.UID, p.UID)
	time.AfterFunc(promiseLasts, func() {
		if l.promises.drop(controller.UID, p.UID) {
			l.release(p.UID, p)
		}
	})
}

// arrived releases what was held for a pod that has got a node.
func (l *lead) arrived(old, new *corev1.Pod) {
	if new == nil || new.Spec.NodeName == "" || old != nil && old.UID == new.UID && old.Spec.NodeName != "" {
		return
	}
	if controller := metav1.GetControllerOfNoCopy(new); controller != nil {
		if moved, ok := l.promises.take(controller.UID); ok {
			l.release(moved, new)
		}
	}
}

// release gives free what was held for the replacement of a pod; cause is the pod that the change is about.
func (l *lead) release(moved types.UID, cause *corev1.Pod) {
	l.w.cluster.Release(moved)
	w := l.fact("Pod", cause)
	w.cause.Kind = schemas.CauseRoom
	l.waiting.room(w)
}

// asksForRoom says whether anybody wants to know where pods fit.
func (p *plan) asksForRoom() bool {
	for _, e := range p.all {
		if e.seeker != nil || e.profile.Evictor.Needs().Room || e.spreading != nil && e.spreading.NeedsRoom() {
			return true
		}
	}
	return false
}
