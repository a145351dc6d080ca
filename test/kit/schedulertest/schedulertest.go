// Package schedulertest helps tests that ask the kube-scheduler of a test control plane where pods go.
package schedulertest

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// Patience is how long the scheduler may take for one answer.
const Patience = time.Minute

// Freeze stops a component of the control plane until the test ends. Without kwok, pods and nodes keep the status that the test gives
// them: terminating pods terminate until they are removed by force. Ready nodes stay Ready for five minutes after the last renewal
// of their leases, and until the end of the test without the controllers. Without the controllers, pods and workloads do not change.
func Freeze(t testing.TB, c *cluster.Cluster, component string) {
	t.Helper()
	pid := c.Pids()[component]
	expect.Must(t, syscall.Kill(pid, syscall.SIGSTOP))
	t.Cleanup(func() { expect.Must(t, syscall.Kill(pid, syscall.SIGCONT)) })
}

// Each calls do for all objects, for eight of them at the same time, and fails the test at an error.
func Each[T any](ctx context.Context, t testing.TB, objects []T, do func(context.Context, *T) error) {
	t.Helper()
	var group sync.WaitGroup
	errs := make([]error, len(objects))
	slots := make(chan struct{}, 8)
	for i := range objects {
		slots <- struct{}{}
		group.Go(func() {
			errs[i] = do(ctx, &objects[i])
			<-slots
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Pods is a watch of pods. It is not safe for concurrent use.
type Pods struct {
	t       testing.TB
	ctx     context.Context
	client  kubernetes.Interface
	options metav1.ListOptions
	watch   watch.Interface
}

// WatchPods watches the pods of all namespaces that a label selector selects until the test ends. It begins with the
// existing ones.
func WatchPods(ctx context.Context, t testing.TB, client kubernetes.Interface, selector string) *Pods {
	t.Helper()
	w := &Pods{t: t, ctx: ctx, client: client, options: metav1.ListOptions{LabelSelector: selector}}
	w.open()
	t.Cleanup(func() { w.watch.Stop() })
	return w
}

func (w *Pods) open() {
	w.t.Helper()
	var err error
	if w.watch, err = w.client.CoreV1().Pods("").Watch(w.ctx, w.options); err != nil {
		w.t.Fatal(err)
	}
}

// Next returns the next pod that was added or changed. It returns nil when the time is over: give it a time that begins
// with the question, such as time.After([Patience]).
func (w *Pods) Next(late <-chan time.Time) *corev1.Pod {
	w.t.Helper()
	for {
		select {
		case event, open := <-w.watch.ResultChan():
			if !open { // the API server ends a watch that is not read for a while, as when a large scene is made
				w.open()
				continue
			}
			if pod, ok := event.Object.(*corev1.Pod); ok && event.Type != watch.Deleted {
				return pod
			}
		case <-late:
			return nil
		}
	}
}

// Refusal returns why the scheduler did not place the pod, if it has tried.
func Refusal(pod *corev1.Pod) (string, bool) {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.Reason + ": " + condition.Message, true
		}
	}
	return "", false
}
