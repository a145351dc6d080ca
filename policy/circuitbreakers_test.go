package policy

import (
	"reflect"
	"testing"
	"time"
)

func TestCircuitBreakerDefaults(t *testing.T) {
	loop, storm := DefaultCircuitBreakers().Workload, DefaultCircuitBreakers().Cluster
	for _, c := range []struct {
		name, text string
		want       CircuitBreakers
	}{
		{"a file that says nothing has them", start, DefaultCircuitBreakers()},
		{"so has a file of the descheduler", "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy", DefaultCircuitBreakers()},
		{"and an older one", "apiVersion: descheduler/v1alpha1\nkind: DeschedulerPolicy", DefaultCircuitBreakers()},
		{"and one with strategies", "apiVersion: descheduler/v1alpha1\nkind: DeschedulerPolicy\nstrategies: {}", DefaultCircuitBreakers()},
		{"empty sections change nothing", start + "circuitBreakers: {workload: {}, cluster: {}}", DefaultCircuitBreakers()},
		{"null changes nothing", start + "circuitBreakers: {workload: {delay: null, maxDelay: }, cluster: null}", DefaultCircuitBreakers()},
		{"a part keeps the rest", start + "circuitBreakers: {workload: {delay: 4h}, cluster: {nodes: 5%}}", CircuitBreakers{
			Workload: WorkloadBreaker{Delay: 4 * time.Hour, MaxDelay: 4 * time.Hour},
			Cluster:  ClusterBreaker{Nodes: 5, Pending: 10, PendingFor: 2 * time.Minute, Failures: 50}}},
		{"the workload circuit breaker can be off", start + "circuitBreakers: {workload: {delay: 0}}", CircuitBreakers{Workload: WorkloadBreaker{MaxDelay: 4 * time.Hour}, Cluster: storm}},
		{"so can each condition of the cluster circuit breaker", start + "circuitBreakers: {cluster: {nodes: 0%, pending: 0, failures: 0%}}",
			CircuitBreakers{Workload: loop, Cluster: ClusterBreaker{PendingFor: 2 * time.Minute}}},
		{"all of it can be off", start + "circuitBreakers: {workload: {delay: 0, maxDelay: 0}, cluster: {nodes: 0%, pending: 0, pendingFor: 0, failures: 0%}}",
			CircuitBreakers{}},
		{"the most there is", start + "circuitBreakers: {workload: {delay: 24h, maxDelay: 24h}," +
			" cluster: {nodes: 100%, pending: 4294967295, pendingFor: 24h, failures: 100%}}",
			CircuitBreakers{Workload: WorkloadBreaker{Delay: 24 * time.Hour, MaxDelay: 24 * time.Hour},
				Cluster: ClusterBreaker{Nodes: 100, Pending: 4294967295, PendingFor: 24 * time.Hour, Failures: 100}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := parse(t, c.text).CircuitBreakers; !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}
