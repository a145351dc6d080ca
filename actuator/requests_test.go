package actuator

import (
	"cmp"
	"reflect"
	"testing"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// requested returns an intent of a request with options.
func requested(asked schemas.Asked) Intent {
	o := wish()
	o.Strategy, o.Asked = schemas.RequestStrategy, &asked
	return o
}

func TestAskedIgnoresStrategies(t *testing.T) {
	everything := schemas.Asked{Method: schemas.UseEvict, DryRun: true, Override: []string{policy.DaemonSetPods}}
	other := wish()
	other.Asked = &everything
	pod := ownedPod("api-0", "uid-0", "d")
	pod.OwnerReferences[0].Kind = "DaemonSet"
	p := enabling(policy.Rate{}, other.Strategy)
	p.Known = map[string]policy.Traits{other.Strategy: {Priority: policy.PriorityNode}}
	a := New(Config{Policy: p})
	type seen struct {
		dry      bool
		rejected schemas.ReasonCode
		priority policy.Priority
	}
	look := func(o Intent) seen {
		r := cmp.Or(a.judge(o, pod, noon), new(move.Refusal))
		return seen{a.isDryRun(o), r.Reason, a.policy.Load().Traits(o.Strategy).Priority}
	}
	foreign := requested(everything)
	foreign.Profile = "another"
	got := []seen{look(other), look(requested(schemas.Asked{})), look(requested(everything)), look(foreign)}
	want := []seen{
		{false, schemas.ReasonProtected, policy.PriorityNode}, {false, schemas.ReasonProtected, policy.PriorityManual},
		{true, "", policy.PriorityManual}, {true, schemas.ReasonProfileUnknown, policy.PriorityManual},
	}
	expect.Equal(t, "result", got, want)
}

func TestRequestMethodEvict(t *testing.T) {
	a := New(Config{Policy: policy.Policy{Restart: policy.Restart{Workloads: policy.RestartAll}}})
	var got []int
	for _, o := range []Intent{wish(), requested(schemas.Asked{}), requested(schemas.Asked{Method: schemas.UseEvict})} {
		got = append(got, len(a.choices(o))-1)
	}
	if want := []int{1, 1, 0}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v ways before an eviction, want %v", got, want)
	}
}

func TestMaintenancePrefersRestart(t *testing.T) {
	i := wish()
	other := i.Strategy
	for _, c := range []struct {
		strategy string
		policy   policy.Maintenance
		want     int
	}{
		{schemas.MaintenanceStrategy, policy.Maintenance{}, 2},
		{schemas.MaintenanceStrategy, policy.Maintenance{Restart: new(bool)}, 1},
		{other, policy.Maintenance{}, 1},
	} {
		a := New(Config{Policy: policy.Policy{Maintenance: c.policy}})
		i.Strategy = c.strategy
		if got := len(a.choices(i)); got != c.want {
			t.Errorf("%s with %+v: got %d methods, want %d", c.strategy, c.policy, got, c.want)
		}
	}
}
