package simulate

import (
	"reflect"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// scopesOf returns a scope of every kind with one pod that is protected, or not.
func scopesOf(protected []schemas.Protection) []schemas.Payload {
	pod := schemas.ScopedPod{Protected: protected}
	pod.Pod.Name = "p"
	return []schemas.Payload{
		schemas.NodeScope{Pods: []schemas.ScopedPod{pod}},
		schemas.PodScope{Pod: pod},
		schemas.WorkloadScope{Pods: []schemas.ScopedPod{pod}},
		schemas.SpreadScope{Domains: []schemas.Domain{{Value: "z", Pods: []schemas.SpreadPod{{ScopedPod: pod, Fits: []string{"y"}}}}}},
		schemas.DomainScope{Pods: []schemas.ContendingPod{{ScopedPod: pod}}},
		schemas.UsageScope{Pods: []schemas.UsingPod{{ScopedPod: pod}}},
	}
}

func TestUnprotectedScopes(t *testing.T) {
	rules := []schemas.Protection{{Rule: "R", Detail: "d"}}
	scopes, bare := scopesOf(rules), scopesOf(nil)
	for i, s := range scopes {
		expect.Equal(t, "scope", unprotected(s), bare[i])
		if want := scopesOf(rules)[i]; !reflect.DeepEqual(s, want) {
			t.Errorf("the scope was changed to %+v", s)
		}
		if got := pods(s); len(got) != 1 || !reflect.DeepEqual(got[0].Protected, rules) || got[0].Pod.Name != "p" {
			t.Errorf("%T lists the pods %+v", s, got)
		}
	}
}
