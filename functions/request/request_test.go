package request_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/functions/request"
	"github.com/rehome-dev/rehome/schemas"
)

func pod(name string, rules ...string) schemas.ScopedPod {
	p := schemas.ScopedPod{Pod: corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{NodeName: "worker-1"},
	}}
	for _, r := range rules {
		p.Protected = append(p.Protected, schemas.Protection{Rule: r, Detail: "it is"})
	}
	return p
}

func intent(name, reason string) schemas.Intent {
	return schemas.Intent{
		Pod:  schemas.PodRef{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)},
		Node: "worker-1", Reason: reason,
	}
}

func TestDecide(t *testing.T) {
	ended := pod("ended")
	ended.Pod.Status.Phase = corev1.PodFailed
	of := func(i schemas.Intent) schemas.Intent {
		i.Asked = &schemas.Asked{Method: schemas.UseEvict, DryRun: true, Override: []string{"DaemonSetPods"}}
		return i
	}
	gone := intent("ended", "asked for by admin: why")
	gone.Ended = true
	for _, c := range []struct {
		name    string
		request schemas.Request
		pods    []schemas.ScopedPod
		want    []schemas.Intent
	}{
		{"no pods", schemas.Request{Sender: "admin", Reason: "why"}, nil, nil},
		{
			"unprotected pods in their order", schemas.Request{Sender: "admin", Reason: "why"},
			[]schemas.ScopedPod{pod("b"), pod("a", "DaemonSetPods"), pod("c")},
			[]schemas.Intent{intent("b", "asked for by admin: why"), intent("c", "asked for by admin: why")},
		},
		{
			"ended pod", schemas.Request{Sender: "admin", Reason: "why"},
			[]schemas.ScopedPod{ended}, []schemas.Intent{gone},
		},
		{
			"options and requester",
			schemas.Request{
				Sender: "http", Requester: "Robin", Reason: "why", Method: schemas.UseEvict, DryRun: true,
				Override: []string{"DaemonSetPods"},
			},
			[]schemas.ScopedPod{pod("a")}, []schemas.Intent{of(intent("a", "asked for by http for Robin: why"))},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := request.Args{}.Decide(schemas.RequestScope{Request: c.request, Pods: c.pods})
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}
