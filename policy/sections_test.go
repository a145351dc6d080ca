package policy

import (
	"reflect"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// section is a policy, and a part of it.
type section[T any] struct {
	name, text string
	want       T
}

// compareSections reads policies, and compares a part of each.
func compareSections[T any](t *testing.T, part func(Policy) T, sections []section[T]) {
	t.Helper()
	for _, s := range sections {
		t.Run(s.name, func(t *testing.T) {
			if got := part(parse(t, s.text)); !reflect.DeepEqual(got, s.want) {
				t.Errorf("got  %+v\nwant %+v", got, s.want)
			}
		})
	}
}

// compareWritten compares sections that only Version has, also after the policy was written and read again.
func compareWritten[T any](t *testing.T, part func(Policy) T, sections []section[T]) {
	t.Helper()
	compareSections(t, part, sections)
	for _, s := range sections {
		p := parse(t, s.text)
		text, err := p.Format(Version)
		expect.Must(t, err)
		if again := part(parse(t, string(text))); !reflect.DeepEqual(again, s.want) {
			t.Errorf("%s: read back from\n%s: got %+v\nwant %+v", s.name, text, again, s.want)
		}
		if _, err := p.Format(DeschedulerVersion); (err == nil) != reflect.ValueOf(s.want).IsZero() {
			t.Errorf("%s: as a file of the descheduler: got error %v", s.name, err)
		}
	}
}

func TestCircuitBreakerDefaults(t *testing.T) {
	loop, storm := DefaultCircuitBreakers().Workload, DefaultCircuitBreakers().Cluster
	compareSections(t, func(p Policy) CircuitBreakers { return p.CircuitBreakers }, []section[CircuitBreakers]{
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
	})
}

func TestNamespaceRate(t *testing.T) {
	compareSections(t, func(p Policy) Rate { return p.Rate }, []section[Rate]{
		{"none by default", start + "rate: {burst: 3}", Rate{EvictionsPerSecond: 10, Burst: 3}},
		{"null means no rate", start + "rate: {perNamespace: null}", DefaultRate()},
		{"both parts", start + "rate: {perNamespace: {evictionsPerSecond: 0.5, burst: 1}}",
			Rate{EvictionsPerSecond: 10, Burst: 10, PerNamespace: &NamespaceRate{EvictionsPerSecond: 0.5, Burst: 1}}},
		{"a part keeps the default of the rest, whatever the rate of all is",
			start + "rate: {evictionsPerSecond: 1, burst: 1, perNamespace: {burst: 5}}",
			Rate{EvictionsPerSecond: 1, Burst: 1, PerNamespace: &NamespaceRate{EvictionsPerSecond: 10, Burst: 5}}},
	})
}

func TestRestartsDefaultOff(t *testing.T) {
	usual := Restart{Workloads: RestartAnnotated, Method: RolloutRestart, Annotation: DefaultRestartAnnotation,
		Otherwise: OtherwiseEvict, Cooldown: DefaultRestartCooldown}
	compareSections(t, func(p Policy) Restart { return p.Restart }, []section[Restart]{
		{"a file that says nothing", start, Restart{}},
		{"null says nothing", start + "restart: null", Restart{}},
		{"a file of the descheduler", "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy", Restart{}},
		{"an older file", "apiVersion: descheduler/v1alpha1\nkind: DeschedulerPolicy", Restart{}},
		{"a section has defaults", start + "restart: {workloads: Annotated}", usual},
		{"which may be written", start + "restart: {workloads: Annotated, blockedByBudget: false, method: RolloutRestart," +
			" annotation: kubectl.kubernetes.io/restartedAt, otherwise: Evict, cooldown: 10m}", usual},
		{"no cooldown is the default", start + "restart: {workloads: Annotated, cooldown: 0s}", usual},
		{"all of it", start + "restart: {workloads: All, blockedByBudget: true, method: Surge, annotation: restarted," +
			" otherwise: Skip, timeout: 24h, cooldown: 1s}",
			Restart{Workloads: RestartAll, BlockedByBudget: true, Method: Surge, Annotation: "restarted",
				Otherwise: OtherwiseSkip, Timeout: 24 * time.Hour, Cooldown: time.Second}},
	})
}

func TestEvictionRequestsSection(t *testing.T) {
	compareSections(t, func(p Policy) time.Duration { return p.EvictionRequests.Wait }, []section[time.Duration]{
		{"a file that says nothing makes none", start, 0},
		{"null says nothing", start + "evictionRequests: null", 0},
		{"a file of the descheduler makes none", "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy", 0},
		{"a section has a default", start + "evictionRequests: {}", 30 * time.Second},
		{"the wait can be set", start + "evictionRequests: {wait: 1h}", time.Hour},
	})
}
