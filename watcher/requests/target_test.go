package requests

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// placed returns a pod of the namespace web on a node.
func placed(name, node string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID("uid-" + name)}}
	p.Spec.NodeName = node
	for _, change := range changes {
		change(p)
	}
	return p
}

// deployed makes the Deployment api the owner of a pod.
func deployed(p *corev1.Pod) {
	yes := true
	p.Labels = map[string]string{"app": "api", "pod-template-hash": "5d8f"}
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "api-5d8f", Controller: &yes, UID: "rs"}}
}

func TestTargetPods(t *testing.T) {
	stored := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pods := []*corev1.Pod{placed("a", "n1", deployed), placed("b", "n1", deployed), placed("c", "n2", deployed)}
	pods = append(pods,
		placed("ended", "n1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
		placed("pending", "", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "api"} }),
		placed("late", "n1", func(p *corev1.Pod) {
			p.Labels, p.CreationTimestamp = map[string]string{"app": "api"}, metav1.NewTime(stored.Add(11*time.Second))
		}),
		placed("other", "n1", func(p *corev1.Pod) { p.Namespace, p.Labels = "shop", map[string]string{"app": "api"} }),
	)
	cache, err := cluster.NewOffline(cluster.Nodes, cluster.Pods)
	expect.Must(t, err)
	for _, name := range []string{"n1", "n2"} {
		if err := cache.Set(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range pods {
		if err := cache.Set(p); err != nil {
			t.Fatal(err)
		}
	}
	all := policy.Sender{Name: "admin"}
	web := policy.Sender{Name: "web", Namespaces: []string{"web"}}
	labelled := func(namespace string) schemas.Target {
		return schemas.Target{Selector: &schemas.SelectorTarget{Namespace: namespace, Labels: "app=api"}}
	}
	for _, c := range []struct {
		name   string
		target schemas.Target
		sender policy.Sender
		want   []string
		no     schemas.ReceiptReason
	}{
		{"node", schemas.Target{Node: "n1"}, all, []string{"shop/other", "web/a", "web/b"}, ""},
		{"node, only allowed namespaces", schemas.Target{Node: "n1"}, web, []string{"web/a", "web/b"}, ""},
		{"unknown node", schemas.Target{Node: "n9"}, all, nil, schemas.ReceiptUnknownTarget},
		{"labels in all namespaces", labelled(""), all, []string{"shop/other", "web/a", "web/b", "web/c"}, ""},
		{"labels in a namespace", labelled("shop"), all, []string{"shop/other"}, ""},
		{"labels without a match", schemas.Target{Selector: &schemas.SelectorTarget{Labels: "x=y"}}, all, nil, ""},
		{
			"a Deployment's", schemas.Target{Workload: &schemas.WorkloadTarget{Kind: "Deployment", Namespace: "web", Name: "api"}}, all,
			[]string{"web/a", "web/b", "web/c"}, "",
		},
		{
			"a ReplicaSet's", schemas.Target{Workload: &schemas.WorkloadTarget{Kind: "ReplicaSet", Namespace: "web", Name: "api-5d8f"}},
			all, []string{"web/a", "web/b", "web/c"}, "",
		},
		{
			"a kind in lower case", schemas.Target{Workload: &schemas.WorkloadTarget{Kind: "replicaset", Namespace: "web", Name: "api-5d8f"}},
			all, []string{"web/a", "web/b", "web/c"}, "",
		},
		{
			"a Deployment in lower case", schemas.Target{Workload: &schemas.WorkloadTarget{Kind: "deployment", Namespace: "web", Name: "api"}},
			all, []string{"web/a", "web/b", "web/c"}, "",
		},
		{
			"workload without pods", schemas.Target{Workload: &schemas.WorkloadTarget{Kind: "Job", Namespace: "web", Name: "api"}},
			all, nil, schemas.ReceiptUnknownTarget,
		},
		{
			"names: duplicates, ended pod, other UID",
			schemas.Target{Pods: []schemas.PodTarget{
				{Namespace: "web", Name: "ended"}, {Namespace: "web", Name: "b", UID: "uid-b"}, {Namespace: "web", Name: "b"},
				{Namespace: "web", Name: "a", UID: "other"}, {Namespace: "web", Name: "pending"},
			}},
			all, []string{"web/b", "web/ended", "missing a", "missing pending"}, "",
		},
		{
			"unknown names", schemas.Target{Pods: []schemas.PodTarget{{Namespace: "web", Name: "x"}}}, all, nil,
			schemas.ReceiptUnknownTarget,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			found, missing, no := targetPods(cache, c.target, c.sender, stored)
			var got []string
			for _, p := range found {
				got = append(got, p.Namespace+"/"+p.Name)
			}
			for _, m := range missing {
				if no == nil {
					got = append(got, "missing "+m.Name)
				}
			}
			var reason schemas.ReceiptReason
			if no != nil {
				reason = no.Reason
			}
			if !reflect.DeepEqual(got, c.want) || reason != c.no {
				t.Errorf("got %q %s, want %q %s", got, reason, c.want, c.no)
			}
		})
	}
}
