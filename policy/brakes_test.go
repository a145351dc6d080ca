package policy

import (
	"reflect"
	"testing"
	"time"
)

func TestBrakesAreReadOverTheirDefaults(t *testing.T) {
	loop, storm := DefaultBrakes().Loop, DefaultBrakes().Storm
	for _, c := range []struct {
		name, text string
		want       Brakes
	}{
		{"a file that says nothing has them", start, DefaultBrakes()},
		{"so has one of the peer", "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy", DefaultBrakes()},
		{"and an older one", "apiVersion: descheduler/v1alpha1\nkind: DeschedulerPolicy", DefaultBrakes()},
		{"and one with strategies", "apiVersion: descheduler/v1alpha1\nkind: DeschedulerPolicy\nstrategies: {}", DefaultBrakes()},
		{"empty sections change nothing", start + "brakes: {loop: {}, storm: {}}", DefaultBrakes()},
		{"null changes nothing", start + "brakes: {loop: {delay: null, maxDelay: }, storm: null}", DefaultBrakes()},
		{"a part keeps the rest", start + "brakes: {loop: {delay: 4h}, storm: {nodes: 5%}}", Brakes{
			Loop:  Loop{Delay: 4 * time.Hour, MaxDelay: 4 * time.Hour},
			Storm: Storm{Nodes: 5, Pending: 10, PendingFor: 2 * time.Minute, Failures: 50}}},
		{"the loop breaker can be off", start + "brakes: {loop: {delay: 0}}", Brakes{Loop: Loop{MaxDelay: 4 * time.Hour}, Storm: storm}},
		{"so can each condition of the storm brake", start + "brakes: {storm: {nodes: 0%, pending: 0, failures: 0%}}",
			Brakes{Loop: loop, Storm: Storm{PendingFor: 2 * time.Minute}}},
		{"all of it can be off", start + "brakes: {loop: {delay: 0, maxDelay: 0}, storm: {nodes: 0%, pending: 0, pendingFor: 0, failures: 0%}}",
			Brakes{}},
		{"the most there is", start + "brakes: {loop: {delay: 24h, maxDelay: 24h}," +
			" storm: {nodes: 100%, pending: 4294967295, pendingFor: 24h, failures: 100%}}",
			Brakes{Loop: Loop{Delay: 24 * time.Hour, MaxDelay: 24 * time.Hour},
				Storm: Storm{Nodes: 100, Pending: 4294967295, PendingFor: 24 * time.Hour, Failures: 100}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := parse(t, c.text).Brakes; !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}
