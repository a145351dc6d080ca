package objects

import (
	"crypto/sha256"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// complete fills in what the API server would have filled in, as far as something rests on it.
func complete(object metav1.Object) {
	switch o := object.(type) {
	case *corev1.Pod:
		if o.Namespace == "" {
			o.Namespace = metav1.NamespaceDefault
		}
		identify(o, "Pod")
	case *corev1.Node:
		identify(o, "Node")
	}
}

// identify derives a UID from kind, namespace and name if there is none.
func identify(o metav1.Object, kind string) {
	if o.GetUID() != "" {
		return
	}
	sum := sha256.Sum256([]byte(kind + "/" + o.GetNamespace() + "/" + o.GetName()))
	o.SetUID(types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])))
}
