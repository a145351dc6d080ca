package move

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/schemas"
)

// Live reads the pod of a move from the API server, never from a cache. When there is nothing left to move, the pod is nil
// and over says why in words: it is gone, also when another one has its name; it is being deleted; or it has ended.
func Live(ctx context.Context, client kubernetes.Interface, ref schemas.PodRef) (pod *corev1.Pod, over string, err error) {
	pod, err = client.CoreV1().Pods(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, "the pod is gone", nil
	case err != nil:
		return nil, "", fmt.Errorf("look at pod %s: %w", ref, err)
	case pod.UID != ref.UID:
		return nil, "the pod is gone; another one has its name", nil
	case pod.DeletionTimestamp != nil:
		return nil, "the pod is being deleted", nil
	case schemas.Ended(pod):
		return nil, "the pod has ended", nil
	}
	return pod, "", nil
}
