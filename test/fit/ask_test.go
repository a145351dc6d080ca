package fit_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schedulertest"
)

// answer is the scheduler's result for a pod.
type answer struct {
	// pod is as the API server has made it.
	pod *corev1.Pod
	// node is where it went, or nothing.
	node    string
	message string
	// invalid: the API server does not take such a pod.
	invalid bool
	// spoilt: a volume was bound on the way, which changed the state.
	spoilt bool
}

// asker asks the scheduler about one pod after the other.
type asker struct {
	t      *testing.T
	ctx    context.Context
	client kubernetes.Interface
	pods   *schedulertest.Pods
}

// candidateLabel marks the tested pods. Selectors of the tests do not use it.
const candidateLabel = "test.rehome.dev/candidate"

func newAsker(ctx context.Context, t *testing.T, client kubernetes.Interface) *asker {
	t.Helper()
	return &asker{t: t, ctx: ctx, client: client, pods: schedulertest.WatchPods(ctx, t, client, candidateLabel)}
}

// ask creates a pod, waits for the decision of the scheduler, and deletes the pod. The scheduler sees the deletion before the
// next pod, because one watch delivers all pods in order.
func (a *asker) ask(pod *corev1.Pod) answer {
	a.t.Helper()
	pod = pod.DeepCopy()
	pod.Labels[candidateLabel] = "true"
	made, err := a.client.CoreV1().Pods(pod.Namespace).Create(a.ctx, pod, metav1.CreateOptions{})
	if apierrors.IsInvalid(err) {
		a.t.Log(err)
		return answer{invalid: true}
	}
	if err != nil {
		a.t.Fatalf("%v\n%s", err, toYAML(pod))
	}
	got := a.settle(made)
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	if err := a.client.CoreV1().Pods(pod.Namespace).Delete(a.ctx, pod.Name, now); err != nil {
		a.t.Fatal(err)
	}
	got.pod = made
	return got
}

// settle waits until a pod is placed or refused. A pod that waits for its volumes is placed when it is nominated: a
// volume that would have to be made is called off, one that exists gets bound.
func (a *asker) settle(made *corev1.Pod) answer {
	a.t.Helper()
	node := ""
	for {
		pod := a.next(made)
		switch message, refused := schedulertest.Refusal(pod); {
		case pod.Spec.NodeName != "":
			return answer{node: pod.Spec.NodeName, spoilt: node != ""}
		case node != "" && refused:
			return answer{node: node}
		case node == "" && pod.Status.NominatedNodeName != "":
			node = pod.Status.NominatedNodeName
			a.callOff(pod)
		case node == "" && refused:
			return answer{message: message}
		}
	}
}

// next waits for the next change of a pod.
func (a *asker) next(made *corev1.Pod) *corev1.Pod {
	a.t.Helper()
	late := time.After(schedulertest.Patience)
	for {
		pod := a.pods.Next(late)
		if pod == nil {
			a.t.Fatalf("no answer in %v about\n%s", schedulertest.Patience, toYAML(made))
		}
		if pod.UID == made.UID {
			return pod
		}
	}
}

// selectedNode is the scheduler's order to make a volume for a node.
const selectedNode = "volume.kubernetes.io/selected-node"

// callOff takes back the order to make volumes, as a driver does that cannot. The scheduler then gives up the node.
func (a *asker) callOff(pod *corev1.Pod) {
	a.t.Helper()
	patch := expect.ToJSON(a.t, map[string]any{"metadata": map[string]any{"annotations": map[string]any{selectedNode: nil}}})
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		if !a.ordered(pod.Namespace, v.PersistentVolumeClaim.ClaimName) {
			continue
		}
		_, err := a.client.CoreV1().PersistentVolumeClaims(pod.Namespace).Patch(a.ctx, v.PersistentVolumeClaim.ClaimName,
			types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			a.t.Fatal(err)
		}
	}
}

// ordered waits until a claim has a volume or its volume is ordered, and says whether it is ordered.
func (a *asker) ordered(namespace, name string) bool {
	a.t.Helper()
	w, err := a.client.CoreV1().PersistentVolumeClaims(namespace).Watch(a.ctx,
		metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		a.t.Fatal(err)
	}
	defer w.Stop()
	late := time.After(schedulertest.Patience)
	for {
		select {
		case event := <-w.ResultChan():
			claim, ok := event.Object.(*corev1.PersistentVolumeClaim)
			if !ok {
				a.t.Fatalf("watch of claim %s: %v", name, event)
			}
			if claim.Spec.VolumeName != "" {
				return false
			}
			if claim.Annotations[selectedNode] != "" {
				return true
			}
		case <-late:
			a.t.Fatalf("nothing happens to claim %s", name)
		}
	}
}
