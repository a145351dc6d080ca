package functions

import (
	"reflect"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

func TestPublishedExamples(t *testing.T) {
	byName := map[string]Function{}
	for _, f := range Hosted() {
		byName[f.Strategy.Name] = f
	}
	got := map[string][]string{}
	for _, e := range schematest.Examples(t) {
		if e.Event.Type != schemas.ScopeType {
			continue
		}
		head := schematest.Decode[schemas.ScopeHead](t, e.Event)
		answer, err := byName[head.Strategy].Evaluate(e.Event)
		if err != nil {
			t.Errorf("%s: %v", e.Name, err)
		}
		for _, i := range answer.Intents {
			got[e.Name] = append(got[e.Name], i.Pod.String()+" from "+i.Node+": "+i.Reason)
		}
	}
	const taint = " from worker-7: does not tolerate dedicated=gpu:NoSchedule"
	want := map[string][]string{
		"scope": {"shop/cart-0" + taint, "web/api-5d8f7c9b6d-2xkqv" + taint, "web/login-6f9c7d8b54-vt8zn" + taint},
		"scope-request": {
			"shop/cart-1 from worker-9: asked for by admin for Robin of the platform team: its fan is replaced at noon",
		},
		"scope-pod": {"batch/report-29387100-kx7wd from worker-4: failed: Evicted; 1h old"},
		"scope-workload": {
			"web/api-5d8f7c9b6d-h5q2w from worker-3: 2 of 2 pods of ReplicaSet api-5d8f7c9b6d run on worker-3, " +
				"where at most 1 should: 2 nodes could run them",
		},
		"scope-spread": {
			"shop/search-7c5d9b8f64-4xw9q from worker-1: zone eu-west-1a has 2 pods, eu-west-1b has 0: " +
				"more than 1 apart (topology.kubernetes.io/zone)",
		},
		"scope-domain": {
			"web/login-6f9c7d8b54-vt8zn from worker-2: its anti-affinity forbids it beside web/login-6f9c7d8b54-c8n3p " +
				"(topology kubernetes.io/hostname)",
		},
		"scope-usage": {
			"shop/search-7c5d9b8f64-4xw9q from worker-1: worker-1 is over-used: cpu 80.1 % of 70 %, memory 76.7 % of 70 %",
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("pods to move:\ngot  %q\nwant %q", got, want)
	}
}
