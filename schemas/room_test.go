package schemas_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
)

// filled is n pods that are as large as pods are.
func filled(n int) (pods []schemas.ScopedPod) {
	for i := range n {
		pods = append(pods, schemas.ScopedPod{Pod: corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i), Labels: map[string]string{"a": strings.Repeat("b", 300)}},
		}})
	}
	return pods
}

func TestAListOfPodsThatIsReadHasRoomForThemAndNoMore(t *testing.T) {
	want := schemas.NodeScope{ScopeHead: schemas.ScopeHead{Kind: schemas.NodeKind, Key: "k"}, Pods: filled(20)}
	got, err := schemas.Decode[schemas.NodeScope](newEvent(t, want, schemas.Event{}))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, %v; want %+v", got, err, want)
	}
	if cap(got.Pods) != len(want.Pods) {
		t.Errorf("there is room for %d pods, want %d", cap(got.Pods), len(want.Pods))
	}
}

func TestAListOfPodsIsReadAsItIsWhateverElseLooksLikePods(t *testing.T) {
	decoys := strings.Repeat(`{"pod":{},"more":"`+strings.Repeat("x", 300)+`"},`, 5) + "{}"
	for name, test := range map[string]struct {
		list string
		want []schemas.ScopedPod
	}{
		"it is missing":     {``, nil},
		"it is null":        {`"pods":null,`, nil},
		"it is empty":       {`"pods":[],`, []schemas.ScopedPod{}},
		"it is a short one": {`"pods":[{},{}],`, make([]schemas.ScopedPod, 2)},
		"it is a long one":  {`"pods":[{},{},{},{},{},{},{},{},{}],`, make([]schemas.ScopedPod, 9)},
	} {
		e := schemas.Event{ID: "1", Type: schemas.ScopeType, Data: json.RawMessage(`{` + test.list + `"x":[` + decoys + `]}`)}
		got, err := schemas.Decode[schemas.NodeScope](e)
		if want := (schemas.NodeScope{Pods: test.want}); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v; want %+v", name, got, err, want)
		}
	}
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
				if _, err := schemas.DecodeHead(e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
