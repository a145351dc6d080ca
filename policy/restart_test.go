package policy

import (
	"reflect"
	"testing"
	"time"
)

func TestRestartsDefaultOff(t *testing.T) {
	usual := Restart{Workloads: RestartAnnotated, Method: RolloutRestart, Annotation: DefaultRestartAnnotation,
		Otherwise: OtherwiseEvict, Cooldown: DefaultRestartCooldown}
	for _, c := range []struct {
		name, text string
		want       Restart
	}{
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
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := parse(t, c.text).Restart; !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestEvictionRequestsSection(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       time.Duration
	}{
		{"a file that says nothing makes none", start, 0},
		{"null says nothing", start + "evictionRequests: null", 0},
		{"a file of the descheduler makes none", "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy", 0},
		{"a section has a default", start + "evictionRequests: {}", 30 * time.Second},
		{"the wait can be set", start + "evictionRequests: {wait: 1h}", time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := parse(t, c.text).EvictionRequests.Wait; got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
