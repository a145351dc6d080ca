package schemas_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
)

// filled returns n pods of typical size.
func filled(n int) (pods []schemas.ScopedPod) {
	for i := range n {
		pods = append(pods, schemas.ScopedPod{Pod: corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i), Labels: map[string]string{"a": strings.Repeat("b", 300)}},
		}})
	}
	return pods
}

func BenchmarkDecodeScope(b *testing.B) {
	for _, pods := range []int{10, 110} {
		s := schemas.NodeScope{ScopeHead: schemas.ScopeHead{Kind: schemas.NodeKind, Key: "k"}, Pods: filled(pods)}
		e := newEvent(b, s, schemas.Event{})
		b.Run(fmt.Sprintf("all/pods=%d", pods), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := schemas.Decode[schemas.NodeScope](e); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("head/pods=%d", pods), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := schemas.Decode[schemas.ScopeHead](e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
